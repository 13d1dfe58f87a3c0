"""When an image is small, what size a network needs at least, and cutting a network into stages.

Floor 0, room `nn`.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

SMALL = 64  # pixels a side; fewer, and a network made for ImageNet would shrink the image to nothing


def is_small(model: str, image_size: int, at_least: int) -> bool:
    """Whether images of `image_size` pixels a side get the small-image variant.

    Raises ValueError for images of fewer than `at_least` pixels, which would be left without a pixel.
    """
    if not isinstance(image_size, int) or image_size < at_least:
        raise ValueError(f"{model} needs images of at least {at_least}x{at_least} pixels; image_size is {image_size!r}")
    return image_size < SMALL


def stages_of(layers: Iterable[nn.Module]) -> list[nn.Sequential]:
    """The layers of a chain, grouped so that each stage begins with a layer that has weights of its own kind.

    A stage is a convolution or a linear layer with the ReLU, pooling and dropout after it; what comes before the first
    of them (flattening, say) goes with it.
    """
    stages: list[list[nn.Module]] = [[]]
    for layer in layers:
        weighs = isinstance(layer, (nn.Conv2d, nn.Linear))
        if weighs and any(isinstance(one, (nn.Conv2d, nn.Linear)) for one in stages[-1]):
            stages.append([])
        stages[-1].append(layer)
    return [nn.Sequential(*stage) for stage in stages]
