"""Every product of axes trains as one process does: the oracle takes the data ranks' micro-batches one by one."""

import copy

import pytest
import torch
from pipeline.staged_models import batch, cut, resnet, skips
from torch import nn
from torch.nn import functional as F

from lockstep.comm import Mesh, MeshShape, bytes_by_axis, bytes_by_link
from lockstep.hardware import cluster
from lockstep.parallel import Hybrid, SyncBatchNorm2d
from lockstep.parallel.pipeline import gpipe, interleaved, naive, pipedream, zbv, zero_bubble
from lockstep.world import RankError, launch
from lockstep.world import simulate as simulate_quickly

# Which samples each data rank has in each step: uneven, fewer than micro-batches, none at all.
SHARES = {1: [[7], [5]], 2: [[6, 5], [2, 5]], 3: [[5, 4, 6], [4, 0, 5]], 4: [[4, 5, 3, 4], [2, 4, 0, 5]]}


def simulate(*arguments):
    return simulate_quickly(*arguments, timeout=60)


class Tied(nn.Module):
    """Two layers with one weight, one that does not learn, one that nobody uses, and one that is used by its weight."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.down.weight = self.up.weight
        self.frozen, self.unused = nn.Linear(width, width).requires_grad_(False), nn.Linear(width, 3)
        self.raw = nn.Linear(width, width)

    def forward(self, x):
        return self.frozen(self.down(self.up(x).tanh()) + F.linear(x, self.raw.weight))


def tied(chunks):
    """Linear layers in pairs and alone, around those of `Tied`."""
    torch.manual_seed(5)
    first = nn.Sequential(nn.Flatten(), nn.Linear(72, 9), nn.GELU(), nn.Linear(9, 6))
    return cut([first, Tied(6), nn.Sequential(nn.ReLU(), nn.Linear(6, 5)), nn.Linear(5, 5)], chunks)


def cases(world):
    """(net, axes, schedule, settings), each axis alone and in products."""
    p = world
    if p == 1:
        return [("resnet", {"data": 1}, gpipe(1, 3), {})]
    if p == 8:
        return [
            ("resnet", {"data": 2, "pipeline": 2, "tensor": 2}, zbv(2, 2), {}),
            ("tied", {"tensor": 2, "data": 2, "pipeline": 2}, zero_bubble(2, 3), {"bucket_bytes": 200}),
        ]
    found = [
        ("resnet", {"data": p}, naive(1, 2), {"bucket_bytes": 300}),
        ("skips", {"pipeline": p}, gpipe(p, 4), {"checkpoint": True}),
    ]
    if p != 3:
        found += [("tied", {"tensor": p, "data": 1}, gpipe(1, 2), {})]
    if p != 4:
        return [*found, ("resnet", {"tensor": p}, naive(1, 2), {})]
    return [
        *found,
        ("skips", {"tensor": 2, "pipeline": 2}, zbv(2, 3), {"ordered": True}),
        ("resnet", {"data": 2, "pipeline": 2}, interleaved(2, 4, 2), {"bucket_bytes": 300}),
        ("resnet", {"data": 2, "tensor": 2}, gpipe(1, 3), {"checkpoint": True}),
    ]


NETS = {"resnet": resnet, "skips": skips, "tied": tied}


@torch.no_grad()
def descend(parameters):
    """A step for which no gradient and a gradient of zero differ; torch's optimizers take seconds to import."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter -= 0.1 * (parameter.grad + 0.1 * parameter)
            parameter.grad = None


def shards(data, step):
    images, labels = batch(sum(SHARES[data][step]), seed=step)
    return list(zip(images.split(SHARES[data][step]), labels.split(SHARES[data][step]), strict=True))


