import pytest
import torch
import torchvision.models
from torch.func import functional_call

from lockstep.nn import MODELS, LeNet
from lockstep.nn.models import ResNet, alexnet, lenet, resnet18, resnet50, vgg11, vgg16
from lockstep.nn.models.resnet import BasicBlock, Bottleneck

BUILDERS = {"alexnet": alexnet, "vgg11": vgg11, "vgg16": vgg16, "resnet18": resnet18, "resnet50": resnet50}


def test_lenet_5_has_61706_parameters_lecun_1998():
    """156 + 2,416 (a full second convolution) + 48,120 + 10,164 + 850."""
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in LeNet().modules() if not list(layer.children())]
    assert [size for size in sizes if size] == [156, 2416, 48120, 10164, 850]
    assert sum(sizes) == 61706


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 12, 17)])
def test_logits_for_any_image_size(shape):
    assert LeNet(shape, classes=7)(torch.zeros(5, *shape)).shape == (5, 7)


def test_images_too_small_are_refused():
    with pytest.raises(ValueError, match="at least 12x12 pixels; these are 8x8"):
        LeNet((1, 8, 8))


def test_models_by_name():
    assert isinstance(MODELS["lenet"]((1, 28, 28), 10), LeNet)
    assert set(MODELS) == {"lenet", *BUILDERS}
    with torch.device("meta"):
        assert MODELS["resnet18"]((1, 28, 28), 7)(torch.zeros(2, 1, 28, 28)).shape == (2, 7)


# Parameters for ImageNet: torchvision's weights say the same in `num_params`.
PARAMETERS = {"alexnet": 61_100_840, "vgg11": 132_863_336, "vgg16": 138_357_544, "resnet18": 11_689_512}
PARAMETERS["resnet50"] = 25_557_032


@pytest.mark.parametrize("name", BUILDERS)
def test_for_large_images_the_layers_and_names_are_torchvisions(name):
    with torch.device("meta"):
        ours, theirs = BUILDERS[name](), getattr(torchvision.models, name)()
        shapes = {key: value.shape for key, value in ours.state_dict().items()}
        assert list(shapes.items()) == [(key, value.shape) for key, value in theirs.state_dict().items()]
        assert sum(p.numel() for p in ours.parameters()) == PARAMETERS[name]
        for path, layer in theirs.named_modules():
            if not list(layer.children()) and not isinstance(layer, torch.nn.AdaptiveAvgPool2d):
                assert repr(ours.get_submodule(path)) == repr(layer)


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_the_same_weights_give_torchvisions_logits(block):
    torch.manual_seed(0)
    theirs = torchvision.models.ResNet(getattr(torchvision.models.resnet, block.__name__), [1, 1, 2, 1], 7)
    ours = ResNet(block, (1, 1, 2, 1), 7)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 64, 64)
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.layer1[0].bn1.running_var, theirs.layer1[0].bn1.running_var)


@pytest.mark.parametrize(
    "net, size, many",
    [
        (lenet(7), 28, 5), (alexnet(7, 32), 32, 8), (vgg11(7, 32), 32, 11), (vgg16(7, 32, 1), 32, 16),
        (resnet18(7, 32), 32, 10), (resnet50(7, 8), 8, 18),
    ],
    ids=("lenet", "alexnet", "vgg11", "vgg16", "resnet18", "resnet50"),
)  # fmt: skip
def test_small_images_and_stages_that_compose_to_forward(net, size, many):
    torch.manual_seed(0)
    channels = next(net.parameters()).shape[1]
    x, stages = torch.randn(2, channels, size, size), net.eval().stages()
    assert len(stages) == many
    assert {id(p) for stage in stages for p in stage.parameters()} == {id(p) for p in net.parameters()}
    whole, out = net(x), x.clone()
    for stage in stages:
        out = stage(out)
    assert whole.shape == (2, 7) and torch.equal(out, whole)
    assert 1e-3 < whole.std() < 1e3  # a first guess that training can start from


def test_stages_for_large_images_cut_at_the_same_places():
    with torch.device("meta"):
        for name, many in (("alexnet", 8), ("vgg16", 16), ("resnet50", 18)):
            net, out = BUILDERS[name](), torch.zeros(1, 3, 224, 224)
            stages = net.stages()
            for stage in stages:
                out = functional_call(stage, dict(stage.named_parameters()), (out,))
            assert out.shape == (1, 1000) and len(stages) == many


@pytest.mark.parametrize("name, size", [("alexnet", 15), ("vgg16", 31), ("resnet18", 7), ("resnet50", "224")])
def test_images_that_would_vanish_are_refused(name, size):
    with pytest.raises(ValueError, match=f"needs images of at least .*; image_size is {size!r}"):
        BUILDERS[name](10, size)
    with pytest.raises(ValueError, match="at least 12x12"):
        lenet(10, 8)
