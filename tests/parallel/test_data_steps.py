"""What one data-parallel step does: which buckets travel when, where gradients lie, and a sentence for what cannot be."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lockstep.comm import AllReduce, CommunicationError
from lockstep.cost import LayerCost
from lockstep.parallel import DistributedDataParallel, make_buckets
from lockstep.world import RankError, launch, simulate

MIB = 2**20


def layers(count=3):
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))


def all_reduces(run):
    return sorted(
        (span for span in run.trace.spans if span.kind == "collective" and span.rank == 0), key=lambda s: s.end
    )


def test_buckets_close_when_they_reach_the_cap():
    twelve = [torch.empty(MIB, device="meta") for _ in range(12)]
    sizes = [4 * len(bucket) for bucket in make_buckets(twelve, 25 * 10**6)]
    assert sizes == [24, 24]  # 25 MB are less than 24 MiB
    assert [4 * len(bucket) for bucket in make_buckets(twelve, 25 * MIB)] == [28, 20]  # torch with an explicit cap
    assert [4 * len(bucket) for bucket in make_buckets(twelve, 25 * MIB, MIB)] == [4, 28, 16]  # torch's default
    assert make_buckets(twelve[:3], 1) == [[2], [1], [0]]
    assert make_buckets([], 1) == []


def test_a_bucket_has_one_dtype_and_is_ordered_by_its_last_gradient():
    half, full = torch.empty(4, dtype=torch.float16), torch.empty(4)
    assert make_buckets([half, full, half, full, full], 2**20) == [[4, 3, 1], [2, 0]]
    assert make_buckets([half, full, half, full, full], 16) == [[4], [3], [1], [2, 0]]


@pytest.mark.parametrize("cap", [0, -1, 2.5, True, None])
def test_a_cap_that_is_no_number_of_bytes_is_refused(cap):
    with pytest.raises(ValueError, match=f"bucket_bytes is {cap}"):
        make_buckets([torch.empty(1)], cap)


def step_twice(comm):
    ddp = DistributedDataParallel(layers(), comm, bucket_bytes=80)
    places = []
    for set_to_none in (True, False):
        ddp.zero_grad(set_to_none=set_to_none)
        ddp(torch.ones(1, 4)).sum().backward()
        places += [(p.grad.untyped_storage().data_ptr(), p.grad.storage_offset()) for p in ddp.parameters()]
    return ddp.buckets, places


def test_gradients_are_views_into_one_tensor_a_bucket():
    buckets, places = simulate(step_twice, 2).values[0]
    assert buckets == [["2.bias", "2.weight"], ["1.bias", "1.weight"], ["0.bias", "0.weight"]]
    first, second = places[:6], places[6:]
    assert first == second and len({storage for storage, _ in first}) == 3
    assert [offset for _, offset in first] == [4, 0] * 3


def plain_and_accumulating(comm):
    ddp = DistributedDataParallel(layers(), comm, bucket_bytes=80)
    comm.barrier()
    with ddp.no_sync():
        ddp(torch.ones(1, 4)).sum().backward()
    comm.barrier()
    ddp(torch.ones(1, 4)).sum().backward()


def test_a_step_is_one_collective_a_bucket_and_none_while_it_accumulates():
    # The cheap test of FAULTS like "reductions fire during accumulation": they are counted, not timed.
    names = [span.name for span in all_reduces(simulate(plain_and_accumulating, 2))]
    start = names.index("barrier")
    assert names[start:] == ["barrier", "barrier", "all_reduce", "all_reduce", "all_reduce"]


def charged(comm, overlap):
    ddp = DistributedDataParallel(layers(), comm, bucket_bytes=80, overlap=overlap)
    comm.charge(ddp.module, {str(i): LayerCost(1e-3, 1e-3) for i in range(3)})
    comm.barrier()
    begun = comm.now()
    ddp(torch.ones(1, 4)).sum().backward()
    return begun, comm.now()


def test_buckets_travel_while_backward_goes_on():
    hidden, exposed = simulate(charged, 2, overlap=True), simulate(charged, 2, overlap=False)
    reduced = all_reduces(hidden)[-3:]
    backward = [span for span in hidden.trace.spans if span.rank == 0 and span.name.startswith("backward")]
    assert [span.stream for span in reduced] == [1, 1, 1]
    assert [span.name for span in backward] == ["backward 2", "backward 1", "backward 0"]
    assert reduced[0].start == backward[0].end and reduced[0].end < backward[1].end
    (begun, ended), (begun_late, ended_late) = hidden.values[0], exposed.values[0]
    assert ended == pytest.approx(begun + 6e-3 + reduced[2].seconds)  # the last bucket has nothing to hide behind
    assert ended_late > begun_late + 6e-3 + 2 * reduced[2].seconds
    assert all_reduces(exposed)[-3].start == pytest.approx(begun_late + 6e-3)


class Different(nn.Module):
    """A model that depends on who builds it."""

    def __init__(self, rank, how):
        super().__init__()
        odd = rank == 1
        self.fc = nn.Linear(3, 5 if odd and how == "shape" else 4)
        if odd and how == "number":
            self.more = nn.Linear(4, 4)
        if odd and how == "dtype":
            self.double()
        if odd and how == "frozen":
            self.fc.bias.requires_grad_(False)
        if odd and how == "buffer":
            self.register_buffer("count", torch.zeros(2))


def build_differently(comm):
    said = {}
    for how in ("number", "shape", "dtype", "frozen", "buffer", "cap"):
        try:
            cap = 100 + comm.rank if how == "cap" else 100
            DistributedDataParallel(Different(comm.rank, how), comm, bucket_bytes=cap)
        except CommunicationError as error:
            said[how] = str(error)
    return said


@pytest.mark.parametrize("world", [launch, simulate])
def test_ranks_with_different_models_are_told_where_they_differ(world):
    values = world(build_differently, 3).values
    assert values[0] == values[1] == values[2]
    said = values[0]
    assert "has nothing more" not in said["number"].split("where")[1] and "2 parameters against 4" in said["number"]
    assert "parameter fc.weight float32[4, 3] where rank 1 has parameter fc.weight float32[5, 3]" in said["shape"]
    assert "float64[4, 3]" in said["dtype"] and "fc.bias float32[4], frozen" in said["frozen"]
    assert "buffer count float32[2]" in said["buffer"] and "bucket_bytes=101" in said["cap"]
    assert all("on every rank" in words for words in said.values())


def bad_arguments(comm):
    said = []
    with torch.device("meta"):
        elsewhere = nn.Linear(2, 2)
    for arguments in (
        (nn.functional.relu, comm),
        (nn.Linear(2, 2), None),
        (nn.LazyLinear(2), comm),
        (nn.Embedding(3, 2, sparse=True), comm),
        (elsewhere, comm),
        (nn.Linear(2, 2), comm, 0),
    ):
        try:
            DistributedDataParallel(*arguments)
        except (TypeError, ValueError, CommunicationError) as error:
            said.append(str(error))
    return said


def test_arguments_that_make_no_sense_get_a_sentence():
    words = ("model is", "comm is None", "has no shape yet", "sparse=False", "is on meta", "bucket_bytes is 0")
    said = simulate(bad_arguments, 1).values[0]
    assert len(said) == len(words) and all(word in text for word, text in zip(words, said, strict=True))


def without_data(comm):
    ddp = DistributedDataParallel(nn.Linear(4, 1), comm)
    loader = [torch.ones(2, 4)] * comm.rank
    try:
        for batch in ddp.batches(loader):
            ddp(batch).mean().backward()
    except CommunicationError as error:
        return str(error)


@pytest.mark.parametrize("world", [launch, simulate])
def test_a_rank_without_data_is_a_sentence_on_every_rank(world):
    said = world(without_data, 3).values
    assert all("1 of 3 ranks have no data" in words for words in said)
    assert ["this one among them" in words for words in said] == [True, False, False]


def test_a_batch_without_tensors_is_refused():
    def program(comm):
        next(iter(DistributedDataParallel(nn.Linear(4, 1), comm).batches(["cat.png"])))

    with pytest.raises(RankError, match="a batch of this loader is a str without a tensor"):
        simulate(program, 2)


def batches_of_many_kinds(comm):
    # A rank that has run out gets the same structure without samples.
    ddp = DistributedDataParallel(nn.Linear(4, 1), comm)
    kinds = [{"x": torch.ones(2, 4), "more": (torch.ones(2), ["name", torch.tensor(3)])}, torch.ones(0, 4)]
    kinds += [{"x": torch.ones(2, 4), "more": (torch.ones(2), ["name", torch.tensor(3)])}] * (comm.rank == 0)
    seen = []
    for batch in ddp.batches(kinds):
        x = batch["x"] if isinstance(batch, dict) else batch
        ddp(x).sum().backward()
        seen.append((len(x), isinstance(batch, dict)))
    return seen


def test_empty_batches_are_steps_like_any_other():
    assert simulate(batches_of_many_kinds, 2).values == [
        [(2, True), (0, False), (2, True)],
        [(2, True), (0, False), (0, False)],
    ]


def test_unequal_batches_that_miss_the_wrapper_are_refused():
    # Their gradients would be averaged without their weights: a wrong number, and nothing to see.
    def program(comm):
        ddp = DistributedDataParallel(nn.Linear(4, 1), comm)
        for batch in ddp.batches([torch.ones(1 + comm.rank, 4)]):
            ddp.module(batch).mean().backward()

    with pytest.raises(RankError, match="Call the wrapper itself"):
        simulate(program, 2)


def test_a_gradient_that_arrives_twice_is_refused():
    # A layer used inside and outside a reentrant checkpoint: its bucket would be sent before it is complete.
    def program(comm):
        model = nn.Linear(4, 4)
        ddp = DistributedDataParallel(model, comm)
        ddp.module.forward = lambda x: nn.functional.linear(
            checkpoint(lambda y: nn.functional.linear(y, model.weight), x, use_reentrant=True), model.weight, model.bias
        )
        ddp(torch.ones(1, 4, requires_grad=True)).sum().backward()

    with pytest.raises(RankError, match="arrived twice in one backward.*use_reentrant=False"):
        simulate(program, 2)


def fails_once(comm):
    ddp = DistributedDataParallel(layers(), comm, bucket_bytes=80)

    def fail(_):
        raise ArithmeticError("half-way")

    hook = ddp.module[1].weight.register_hook(fail)
    try:
        ddp(torch.ones(1, 4)).sum().backward()
    except ArithmeticError:
        hook.remove()
    ddp.zero_grad()
    ddp(torch.ones(1, 4) * (1 + comm.rank)).sum().backward()
    return [p.grad.clone() for p in ddp.parameters()], ddp.state_dict()


def test_the_step_after_a_backward_that_failed_is_whole():
    run = simulate(fails_once, 2)
    model = layers()
    model.load_state_dict(run.values[0][1])
    model(torch.tensor([[1.0] * 4, [2.0] * 4])).sum().div(2).backward()
    for rank in run.values:
        assert all(torch.allclose(mine, p.grad) for mine, p in zip(rank[0], model.parameters(), strict=True))


def freezes_alone(comm):
    ddp = DistributedDataParallel(layers(), comm)
    if comm.rank:
        ddp.module[0].requires_grad_(False)
    ddp(torch.ones(1, 4)).sum().backward()


@pytest.mark.parametrize("world", [launch, simulate])
def test_a_layer_frozen_on_one_rank_alone_is_an_error_and_no_hang(world):
    with pytest.raises(RankError, match="same collectives in the same order"):
        world(freezes_alone, 2)


class Halved(AllReduce):
    """An exchange that says nothing of being exact, and is not."""

    exact = False
    start_sum = None

    def start(self, comm, bucket):
        assert sum(part.numel() for part in bucket.parts) == bucket.flat.numel()
        bucket.flat.mul_(0.5)
        return super().start(comm, bucket)


def inexact(comm):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 1, 3))
    ddp = DistributedDataParallel(model, comm, exchange=Halved(), overlap=bool(comm.size % 2))
    ddp(torch.ones(1, 1, 6, 6) * comm.rank + torch.rand(1, 1, 6, 6)).sum().backward()
    return ddp.state_dict(), model[2].bias.grad


@pytest.mark.parametrize("p", [2, 3])
def test_statistics_do_not_travel_with_an_inexact_exchange(p):
    values = simulate(inexact, p).values
    assert all(torch.equal(state[key], values[0][0][key]) for state, _ in values for key in state)
    assert [bias.item() for _, bias in values] == pytest.approx([0.5 * 4] * p)


def second_order(comm):
    ddp = DistributedDataParallel(nn.Linear(2, 1), comm)
    x = torch.full((1, 2), 1.0 + comm.rank, requires_grad=True)
    (slope,) = torch.autograd.grad(ddp(x).tanh().sum(), x, create_graph=True)
    slope.square().sum().backward(create_graph=True)
    return [(p.grad.clone(), p.grad.requires_grad) for p in ddp.parameters()], ddp.state_dict()


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_gradient_penalty_is_averaged():
    run = simulate(second_order, 2)
    model = nn.Linear(2, 1)
    model.load_state_dict(run.values[0][1])
    x = torch.tensor([[1.0, 1.0], [2.0, 2.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).tanh().sum(), x, create_graph=True)
    (slope.square().sum() / 2).backward()
    for gradients, _ in run.values:
        for (mine, tracked), parameter in zip(gradients, model.parameters(), strict=True):
            assert torch.allclose(mine, parameter.grad) and not tracked
