"""Tables that took long to parse, kept on disk: each rank of each run is a new process and would parse them again.

Floor 0, room `data`. What is kept is never trusted: its checksum is the one that the parsed table has to have anyway.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def folder() -> Path:
    """Where larger data sets are looked for, and parsed ones kept: $LOCKSTEP_DATA, or ~/.cache/lockstep."""
    return Path(os.environ.get("LOCKSTEP_DATA") or Path.home() / ".cache" / "lockstep")


def parsed(source: Path, sha256: str, parse: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """The table that `parse` makes of `source`, from disk where it lies and its bytes have that checksum.

    A source that was changed since is parsed anew. Nothing is said when the table cannot be kept: it is for speed.
    """
    about = source.stat()
    version = hashlib.sha256(f"{source} {about.st_size} {about.st_mtime_ns} {sha256}".encode()).hexdigest()[:16]
    place = folder() / f"{source.name.partition('.')[0]}-{version}.npy"
    try:
        with open(place, "rb") as file:
            table = np.lib.format.read_array(file, allow_pickle=False)
        if checksum(table) == sha256:
            return table
    except (OSError, ValueError):  # not kept yet, or not whole
        pass
    table = parse()
    if checksum(table) == sha256:
        _keep(place, table)
    return table


def checksum(table: NDArray[np.uint8]) -> str:
    """SHA-256 of the numbers, row by row."""
    return hashlib.sha256(np.ascontiguousarray(table)).hexdigest()


def _keep(place: Path, table: NDArray[np.uint8]) -> None:
    """Written beside its place and moved there whole, so that nobody ever meets a half one."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as beside:
            np.save(Path(beside) / place.name, table)
            os.replace(Path(beside) / place.name, place)
    except OSError:  # a full disk, a home that cannot be written
        pass
