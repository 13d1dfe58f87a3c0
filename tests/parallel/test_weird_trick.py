"""Convolutions data parallel, linear layers shared out: the oracle is the model in one process on all images, float64."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lockstep.comm import Mesh
from lockstep.comm.collectives import chunk_sizes
from lockstep.hardware import Link
from lockstep.nn.models import alexnet, lenet
from lockstep.parallel import DistributedDataParallel, WeirdTrick, weird_trick_bytes
from lockstep.parallel.weird_trick import SCHEMES
from lockstep.world import RankError, launch, simulate

WIDTHS = (12, 7, 6, 5)  # features, then the outputs of each linear layer
REPORT = 1  # number that data parallelism sends behind its gradients


class Chain(nn.Module):
    """Two kinds of layers, odd sizes, dropout that drops nothing."""

    def __init__(self):
        super().__init__()
        f, h1, h2, k = WIDTHS
        self.features = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.MaxPool2d(3), nn.Flatten())
        self.head = nn.Sequential(
            nn.Linear(f, h1), nn.ReLU(inplace=True), nn.Dropout(0.0), nn.Linear(h1, h2, bias=False), nn.Tanh(), nn.Linear(h2, k)
        )  # fmt: skip

    def stages(self):
        return [self.features, self.head]

    def forward(self, x):
        return self.head(self.features(x))


def samples(images, channels=2, side=8, classes=5):
    generator = torch.Generator().manual_seed(images)
    x = torch.randn(images, channels, side, side, dtype=torch.float64, generator=generator)
    return x, torch.randint(classes, (images,), generator=generator)


def gradients_of(trick, comm):
    """Whole gradients, by the model's names: as parameters, so that `whole_state_dict` puts them together."""
    with torch.no_grad():
        for parameter in trick.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    return {name: value.clone() for name, value in trick.whole_state_dict().items()}


def train_as_rank(comm, mesh, scheme, counts, build=Chain):
    torch.manual_seed(100 + comm.rank)  # another model on every rank: rank 0's counts
    model = build().double()
    start = {name: value.clone() for name, value in model.state_dict().items()} if comm.rank == 0 else None
    trick = WeirdTrick(model, Mesh(comm, mesh), "tensor", scheme)
    same = {name: value.clone() for name, value in trick.whole_state_dict().items()}
    x, labels = samples(sum(counts))
    x, labels = x.split(counts)[comm.rank], labels.split(counts)[comm.rank]
    y = trick(x)
    before = comm.traffic.bytes_sent
    loss = trick.step(x, labels, F.cross_entropy)
    sent = comm.traffic.bytes_sent - before
    stepped = gradients_of(trick, comm)
    return start, same, y.detach(), loss, sent, stepped


def oracle(start, images, build=Chain):
    model = build().double()
    model.load_state_dict(start)
    x, labels = samples(images)
    y = model(x)
    F.cross_entropy(y, labels).backward()
    return y.detach(), {name: p.grad for name, p in model.named_parameters()}


def close(mine, whole):
    torch.testing.assert_close(mine, whole, rtol=1e-11, atol=1e-13)


CASES = [
    ({"tensor": 1}, "a", [3]),
    ({"tensor": 2}, "a", [3, 2]),
    ({"tensor": 2}, "b", [2, 3]),
    ({"tensor": 3}, "c", [4, 1, 2]),  # slices of other sizes, one of them empty
    ({"tensor": 4}, "b", [2, 0, 3, 1]),  # a rank without images
    ({"tensor": 4}, "c", [4, 4, 4, 4]),
    ({"data": 2, "tensor": 2}, "a", [2, 1, 3, 2]),
    ({"data": 2, "tensor": 2}, "c", [2, 1, 3, 2]),
    ({"tensor": 2, "data": 2}, "b", [1, 2, 2, 3]),
]


@pytest.mark.parametrize(("mesh", "scheme", "counts"), CASES, ids=str)
def test_a_step_equals_one_process_and_sends_what_the_form_says(mesh, scheme, counts):
    ranks = len(counts)
    done = simulate(train_as_rank, ranks, mesh, scheme, counts)
    start = done.values[0][0]
    y, gradients = oracle(start, sum(counts))
    for rank, (_, same, own_y, loss, _, stepped) in enumerate(done.values):
        assert list(same) == list(start)
        assert all(torch.equal(same[name], start[name]) for name in start)
        close(own_y, y.split(counts)[rank])
        assert stepped.keys() == gradients.keys()
        for name, gradient in gradients.items():
            close(stepped[name], gradient)
        if counts[rank]:
            x, labels = samples(sum(counts))
            close(loss, F.cross_entropy(y.split(counts)[rank], labels.split(counts)[rank]).item())
    if mesh == {"tensor": ranks}:
        convolutions = sum(p.numel() for name, p in gradients.items() if name.startswith("features")) + REPORT
        kept = sum(
            n * k for n, k in zip(counts, chunk_sizes(WIDTHS[-1], ranks), strict=True)
        )  # what nobody has to send
        moved = (ranks - 1) * (convolutions + sum(counts) * sum(WIDTHS[:-1])) + sum(counts) * WIDTHS[-1] - kept
        told = ranks * (ranks - 1)  # how many images each rank has
        assert sum(sent for *_, sent, _ in done.values) == 8 * (2 * moved + told)
        if len(set(counts)) == 1:
            said = weird_trick_bytes(convolutions, WIDTHS, sum(counts), ranks, itemsize=8)
            assert 8 * 2 * moved == pytest.approx(ranks * said)


