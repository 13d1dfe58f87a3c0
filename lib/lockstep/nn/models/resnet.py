"""ResNet-18 and ResNet-50.

Floor 0, room `nn`. The small-image variant keeps the image's size in the first layer: its convolution is 3x3 with
stride 1, and nothing is pooled after it (He et al. 2016, section 4.2, keep 32x32 in the same way). Names stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lockstep.nn.models.sizes import is_small


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the shortcut around them; `stride` is that of the first."""

    expansion = 1

    def __init__(self, inplanes: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = _shortcut(inplanes, planes, stride)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x_NCHW)))
        out = self.bn2(self.conv2(out))
        out += x_NCHW if self.downsample is None else self.downsample(x_NCHW)
        return self.relu(out)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and the shortcut around them; the stride is in the 3x3, as in torchvision."""

    expansion = 4

    def __init__(self, inplanes: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inplanes, planes * self.expansion, stride)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x_NCHW)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x_NCHW if self.downsample is None else self.downsample(x_NCHW)
        return self.relu(out)


def _shortcut(inplanes: int, outplanes: int, stride: int) -> nn.Module | None:
    """None where the shortcut is the identity."""
    if stride == 1 and inplanes == outplanes:
        return None
    return nn.Sequential(nn.Conv2d(inplanes, outplanes, 1, stride, bias=False), nn.BatchNorm2d(outplanes))


class ResNet(nn.Module):
    """A first convolution, four layers of blocks, a mean over the image and a linear layer. (N, C, H, W) to (N, K).

    blocks: how many in each of the four layers.
    Source: He, Zhang, Ren, Sun 2016, "Deep residual learning for image recognition", table 1; layers and `state_dict`
    names as in torchvision. Raises ValueError for images of fewer than 8 pixels a side.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: Sequence[int],
        num_classes: int = 1000,
        image_size: int = 224,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        small = is_small("ResNet", image_size, 8)
        first = (3, 1, 1) if small else (7, 2, 3)
        self.conv1 = nn.Conv2d(in_channels, 64, *first, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        inplanes = 64
        for number, many in enumerate(blocks, 1):
            planes, chain = 32 * 2**number, []
            for place in range(many):
                chain.append(block(inplanes, planes, stride=2 if number > 1 and place == 0 else 1))
                inplanes = planes * block.expansion
            setattr(self, f"layer{number}", nn.Sequential(*chain))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inplanes, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x_NCHW: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x_NCHW))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))

    def stages(self) -> list[nn.Module]:
        """The first layers, each block, the last layers. Their composition is `forward`."""
        blocks = [block for number in range(1, 5) for block in getattr(self, f"layer{number}")]
        head = nn.Sequential(self.conv1, self.bn1, self.relu, self.maxpool)
        return [head, *blocks, nn.Sequential(self.avgpool, nn.Flatten(), self.fc)]


def resnet18(num_classes: int = 1000, image_size: int = 224, in_channels: int = 3) -> ResNet:
    """ResNet-18, ten stages; below 64 pixels a side the small-image variant. See `ResNet`."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, image_size, in_channels)


def resnet50(num_classes: int = 1000, image_size: int = 224, in_channels: int = 3) -> ResNet:
    """ResNet-50, eighteen stages; below 64 pixels a side the small-image variant. See `ResNet`."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, image_size, in_channels)
