"""shapes32: ten kinds of shape in 32x32 colour, drawn on the spot from a seed.

Floor 0, room `data`. A shape is a function of the plane that is positive inside; an image is that function
on a grid, turned, scaled, moved, coloured, half hidden by clutter and covered with noise.

Every number comes from raw PCG64 draws and from +, -, *, / and square roots of float32, which IEEE 754 fixes
to the last bit: no sine, no matrix product, no sum over an axis. So the images are the same bytes everywhere.

How hard they are: LeNet reaches 88.7 % of the 2,000 held-out images after five epochs over the 8,000 others
(median of five seeds, 88.2 to 89.3 %), so that a damaged gradient shows. Measured again by
`python bench/train_lenet.py --data shapes32 --epochs 5`; whoever changes a constant here measures again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lockstep.data.sampling import permutation

Plane = NDArray[np.float32]  # one value for each pixel, (images, 32, 32)

SIDE = 32
CONTRAST = (0.15, 0.40)  # how far shape and ground differ in each colour channel, of 1
NOISE = (0.08, 0.50)  # half-width of the triangular noise on each pixel, of 1
TURN = 0.22  # tan(angle / 2), so up to 25 degrees either way
SHIFT = 0.22  # of the centre, in half image sides
RADIUS = (0.36, 0.66)  # of half the image


def shapes32(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """`count` images (count, 3, 32, 32) and their labels (count,), as bytes; all ten classes equally often.

    Classes are in the order of `SHAPES`. The same count and seed give the same bytes on every machine.
    Raises ValueError unless `count` is a positive multiple of the ten classes.
    """
    each, left = divmod(count, len(SHAPES))
    if count < 1 or left:
        raise ValueError(f"shapes32 draws all {len(SHAPES)} classes equally often, so it cannot draw {count} images")
    images = np.empty((count, 3, SIDE, SIDE), np.uint8)
    labels = np.repeat(np.arange(len(SHAPES), dtype=np.uint8), each)
    order = permutation(count, seed).numpy()
    for label, shape in enumerate(SHAPES.values()):
        images[order[label * each : (label + 1) * each]] = _draw(shape, each, _Draws(seed, label))
    shuffled = np.empty_like(labels)
    shuffled[order] = labels
    return images, shuffled


class _Draws:
    """Uniform numbers of one class of one set, from the raw stream of PCG64."""

    def __init__(self, *seeds: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seeds))

    def uniform(self, low: float, high: float, *shape: int) -> Plane:
        raw = self._bits.random_raw(int(np.prod(shape))) >> np.uint64(40)  # 24 bits: exact in float32
        return raw.astype(np.float32).reshape(shape) * np.float32((high - low) / 2**24) + np.float32(low)

    def noise(self, *shape: int) -> NDArray[np.float32]:
        """Triangular noise between -1 and 1: the difference of two random bytes."""
        count = int(np.prod(shape))
        raw = self._bits.random_raw(-(-2 * count // 8)).astype("<u8").view(np.uint8)[: 2 * count]
        pairs = raw.astype(np.float32).reshape(2, *shape)
        return (pairs[0] - pairs[1]) * np.float32(1 / 255)


def _draw(shape: Callable[[Plane, Plane], Plane], count: int, draws: _Draws) -> NDArray[np.uint8]:
    """`count` images of one shape, uint8 (count, 3, 32, 32)."""
    axis = (np.arange(SIDE, dtype=np.float32) - np.float32((SIDE - 1) / 2)) * np.float32(2 / SIDE)
    x, y = axis[None, None, :], axis[None, :, None]
    radius = draws.uniform(*RADIUS, count, 1, 1)
    cos, sin = _turn(draws, count, TURN)
    dx = x - draws.uniform(-SHIFT, SHIFT, count, 1, 1)
    dy = y - draws.uniform(-SHIFT, SHIFT, count, 1, 1)
    inside = _cover(shape((cos * dx + sin * dy) / radius, (cos * dy - sin * dx) / radius) * radius)

    ground = draws.uniform(0.1, 0.6, count, 3, 1, 1)
    step = draws.uniform(*CONTRAST, count, 3, 1, 1)
    slope = draws.uniform(-0.25, 0.25, count, 3, 1, 1)
    image = ground + slope * x[:, None] + step * inside[:, None]
    for clutter in (_bar(x, y, draws, count), _dot(x, y, draws, count)):
        colour = draws.uniform(0, 1, count, 3, 1, 1)
        image += (colour - image) * clutter[:, None]
    image += draws.uniform(*NOISE, count, 1, 1, 1) * draws.noise(count, 3, SIDE, SIDE)
    return (np.clip(image, 0, 1) * np.float32(255) + np.float32(0.5)).astype(np.uint8)


def _turn(draws: _Draws, count: int, most: float) -> tuple[Plane, Plane]:
    """Cosine and sine of random angles 2 atan(t), |t| <= most, by the rational half-angle form."""
    t = draws.uniform(-most, most, count, 1, 1)
    return (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)


def _cover(distance: Plane) -> Plane:
    """Share of a pixel that lies inside, from the distance to the edge in half image sides."""
    return np.clip(distance * np.float32(SIDE / 2) + np.float32(0.5), 0, 1)


def _bar(x: Plane, y: Plane, draws: _Draws, count: int) -> Plane:
    """A thin straight bar across the whole image, anywhere, at any angle."""
    cos, sin = _turn(draws, count, 1)
    offset, width = draws.uniform(-0.8, 0.8, count, 1, 1), draws.uniform(0.02, 0.08, count, 1, 1)
    return _cover(width - np.abs(cos * x + sin * y - offset))


def _dot(x: Plane, y: Plane, draws: _Draws, count: int) -> Plane:
    """A small disc anywhere."""
    dx, dy = x - draws.uniform(-1, 1, count, 1, 1), y - draws.uniform(-1, 1, count, 1, 1)
    return _cover(draws.uniform(0.08, 0.22, count, 1, 1) - _length(dx, dy))


def _length(u: Plane, v: Plane) -> Plane:
    return np.sqrt(u * u + v * v)


def _disc(u: Plane, v: Plane) -> Plane:
    return 1 - _length(u, v)


def _ring(u: Plane, v: Plane) -> Plane:
    return np.float32(0.22) - np.abs(_length(u, v) - np.float32(0.78))


def _square(u: Plane, v: Plane) -> Plane:
    return np.float32(0.85) - np.maximum(np.abs(u), np.abs(v))


def _frame(u: Plane, v: Plane) -> Plane:
    return np.float32(0.2) - np.abs(np.maximum(np.abs(u), np.abs(v)) - np.float32(0.68))


def _triangle(u: Plane, v: Plane) -> Plane:
    return np.float32(0.55) - np.maximum(v, np.float32(0.8660254) * np.abs(u) - np.float32(0.5) * v)


def _plus(u: Plane, v: Plane) -> Plane:
    a, b = np.abs(u), np.abs(v)
    return np.minimum(np.float32(0.3) - np.minimum(a, b), 1 - np.maximum(a, b))


def _star(u: Plane, v: Plane) -> Plane:
    """Four points with hollow sides: outside four discs that touch each other."""
    a, b = np.abs(u), np.abs(v)
    reach = np.float32(1.1)
    return np.minimum(_length(a - reach, b - reach) - np.float32(0.95), reach - np.maximum(a, b))


def _crescent(u: Plane, v: Plane) -> Plane:
    return np.minimum(1 - _length(u, v), _length(u - np.float32(0.5), v) - np.float32(0.8))


def _bars(u: Plane, v: Plane) -> Plane:
    return np.minimum(np.float32(0.22) - np.abs(np.abs(v) - np.float32(0.55)), np.float32(0.85) - np.abs(u))


def _half(u: Plane, v: Plane) -> Plane:
    return np.minimum(1 - _length(u, v - np.float32(0.4)), np.float32(0.4) - v)


SHAPES: dict[str, Callable[[Plane, Plane], Plane]] = {
    "disc": _disc,
    "ring": _ring,
    "square": _square,
    "frame": _frame,
    "triangle": _triangle,
    "plus": _plus,
    "star": _star,
    "crescent": _crescent,
    "bars": _bars,
    "half-disc": _half,
}
