"""Compressors between ranks: bytes on the wire, equal replicas, exact identities, and what torch's own hook gives."""

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn import functional as F

from lockstep.comm import Bucket
from lockstep.compress import (
    DGC,
    QSGD,
    CompressedSensing,
    ErrorFeedback,
    Int8,
    LocalSGD,
    OneBit,
    PowerSGD,
    RandomK,
    SignVote,
    TernGrad,
    Threshold,
    TopK,
    as_torch_hook,
)
from lockstep.parallel import DistributedDataParallel
from lockstep.world import launch, simulate

LEAST = 0.02
SHAPES = [(13, 3, 3, 3), (13,), (7, 40), (1,), ()]


def everything():
    return [
        Int8(block=16),
        ErrorFeedback(Int8(block=16)),
        QSGD(levels=2, block=16),
        TernGrad(),
        OneBit(),
        ErrorFeedback(OneBit()),
        SignVote(),
        TopK(0.1),
        ErrorFeedback(TopK(0.1)),
        Threshold(LEAST),
        RandomK(0.1),
        ErrorFeedback(RandomK(0.1)),
        DGC(0.1),
        PowerSGD(2),
        ErrorFeedback(PowerSGD(2)),
        CompressedSensing(0.3, iterations=2),
        ErrorFeedback(CompressedSensing(0.3, iterations=2)),
    ]


def bucket_of(tensors):
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    chunks = flat.split([tensor.numel() for tensor in tensors])
    return Bucket(0, flat, tuple(chunk.view(tensor.shape) for chunk, tensor in zip(chunks, tensors, strict=True)))


def average_once(comm):
    """For each compressor: what it gave, bytes that this rank sent for it, and how many values exceed the threshold."""
    found = []
    for compressor in everything():
        before = comm.traffic.bytes_sent
        tensors = [torch.randn(shape) for shape in SHAPES]
        large = [int((tensor.abs() >= LEAST).sum()) for tensor in tensors]
        bucket = bucket_of(tensors)
        assert compressor.start(comm, bucket).wait() is bucket.flat
        found.append((bucket.flat, comm.traffic.bytes_sent - before, large))
    return found


@pytest.mark.parametrize("p", [2, 3, 4, 5])
def test_ranks_send_the_bytes_of_the_closed_form_and_get_the_same(p):
    by_rank = simulate(average_once, p, timeout=60).values
    for at, compressor in enumerate(everything()):
        results, sent, large = zip(*(found[at] for found in by_rank), strict=True)
        assert all(torch.equal(result, results[0]) for result in results), compressor
        told = {"kept": list(zip(*large, strict=True))} if isinstance(compressor, Threshold) else {}
        formula = sum(
            compressor.wire_bytes(shape, p, **{name: counts[i] for name, counts in told.items()})
            for i, shape in enumerate(SHAPES)
        )
        assert sum(sent) == formula, compressor


def feed_back(comm):
    """Of each compressor with feedback, or none where its mean must be exact: sums over steps of this rank."""
    found = {}
    for inner in (Int8(8), OneBit(), TopK(0.1), RandomK(0.1), PowerSGD(2), CompressedSensing(0.3, iterations=2)):
        method = ErrorFeedback(inner)
        given, received = torch.zeros(370, dtype=torch.float64), torch.zeros(370, dtype=torch.float64)
        for _ in range(4):
            tensors = [torch.randn(3, 30, dtype=torch.float64), torch.randn(7, 40, dtype=torch.float64)]
            bucket = bucket_of(tensors)
            given += bucket.flat
            method.start(comm, bucket).wait()
            received += bucket.flat
        residual = torch.cat([each.flatten() for each in method.residuals.values()])
        found[repr(inner)] = given, received, residual
    return found


def test_the_mean_that_arrived_and_the_mean_residual_are_the_mean_of_all_gradients():
    by_rank = simulate(feed_back, 3, timeout=60).values
    for name in by_rank[0]:
        given, received, residual = (
            torch.stack(each).mean(0) for each in zip(*(found[name] for found in by_rank), strict=True)
        )
        assert (received + residual - given).abs().max() <= 1e-12, name


def vote(comm):
    flat = torch.tensor([[1.0, -1.0, 2.0], [3.0, -1.0, -2.0], [-1.0, -1.0, 1.0], [-3.0, -1.0, 3.0]][comm.rank])
    bucket = Bucket(0, flat, (flat,))
    SignVote().start(comm, bucket).wait()
    return flat


def test_the_sign_of_the_majority_wins_and_a_tie_is_zero():
    # Two by two, all, three to one; magnitudes 4/3, 2, 1 and 7/3.
    mean = (4 / 3 + 2 + 1 + 7 / 3) / 4
    for flat in simulate(vote, 4).values:
        assert flat.tolist() == pytest.approx([0, -mean, mean])


