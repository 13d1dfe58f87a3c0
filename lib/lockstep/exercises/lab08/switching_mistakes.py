"""What students write for 08.3 before it is right.

Floor 4, room `exercises`. `_switched` is a right answer in pieces; each mistake changes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab06.passes import right_passes
from lockstep.exercises.symptoms import matches, says


def _function(forward: Callable[[Any], Any], backward: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A tensor function with that backward."""

    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return forward(x)

        @staticmethod
        def backward(ctx, gradient):
            return backward(gradient)

    return Both.apply


def _gather(comm, images):
    return lambda x: comm.all_gather(x, images)


def _scatter(comm, images):
    def scatter(gradient):
        rows = [n * gradient.shape[1] for n in images]
        return comm.reduce_scatter(gradient, sizes=rows).view(images[comm.rank], -1)

    return scatter


def _swap(comm, images):
    own = images[comm.rank]
    return lambda y: torch.cat(comm.all_to_all(y, images, [own] * comm.size).split(own), dim=1)


def _swap_back(comm, images):
    own = images[comm.rank]
    return lambda gradient: comm.all_to_all(torch.cat(gradient.chunk(comm.size, dim=1)), [own] * comm.size, images)


def _switched(comm, x, weight, bias, images, gather=_gather, scatter=_scatter, swap=_swap, swap_back=_swap_back):
    everything = _function(gather(comm, images), scatter(comm, images))(x)
    y = F.linear(everything, weight, bias)
    return _function(swap(comm, images), swap_back(comm, images))(y)


def stays_data_parallel(comm, x, weight, bias, images):
    return F.linear(x, weight, bias)


def communicates_outside_autograd(comm, x, weight, bias, images):
    own = images[comm.rank]
    everything = comm.all_gather(x, images)
    y = F.linear(everything, weight, bias)
    return torch.cat(comm.all_to_all(y, images, [own] * comm.size).split(own), dim=1)


def gathers_images_outside_autograd(comm, x, weight, bias, images):
    y = F.linear(comm.all_gather(x, images), weight, bias)
    return _function(_swap(comm, images), _swap_back(comm, images))(y)


def _images_have_no_gradient(case, seen, expected):
    return seen.error is None and any(
        isinstance(one["y"], torch.Tensor) and one["the gradient of x"] is None for one in seen.value
    )


def _own_rows(comm, images):
    first = sum(images[: comm.rank])
    return lambda gradient: gradient[first : first + images[comm.rank]].clone()


def keeps_its_own_rows(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, images, scatter=_own_rows)


def _all_reduced(comm, images):
    first = sum(images[: comm.rank])
    return lambda gradient: comm.all_reduce(gradient.clone())[first : first + images[comm.rank]]


def all_reduces_the_images(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, images, scatter=_all_reduced)


def _averaged(comm, images):
    return lambda gradient: _scatter(comm, images)(gradient) / comm.size


def averages_the_gradient(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, images, scatter=_averaged)


def _below(comm, images):
    own = images[comm.rank]
    return lambda y: comm.all_to_all(y, images, [own] * comm.size).reshape(own, -1)


def _above(comm, images):
    own = images[comm.rank]
    return lambda gradient: comm.all_to_all(
        gradient.reshape(own * comm.size, -1).contiguous(), [own] * comm.size, images
    )


def reads_blocks_as_rows(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, images, swap=_below, swap_back=_above)


def _all_outputs(comm, images):
    first = sum(images[: comm.rank])

    def gather(y):
        neurons = comm.all_gather(y.T.contiguous()).T
        return neurons[first : first + images[comm.rank]].contiguous()

    return gather


def gathers_all_outputs(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, images, swap=_all_outputs)


def _own_neurons_of_own_images(comm, images):
    first = sum(images[: comm.rank])

    def backward(gradient):
        own = gradient.chunk(comm.size, dim=1)[comm.rank]
        whole = torch.zeros(sum(images), own.shape[1])
        whole[first : first + images[comm.rank]] = own
        return whole

    return backward


def sends_no_gradient_back(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, images, swap_back=_own_neurons_of_own_images)


