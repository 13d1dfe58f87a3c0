"""Exercise 05.1: right ways, and the skeleton.

Floor 4, room `exercises`; the exercise is in `shards.py`.
"""

from __future__ import annotations

import random

import numpy as np
import torch


def shard(n, rank, size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return order[rank::size].tolist()


def shard_of_blocks(n, rank, size, epoch, seed):
    order = np.random.default_rng((seed, epoch)).permutation(n)
    return np.array_split(order, size)[rank]


def shard_by_dealing(n, rank, size, epoch, seed):
    cards = list(range(n))
    random.Random(f"{seed} {epoch}").shuffle(cards)
    return [card for place, card in enumerate(cards) if place % size == rank]


def shard_as_tensor(n, rank, size, epoch, seed):
    generator = torch.Generator()
    generator.manual_seed(1000 * seed + epoch)
    return torch.tensor_split(torch.randperm(n, generator=generator), size)[rank]


def shard_stub(n, rank, size, epoch, seed):
    generator = torch.Generator()  # noqa: F841 - the skeleton, as students get it
    order = ...  # noqa: F841
    raise NotImplementedError("return this rank's part of the order")
