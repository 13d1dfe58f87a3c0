"""Every product of axes trains as one process does: the oracle takes the data ranks' micro-batches one by one."""

import copy

import pytest
import torch
from pipeline.staged_models import batch, cut, resnet, skips
from torch import nn
from torch.nn import functional as F

from lockstep.comm import Mesh
from lockstep.parallel import Hybrid
from lockstep.parallel.pipeline import gpipe, interleaved, naive, one_f_one_b, zbv, zero_bubble
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
            ("resnet", {"data": 2, "pipeline": 2, "tensor": 2}, one_f_one_b(2, 3), {}),
            ("tied", {"tensor": 2, "data": 2, "pipeline": 2}, zero_bubble(2, 3), {"bucket_bytes": 200}),
        ]
    found = [
        ("resnet", {"data": p}, naive(1, 2), {"bucket_bytes": 300}),
        ("skips", {"pipeline": p}, gpipe(p, 4), {"checkpoint": True}),
        ("resnet", {"tensor": p}, naive(1, 2), {}),
        ("tied", {"tensor": p, "data": 1}, gpipe(1, 2), {}),
    ]
    if p == 4:
        found += [
            ("resnet", {"data": 2, "pipeline": 2}, interleaved(2, 4, 2), {"bucket_bytes": 300}),
            ("skips", {"tensor": 2, "pipeline": 2}, zbv(2, 3), {"ordered": True}),
            ("tied", {"pipeline": 2, "data": 2}, zero_bubble(2, 3), {}),
            ("resnet", {"data": 2, "tensor": 2}, gpipe(1, 3), {"checkpoint": True}),
        ]
    return found


NETS = {"resnet": resnet, "skips": skips, "tied": tied}


def sgd(parameters):
    """For which no gradient and a gradient of zero differ."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)


def shards(data, step):
    images, labels = batch(sum(SHARES[data][step]), seed=step)
    return list(zip(images.split(SHARES[data][step]), labels.split(SHARES[data][step]), strict=True))


def train(comm):
    """Per case: (losses, whole state after two steps, the gradients' norm) of this rank."""
    found = []
    for net, axes, schedule, settings in cases(comm.size):
        stages = NETS[net](schedule.chunks)
        before = copy.deepcopy([stage.state_dict() for stage in stages])
        with torch.no_grad():
            for tensor in nn.ModuleList(stages).state_dict().values():
                tensor.add_(comm.rank)  # rank 0's are taken over
        mesh = Mesh(comm, axes)
        hybrid = Hybrid(stages, mesh, F.cross_entropy, schedule, **settings)
        optimizer, losses = sgd(hybrid.parameters()), []
        for step in range(2):
            optimizer.zero_grad()
            images, labels = shards(axes.get("data", 1), step)[mesh.coordinates.get("data", 0)]
            loss = hybrid.step(images, labels)
            losses.append(None if loss is None else loss.item())
            optimizer.step()
        if comm.rank == 0:  # what was given stays as it was
            for stage, state in zip(stages, before, strict=True):
                assert all(torch.equal(tensor, state[name]) for name, tensor in stage.state_dict().items())
        found.append((losses, hybrid.full_state_dict(), hybrid.clip_grad_norm_(0.5).item()))
    return found


def alone(stages, data, micro_batches):
    """(losses, state, norm of the last gradients) of one process."""
    model = nn.Sequential(*stages)
    optimizer, losses = sgd(model.parameters()), []
    for step in range(2):
        optimizer.zero_grad()
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
        optimizer.step()
        losses.append(total)
    squares = [p.grad.square().sum() for p in model.parameters() if p.grad is not None]
    return losses, model.state_dict(), sum(squares).sqrt().item()


def judge(values, world):
    for number, (net, axes, schedule, settings) in enumerate(cases(world)):
        what = f"{net} on {axes}, {schedule.name}, {settings}"
        losses, state, norm = alone(NETS[net](schedule.chunks), axes.get("data", 1), schedule.micro_batches)
        results = [value[number] for value in values]
        ends = [own for own, _, _ in results if own[0] is not None]
        assert len(ends) == world // axes.get("pipeline", 1), what
        assert all(own == pytest.approx(losses, rel=1e-10) for own in ends), what
        for _, own, own_norm in results:
            assert own.keys() == state.keys(), what
            for name, tensor in state.items():
                torch.testing.assert_close(own[name], tensor, rtol=1e-9, atol=1e-12, msg=f"{what}: {name}")
            assert own_norm == pytest.approx(norm, rel=1e-9), what


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_simulated_meshes_train_as_one_process(world):
    judge(simulate(train, world).values, world)
