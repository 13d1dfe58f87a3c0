"""VGG-11 and VGG-16, without batch norm.

Floor 0, room `nn`. The small-image variant has the same convolutions, and hidden linear layers of 512 in place of
4,096, because five poolings leave one pixel of a 32x32 image (after Liu and Deng 2015, "Very deep convolutional neural
network based image classification using small training sample size").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from lockstep.nn.models.sizes import is_small, stages_of

POOL = 0
VGG11 = (64, POOL, 128, POOL, 256, 256, POOL, 512, 512, POOL, 512, 512, POOL)
VGG16 = (64, 64, POOL, 128, 128, POOL, 256, 256, 256, POOL, 512, 512, 512, POOL, 512, 512, 512, POOL)


class VGG(nn.Module):
    """3x3 convolutions and poolings as listed in `plan`, then three linear layers. (N, C, H, W) to (N, K) logits.

    plan: numbers of output channels, with POOL where the sides are halved.
    Source: Simonyan and Zisserman 2015, "Very deep convolutional networks for large-scale image recognition", table 1,
    columns A (VGG-11) and D (VGG-16); layers and `state_dict` names as in torchvision. Raises ValueError for images
    of fewer than 32 pixels a side.
    """

    def __init__(
        self, plan: Sequence[int], num_classes: int = 1000, image_size: int = 224, in_channels: int = 3
    ) -> None:
        super().__init__()
        small = is_small("VGG", image_size, 32)
        side, hidden = (1, 512) if small else (7, 4096)
        self.features = nn.Sequential(*_convolutions(plan, in_channels))
        self.avgpool = nn.AdaptiveAvgPool2d(side)
        self.classifier = nn.Sequential(
            nn.Linear(512 * side * side, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, num_classes),
        )
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(layer.bias)
            elif isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, 0, 0.01 if not small else (2 / layer.in_features) ** 0.5)
                nn.init.zeros_(layer.bias)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x_NCHW)).flatten(1))

    def stages(self) -> list[nn.Module]:
        """One for each convolution and linear layer, with what follows it. Their composition is `forward`."""
        return stages_of([*self.features, self.avgpool, nn.Flatten(), *self.classifier])


def _convolutions(plan: Sequence[int], channels: int) -> Iterator[nn.Module]:
    for wanted in plan:
        if wanted == POOL:
            yield nn.MaxPool2d(2)
            continue
        yield nn.Conv2d(channels, wanted, 3, padding=1)
        yield nn.ReLU(inplace=True)
        channels = wanted


def vgg11(num_classes: int = 1000, image_size: int = 224, in_channels: int = 3) -> VGG:
    """VGG-11, eleven stages; below 64 pixels a side the small-image variant. See `VGG`."""
    return VGG(VGG11, num_classes, image_size, in_channels)


def vgg16(num_classes: int = 1000, image_size: int = 224, in_channels: int = 3) -> VGG:
    """VGG-16, sixteen stages; below 64 pixels a side the small-image variant. See `VGG`."""
    return VGG(VGG16, num_classes, image_size, in_channels)
