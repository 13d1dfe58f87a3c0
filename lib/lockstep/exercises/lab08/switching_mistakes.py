"""Exercise 08.3: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; wrong solutions are in `switching_wrong.py`.
"""

from __future__ import annotations

import torch

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab06.passes import right_passes
from lockstep.exercises.lab08 import switching_wrong as wrong
from lockstep.exercises.symptoms import matches, says


def _images_have_no_gradient(case, seen, expected):
    return seen.error is None and any(
        isinstance(one["y"], torch.Tensor) and one["the gradient of x"] is None for one in seen.value
    )


def _gathers_outputs(case, seen, expected):
    """Numbers are right, and as many bytes too many are sent as all ranks' outputs on every rank take."""
    found = None if seen.error is not None else right_passes(case, seen, expected)
    if found is None or found.evidence[0] != "bytes":
        return False
    images, neurons, ranks = case.args[0], case.each[0][1].shape[0], len(case.args[0])
    spare = 4 * (ranks - 1) * neurons * sum(images) * (ranks - 1)  # of an all-gather over an all-to-all
    sent = [[sum(one[name] for one in who.value) for name in ("forward", "backward")] for who in (seen, expected)]
    beyond = [got - least for got, least in zip(*sent, strict=True)]
    return max(beyond) == spare


def _uneven(*words):
    def symptom(case, seen, expected):
        return seen.error is not None and len(set(case.args[0])) > 1 and any(w in seen.error.message for w in words)

    return symptom


MISTAKES = (
    Mistake(
        "stays data parallel",
        wrong.stays_data_parallel,
        "You apply this rank's neurons to this rank's images. Asked are all neurons of them: the other ranks have the others, "
        "and need your images for that.",
    ),
    Mistake(
        "outside autograd",
        wrong.communicates_outside_autograd,
        "The outputs are right, but they have no history: `comm` is outside autograd. Wrap both switches in a "
        "`torch.autograd.Function`, as in lab 06.",
    ),
    Mistake(
        "images gathered outside autograd",
        wrong.gathers_images_outside_autograd,
        "`x.grad` is None: `comm` is outside autograd, and what it gathers has no history. The convolutions before this layer "
        "would learn nothing. Gather in a `torch.autograd.Function` whose backward brings each rank the gradient of its images.",
        symptom=_images_have_no_gradient,
    ),
    Mistake(
        "gradient of the images not added up",
        wrong.keeps_its_own_rows,
        "Backward each rank has a gradient of all images, but only through its own neurons. You keep the rows of your own "
        "images and drop the rest, which other ranks wait for. Add them up: a reduce-scatter.",
    ),
    Mistake(
        "all-reduces the gradient of all images",
        wrong.all_reduces_the_images,
        "The numbers are right, but after your all-reduce every rank has the gradient of all images and uses its own rows. "
        "A reduce-scatter gives it just those, with half the bytes. (As much is sent by who gathers the images once more "
        "backward: keep them.)",
    ),
    Mistake(
        "averages over the wrong axis",
        wrong.averages_the_gradient,
        "You divide the gradient of the images by the number of ranks. Ranks have *different neurons* of one layer here, so "
        "their gradients are terms of one sum. An average belongs to ranks that have the same layer and different images.",
    ),
    Mistake(
        "reads blocks as rows",
        wrong.reads_blocks_as_rows,
        "The right numbers arrive, in the wrong places. The all-to-all stacks one block from each rank, (own images, own "
        "neurons), below each other. They belong side by side: `torch.cat(..., dim=1)`.",
    ),
    Mistake(
        "gathers all outputs",
        wrong.gathers_all_outputs,
        "The numbers are right, but every rank gets the outputs of all images and throws most of them away. An all-to-all "
        "sends each rank the rows of its own images only.",
        symptom=_gathers_outputs,
    ),
    Mistake(
        "sends no gradient back",
        wrong.sends_no_gradient_back,
        "Each rank uses only the gradient of its own images for its neurons. They saw the images of all ranks: backward, the "
        "all-to-all goes the other way and brings those gradients.",
    ),
    Mistake(
        "moves the weights",
        wrong.moves_the_weights,
        "The numbers are right, but you gather the *weights* on every rank, and that is what the trick avoids: a linear "
        "layer has far more weights than its images have features. Move the images.",
    ),
    Mistake(
        "joins outputs of different images",
        wrong.gathers_the_biased_sum,
        "You put together what each rank computed for its own images: neurons of different images land in one row. First "
        "every rank needs all images.",
    ),
    Mistake(
        "no bias",
        wrong.forgets_the_bias,
        "The bias is missing: each rank adds that of its own neurons to them, for all images.",
    ),
    Mistake(
        "its own bias for all neurons",
        wrong.adds_its_bias_to_all,
        "Every rank adds its own bias to everybody's neurons. It has the bias of its own neurons only: add it where they are "
        "computed, before the switch.",
    ),
    Mistake(
        "blocks left below each other",
        wrong.leaves_blocks_below_each_other,
        "What the all-to-all gives is as it arrived: one block from each rank, below each other. Asked is a row for each of "
        "your images, (own images, all neurons): put the blocks side by side.",
    ),
    Mistake(
        "own block first",
        wrong.own_block_first,
        "The right blocks, but your own neurons come first. All ranks need one order, that of the ranks.",
    ),
    Mistake(
        "blocks woven together",
        wrong.weaves_blocks,
        "You take one neuron of each rank in turn. Rank 0's neurons come first, all of them, then rank 1's.",
    ),
    Mistake(
        "columns not cut backward",
        wrong.cuts_no_columns_backward,
        "Forward is right. Backward you send rows of the gradient as they lie in memory. Rank j needs the *columns* of its "
        "neurons: cut the gradient by columns and put the pieces below each other.",
    ),
    Mistake(
        "asks for the numbers of images",
        wrong.asks_for_the_images,
        "The numbers are right, but ranks tell each other how many images they have. That is in `images`.",
    ),
    Mistake(
        "sizes in rows",
        wrong.scatters_rows,
        "`reduce_scatter` counts elements: a row of the gradient has as many as there are inputs.",
        symptom=matches(r"(^|: )sizes is \["),
    ),
    Mistake(
        "flat gradient",
        wrong.flat_gradient,
        "What `reduce_scatter` returns is flat. The gradient of the images has their shape: `.view(...)`.",
        symptom=says("returned an invalid gradient"),
    ),
    Mistake(
        "gathers without sizes",
        wrong.gathers_without_sizes,
        "Ranks have different numbers of images, and an all-gather has to be told: `comm.all_gather(x, images)`.",
        symptom=_uneven("all_gather"),
    ),
    Mistake(
        "swaps evenly",
        wrong.swaps_evenly,
        "Ranks have different numbers of images, and an all-to-all has to be told: `images[j]` rows go to rank j, and as "
        "many as you have images come from each.",
        symptom=_uneven("all_to_all"),
    ),
)
