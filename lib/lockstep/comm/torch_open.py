"""A communicator for a process group that somebody else made: the user's program, or torchrun.

Floor 1, room `comm`.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path

import torch.distributed as dist

from lockstep.comm.board import Board
from lockstep.comm.errors import CommunicationError
from lockstep.comm.torch_group import TorchCommunicator, default_device


def from_torch(group: dist.ProcessGroup | None = None) -> TorchCommunicator:
    """Wrap `group` (default: all ranks). Collective: every rank of the group calls it.

    Ranks that are all on one host share a board, which finds calls that disagree, and a clock. On several hosts
    there is no board: tags still keep messages of unlike shape or dtype apart, but ranks that disagree wait until
    the group's own timeout, and each rank's clock starts when this call returns.
    """
    if not dist.is_initialized():
        raise CommunicationError(
            "There is no process group to wrap: call torch.distributed.init_process_group() first, and start the "
            "program with torchrun."
        )
    group = group or dist.group.WORLD
    control = group
    if "gloo" not in dist.get_backend_config(group):
        control = dist.new_group(dist.get_process_group_ranks(group), backend="gloo", use_local_synchronization=True)
    board = _shared_board(control)
    origin = _first(control, time.perf_counter()) if board else time.perf_counter()
    return TorchCommunicator(
        group,
        device=default_device(group),
        board=board,
        clock=lambda: time.perf_counter() - origin,
        control=control,
    )


def _shared_board(control: dist.ProcessGroup) -> Board | None:
    """A board in a temporary file, if every rank can see it: same host, same files."""
    rank, size = dist.get_rank(control), dist.get_world_size(control)
    path = ""
    if rank == 0:
        handle, path = tempfile.mkstemp(prefix="lockstep-board-")
        os.close(handle)
        Board.create(path, size).close()
    path, host = _first(control, (path, socket.gethostname()))
    try:
        board = Board.open(path, size, rank) if host == socket.gethostname() else None
    except OSError:
        board = None
    seen = _all(control, board is not None)
    if rank == 0 and os.name == "posix":  # Windows cannot remove an open file; there it stays in the temporary folder
        Path(path).unlink()
    if all(seen):
        return board
    if board:
        board.close()
    return None


def _all(control: dist.ProcessGroup, value: object) -> list:
    values = [None] * dist.get_world_size(control)
    dist.all_gather_object(values, value, group=control)
    return values


def _first(control: dist.ProcessGroup, value: object) -> object:
    return _all(control, value)[0]
