"""What ranks tell each other about their files: small objects, and what went wrong on any of them.

Floor 2, room `parallel`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TypeVar

import torch

from lockstep.comm import Communicator
from lockstep.parallel.checkpoint.errors import CheckpointError

T = TypeVar("T")


def from_every_rank(comm: Communicator | None, work: Callable[[], T]) -> list[T]:
    """Collective: what `work()` gives on each rank, in their order.

    comm: None in a process of its own. Raises CheckpointError on all ranks when `work` raises on one; without this
    the others would wait for it.
    """
    try:
        mine = work(), None
    except (CheckpointError, OSError, RuntimeError, ValueError, LookupError, TypeError) as error:
        mine = None, str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
    everyone = [mine] if comm is None else _all_gather(comm, mine)
    failed = {rank: said for rank, (_, said) in enumerate(everyone) if said is not None}
    if failed:
        rank, said = next(iter(failed.items()))
        all_alike = len(failed) == len(everyone) and len(set(failed.values())) == 1
        raise CheckpointError(said if all_alike else f"rank {rank}: {said}")
    return [value for value, _ in everyone]


def on_every_rank(comm: Communicator | None, work: Callable[[], T]) -> T:
    """Collective: what `work()` gives here, once it has gone well on every rank. Raises as `from_every_rank`."""
    own = []
    from_every_rank(comm, lambda: own.append(work()))
    return own[0]


def on_rank_0(comm: Communicator | None, work: Callable[[], T]) -> T:
    """Collective: `work()` on rank 0 alone; what it gives, on every rank. Raises as `from_every_rank`."""
    return from_every_rank(comm, lambda: work() if comm is None or comm.rank == 0 else None)[0]


def _all_gather(comm: Communicator, value: object) -> list:
    """Objects of our own ranks, pickled."""
    mine = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8).to(comm.device)
    sizes = comm.all_gather(torch.tensor([mine.numel()], device=comm.device)).tolist()
    parts = comm.all_gather(mine, sizes=sizes).cpu().split(sizes)
    return [pickle.loads(part.numpy().tobytes()) for part in parts]
