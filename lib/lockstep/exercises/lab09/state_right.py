"""Exercise 09.1's reference, other right functions, and the stub.

Floor 4, room `exercises`; the exercise is in `state.py`.
"""

from __future__ import annotations

import math


def state_bytes(parameters, ranks, stage, optimizer, precision):
    width = 2 if precision == "mixed" else 4
    kept = {"sgd": 0, "momentum": 4, "adam": 8}[optimizer] + (4 if precision == "mixed" else 0)
    shard = -(-parameters // ranks)
    return {
        "parameters": width * (shard if stage >= 3 else parameters),
        "gradients": width * (shard if stage >= 2 else parameters),
        "optimizer": kept * (shard if stage >= 1 else parameters),
    }


def part_by_part(parameters, ranks, stage, optimizer, precision):
    sizes = {"parameters": 4, "gradients": 4, "optimizer": 4 * ["sgd", "momentum", "adam"].index(optimizer)}
    if precision == "mixed":
        sizes = {"parameters": 2, "gradients": 2, "optimizer": sizes["optimizer"] + 4}
    for first, part in ((1, "optimizer"), (2, "gradients"), (3, "parameters")):
        sizes[part] *= math.ceil(parameters / ranks) if stage >= first else parameters
    return sizes


def by_a_table(parameters, ranks, stage, optimizer, precision):
    whole, shard = parameters, (parameters + ranks - 1) // ranks
    p, g, o = {
        0: (whole, whole, whole),
        1: (whole, whole, shard),
        2: (whole, shard, shard),
        3: (shard, shard, shard),
    }[stage]
    numbers = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    if precision == "fp32":
        return {"parameters": 4 * p, "gradients": 4 * g, "optimizer": 4 * numbers * o}
    return {"parameters": 2 * p, "gradients": 2 * g, "optimizer": 4 * (numbers + 1) * o}


def state_bytes_stub(parameters, ranks, stage, optimizer, precision):
    raise NotImplementedError("bytes of parameters, gradients and optimizer on one rank")
