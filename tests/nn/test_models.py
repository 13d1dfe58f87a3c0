import pytest
import torch

from lockstep.nn import MODELS, LeNet


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