def int8_sums(comm):
    flat = torch.full((100,), 100.0)
    Int8(block=10).start(comm, Bucket(0, flat, (flat,))).wait()
    return flat


def test_int8_sums_do_not_wrap():
    # FAULTS of int8 all-reduces: 100 + 100 = -56.
    for flat in simulate(int8_sums, 3).values:
        assert torch.allclose(flat, torch.full((100,), 100.0), rtol=1e-5)


def descend_apart(comm, feedback):
    """How far from the best point 400 steps end: f_r(x) = |x - c_r|^2 / 2, whose gradients cancel where they are large."""
    torch.manual_seed(0)
    c = torch.ones(40, dtype=torch.float64)
    c[:8] += 10.0 if comm.rank else -10.0
    x, method = torch.zeros(40, dtype=torch.float64), TopK(0.1)
    method = ErrorFeedback(method) if feedback else method
    for _ in range(400):
        g = x - c
        method.start(comm, Bucket(0, g, (g,))).wait()
        x -= 0.02 * g
    return (x - 1).norm().item()


def test_without_feedback_top_k_never_sends_what_matters_and_with_it_does():
    # Each rank's four largest values are among those that cancel, at every step.
    assert min(simulate(descend_apart, 2, False).values) > 5
    assert max(simulate(descend_apart, 2, True).values) < 1


# In data parallel training


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Linear(8 * 36, 10)

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).relu().flatten(1))


@torch.no_grad()
def descend(model):
    """A step of SGD; importing torch.optim costs a fresh rank seconds."""
    for parameter in model.parameters():
        parameter -= 0.05 * parameter.grad


def train(comm, which):
    """The weights of this rank after five steps with each compressor, and the losses."""
    found = []
    for compressor in which:
        torch.manual_seed(3)
        x, y = torch.randn(comm.size, 6, 1, 8, 8), torch.randint(10, (comm.size, 6))
        torch.manual_seed(comm.rank)
        model = DistributedDataParallel(Small(), comm, bucket_bytes=4000, exchange=compressor)
        losses = []
        for _ in range(5):
            model.zero_grad()
            loss = F.cross_entropy(model(x[comm.rank]), y[comm.rank])
            loss.backward()
            descend(model)
            losses.append(loss.item())
        found.append((torch.cat([p.detach().flatten() for p in model.parameters()]), losses))
    return found


def judge_training(by_rank, which):
    for at, compressor in enumerate(which):
        weights, losses = zip(*(found[at] for found in by_rank), strict=True)
        assert all(torch.equal(one, weights[0]) for one in weights), f"{compressor}: replicas have drifted"
        assert sum(of_rank[-1] for of_rank in losses) < sum(of_rank[0] for of_rank in losses), compressor


def test_simulated_replicas_stay_equal_and_learn():
    with_feedback = [type(each.compressor) for each in everything() if isinstance(each, ErrorFeedback)]
    which = [each for each in everything() if type(each) not in with_feedback]
    judge_training(simulate(train, 2, which, timeout=60).values, which)


class Poisoned(nn.Module):
    def __init__(self):
        super().__init__()
        self.fine, self.bad = nn.Linear(4, 4), nn.Linear(4, 1, bias=False)

    def forward(self, x):
        y = self.bad(self.fine(x))
        return (y - y).sqrt()  # whose slope at zero is infinite, once up and once down


def poison(comm):
    model = DistributedDataParallel(Poisoned(), comm, exchange=ErrorFeedback(TopK(0.5)))
    model(torch.randn(8, 4)).mean().backward()


def test_a_gradient_with_nan_is_named_with_its_rank():
    with pytest.raises(Exception, match=r"gradient of bad.weight on rank \d has 4 NaN"):
        simulate(poison, 2, seed=0)


# In processes, beside torch


class GivenBucket:
    """What torch gives to a hook."""

    def __init__(self, tensors, parameters):
        self._bucket, self._parameters = bucket_of(tensors), parameters

    def index(self):
        return 0

    def is_last(self):
        return True

    def buffer(self):
        return self._bucket.flat

    def gradients(self):
        return list(self._bucket.parts)

    def parameters(self):
        return self._parameters


def worst_difference(comm, feedback):
    """Of six steps with torch's hook and with ours, on the same gradients and from the same first Q."""
    torch.manual_seed(comm.rank)
    parameters = [torch.zeros(shape) for shape in ((20, 3, 3, 3), (20,), (10, 80))]
    method = PowerSGD(2)
    state, hook = as_torch_hook(ErrorFeedback(method) if feedback else method, comm)
    peer = powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2, use_error_feedback=feedback)
    peer.iter = 2
    first_q = [
        method.take_q(f"parameter {at} of shape {shape}", torch.empty(n, m))
        for at, shape, n, m in ((0, (20, 3, 3, 3), 20, 27), (2, (10, 80), 10, 80))
    ]
    peer.p_memory_dict[0], peer.q_memory_dict[0] = torch.empty(60), torch.cat([q.flatten() for q in first_q])
    method._draws._calls.clear()
    worst = 0.0
    for _ in range(6):
        gradients = [torch.randn_like(parameter) for parameter in parameters]
        ours, theirs = GivenBucket(gradients, parameters), GivenBucket(gradients, parameters)
        got = hook(state, ours).wait()
        wanted = powerSGD_hook.powerSGD_hook(peer, theirs).wait()
        worst = max(worst, ((got - wanted).norm() / wanted.norm()).item())
    return worst