def as_a_module(comm, mesh, counts):
    torch.manual_seed(4)
    trick = WeirdTrick(Chain().double(), Mesh(comm, mesh))
    x, labels = samples(sum(counts))
    F.cross_entropy(trick(x.split(counts)[comm.rank]), labels.split(counts)[comm.rank]).backward()
    through_autograd = [p.grad.clone() for p in trick.parameters()]
    trick.zero_grad()
    trick.step(x.split(counts)[comm.rank], labels.split(counts)[comm.rank], F.cross_entropy)
    for mine, stepped in zip(through_autograd, trick.parameters(), strict=True):
        close(stepped.grad, mine)
    return gradients_of(trick, comm)


@pytest.mark.parametrize(
    ("world", "mesh", "counts"),
    [(simulate, {"data": 2, "tensor": 2}, [2, 1, 3, 2]), (launch, {"tensor": 2}, [2, 3])],
)
def test_called_as_a_module_it_goes_through_autograd(world, mesh, counts):
    torch.manual_seed(4)
    _, gradients = oracle(Chain().double().state_dict(), sum(counts))
    for own in world(as_a_module, len(counts), mesh, counts).values:
        for name, gradient in gradients.items():
            close(own[name], gradient)


def frozen_convolution(comm):
    torch.manual_seed(4)
    model = lenet().double()
    model.features.requires_grad_(False)
    model.classifier[1].bias.requires_grad_(False)
    trick = WeirdTrick(model, Mesh(comm, {"tensor": comm.size}))
    x, labels = samples(4, 1, 28, 10)
    trick.step(x.split(2)[comm.rank], labels.split(2)[comm.rank], F.cross_entropy)
    frozen = [p.grad is None for p in trick.parameters() if not p.requires_grad]
    return frozen, gradients_of(trick, comm)


def test_frozen_parameters_get_no_gradient():
    torch.manual_seed(4)
    model = lenet().double()
    x, labels = samples(4, 1, 28, 10)
    F.cross_entropy(model(x), labels).backward()
    for frozen, own in simulate(frozen_convolution, 2).values:
        assert len(frozen) == 5 and all(frozen)
        for name in ("classifier.1.weight", "classifier.5.bias"):
            close(own[name], model.get_parameter(name).grad)


def both_ways(comm, images):
    """Bytes of a step of the trick and of pure data parallelism."""
    torch.manual_seed(0)
    x, labels = samples(images, 1, 28, 10)
    x, labels = x.float().split(images // comm.size)[comm.rank], labels.split(images // comm.size)[comm.rank]
    sent = [comm.traffic.bytes_sent]
    for wrapped in (WeirdTrick(lenet(), Mesh(comm, {"tensor": comm.size})), DistributedDataParallel(lenet(), comm)):
        before = comm.traffic.bytes_sent
        if isinstance(wrapped, WeirdTrick):
            wrapped.step(x, labels, F.cross_entropy)
        else:
            F.cross_entropy(wrapped(x), labels).backward()
        sent.append(comm.traffic.bytes_sent - before)
    return sent[1:]


def test_bytes_beside_those_of_data_parallelism():
    # LeNet's linear layers hold 95.83 % of its parameters, AlexNet's 95.96 %.
    trick, data = map(sum, zip(*simulate(both_ways, 2, 4).values, strict=True))
    assert trick == 2 * weird_trick_bytes(156 + 2416 + REPORT, (400, 120, 84, 10), 4, 2) + 2 * 8
    assert data == 2 * (2 / 2) * 4 * (61_706 + REPORT)
    assert data / trick > 10


def alexnet_for_small_images():
    """With seeded numbers, all in one call: its own initialisation takes seconds."""
    model = alexnet(10, 16).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.03, 0.03, generator=generator)
    return model


