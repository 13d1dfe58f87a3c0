"""Our layers: gradients by finite differences, torch's numbers, and models whose layers have been exchanged."""

import pickle

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.nn import functional as theirs

from lockstep.nn import functional as F
from lockstep.nn import layers, operations, with_layers
from lockstep.nn.models import LeNet, ResNet
from lockstep.nn.models.resnet import BasicBlock


def doubles(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


LABELS = torch.tensor([2, 0, 2, 1])
GRADCHECKS = {
    "conv2d": (lambda *x: operations.Conv2d.apply(*x, (2, 1), 1, (1, 2), 2), (1, 4, 5, 4), (4, 2, 3, 2), (4,)),
    "conv2d without bias": (lambda x, w: operations.Conv2d.apply(x, w, None, 1, 0, 1, 1), (1, 2, 4, 4), (3, 2, 2, 2)),
    "linear": (operations.Linear.apply, (3, 5), (4, 5), (4,)),
    "linear over more axes": (operations.Linear.apply, (2, 3, 5), (4, 5), (4,)),
    "max pool": (lambda x: operations.MaxPool2d.apply(x, 3, 2, 1, 1), (2, 2, 6, 5)),
    "average pool": (lambda x: operations.AvgPool2d.apply(x, (3, 2), 2, 1), (2, 2, 6, 5)),
    "adaptive average pool": (lambda x: operations.AdaptiveAvgPool2d.apply(x, (3, 2)), (2, 2, 7, 5)),
    "relu": (operations.ReLU.apply, (3, 7)),
    "batch norm": (lambda *x: operations.BatchNorm.apply(*x, 1e-5)[0], (3, 4, 2, 3), (4,), (4,)),
    "batch norm of rows": (lambda *x: operations.BatchNorm.apply(*x, 1e-5)[0], (5, 4), (4,), (4,)),
    "batch norm in evaluation": (
        lambda *x: operations.Normalize.apply(*x, torch.ones(4).double(), torch.full((4,), 2.0).double(), 1e-5),
        (3, 4, 2, 3), (4,), (4,),
    ),
    "cross-entropy": (lambda x: operations.SoftmaxCrossEntropy.apply(x, LABELS), (4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADCHECKS)
def test_gradcheck_in_float64(name):
    torch.manual_seed(0)
    function, *shapes = GRADCHECKS[name]
    assert gradcheck(function, tuple(doubles(*shape) for shape in shapes))


def test_dropout_gives_torchs_masks_and_passes_gradcheck():
    x = torch.randn(40, 50, dtype=torch.float64, requires_grad=True)
    layer = layers.Dropout(0.3)
    torch.manual_seed(5)
    got = layer(x)
    torch.manual_seed(5)
    assert torch.equal(got, theirs.dropout(x, 0.3))
    assert 0.25 < (got == 0).float().mean() < 0.35
    grad = torch.autograd.grad(got.sum(), x)[0]
    assert torch.equal(grad == 0, got == 0) and torch.allclose(grad[grad != 0], torch.tensor(1 / 0.7).double())
    assert layer.eval()(x) is x and not layers.Dropout(1.0)(x).any() and torch.equal(layers.Dropout(0.0)(x), x)

    def seeded(x):
        torch.manual_seed(5)
        return operations.Dropout.apply(x, 0.3)

    assert gradcheck(seeded, (doubles(3, 4),))


@pytest.mark.parametrize("settings", [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}])
def test_batch_norm_keeps_torchs_running_statistics(settings):
    torch.manual_seed(0)
    ours, torchs = layers.BatchNorm2d(3, **settings).double(), nn.BatchNorm2d(3, **settings).double()
    for many in (4, 2, 5):
        x = 3 * torch.randn(many, 3, 4, 4, dtype=torch.float64) + 1
        torch.testing.assert_close(ours(x), torchs(x), rtol=1e-10, atol=1e-10)
    assert list(ours.state_dict()) == list(torchs.state_dict())
    for got, want in zip(ours.state_dict().values(), torchs.state_dict().values(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.eval()(x), torchs.eval()(x), rtol=1e-10, atol=1e-10)


def test_cross_entropy_is_torchs_and_large_logits_do_not_overflow():
    torch.manual_seed(0)
    logits = doubles(4, 3)
    ours, torchs = layers.CrossEntropyLoss()(logits, LABELS), theirs.cross_entropy(logits, LABELS)
    torch.testing.assert_close(ours, torchs, rtol=1e-12, atol=1e-12)
    far = torch.tensor([[1000.0, 0.0], [-1000.0, 0.0]])
    loss, gradient = F.softmax_cross_entropy(far, torch.tensor([1, 1]))
    assert loss == 500 and torch.equal(gradient, torch.tensor([[0.5, -0.5], [0.0, 0.0]]))


EVERY_LAYER = nn.Sequential(
    nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(3, 1, 1),
    nn.Conv2d(4, 6, (3, 2), groups=2, dilation=2), nn.AvgPool2d(2), nn.Dropout(0.3), nn.AdaptiveAvgPool2d((2, None)),
    nn.Flatten(), nn.LazyLinear(9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 10, bias=False),
)  # fmt: skip


@pytest.mark.parametrize("net", [LeNet(), EVERY_LAYER], ids=("lenet", "every layer"))
def test_exchanged_layers_give_torchs_loss_and_gradients(net):
    net(torch.zeros(2, 1, 28, 28))
    compare(net, torch.randn(3, 1, 28, 28))


def test_a_resnet_with_our_layers_learns_the_same_statistics():
    ours, theirs = compare(ResNet(BasicBlock, (1, 1, 1, 1), 7, 8), torch.randn(4, 3, 8, 8))
    for name, value in theirs.named_buffers():
        torch.testing.assert_close(ours.get_buffer(name), value, rtol=1e-8, atol=1e-10)


def compare(net, x):
    torch.manual_seed(0)
    net, labels = net.double(), torch.randint(7, (len(x),))
    ours = with_layers(net)
    assert list(ours.state_dict()) == list(net.state_dict()) and isinstance(
        next(ours.children()), type(next(net.children()))
    )
    assert all(type(one).__module__ != "torch.nn.modules.conv" for one in ours.modules())
    results = []
    for model, loss in ((net, nn.CrossEntropyLoss()), (ours, layers.CrossEntropyLoss())):
        torch.manual_seed(1)  # of the dropout
        loss(model(x.double()), labels).backward()
        results.append([p.grad for p in model.parameters()])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-10)
    return ours, net


def test_exchanged_layers_are_copies_that_can_be_sent_and_loaded():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten())
    ours = with_layers(net)
    assert type(net[0]) is nn.Conv2d and type(ours[0]) is layers.Conv2d and ours[0].weight is not net[0].weight
    again = pickle.loads(pickle.dumps(ours))
    net.load_state_dict(again.state_dict())
    x = torch.randn(1, 1, 5, 5)
    torch.testing.assert_close(again(x), net(x))


def test_what_our_layers_cannot_do_is_said_with_the_layers_name():
    with pytest.raises(ValueError, match=r"^1 is GELU.*no such layer among ours"):
        with_layers(nn.Sequential(nn.ReLU(), nn.GELU()))
    net = with_layers(nn.Sequential(nn.Identity(), nn.Sequential(nn.Conv2d(4, 4, 5))))
    with pytest.raises(ValueError, match=r"^1\.0 Conv2d\(4, 4, .*: the output would be empty: a kernel of 5"):
        net(torch.zeros(1, 4, 4, 4))
    refused = [
        (layers.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), "only padding_mode='zeros'"),
        (layers.Conv2d(1, 1, 3, padding="same"), "padding must be a whole number"),
        (layers.MaxPool2d(2, ceil_mode=True), "only ceil_mode=False is implemented here, not True"),
        (layers.AvgPool2d(3, padding=1, count_include_pad=False), "count_include_pad=True"),
        (layers.BatchNorm2d(1), None),
    ]
    for layer, words in refused:
        with pytest.raises(ValueError, match=words or "more than one number in each channel"):
            layer(torch.zeros(1, 1, 4, 4) if words else torch.zeros(1, 1, 1, 1))
    with pytest.raises(ValueError, match=r"rows of 3 numbers; the input has the shape \[2, 4\]"):
        layers.Linear(3, 2)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="between 0 and 1; it is 1.5"):
        F.dropout(torch.zeros(2), 1.5)


@pytest.mark.parametrize(
    "logits, labels, words",
    [
        ((2, 3), [0, 3], "a label must be from 0 to 2, since there are 3 classes; one is 3"),
        ((2, 3), [-1, 0], "one is -1"),
        ((2, 3), [0.0, 1.0], "dtype int64; these are torch.float32"),
        ((2, 3), [0], r"have the shapes \[2, 3\] and \[1\]"),
        ((0, 3), [], "there are no images"),
    ],
)
def test_labels_that_are_no_classes_are_refused(logits, labels, words):
    labels = torch.tensor(labels) if labels else torch.zeros(0, dtype=torch.int64)
    with pytest.raises(ValueError, match=words):
        F.softmax_cross_entropy(torch.zeros(logits), labels)