def moves_the_weights(comm, x, weight, bias, images):
    def gathered(tensor):
        back = lambda gradient: comm.reduce_scatter(gradient).view(tensor.shape)  # noqa: E731
        return _function(lambda one: comm.all_gather(one), back)(tensor)

    return F.linear(x, gathered(weight), gathered(bias))


def gathers_the_biased_sum(comm, x, weight, bias, images):
    y = F.linear(x, weight, bias)
    back = lambda gradient: gradient.chunk(comm.size, dim=1)[comm.rank].contiguous()  # noqa: E731
    return _function(lambda one: comm.all_gather(one.T.contiguous()).T.contiguous(), back)(y)


def forgets_the_bias(comm, x, weight, bias, images):
    everything = _function(_gather(comm, images), _scatter(comm, images))(x)
    return _function(_swap(comm, images), _swap_back(comm, images))(everything @ weight.T)


def adds_its_bias_to_all(comm, x, weight, bias, images):
    return forgets_the_bias(comm, x, weight, bias, images) + bias.repeat(comm.size)


def leaves_blocks_below_each_other(comm, x, weight, bias, images):
    own = images[comm.rank]
    swap = lambda comm, images: lambda y: comm.all_to_all(y, images, [own] * comm.size)  # noqa: E731
    back = lambda comm, images: lambda g: comm.all_to_all(g.contiguous(), [own] * comm.size, images)  # noqa: E731
    return _switched(comm, x, weight, bias, images, swap=swap, swap_back=back)


def own_block_first(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, images).roll(-comm.rank * len(weight), 1)


def weaves_blocks(comm, x, weight, bias, images):
    return torch.stack(_switched(comm, x, weight, bias, images).tensor_split(comm.size, 1), 2).flatten(1)


def cuts_no_columns_backward(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, images, swap_back=_above)


def asks_for_the_images(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, comm.all_gather(torch.tensor([len(x)])).tolist())


def scatters_rows(comm, x, weight, bias, images):
    scatter = lambda comm, images: lambda gradient: comm.reduce_scatter(gradient, sizes=images)  # noqa: E731
    return _switched(comm, x, weight, bias, images, scatter=scatter)


def flat_gradient(comm, x, weight, bias, images):
    scatter = lambda comm, images: lambda gradient: _scatter(comm, images)(gradient).view(-1)  # noqa: E731
    return _switched(comm, x, weight, bias, images, scatter=scatter)


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


def gathers_without_sizes(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, images, gather=lambda comm, images: lambda x: comm.all_gather(x))


def swaps_evenly(comm, x, weight, bias, images):
    def even(comm, images):
        return lambda y: torch.cat(comm.all_to_all(y).chunk(comm.size), dim=1)

    return _switched(comm, x, weight, bias, images, swap=even)


def _uneven(*words):
    def symptom(case, seen, expected):
        return seen.error is not None and len(set(case.args[0])) > 1 and any(w in seen.error.message for w in words)

    return symptom