def step_of_alexnet(comm, images):
    model = alexnet_for_small_images()
    trick = WeirdTrick(model, Mesh(comm, {"tensor": comm.size}))
    x, labels = (one.split(images // comm.size)[comm.rank] for one in samples(images, 3, 16, 10))
    before = comm.traffic.bytes_sent
    loss = trick.step(x.float(), labels, F.cross_entropy)
    return loss, F.cross_entropy(model(x.float()), labels).item(), comm.traffic.bytes_sent - before


def test_alexnet_is_such_a_chain(monkeypatch):
    for kind in (nn.Linear, nn.Conv2d):
        monkeypatch.setattr(kind, "reset_parameters", lambda self: None)
    done = simulate(step_of_alexnet, 2, 4, timeout=100)
    for loss, alone, _ in done.values:
        assert loss == pytest.approx(alone, rel=1e-4)
    said = weird_trick_bytes(2_251_584 + REPORT, (1024, 4096, 4096, 10), 4, 2)
    assert sum(sent for *_, sent in done.values) == 2 * said + 2 * 8


def one_step(comm, scheme, seconds):
    torch.manual_seed(1)
    trick = WeirdTrick(Chain(), Mesh(comm, {"tensor": comm.size}), scheme=scheme)
    x, labels = (one.split(4)[comm.rank] for one in samples(4 * comm.size))
    comm.barrier()
    with comm.span("step"):
        trick.step(x.float(), labels, F.cross_entropy)


def test_what_is_sent_when_differs_by_scheme():
    # Section 4: in (b) one rank's port is at work at a time, so the same bytes take as many times as long as ranks.
    slow, seconds, sent = Link(0.0, 1e3), {}, {}
    for scheme in SCHEMES:
        run = simulate(one_step, 4, scheme, 0.0, cluster=slow)
        step = next(span for span in run.trace.spans if span.name == "step" and span.rank == 0)
        seconds[scheme] = step.end - step.start
        sent[scheme] = sum(one.bytes_sent for one in run.traffic)
    assert len(set(sent.values())) == 1
    assert seconds["b"] > 2 * seconds["c"] and seconds["c"] == pytest.approx(seconds["a"], rel=0.3)


class Tied(Chain):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12))
        self.head[2].weight = self.head[0].weight


class WithNorm(Chain):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Linear(6, 5))


class NoConvolution(Chain):
    def stages(self):
        return [self.head]


def test_what_makes_no_sense_gets_a_sentence():
    def program(comm):
        words = []
        for build, arguments, kind in (
            (Tied, {}, ValueError), (WithNorm, {}, ValueError), (NoConvolution, {}, ValueError),
            (lambda: nn.Linear(2, 2), {}, ValueError), (Chain, {"scheme": "d"}, ValueError),
            (Chain, {"axis": "expert"}, KeyError),
        ):  # fmt: skip
            with pytest.raises(kind) as error:
                WeirdTrick(build(), Mesh(comm, {"tensor": 2}), **arguments)
            words.append(str(error.value))
        return words

    said = simulate(program, 2).values[0]
    for words, text in zip(
        ("untie", "BatchNorm1d", "before its first linear", "no stages()", "'d'", "expert"), said, strict=True
    ):
        assert words in text
    with pytest.raises(RankError, match="5 outputs cannot be shared out to 6 ranks"):
        simulate(lambda comm: WeirdTrick(Chain(), Mesh(comm, {"tensor": 6})), 6)
    with pytest.raises(RankError, match="no rank has an image"):
        simulate(lambda comm: WeirdTrick(Chain(), Mesh(comm, {"tensor": 2}))(torch.zeros(0, 2, 8, 8)), 2)


class OneLinear(nn.Module):
    """As a residual network ends: blocks that are no plain chains, batch norm, and one linear layer."""

    def __init__(self):
        super().__init__()
        self.block = nn.ModuleDict({"conv": nn.Conv2d(2, 3, 3), "norm": nn.BatchNorm2d(3)})
        self.block.forward = lambda x: self.block["norm"](self.block["conv"](x))
        self.fc = nn.Linear(3, 4)

    def stages(self):
        return [self.block, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), self.fc)]


def test_a_network_with_one_linear_layer_and_batch_norm_is_a_chain_too():
    def program(comm):
        torch.manual_seed(comm.rank)
        trick = WeirdTrick(OneLinear(), Mesh(comm, {"tensor": 2}))
        x, labels = samples(4, classes=4)
        trick.step(x.float().split(2)[comm.rank], labels.split(2)[comm.rank], F.cross_entropy)
        state = trick.whole_state_dict()
        return list(state), state["block.norm.running_mean"], state["fc.weight"].shape

    (names, mean, shape), (_, other, _) = simulate(program, 2).values
    assert names == list(OneLinear().state_dict()) and shape == (4, 3)
    assert mean.any() and torch.equal(mean, other)
