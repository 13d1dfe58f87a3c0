"""What somebody who solved lab 09 for the first time wrote on the way, and the words that the verdict must hold.

`FOUND`: (exercise, function, words); each once passed, got a wrong cause, or none. A word with a leading "-" must not be
there. `RIGHT`: (exercise, function); each once failed, or is right in a way that is unlike the reference.
"""

import math
from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F

# 09.1


def counted(kept=None, width=None, shard=None, first=(3, 2, 1)):
    """The bytes, with one part counted in another way."""

    def state(parameters, ranks, stage, optimizer, precision):
        w = 4 if precision == "fp32" else 2
        k = {"sgd": 0, "momentum": 4, "adam": 8}[optimizer] + (4 if precision == "mixed" else 0)
        k = kept(optimizer, precision) if kept else k
        s = shard(parameters, ranks) if shard else -(-parameters // ranks)
        sizes = (w, w, k)
        parts = [b * (s if stage >= at else parameters) for b, at in zip(sizes, first, strict=True)]
        return dict(zip(("parameters", "gradients", "optimizer"), parts, strict=True))

    return state


one_more = counted(shard=lambda n, ranks: n // ranks + 1)  # Passed: no case divided.
nothing_on_many_ranks = counted(shard=lambda n, ranks: -(-n // ranks) if n > ranks else 0)  # Passed.
momentum_of_eight = counted(lambda o, p: (0 if o == "sgd" else 8) + (4 if p == "mixed" else 0))  # "No master copy".
means_of_two = counted(
    lambda o, p: {"sgd": 0, "momentum": 1, "adam": 2}[o] * (4 if p == "fp32" else 2) + 4 * (p != "fp32")
)
gradients_late = counted(first=(3, 3, 1))  # "One stage behind: the optimizer's part".
swapped = counted(first=(2, 3, 1))  # "You shard all parts in every stage".


def pads_in_every_stage(parameters, ranks, stage, optimizer, precision):
    padded = math.ceil(parameters / ranks) * ranks
    return counted()(padded, ranks, stage, optimizer, precision)


def in_a_defaultdict(parameters, ranks, stage, optimizer, precision):
    found = defaultdict(float)
    found.update(counted()(parameters, ranks, stage, optimizer, precision))
    return found


# 09.2


def zeros_of_float32(tensors, rank, size):
    # Passed: in float64 the zeros are promoted, in bfloat16 the numbers are.
    flat = torch.cat([t.detach().flatten() for t in tensors])
    flat = torch.cat([flat, torch.zeros(-len(flat) % size)])
    return flat.view(size, -1)[rank].clone()


def last_rank_alone(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    n = -(-len(flat) // size)
    own = flat[rank * n : (rank + 1) * n].clone()
    return torch.cat([own, own.new_zeros(n - len(own))]) if rank == size - 1 else own


def writes_zeros(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    flat = F.pad(flat, (0, -len(flat) % size))
    for t in tensors:
        t.data.fill_(0)
    return flat.view(size, -1)[rank].clone()


def twice_the_size(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    return F.pad(flat, (0, -len(flat) % (2 * size))).view(size, -1)[rank].clone()


def as_a_parameter(tensors, rank, size):
    # "Has a history", which a leaf has not.
    flat = torch.cat([t.detach().flatten() for t in tensors])
    return nn.Parameter(F.pad(flat, (0, -len(flat) % size)).view(size, -1)[rank].clone())


# 09.3


def step_with(decide, factor=None, norm=None, optimizer_step=None, last=None):
    """A step whose parts can be others: whether to step, by which factor, what happens in the end."""

    def step(comm, parameters, shard, optimizer, max_norm):
        flat = torch.cat([p.grad.flatten() for p in parameters])
        shard.grad = comm.reduce_scatter(F.pad(flat, (0, len(shard) * comm.size - len(flat))), op="mean")
        length = norm(comm, shard) if norm else comm.all_reduce(shard.grad.square().sum()).sqrt()
        ok = decide(shard, length)
        if ok:
            if factor:
                shard.grad *= factor(length, max_norm)
            elif length > max_norm:
                shard.grad *= max_norm / length
            (optimizer_step or (lambda shard, optimizer: optimizer.step()))(shard, optimizer)
        nn.utils.vector_to_parameters(comm.all_gather(shard.detach())[: len(flat)], parameters)
        for p in parameters:
            p.grad = None
        if last is None:
            shard.grad = None
        return ok

    return step


def finite(shard, norm):
    return bool(norm.isfinite())


isinf_alone = step_with(lambda shard, norm: not norm.isinf())  # Passed: there was no NaN.
unlike_infinity = step_with(lambda shard, norm: bool(norm != float("inf")))  # Passed.
square_over_limit = step_with(finite, lambda n, most: most / n if n * n > most else 1)  # Passed.
ignores_max_norm = step_with(finite, lambda n, most: (1 / n).clamp(max=1))
squares_averaged = step_with(finite, norm=lambda c, s: c.all_reduce(s.grad.square().sum(), op="mean").sqrt())
gathers_the_mean = step_with(finite, norm=lambda c, s: c.all_gather(s.grad).norm())
shard_gradient_stays = step_with(finite, last="stays")  # "16 bytes of gradients", and not whose.


def lr_by_hand(shard, optimizer):
    shard.data.sub_(shard.grad, alpha=optimizer.param_groups[0]["lr"])


by_hand = step_with(finite, optimizer_step=lr_by_hand)


def nan_to_num(comm, parameters, shard, optimizer, max_norm):
    for p in parameters:
        p.grad = p.grad.nan_to_num(0, 0, 0)
    return step_with(finite)(comm, parameters, shard, optimizer, max_norm)


FOUND = [
    ("09.1", one_more, ["one number too many"]),
    ("09.1", nothing_on_many_ranks, ["Expected 4 at"]),
    ("09.1", momentum_of_eight, ["Adam that keeps two", "-no master copy"]),
    ("09.1", means_of_two, ["beside the master copy"]),
    ("09.1", gradients_late, ["whole until stage 3", "-behind"]),
    ("09.1", swapped, ["gradients first", "-all parts"]),
    ("09.1", pads_in_every_stage, ["only shards are padded"]),
    ("09.2", zeros_of_float32, ["another dtype"]),
    ("09.2", last_rank_alone, ["several ranks at the end"]),
    ("09.2", writes_zeros, ["they are the model"]),
    ("09.2", twice_the_size, ["further than to the next multiple"]),
    ("09.3", isinf_alone, ["when one is NaN"]),
    ("09.3", unlike_infinity, ["when one is NaN"]),
    ("09.3", square_over_limit, ["compare the sum of the squares"]),
    ("09.3", ignores_max_norm, ["whatever `max_norm` is"]),
    ("09.3", squares_averaged, ["they add up"]),
    ("09.3", gathers_the_mean, ["single number from each rank"]),
    ("09.3", shard_gradient_stays, ["`shard.grad` is still there", "-as much as"]),
    ("09.3", by_hand, ["its momentum is lost"]),
    ("09.3", nan_to_num, ["put zeros where"]),
]

RIGHT = [
    ("09.1", in_a_defaultdict),
    ("09.2", as_a_parameter),
]
