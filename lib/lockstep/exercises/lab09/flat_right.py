"""Exercise 09.2's reference, other right functions, and the stub.

Floor 4, room `exercises`; the exercise is in `flat.py`.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def shard_flat(tensors, rank, size):
    flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
    shard = -(-len(flat) // size)
    padded = F.pad(flat, (0, shard * size - len(flat)))
    return padded[rank * shard : (rank + 1) * shard].clone()


def piece_by_piece(tensors, rank, size):
    """Never makes the whole flat tensor."""
    shard = (sum(t.numel() for t in tensors) + size - 1) // size
    own = torch.zeros(shard, dtype=tensors[0].dtype)
    begin = 0
    for tensor in tensors:
        first = max(rank * shard, begin)
        last = min((rank + 1) * shard, begin + tensor.numel())
        if first < last:
            own[first - rank * shard : last - rank * shard] = tensor.detach().reshape(-1)[first - begin : last - begin]
        begin += tensor.numel()
    return own


def by_chunks(tensors, rank, size):
    flat = nn.utils.parameters_to_vector(tensors).detach()
    while flat.numel() % size:
        flat = torch.cat([flat, flat.new_zeros(1)])
    return torch.stack(flat.chunk(size))[rank].clone()


def shard_flat_stub(tensors, rank, size):
    raise NotImplementedError("this rank's shard of all tensors, flat and padded")
