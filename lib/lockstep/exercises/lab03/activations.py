"""03.2 `saved_activations`: what a chain of layers keeps for the way back, each piece of memory once.

Floor 4, room `exercises`. The rules are PyTorch's own (derivatives.yaml): a convolution keeps its input, a ReLU its
output, max pooling its input and the places of the maxima, batch norm its input and two numbers for each channel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import same_value
from lockstep.exercises.lab03.activations_slips import FORGOTTEN_STEPS, OTHER_PIECES
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call


def saved_activations(batch, image, layers):
    def numbers(shape):
        channels, height, width = shape
        return batch * channels * height * width

    kept, extra = {}, 0  # bytes of each piece of memory that is kept, and of what belongs to no activation
    piece, size = 0, 4 * numbers(image)
    for place, (kind, shape) in enumerate(layers, start=1):
        if kind in ("conv", "batch_norm", "max_pool"):
            kept[piece] = size
        if kind == "batch_norm":
            extra += 4 * 2 * shape[0]
        if kind == "max_pool":
            extra += 8 * numbers(shape)
        if kind != "relu_in_place":
            piece, size = place, 4 * numbers(shape)
        if kind in ("relu", "relu_in_place"):
            kept[piece] = size
    return sum(kept.values()) + extra


def build(image: tuple[int, int, int], layers: list) -> nn.Sequential:
    """A real chain of these kinds and shapes: convolutions without padding, pools without overlap."""
    made, (channels, height, _) = [], image
    for kind, shape in layers:
        if kind == "conv":
            made.append(nn.Conv2d(channels, shape[0], height - shape[1] + 1, bias=False))
        elif kind == "max_pool":
            made.append(nn.MaxPool2d(height // shape[1]))
        else:
            made.append({"batch_norm": nn.BatchNorm2d(channels), "relu": nn.ReLU()}.get(kind, nn.ReLU(inplace=True)))
        channels, height, _ = shape
    return nn.Sequential(*made)


def by_asking_pytorch(batch, image, layers):
    model = build(image, layers)
    own = {id(t.untyped_storage()) for t in (*model.parameters(), *model.buffers())}
    kept = {}

    def keep(tensor):
        kept[id(tensor.untyped_storage())] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(torch.zeros(batch, *image))
    return sum(storage.nbytes() for key, storage in kept.items() if key not in own)


def by_looking_at_neighbours(batch, image, layers):
    # A tensor is kept if a ReLU made it (its output) or a layer other than a ReLU reads it (its input).
    shapes = [image, *(shape for _, shape in layers)]
    kinds = ["image", *(kind for kind, _ in layers), "end"]
    total = 0
    for place, shape in enumerate(shapes):
        count = batch * shape[0] * shape[1] * shape[2]
        made, read = kinds[place], kinds[place + 1]
        if made.startswith("relu") or read in ("conv", "batch_norm", "max_pool"):
            total += 4 * count
        total += {"max_pool": 8 * count, "batch_norm": 8 * shape[0]}.get(made, 0)
    return total


def saved_activations_stub(batch, image, layers):
    raise NotImplementedError("bytes kept for backward, each piece of memory once")


def counts_in_place_twice(batch, image, layers):
    total = saved_activations(batch, image, layers)
    shapes = [shape for kind, shape in layers if kind == "relu_in_place"]
    return total + sum(4 * batch * c * h * w for c, h, w in shapes)


def relu_keeps_its_input_too(batch, image, layers):
    total = saved_activations(batch, image, layers)
    shapes = [shape for kind, shape in layers if kind.startswith("relu")]
    return total + sum(4 * batch * c * h * w for c, h, w in shapes)


def in_place_keeps_nothing(batch, image, layers):
    total = saved_activations(batch, image, layers)
    shapes = [shape for kind, shape in layers if kind == "relu_in_place"]
    return total - sum(4 * batch * c * h * w for c, h, w in shapes)


def counts_neighbours_twice(batch, image, layers):
    total, (c, h, w) = 0, image
    size = 4 * batch * c * h * w
    for kind, (c, h, w) in layers:
        new = 4 * batch * c * h * w
        total += new if kind.startswith("relu") else size
        total += {"batch_norm": 8 * c, "max_pool": 2 * new}.get(kind, 0)
        size = new
    return total


def keeps_every_output(batch, image, layers):
    shapes = [image, *(shape for kind, shape in layers if kind != "relu_in_place")]
    total = sum(4 * batch * c * h * w for c, h, w in shapes)
    extra = [8 * batch * s[0] * s[1] * s[2] for kind, s in layers if kind == "max_pool"]
    return total + sum(extra) + sum(8 * s[0] for kind, s in layers if kind == "batch_norm")


def forgets_the_image(batch, image, layers):
    return saved_activations(batch, image, layers) - 4 * batch * image[0] * image[1] * image[2]


def forgets_the_indices(batch, image, layers):
    return saved_activations(batch, image, layers) - sum(
        8 * batch * c * h * w for kind, (c, h, w) in layers if kind == "max_pool"
    )


def indices_of_four_bytes(batch, image, layers):
    return saved_activations(batch, image, layers) - sum(
        4 * batch * c * h * w for kind, (c, h, w) in layers if kind == "max_pool"
    )


def indices_of_the_input(batch, image, layers):
    total, before = saved_activations(batch, image, layers), image
    for kind, shape in layers:
        if kind == "max_pool":
            total += 8 * batch * (before[0] * before[1] * before[2] - shape[0] * shape[1] * shape[2])
        before = shape
    return total


def forgets_the_statistics(batch, image, layers):
    return saved_activations(batch, image, layers) - sum(8 * c for kind, (c, _, _) in layers if kind == "batch_norm")


def one_statistic(batch, image, layers):
    return saved_activations(batch, image, layers) - sum(4 * c for kind, (c, _, _) in layers if kind == "batch_norm")


def statistics_of_each_image(batch, image, layers):
    more = [8 * c * (batch - 1) for kind, (c, _, _) in layers if kind == "batch_norm"]
    return saved_activations(batch, image, layers) + sum(more)


def one_image_only(batch, image, layers):
    return saved_activations(1, image, layers)


def counts_numbers(batch, image, layers):
    return saved_activations(batch, image, layers) / 4


def cases(rng: np.random.Generator) -> Iterator[Case]:
    chains = (
        "conv",
        "conv relu",
        "conv relu conv",
        "conv relu_in_place conv",
        "conv relu max_pool",
        "conv max_pool conv",  # no ReLU beside the pool: nobody else keeps its input
        "conv batch_norm relu_in_place",
        "conv batch_norm relu conv batch_norm relu",
        "conv batch_norm relu max_pool conv relu",
        "conv batch_norm relu_in_place max_pool conv relu_in_place conv",
        "conv relu_in_place conv relu max_pool conv batch_norm relu max_pool conv",
    )
    for words in chains:
        batch, channels, side = int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.choice((20, 24, 28)))
        image, layers = (channels, side, side), []
        for kind in words.split():
            if kind == "conv":
                channels, side = int(rng.integers(2, 7)), side - 2
            elif kind == "max_pool":
                side //= 2
            layers.append((kind, (channels, side, side)))
        yield Case(f"{batch} images {list(image)}: {words.replace(' ', ', ')}", (batch, image, layers))


OBSERVE, JUDGE = Call(), same_value(rtol=1e-9)

SAVED = Exercise(
    id="03.2",
    title="What a chain of layers keeps",
    function="saved_activations",
    points=3,
    asks=(
        "Return the bytes that a chain of layers keeps for the backward pass of `batch` images in float32, each piece of "
        'memory once and parameters left out. `layers` is a list of (kind, shape of the output); kinds are "conv", '
        '"batch_norm", "relu", "relu_in_place" and "max_pool".'
    ),
    reference=saved_activations,
    also_right=(by_asking_pytorch, by_looking_at_neighbours),
    stub=saved_activations_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(  # only that two pieces have different names matters
        "line 7: piece, size = (0, 4 * numbers(image)) -> piece, size = (-1, 4 * numbers(image))",
        "line 8: for place, (kind, shape) in enumerate(layers, start=1): -> "
        "for place, (kind, shape) in enumerate(layers, start=2):",
    ),
    hints=(
        "Go along the chain with a pencil: for each tensor, who keeps it? The table above says what each kind of layer "
        "keeps. A tensor that two layers keep is still one piece of memory.",
        "You need three things as you walk: which piece of memory holds the current tensor, how large it is, and a "
        "dictionary from pieces to bytes. Only an in-place ReLU leaves the piece as it is.",
        "Convolution, batch norm and pooling do `kept[piece] = size` before they make their output; a ReLU does so after. "
        "The places of the maxima take 8 bytes for each number of the pool's *output*.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            *OTHER_PIECES,
            Mistake(
                "counts an in-place ReLU twice",
                counts_in_place_twice,
                "You count input and output of an in-place ReLU. It writes its output where its input was, so there is "
                "one piece of memory.",
            ),
            Mistake(
                "a ReLU keeps its input too",
                relu_keeps_its_input_too,
                "You keep the input of a ReLU as well. Its output is enough to know where the input was positive, and "
                "nobody else needs that input.",
            ),
            Mistake(
                "an in-place ReLU keeps nothing",
                in_place_keeps_nothing,
                "An in-place ReLU saves a tensor on the way, but it still keeps its output: without it nobody knows on the "
                "way back what was cut off.",
            ),
            Mistake(
                "counts shared memory twice",
                counts_neighbours_twice,
                "What a ReLU gives and what the next layer reads is the same tensor. Both keep it, but it takes its memory "
                "once.",
            ),
            Mistake(
                "keeps every output",
                keeps_every_output,
                "You keep the output of every layer. The output of a convolution that goes into a ReLU is kept by nobody, "
                "and neither is the output of the last layer unless that is a ReLU.",
            ),
            Mistake(
                "forgets the image",
                forgets_the_image,
                "The first convolution keeps its input too, which is the batch of images: the gradient of its weights "
                "needs them.",
            ),
            Mistake(
                "forgets the places of the maxima",
                forgets_the_indices,
                "Max pooling keeps more than its input: the place of each maximum, so that the gradient finds its way back.",
            ),
            Mistake(
                "places of four bytes",
                indices_of_four_bytes,
                "PyTorch keeps the places of the maxima as 64-bit integers, 8 bytes each, twice as much as a number.",
            ),
            Mistake(
                "as many places as inputs",
                indices_of_the_input,
                "There is one maximum for each number of the pool's output, so that is how many places are kept.",
            ),
            Mistake(
                "forgets the statistics",
                forgets_the_statistics,
                "Batch norm keeps the mean and the deviation of each channel beside its input. It is little, but you are "
                "asked for every byte.",
            ),
            Mistake(
                "one statistic a channel",
                one_statistic,
                "Batch norm keeps two numbers for each channel: its mean and one over its standard deviation.",
            ),
            Mistake(
                "statistics of each image",
                statistics_of_each_image,
                "The statistics of batch norm are those of the whole batch: they do not grow with it.",
            ),
            Mistake(
                "one image only",
                one_image_only,
                "That is what one image keeps. Everything but the statistics of batch norm is there for each image of the "
                "batch.",
            ),
            Mistake(
                "counts numbers instead of bytes",
                counts_numbers,
                "That is a quarter of the bytes: a number in float32 takes 4.",
            ),
            *FORGOTTEN_STEPS,
        ),
    ),
)
