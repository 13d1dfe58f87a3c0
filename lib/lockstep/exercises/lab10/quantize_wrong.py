"""Wrong solutions of exercise 10.1.

Floor 4, room `exercises`; what each of them is told is in `quantize_mistakes.py`.
"""

from __future__ import annotations

import math
import random

import torch
from torch.nn import functional as F


def at_random(steps):
    return torch.floor(steps + torch.rand_like(steps)).clamp(-127, 127)


def decoded(comm, codes, scales):
    return (comm.all_gather(codes) * comm.all_gather(scales)).view(comm.size, -1).mean(0)


def by_block(rows):
    return rows.abs().amax(1, keepdim=True)


def quantized(comm, g, block, *, most=127, largest=by_block, rounded=at_random, dtype=torch.int8, averaged=decoded):
    """The right function, in which one thing can be another."""
    rows = F.pad(g, (0, -len(g) % block)).view(-1, block)
    scales = largest(rows) / most
    steps = (rows / scales).nan_to_num()
    return averaged(comm, rounded(steps).to(dtype), scales)[: len(g)]


def reduces_codes(comm, g, block):
    def averaged(comm, codes, scales):
        return (comm.all_reduce(codes) * scales / comm.size).flatten()

    return quantized(comm, g, block, averaged=averaged)


def adds_codes(comm, g, block):
    def averaged(comm, codes, scales):
        total = torch.zeros_like(codes)
        for own in comm.all_gather(codes).chunk(comm.size):
            total += own
        return (total * scales / comm.size).flatten()

    def of_all_ranks(rows):
        return comm.all_reduce(by_block(rows), op="max")

    return quantized(comm, g, block, largest=of_all_ranks, averaged=averaged)


def to_the_nearest(comm, g, block):
    return quantized(comm, g, block, rounded=torch.round)


def always_down(comm, g, block):
    return quantized(comm, g, block, rounded=torch.floor)


def towards_zero(comm, g, block):
    return quantized(comm, g, block, rounded=torch.trunc)


def rounds_after_adding(comm, g, block):
    return quantized(comm, g, block, rounded=lambda x: torch.round(x + torch.rand_like(x)).clamp(-127, 127))


def carries_from_zero(comm, g, block):
    def rounded(x):
        return torch.trunc(x) + (torch.rand_like(x) < x - torch.floor(x))

    return quantized(comm, g, block, rounded=lambda x: rounded(x).clamp(-127, 127))


def more_often_the_wrong_way(comm, g, block):
    return quantized(
        comm, g, block, rounded=lambda x: (x.floor() + (torch.rand_like(x) > x.frac() % 1)).clamp(-127, 127)
    )


def one_random_number(comm, g, block):
    return quantized(comm, g, block, rounded=lambda x: torch.floor(x + torch.rand(1)).clamp(-127, 127))


def one_scale(comm, g, block):
    return quantized(comm, g, block, largest=lambda rows: by_block(rows).max().expand(len(rows), 1))


def the_127_forgotten(comm, g, block):
    return quantized(comm, g, block, averaged=lambda comm, codes, scales: decoded(comm, codes, 127 * scales))


def largest_with_sign(comm, g, block):
    return quantized(comm, g, block, largest=lambda rows: rows.amax(1, keepdim=True))


def so_many_blocks(comm, g, block):
    return quantized(comm, g, -(-len(g) // block))


def scales_not_sent(comm, g, block):
    def averaged(comm, codes, scales):
        return (comm.all_gather(codes).view(comm.size, -1, block) * scales).mean(0).flatten()

    return quantized(comm, g, block, averaged=averaged)


def averages_apart(comm, g, block):
    def averaged(comm, codes, scales):
        codes = comm.all_gather(codes).view(comm.size, -1, block).float().mean(0)
        return (codes * comm.all_gather(scales).view(comm.size, -1, 1).mean(0)).flatten()

    return quantized(comm, g, block, averaged=averaged)


def own_part_exact(comm, g, block):
    def averaged(comm, codes, scales):
        own = F.pad(g, (0, codes.numel() - len(g))) - (codes * scales).flatten()
        return decoded(comm, codes, scales) + own / comm.size

    return quantized(comm, g, block, averaged=averaged)


def sums(comm, g, block):
    return quantized(comm, g, block, averaged=lambda comm, codes, scales: decoded(comm, codes, scales) * comm.size)


def own_alone(comm, g, block):
    return quantized(comm, g, block, averaged=lambda comm, codes, scales: (codes * scales).flatten())


def a_code_too_many(comm, g, block):
    def rounded(x):
        return torch.floor(x + torch.rand_like(x)).to(torch.int32)

    return quantized(comm, g, block, most=128, rounded=rounded)


def numbers_on_the_wire(comm, g, block):
    def averaged(comm, codes, scales):
        return comm.all_reduce(codes * scales, op="mean").flatten()

    return quantized(comm, g, block, averaged=averaged)


def wide_codes(comm, g, block):
    return quantized(comm, g, block, dtype=torch.int32)


def into_the_gradient(comm, g, block):
    return g.copy_(quantized(comm, g, block))


def whole_blocks_alone(comm, g, block):
    rows = g.view(-1, block)
    return quantized(comm, rows.flatten(), block)


def zero_over_zero(comm, g, block):
    rows = F.pad(g, (0, -len(g) % block)).view(-1, block)
    scales = by_block(rows) / 127
    codes = [math.floor(step + random.random()) for step in (rows / scales).flatten().tolist()]
    return decoded(comm, torch.tensor(codes).clamp(-127, 127).to(torch.int8).view_as(rows), scales)[: len(g)]


def cut_after_adding(comm, g, block):
    return quantized(comm, g, block, rounded=lambda x: torch.trunc(x + torch.rand_like(x)).clamp(-127, 127))


def never_below_zero(comm, g, block):
    """The part after the point is negative there, and no random number is below it."""
    return quantized(comm, g, block, rounded=lambda x: torch.trunc(x) + (torch.rand_like(x) < x - torch.trunc(x)))


def tosses_a_coin(comm, g, block):
    return quantized(comm, g, block, rounded=lambda x: (x.floor() + (torch.rand_like(x) < 0.5)).clamp(-127, 127))


def a_scale_for_each_number(comm, g, block):
    def averaged(comm, codes, scales):
        return decoded(comm, codes, scales.expand_as(codes).contiguous())

    return quantized(comm, g, block, averaged=averaged)


def the_same_at_each_call(comm, g, block):
    def rounded(x):
        return torch.floor(x + torch.rand(x.shape, generator=torch.Generator().manual_seed(comm.rank))).clamp(-127, 127)

    return quantized(comm, g, block, rounded=rounded)


def one_for_each_block(comm, g, block):
    return quantized(comm, g, block, rounded=lambda x: torch.floor(x + torch.rand(len(x), 1)).clamp(-127, 127))


def half_of_the_codes(comm, g, block):
    return quantized(comm, g, block, most=63)


def scales_of_two_bytes(comm, g, block):
    def averaged(comm, codes, scales):
        return decoded(comm, codes, scales.half())

    return quantized(comm, g, block, averaged=averaged)


def the_rest_left_out(comm, g, block):
    return quantized(comm, g[: len(g) // block * block], block)