def train(comm, first=0):
    """Per case: (losses, whole state after two steps of clipped gradients, their norms before) of this rank."""
    found = []
    for net, axes, schedule, settings in cases(comm.size)[first:]:
        stages = NETS[net](schedule.chunks)
        before = copy.deepcopy([stage.state_dict() for stage in stages])
        with torch.no_grad():
            for tensor in nn.ModuleList(stages).state_dict().values():
                tensor.add_(comm.rank)  # rank 0's are taken over
        mesh = Mesh(comm, axes)
        hybrid = Hybrid(stages, mesh, F.cross_entropy, schedule, **settings)
        losses, norms = [], []
        for step in range(2):
            images, labels = shards(axes.get("data", 1), step)[mesh.coordinates.get("data", 0)]
            loss = hybrid.step(images, labels)
            losses.append(None if loss is None else loss.item())
            norms.append(hybrid.clip_grad_norm_(0.5).item())
            descend(hybrid.parameters())
        if comm.rank == 0:  # what was given stays as it was
            for stage, state in zip(stages, before, strict=True):
                assert all(torch.equal(tensor, state[name]) for name, tensor in stage.state_dict().items())
        state = hybrid.full_state_dict()
        found.append((losses, state, norms))
        if comm.size == 8:  # what belongs to parameters, made whole and cut again
            whole = hybrid.gather({p: p for p in hybrid.parameters()})
            assert all(torch.equal(tensor, state[name]) for name, tensor in whole.items())
            parts = hybrid.cut(whole)
            assert all(torch.equal(parts[p], p) for p in hybrid.parameters())
    return found


def alone(stages, data, micro_batches):
    """(losses, state, norms of the gradients) of one process."""
    model = nn.Sequential(*stages)
    losses, norms = [], []
    for step in range(2):
        n = sum(SHARES[data][step])
        before = [buffer.clone() for buffer in model.buffers()]
        mean, total = [torch.zeros_like(buffer) for buffer in before], 0.0
        for images, labels in shards(data, step):
            for buffer, value in zip(model.buffers(), before, strict=True):
                buffer.copy_(value)
            pairs = zip(images.tensor_split(micro_batches), labels.tensor_split(micro_batches), strict=True)
            for x, y in pairs:
                if len(y):
                    loss = F.cross_entropy(model(x), y) * (len(y) / n)
                    loss.backward()
                    total += loss.item()
            for part, buffer in zip(mean, model.buffers(), strict=True):
                part += buffer * (len(labels) / n) if buffer.is_floating_point() else 0
        for buffer, part, value in zip(model.buffers(), mean, before, strict=True):
            buffer.copy_(part if buffer.is_floating_point() else value + micro_batches)
        losses.append(total)
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        descend(model.parameters())
    return losses, model.state_dict(), norms


def judge(values, world, first=0):
    for number, (net, axes, schedule, settings) in enumerate(cases(world)[first:]):
        what = f"{net} on {axes}, {schedule.name}, {settings}"
        losses, state, norms = alone(NETS[net](schedule.chunks), axes.get("data", 1), schedule.micro_batches)
        results = [value[number] for value in values]
        ends = [own for own, _, _ in results if own[0] is not None]
        assert len(ends) == world // axes.get("pipeline", 1), what
        assert all(own == pytest.approx(losses, rel=1e-10) for own in ends), what
        for _, own, own_norms in results:
            assert own.keys() == state.keys(), what
            for name, tensor in state.items():
                torch.testing.assert_close(own[name], tensor, rtol=1e-9, atol=1e-12, msg=f"{what}: {name}")
            assert own_norms == pytest.approx(norms, rel=1e-9), what


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_simulated_meshes_train_as_one_process(world):
    """With zero bubble a weight's gradient comes after backward has passed it, which once ended in the buckets' hook."""
    judge(simulate(train, world).values, world)


def test_meshes_of_processes_train_as_one_process():
    judge(launch(train, 4, 4, timeout=100).values, 4, first=4)


def accumulate(comm):
    """The first gradient after one step, and after another without a new beginning."""
    hybrid = Hybrid([nn.Linear(2, 1)], Mesh(comm, {"data": 2}), F.mse_loss)
    found = []
    for _ in range(2):
        hybrid.step(torch.full((2, 2), 1.0 + comm.rank), torch.zeros(2, 1))
        found.append(next(hybrid.parameters()).grad.clone())
    return found