MISTAKES = (
    Mistake(
        "stays data parallel",
        stays_data_parallel,
        "You apply this rank's neurons to this rank's images. Asked are all neurons of them: the other ranks have the others, "
        "and need your images for that.",
    ),
    Mistake(
        "outside autograd",
        communicates_outside_autograd,
        "The outputs are right, but they have no history: `comm` is outside autograd. Wrap both switches in a "
        "`torch.autograd.Function`, as in lab 06.",
    ),
    Mistake(
        "images gathered outside autograd",
        gathers_images_outside_autograd,
        "`x.grad` is None: `comm` is outside autograd, and what it gathers has no history. The convolutions before this layer "
        "would learn nothing. Gather in a `torch.autograd.Function` whose backward brings each rank the gradient of its images.",
        symptom=_images_have_no_gradient,
    ),
    Mistake(
        "gradient of the images not added up",
        keeps_its_own_rows,
        "Backward each rank has a gradient of all images, but only through its own neurons. You keep the rows of your own "
        "images and drop the rest, which other ranks wait for. Add them up: a reduce-scatter.",
    ),
    Mistake(
        "all-reduces the gradient of all images",
        all_reduces_the_images,
        "The numbers are right, but after your all-reduce every rank has the gradient of all images and uses its own rows. "
        "A reduce-scatter gives it just those, with half the bytes. (As much is sent by who gathers the images once more "
        "backward: keep them.)",
    ),
    Mistake(
        "averages over the wrong axis",
        averages_the_gradient,
        "You divide the gradient of the images by the number of ranks. Ranks have *different neurons* of one layer here, so "
        "their gradients are terms of one sum. An average belongs to ranks that have the same layer and different images.",
    ),
    Mistake(
        "reads blocks as rows",
        reads_blocks_as_rows,
        "The right numbers arrive, in the wrong places. The all-to-all stacks one block from each rank, (own images, own "
        "neurons), below each other. They belong side by side: `torch.cat(..., dim=1)`.",
    ),
    Mistake(
        "gathers all outputs",
        gathers_all_outputs,
        "The numbers are right, but every rank gets the outputs of all images and throws most of them away. An all-to-all "
        "sends each rank the rows of its own images only.",
        symptom=_gathers_outputs,
    ),
    Mistake(
        "sends no gradient back",
        sends_no_gradient_back,
        "Each rank uses only the gradient of its own images for its neurons. They saw the images of all ranks: backward, the "
        "all-to-all goes the other way and brings those gradients.",
    ),
    Mistake(
        "moves the weights",
        moves_the_weights,
        "The numbers are right, but you gather the *weights* on every rank, and that is what the trick avoids: a linear "
        "layer has far more weights than its images have features. Move the images.",
    ),
    Mistake(
        "joins outputs of different images",
        gathers_the_biased_sum,
        "You put together what each rank computed for its own images: neurons of different images land in one row. First "
        "every rank needs all images.",
    ),
    Mistake(
        "no bias",
        forgets_the_bias,
        "The bias is missing: each rank adds that of its own neurons to them, for all images.",
    ),
    Mistake(
        "its own bias for all neurons",
        adds_its_bias_to_all,
        "Every rank adds its own bias to everybody's neurons. It has the bias of its own neurons only: add it where they are "
        "computed, before the switch.",
    ),
    Mistake(
        "blocks left below each other",
        leaves_blocks_below_each_other,
        "What the all-to-all gives is as it arrived: one block from each rank, below each other. Asked is a row for each of "
        "your images, (own images, all neurons): put the blocks side by side.",
    ),
    Mistake(
        "own block first",
        own_block_first,
        "The right blocks, but your own neurons come first. All ranks need one order, that of the ranks.",
    ),
    Mistake(
        "blocks woven together",
        weaves_blocks,
        "You take one neuron of each rank in turn. Rank 0's neurons come first, all of them, then rank 1's.",
    ),
    Mistake(
        "columns not cut backward",
        cuts_no_columns_backward,
        "Forward is right. Backward you send rows of the gradient as they lie in memory. Rank j needs the *columns* of its "
        "neurons: cut the gradient by columns and put the pieces below each other.",
    ),
    Mistake(
        "asks for the numbers of images",
        asks_for_the_images,
        "The numbers are right, but ranks tell each other how many images they have. That is in `images`.",
    ),
    Mistake(
        "sizes in rows",
        scatters_rows,
        "`reduce_scatter` counts elements: a row of the gradient has as many as there are inputs.",
        symptom=matches(r"(^|: )sizes is \["),
    ),
    Mistake(
        "flat gradient",
        flat_gradient,
        "What `reduce_scatter` returns is flat. The gradient of the images has their shape: `.view(...)`.",
        symptom=says("returned an invalid gradient"),
    ),
    Mistake(
        "gathers without sizes",
        gathers_without_sizes,
        "Ranks have different numbers of images, and an all-gather has to be told: `comm.all_gather(x, images)`.",
        symptom=_uneven("all_gather"),
    ),
    Mistake(
        "swaps evenly",
        swaps_evenly,
        "Ranks have different numbers of images, and an all-to-all has to be told: `images[j]` rows go to rank j, and as "
        "many as you have images come from each.",
        symptom=_uneven("all_to_all"),
    ),
)
