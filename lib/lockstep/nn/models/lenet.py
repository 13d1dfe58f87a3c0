"""LeNet-5, for digits.

Floor 0, room `nn`.
"""

from __future__ import annotations

from torch import Tensor, nn

from lockstep.nn.models.sizes import stages_of


class LeNet(nn.Module):
    """LeNet-5: two convolutions and three linear layers; 61,706 parameters on 1x28x28 images and ten classes.

    Takes (N, C, H, W), gives (N, K) logits. The layer sizes are those of LeCun et al. 1998, "Gradient-based
    learning applied to document recognition", section II.B; as is usual today, ReLU stands for the scaled tanh,
    max pooling for the trainable average, a full second convolution for the partial one and a linear layer for
    the radial basis functions. Raises ValueError for images that the two poolings would leave without a pixel.
    """

    def __init__(self, image_shape: tuple[int, int, int] = (1, 28, 28), classes: int = 10) -> None:
        super().__init__()
        channels, height, width = image_shape
        if min(height, width) < 12:
            raise ValueError(f"LeNet needs images of at least 12x12 pixels; these are {height}x{width}")
        pixels = ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, kernel_size=5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(16 * pixels, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        )

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return self.classifier(self.features(x_NCHW))

    def stages(self) -> list[nn.Module]:
        """Five: each a convolution or a linear layer with what follows it. Their composition is `forward`."""
        return stages_of([*self.features, *self.classifier])


def lenet(num_classes: int = 10, image_size: int = 28, in_channels: int = 1) -> LeNet:
    """LeNet-5 for square images of at least 12 pixels a side; see `LeNet`, which also takes oblong ones."""
    return LeNet((in_channels, image_size, image_size), num_classes)
