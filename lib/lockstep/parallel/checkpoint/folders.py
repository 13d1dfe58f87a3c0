"""A checkpoint is a folder `step-000000120` that appears with its last byte: it is whole, or it is not there.

Floor 2, room `parallel`. It is written under a name that begins with a dot and renamed at the end, which a file system
does at once or not at all; a run that is killed leaves at most such a folder, which the next save sweeps up. Old ones
go the same way back.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from lockstep.parallel.checkpoint.errors import CheckpointError

DESCRIPTION = "lockstep.json"  # what the files of torch do not say; the last one to be written
_NAME = re.compile(r"step-(\d{9,})")


def all_checkpoints(folder: str | os.PathLike) -> list[Path]:
    """Those in `folder`, the earliest step first; none where there is no such folder."""
    folder = Path(folder)
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=step_of)


def latest_checkpoint(folder: str | os.PathLike) -> Path | None:
    """The one of the last step in `folder`; None where there is none."""
    return (all_checkpoints(folder) or [None])[-1]


def step_of(checkpoint: Path) -> int:
    """The step after which it was saved, from its name."""
    return int(_NAME.fullmatch(checkpoint.name)[1])


def begin(folder: Path, step: int) -> Path:
    """An empty folder to write the checkpoint of `step` to. Raises CheckpointError where a later or equal one is."""
    folder.mkdir(parents=True, exist_ok=True)
    last = latest_checkpoint(folder)
    if last is not None and step_of(last) >= step:
        raise CheckpointError(
            f"{folder} has {last.name} already, and this one is of step {step}: load the latest before you go on, or "
            f"choose another folder."
        )
    for left in folder.glob(".step-*.partial"):
        shutil.rmtree(left)
    partial = folder / f".step-{step:09d}.partial"
    partial.mkdir()
    return partial


def finish(partial: Path, description: dict[str, Any], keep: int) -> Path:
    """Make what was written a checkpoint, and remove all but the last `keep`; gives its folder."""
    with (partial / DESCRIPTION).open("w", encoding="utf-8") as file:
        json.dump(description, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _sync(partial)
    done = partial.with_name(partial.name[1:].removesuffix(".partial"))
    partial.rename(done)
    _sync(done.parent)
    for old in all_checkpoints(done.parent)[:-keep]:
        going = old.with_name(f".{old.name}.partial")
        old.rename(going)
        shutil.rmtree(going)
    return done


def described(checkpoint: Path) -> dict[str, Any]:
    """Its description. Raises CheckpointError for a folder that is none of ours, or whose description is torn."""
    path = checkpoint / DESCRIPTION
    if not path.is_file():
        raise CheckpointError(f"{checkpoint} has no {DESCRIPTION}: it is no checkpoint of lockstep, or parts are gone.")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is torn: {error}.") from error
    if not isinstance(description, dict) or description.get("format") != 1:
        found = description.get("format") if isinstance(description, dict) else type(description).__name__
        raise CheckpointError(f"{path} is of format {found!r}; this version of lockstep reads format 1.")
    return description


def _sync(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system lets us."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
