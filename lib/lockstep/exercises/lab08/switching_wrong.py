"""Exercise 08.3: wrong solutions that students write; their sentences are in `switching_mistakes.py`.

Floor 4, room `exercises`. `_switched` is a right answer in pieces; most mistakes change one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F


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


def gathers_without_sizes(comm, x, weight, bias, images):
    return _switched(comm, x, weight, bias, images, gather=lambda comm, images: lambda x: comm.all_gather(x))


def swaps_evenly(comm, x, weight, bias, images):
    def even(comm, images):
        return lambda y: torch.cat(comm.all_to_all(y).chunk(comm.size), dim=1)

    return _switched(comm, x, weight, bias, images, swap=even)
