"""Save a checkpoint: every rank writes what it holds, and the whole appears at once.

Floor 2, room `parallel`. Read `held` next.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.comm.reduction import name_of
from lockstep.parallel.checkpoint import folders
from lockstep.parallel.checkpoint.errors import CheckpointError
from lockstep.parallel.checkpoint.held import Held, Piece, Replicated, elementwise, held_by, single
from lockstep.parallel.checkpoint.together import on_rank_0
from lockstep.parallel.zero import ZeRO


def save_checkpoint(
    folder: str | os.PathLike,
    training: ZeRO | Replicated,
    step: int,
    extra: Mapping[str, Any] | None = None,
    of_rank: Mapping[str, Tensor] | None = None,
    keep: int = 2,
) -> Path:
    """Collective, between steps: save `training` after `step` steps to a new folder in `folder`, which it gives.

    Parameters (exact ones, in mixed precision), buffers, the optimizer's state and settings, the scale of the loss.
    extra: what else to keep, as JSON has it; that of rank 0 is kept. of_rank: tensors of this rank alone, such as
    the state of its generator, which come back to as many ranks only. keep: how many checkpoints may stay, the last ones.
    All ranks need the one folder, so on several machines a shared one. Stopped at any moment, by whatever means, the
    last whole checkpoint is still there.

    Raises CheckpointError, on every rank, when a rank cannot write, `folder` has a checkpoint of that or a later step,
    `extra` is not JSON's, or the optimizer keeps something that cannot be cut anew; ValueError for numbers that are none.
    """
    from lockstep.parallel.checkpoint.storage import write_pieces  # torch takes two seconds to import it

    for name, value, least in (("step", step, 0), ("keep", keep, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} is {value!r}: it is a whole number of at least {least}.")
    held, folder = held_by(training), Path(folder)
    pieces = [*held.pieces(), *_of_rank(held, of_rank or {})]
    partial = on_rank_0(held.comm, lambda: folders.begin(folder, step))
    files = write_pieces(held.comm, partial, pieces)
    about = {"format": 1, "step": step, "ranks": 1 if held.comm is None else held.comm.size}
    about |= _described(held) | {"extra": dict(extra or {}), "of_rank": sorted(of_rank or {}), "files": files}
    return on_rank_0(held.comm, lambda: folders.finish(partial, _checked(about), keep))


def _of_rank(held: Held, tensors: Mapping[str, Tensor]) -> list[Piece]:
    rank = 0 if held.comm is None else held.comm.rank
    return [Piece(f"rank/{rank}/{key}", value.reshape(-1), 0, value.numel()) for key, value in tensors.items()]


def _described(held: Held) -> dict[str, Any]:
    """The model and the optimizer, in words and numbers."""
    parameters, state = {}, {}
    for one in held.stepped:
        kept = {key: name_of(value.dtype) for key, value in elementwise(held.optimizer, one.parameter).items()}
        numbers = {key: [v.item(), name_of(v.dtype)] for key, v in single(held.optimizer, one.parameter).items()}
        for name in one.names:
            parameters[name] = [*held.layouts[name], name_of(one.parameter.dtype)]
            state[name] = {"tensors": kept, "numbers": numbers}
    groups = [{k: plain(v) for k, v in group.items() if k != "params"} for group in held.optimizer.param_groups]
    return {
        "parameters": parameters,
        "whole": {name: list(held.layouts[name]) for name in held.whole},
        "optimizer": {"class": type(held.optimizer).__name__, "groups": groups, "state": state},
        "loss_scale": vars(held.loss_scale) if held.loss_scale else None,
    }


def plain(value: Any) -> Any:
    """A setting of an optimizer as JSON has it."""
    return value.item() if isinstance(value, torch.Tensor) else value


def _checked(description: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(description)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"extra and the optimizer's settings are kept as JSON, and hold something that is not JSON's: {error}."
        ) from error
    return description