def train_with_torch(comm):
    """Gradients of the third step of torch's own wrapper: plain, and with a hook that leaves everything as it is."""
    x, y = torch.randn(3, 6, 1, 8, 8), torch.randint(10, (3, 6))
    found = []
    for exchange in (None, TopK(1.0), ErrorFeedback(OneBit())):
        torch.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(Small(), bucket_cap_mb=0.01)
        if exchange is not None:
            model.register_comm_hook(*as_torch_hook(exchange, comm, model.module))
        for step in range(3):  # torch makes its buckets anew after the first
            model.zero_grad()
            F.cross_entropy(model(x[step]), y[step]).backward()
            descend(model)
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert set(exchange.residuals) == {name for name, _ in Small().named_parameters()}
    return found


def hook_once(comm):
    """What every compressor gives as torch's hook, and what it says of a gradient that is not finite."""
    parameters, found = [torch.zeros(shape) for shape in SHAPES], []
    for compressor in everything():
        state, hook = as_torch_hook(compressor, comm)
        found.append(hook(state, GivenBucket([torch.randn(shape) for shape in SHAPES], parameters)).wait())
        bad = [torch.full(shape, float("inf") if shape == (1,) else 1.0) for shape in SHAPES]
        with pytest.raises(FloatingPointError, match=r"of parameter 3 of shape \(1,\) on rank . has 0 NaN and 1 inf"):
            hook(state, GivenBucket(bad, parameters))
    return found


ONE_OF_EACH_KIND = [ErrorFeedback(Int8()), ErrorFeedback(TopK(0.1)), Threshold(LEAST), ErrorFeedback(PowerSGD(2))]


def in_processes(comm):
    return (
        [worst_difference(comm, feedback) for feedback in (False, True)],
        train_with_torch(comm),
        train(comm, ONE_OF_EACH_KIND),
        hook_once(comm),
    )


def test_processes_torchs_hook_and_torchs_wrapper():
    by_rank = launch(in_processes, 2, timeout=100).values
    for differences, (plain, whole, one_bit), *_ in by_rank:
        assert max(differences) < 1e-4, "PowerSGD and torch's powerSGD_hook differ"
        assert torch.allclose(plain, whole, rtol=1e-4, atol=1e-6)
        assert not torch.allclose(plain, one_bit, rtol=0.1)
    assert torch.equal(by_rank[0][1][2], by_rank[1][1][2])
    judge_training([training for *_, training, _ in by_rank], ONE_OF_EACH_KIND)
    for compressor, one, other in zip(everything(), by_rank[0][3], by_rank[1][3], strict=True):
        assert one.isfinite().all() and torch.equal(one, other), compressor


# Local SGD


def train_apart(comm):
    torch.manual_seed(0)
    model = Small().double()
    torch.manual_seed(10 + comm.rank)
    local = LocalSGD(comm, model, every=3, post=2)
    averaged, states = [], []
    for _ in range(8):
        model.zero_grad()
        F.cross_entropy(model(torch.randn(4, 1, 8, 8, dtype=torch.float64)), torch.randint(10, (4,))).backward()
        descend(model)
        before = torch.cat([each.flatten() for each in (*model.parameters(), *model.buffers())])
        averaged.append(local.step())
        states.append((before, torch.cat([each.flatten() for each in (*model.parameters(), *model.buffers())])))
    sent = comm.traffic.bytes_sent
    model.fc.bias.data[0] = float("nan")
    with pytest.raises(FloatingPointError, match="fc.bias on rank"):
        local.average()
    return averaged, states, sent


def test_local_sgd_averages_each_step_at_first_and_then_now_and_then():
    by_rank = simulate(train_apart, 3, timeout=60).values
    for step in range(8):
        before, after = zip(*(found[1][step] for found in by_rank), strict=True)
        if by_rank[0][0][step]:
            for each in after:
                assert torch.allclose(each, torch.stack(before).mean(0), atol=1e-12)
        else:
            assert not torch.allclose(after[0], after[1])
    assert by_rank[0][0] == [True, True, False, False, True, False, False, True]
    state = sum(each.nbytes for each in (*Small().double().parameters(), *Small().double().buffers())) - 8
    assert sum(found[2] for found in by_rank) == 4 * 2 * (3 - 1) * state