def test_gradients_of_steps_add_up():
    for once, twice in simulate(accumulate, 2).values:
        torch.testing.assert_close(twice, 2 * once)


# Bytes


def linear_stages():
    torch.manual_seed(0)
    return [
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)),
        nn.Sequential(nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 3)),
    ]


def steps_of_six(comm, axes, steps):
    """That many steps of a pipeline of two with three micro-batches, six samples on each data rank."""
    hybrid = Hybrid(linear_stages(), Mesh(comm, axes), F.cross_entropy, gpipe(2, 3))
    for _ in range(steps):
        hybrid.step(torch.ones(6, 6), torch.zeros(6, dtype=torch.long))


def test_bytes_of_a_step_by_axis_and_by_link_are_those_of_the_formulas():
    axes = {"data": 2, "pipeline": 2, "tensor": 2}
    messages = [simulate(steps_of_six, 8, axes, steps).trace.messages for steps in (1, 2)]
    by_axis, by_link = (
        {key: after - once[key] for key, after in twice.items() if after > once[key]}  # without what begins a run
        for once, twice in (
            [bytes_by_axis(each, MeshShape(axes)) for each in messages],
            [bytes_by_link(each, cluster("4xA100 x 2")) for each in messages],
        )
    )
    # Ring all-reduce among p ranks: 2(p-1) times the tensor, over all of them. Each stage has four groups of two data
    # ranks and a half of all weights, with the flag that a gradient is missing; the number of samples goes to each of
    # the others, and the loss is averaged where it is.
    parameters = [24 + 4 + 16 + 4, 20 + 5 + 15 + 3]
    data = sum(2 * (4 * 2 * (n + 1)) for n in parameters) + 4 * (2 * 8) + 2 * (2 * 8)
    # Six samples of four features there and their gradients back, by four lines of ranks.
    pipeline = 4 * 2 * (6 * 4 * 4)
    # Each pair of layers: its output in forward, the gradient of its input in backward, which the images do not need.
    tensor = 2 * 2 * (6 * 4 * 4 + 6 * 3 * 4 + 6 * 4 * 4)
    assert by_axis == {("data",): data, ("pipeline",): pipeline, ("tensor",): tensor}
    assert by_link == {"within": pipeline + tensor, "between": data}


# What draws random numbers, and what looks at other ranks' samples


def dropping():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(72, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 8), nn.Dropout(0.25), nn.Sigmoid(), nn.Linear(8, 5)
    )


def drop(comm):
    """Per way to keep activations: (outputs of two forwards, gradients by name) where ranks draw different numbers."""
    found = []
    for checkpoint in (False, True):
        torch.manual_seed(10 + comm.rank)
        stages, mesh = [nn.Sequential(nn.Flatten(), dropping())], Mesh(comm, {"tensor": 2})
        hybrid = Hybrid(stages, mesh, F.cross_entropy, gpipe(1, 2), checkpoint=checkpoint)
        images, labels = batch(8)
        hybrid.step(images.float(), labels)
        module = hybrid.stages[0].module
        outputs = [module(images.float()).detach() for _ in range(2)]
        found.append((outputs, {name: p.grad for name, p in module.named_parameters()}))
    return found, hybrid.stages[0].plan.shared


def test_dropout_drops_the_same_of_a_whole_tensor_and_other_things_of_a_split_one():
    ((kept, again), shared), ((other, _), _) = simulate(drop, 2).values
    assert {name for name, how in shared.items() if how == "alike"} == {"1.4"}
    assert torch.equal(kept[0][0], other[0][0]) and not torch.equal(kept[0][0], kept[0][1])
    assert torch.equal(kept[1]["1.3.bias"], other[1]["1.3.bias"])  # whole on both ranks, and without communication
    for name, gradient in kept[1].items():  # forward runs again in backward, and draws the same
        assert torch.equal(gradient, again[1][name])


