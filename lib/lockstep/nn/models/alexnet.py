"""AlexNet, in the form with one tower of Krizhevsky 2014.

Floor 0, room `nn`. The small-image variant has 3x3 kernels in the first convolution, windows of 2 in the poolings, and
a classifier that takes 256 channels of 2x2; names and numbers of channels stay.
"""

from __future__ import annotations

from torch import Tensor, nn

from lockstep.nn.models.sizes import is_small, stages_of


class AlexNet(nn.Module):
    """Five convolutions and three linear layers; 61,100,840 parameters for ImageNet. (N, C, H, W) to (N, K) logits.

    Source: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", footnote 1; layers and
    `state_dict` names as in torchvision. Raises ValueError for images of fewer than 16 pixels a side.
    """

    def __init__(self, num_classes: int = 1000, image_size: int = 224, in_channels: int = 3) -> None:
        super().__init__()
        small = is_small("AlexNet", image_size, 16)
        window = 2 if small else 3
        first = (3, 2, 1) if small else (11, 4, 2)
        side = 2 if small else 6
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 64, *first),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(window, stride=2),
            nn.Conv2d(64, 192, 3 if small else 5, padding=1 if small else 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(window, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(window, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(side)
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(256 * side * side, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x_NCHW)).flatten(1))

    def stages(self) -> list[nn.Module]:
        """Eight: each a convolution or a linear layer with what follows it. Their composition is `forward`."""
        return stages_of([*self.features, self.avgpool, nn.Flatten(), *self.classifier])


def alexnet(num_classes: int = 1000, image_size: int = 224, in_channels: int = 3) -> AlexNet:
    """AlexNet; below 64 pixels a side the small-image variant. See `AlexNet`."""
    return AlexNet(num_classes, image_size, in_channels)
