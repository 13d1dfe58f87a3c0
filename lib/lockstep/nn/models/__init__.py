"""The networks that the labs train: LeNet, AlexNet, VGG-11/16, ResNet-18/50; they know nothing of ranks.

Floor 0, room `nn`. One function builds each network, and all are called alike: `resnet18(num_classes, image_size,
in_channels)`. For images of fewer than 64 pixels a side it gives the *small-image variant*, which each file describes;
otherwise layers and `state_dict` names are those of torchvision, so that its weights load. Every network has
`stages()`: the list of modules that a split over devices may cut between, whose composition is `forward`.

Legend: N images, C channels, H x W pixels, K classes.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from lockstep.nn.models.alexnet import AlexNet, alexnet
from lockstep.nn.models.lenet import LeNet, lenet
from lockstep.nn.models.resnet import ResNet, resnet18, resnet50
from lockstep.nn.models.vgg import VGG, vgg11, vgg16

Shape = tuple[int, int, int]


def _by_shape(build: Callable[[int, int, int], nn.Module]) -> Callable[[Shape, int], nn.Module]:
    return lambda image_shape, classes: build(classes, min(image_shape[1:]), image_shape[0])


MODELS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "lenet": LeNet,
    "alexnet": _by_shape(alexnet),
    "vgg11": _by_shape(vgg11),
    "vgg16": _by_shape(vgg16),
    "resnet18": _by_shape(resnet18),
    "resnet50": _by_shape(resnet50),
}
"""By name: `MODELS["resnet18"]((3, 32, 32), 10)` takes the shape of an image and the number of classes."""

__all__ = [
    "MODELS",
    "VGG",
    "AlexNet",
    "LeNet",
    "ResNet",
    "alexnet",
    "lenet",
    "resnet18",
    "resnet50",
    "vgg11",
    "vgg16",
]