def synced(comm):
    """State after one step of a model that normalises over data ranks."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 5)).double()
    mesh = None if comm is None else Mesh(comm, {"data": 2, "tensor": 2})
    if comm is not None:
        SyncBatchNorm2d.convert(model, mesh["data"])
    images, labels = batch(7)
    if comm is None:
        F.cross_entropy(model(images), labels).backward()
        descend(model.parameters())
        return {f"0.{name}": tensor for name, tensor in model.state_dict().items()}
    hybrid = Hybrid([model], mesh, F.cross_entropy, naive(1, 1))
    place = mesh.coordinates["data"]
    hybrid.step(images[5 * place :][: 5 - 3 * place], labels[5 * place :][: 5 - 3 * place])
    descend(hybrid.parameters())
    return hybrid.full_state_dict()


def test_batch_norm_over_data_ranks_has_the_whole_batch():
    expected = synced(None)
    for state in simulate(synced, 4).values:
        for name, tensor in expected.items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-9, atol=1e-12, msg=name)


# Errors


def build(comm, which):
    axes = {"axis": {"data": 2, "modle": 1}, "product": {"data": 3}, "data": {"data": 2}, "empty": {"data": 2}}
    mesh = Mesh(comm, axes.get(which, {"pipeline": 2}))
    stages, schedule = [nn.Linear(2, 2), nn.Linear(2, 2)], None
    if which == "few":
        stages = stages[:1]
    elif which == "many":
        stages = stages * 2
    elif which == "schedule":
        schedule = gpipe(3, 2)
    elif which == "name":
        schedule = "1f1b"
    elif which == "model":
        stages = stages[0]
    elif which == "pipedream":
        schedule = pipedream(2, 2)
    elif which == "tied":
        stages[1] = stages[0]
    elif which == "none":
        stages[1 - comm.rank] = None
    elif which == "models":
        stages[0] = nn.Linear(2, 2, bias=comm.rank == 0)
    elif which in ("data", "empty"):
        stages, schedule = stages[:1], gpipe(1, 4)
    hybrid = Hybrid(stages, comm if which == "mesh" else mesh, F.mse_loss, schedule)
    samples = {"samples": 1, "data": 3 - comm.rank, "empty": 0}.get(which, 4)
    hybrid.step(torch.ones(samples, 2), torch.ones(samples, 2), [3, 2] if which == "sizes" else None)
    hybrid.clip_grad_norm_(-1.0)


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("mesh", r'mesh is .*: give Mesh\(comm, {"data": 2'),
        ("product", "the mesh data=3 has 3 ranks, and there are 2"),
        ("axis", "the mesh has an axis 'modle': there are data, pipeline and tensor"),
        ("few", "1 stages cannot be shared out to 2 pipeline ranks"),
        ("many", "1F1B has 2 chunks, and there are 4 stages"),
        ("schedule", "GPipe is for 3 ranks, and the mesh has 2 along its pipeline"),
        ("name", r"schedule is '1f1b': give a Schedule, such as gpipe\(2, micro_batches=4\)"),
        ("model", r"stages is Linear.*: give a list of modules, such as \[model\] or model.stages\(\)"),
        ("pipedream", "PipeDream updates weights between micro-batches"),
        ("tied", "stages 0 and 1 share the parameter weight"),
        ("none", r"stage \d is None: give every rank all stages"),
        ("models", "The ranks' models differ: rank 0 has parameter 0.bias"),
        ("samples", "at most 1 samples on a data rank: 2 micro-batches need at least one each"),
        ("data", "at most 3 samples on a data rank: 4 micro-batches need at least one each"),
        ("empty", "no samples on any rank: 4 micro-batches"),
        ("sizes", r"sizes are \[3, 2\]: 2 micro-batches of 4 samples in all are 2 numbers of at least 0 that add up"),
        ("clip", "max_norm is -1.0: it is a number above 0"),  # it once turned every gradient round
    ],
)
def test_what_does_not_fit_is_answered_with_a_sentence(which, says):
    with pytest.raises(RankError, match=says):
        simulate(build, 2, which)
