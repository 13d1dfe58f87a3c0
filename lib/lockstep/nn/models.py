"""The networks that the labs train; they know nothing of ranks.

Floor 0, room `nn`. Legend: N images, C channels, H x W pixels, K classes.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


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


MODELS: dict[str, Callable[[tuple[int, int, int], int], nn.Module]] = {"lenet": LeNet}
