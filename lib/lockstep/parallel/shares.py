"""How features, channels and rows of a layer are shared out, and how its parameters get to their ranks and back.

Floor 2, room `parallel`.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.comm.collectives.layout import chunk_sizes
from lockstep.parallel.conjugate import own_part


def shares(n: int, ranks: int, what: str) -> list[int]:
    """How many of `n` each rank has: evenly, the first n mod ranks one more, as `torch.tensor_split` does.

    what: for the sentence of the ValueError when there are fewer than ranks.
    """
    if n < ranks:
        raise ValueError(f"{n} {what} cannot be shared out to {ranks} ranks: each needs at least one. Use fewer ranks.")
    return chunk_sizes(n, ranks)


def ranges(sizes: list[int]) -> list[tuple[int, int]]:
    """(first, end) of each rank's part, from the parts' sizes."""
    return list(pairwise(accumulate(sizes, initial=0)))


@torch.no_grad()
def hand_out(whole: Tensor, own: Tensor, comm: Communicator, dim: int, sizes: list[int]) -> None:
    """Collective: fill `own` with this rank's part, along `dim`, of what rank 0 has as `whole`."""
    parts = None
    if comm.rank == 0:
        parts = [own_part(whole.detach(), rank, dim, sizes).contiguous() for rank in range(comm.size)]
    comm.scatter(own.detach(), parts)


@torch.no_grad()
def same_for_all(own: Tensor, whole: Tensor, comm: Communicator) -> None:
    """Collective: fill `own` with what rank 0 has as `whole`."""
    own.copy_(whole)
    comm.broadcast(own.detach())
