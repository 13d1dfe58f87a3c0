"""Load a checkpoint into any number of ranks, or say what does not fit.

Floor 2, room `parallel`. Read `saving` first. All is compared before anything is changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.parallel.checkpoint import folders
from lockstep.parallel.checkpoint.differences import check_fits
from lockstep.parallel.checkpoint.errors import CheckpointError
from lockstep.parallel.checkpoint.held import Held, Piece, Replicated, held_by
from lockstep.parallel.checkpoint.together import on_every_rank, on_rank_0
from lockstep.parallel.zero import ZeRO


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What was loaded: its folder, after how many steps and on how many ranks it was saved, and what else was kept.

    of_rank: this rank's own tensors, where as many ranks load as saved; else none.
    """

    path: Path
    step: int
    ranks: int
    extra: dict[str, Any]
    of_rank: dict[str, Tensor]


def load_checkpoint(folder: str | os.PathLike, training: ZeRO | Replicated) -> Checkpoint:
    """Collective: take over the latest checkpoint in `folder`, or the one that `folder` is, saved by any number of ranks.

    A `ZeRO` of another stage, precision or unit size, or `Replicated` where it was `ZeRO`, loads it as well.

    Raises CheckpointError, on every rank, and changes nothing, when there is none, a file of it is torn (it names the
    last one before it that is whole), or model or optimizer are not those that were saved (it names what differs).
    """
    held = held_by(training)
    path = on_rank_0(held.comm, lambda: _find(Path(folder)))
    about = on_every_rank(held.comm, lambda: folders.described(path))
    on_every_rank(held.comm, lambda: _check_files(held, path, about))
    on_every_rank(held.comm, lambda: check_fits(held, about))
    of_rank = on_every_rank(held.comm, lambda: _read(held, path, about))
    held.changed()
    return Checkpoint(path, about["step"], about["ranks"], about["extra"], of_rank)


def _find(folder: Path) -> Path:
    if (folder / folders.DESCRIPTION).is_file():
        return folder
    latest = folders.latest_checkpoint(folder)
    if latest is None:
        raise CheckpointError(f"there is no checkpoint in {folder}.")
    return latest


def _check_files(held: Held, path: Path, about: Mapping[str, Any]) -> None:
    """Read this rank's share of the files, and compare with what was written."""
    from lockstep.parallel.checkpoint.storage import checksums

    rank, size = (0, 1) if held.comm is None else (held.comm.rank, held.comm.size)
    for name in sorted(about["files"])[rank::size]:
        wanted = about["files"][name]
        if not (path / name).is_file():
            raise CheckpointError(f"{path} is torn: its file {name} is gone. {_last_good(path)}")
        ((length, mark),) = checksums(path, [name]).values()
        if length != wanted[0]:
            raise CheckpointError(
                f"{path} is torn: its file {name} has {length:,} bytes, where {wanted[0]:,} were written. {_last_good(path)}"
            )
        if mark != wanted[1]:
            raise CheckpointError(
                f"{path} is torn: its file {name} has other bytes than were written. {_last_good(path)}"
            )


def _last_good(path: Path) -> str:
    before = [other for other in folders.all_checkpoints(path.parent) if other.name < path.name]
    if not before:
        return "There is none before it."
    return f"The one before it is {before[-1]}: load that, by this name, or remove the torn one."


def _read(held: Held, path: Path, about: Mapping[str, Any]) -> dict[str, Tensor]:
    """Fill everything; gives this rank's own tensors."""
    from lockstep.parallel.checkpoint.storage import read_pieces, saved_rows

    _make_room(held, about)
    rank, size = (0, 1) if held.comm is None else (held.comm.rank, held.comm.size)
    of_rank = {}
    if size == about["ranks"]:
        rows = saved_rows(path)
        of_rank = {key: torch.empty_like(rows[f"rank/{rank}/{key}"], device="cpu") for key in about["of_rank"]}
    own = [Piece(f"rank/{rank}/{key}", value, 0, value.numel()) for key, value in of_rank.items()]
    with torch.no_grad():
        read_pieces(path, [*held.pieces(), *own])
    return of_rank


def _make_room(held: Held, about: Mapping[str, Any]) -> None:
    """Give the optimizer the settings and the single numbers that were saved, and empty tensors to read into."""
    saved = about["optimizer"]
    for group, old in zip(held.optimizer.param_groups, saved["groups"], strict=True):
        for key, value in old.items():
            if isinstance(group.get(key), Tensor):
                group[key].fill_(value)
            else:
                group[key] = tuple(value) if isinstance(group.get(key), tuple) else value
    on_device = {
        id(p): bool(group.get("capturable") or group.get("fused"))
        for group in held.optimizer.param_groups
        for p in group["params"]
    }
    for one in held.stepped:
        kept = saved["state"][one.names[0]]
        device = one.parameter.device if on_device.get(id(one.parameter)) else "cpu"
        held.optimizer.state[one.parameter] = {
            key: torch.zeros_like(one.parameter, dtype=getattr(torch, dtype), requires_grad=False)
            for key, dtype in kept["tensors"].items()
        } | {
            key: torch.tensor(value, dtype=getattr(torch, dtype), device=device)
            for key, (value, dtype) in kept["numbers"].items()
        }
    if held.loss_scale and about["loss_scale"]:
        vars(held.loss_scale).update(about["loss_scale"])
