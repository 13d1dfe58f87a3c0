"""More mistakes of 03.2: other pieces of memory than those that are kept, and steps of the walk that are forgotten.

Floor 4, room `exercises`; read `activations.py` first. All are one walk along the chain with a slip in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from math import prod
from typing import Any

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab03.words import gives_what


def walk(
    batch: int,
    image: tuple[int, ...],
    layers: list,
    *,
    pool_keeps_input: bool = True,
    norm_key: Callable[[int], Hashable] = lambda place: ("norm", place),
    norm_bytes: int = 8,
    moves: bool = True,
    measures: bool = True,
    relu_moves: bool = True,
) -> int:
    """Bytes kept. Each keyword is a slip: `moves` and `measures` say whether `piece` and `size` follow the chain.

    relu_moves: whether an ordinary ReLU keeps a new piece, of its own size, even where the walk does not move.
    """
    kept: dict[Hashable, int] = {}
    piece, size = 0, 4 * batch * prod(image)
    for place, (kind, shape) in enumerate(layers, start=1):
        new = 4 * batch * prod(shape)
        if kind in ("conv", "batch_norm") or (kind == "max_pool" and pool_keeps_input):
            kept[piece] = size
        if kind == "batch_norm":
            kept[norm_key(place)] = norm_bytes * shape[0]
        if kind == "max_pool":
            kept["places", place] = 2 * new
        if kind == "relu" and relu_moves:
            kept[place] = new
        if kind != "relu_in_place":
            piece, size = place if moves else piece, new if measures else size
        if kind == "relu_in_place" or (kind == "relu" and not relu_moves):
            kept[piece] = size
    return sum(kept.values())


def by_shape(batch: int, image: tuple[int, ...], layers: list) -> int:
    kept, extra, before = set(), 0, tuple(image)
    for kind, shape in layers:
        kept.add(tuple(shape) if kind.startswith("relu") else before)
        extra += {"batch_norm": 8 * shape[0], "max_pool": 8 * batch * prod(shape)}.get(kind, 0)
        before = tuple(shape)
    return extra + sum(4 * batch * prod(shape) for shape in kept)


def outputs(batch: int, image: tuple[int, ...], layers: list, kinds: tuple[str, ...] = ("conv", "batch_norm")) -> int:
    """The layers of these kinds keep what they give, not what they read."""
    kept: dict[Hashable, int] = {}
    piece, size = 0, 4 * batch * prod(image)
    for place, (kind, shape) in enumerate(layers, start=1):
        new = 4 * batch * prod(shape)
        if not kind.startswith("relu") and kind not in kinds:
            kept[piece] = size
        if kind != "relu_in_place":
            piece, size = place, new
        if kind.startswith("relu") or kind in kinds:
            kept[piece] = size
        if kind == "batch_norm":
            kept["norm", place] = 8 * shape[0]
        if kind == "max_pool":
            kept["places", place] = 2 * new
    return sum(kept.values())


def _slip(name: str, sentence: str, *variants: Any) -> Mistake:
    return Mistake(name, variants[0], sentence, gives_what(*variants))


OTHER_PIECES = (
    Mistake(
        "takes tensors of one shape for one tensor",
        by_shape,
        "You take two tensors of the same shape for one. The input and the output of a batch norm have one shape, and still "
        "they are two pieces of memory: name a piece by where it was made.",
    ),
    _slip(
        "convolution and batch norm keep their output",
        "You let a convolution or a batch norm keep its output. What it has to keep is its *input*: the gradient of a "
        "weight is made of what the weight was multiplied with.",
        outputs,
        partial(outputs, kinds=("conv",)),
        partial(outputs, kinds=("batch_norm",)),
        partial(outputs, kinds=("conv", "batch_norm", "max_pool")),
    ),
)
FORGOTTEN_STEPS = (
    _slip(
        "max pooling keeps only the places",
        "Max pooling keeps its input as well as the places of the maxima. After a ReLU you do not see it, since the ReLU "
        "keeps that tensor anyway; here nobody else does.",
        partial(walk, pool_keeps_input=False),
    ),
    _slip(
        "one entry for the statistics of all batch norms",
        "The statistics of one batch norm replace those of the one before. Each batch norm keeps its own: give each a key "
        "of its own, or add them up.",
        partial(walk, norm_key=lambda place: "norm"),
    ),
    _slip(
        "statistics in numbers, not in bytes",
        "You add the statistics of batch norm as numbers. Two for each channel, and each takes 4 bytes.",
        partial(walk, norm_bytes=2),
        partial(walk, norm_bytes=1),
    ),
    _slip(
        "the size of the image for every tensor",
        "You give every tensor the size of the image. After each layer, `size` has to become the bytes of its output.",
        partial(walk, measures=False),
        partial(walk, measures=False, relu_moves=False),
    ),
    _slip(
        "one piece of memory for the whole chain",
        "`piece` never moves on, so what one layer keeps replaces what another has kept. Each layer but a ReLU in place "
        "makes a new piece of memory.",
        partial(walk, moves=False),
        partial(walk, moves=False, relu_moves=False),
    ),
)
