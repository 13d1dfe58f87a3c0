"""What was judged once is not judged again, as long as everything that it depends on is the same.

Floor 4, room `course`. One small file for an outcome, written whole or not at all: a batch that was interrupted goes
on where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep.course.grade.outcome import Outcome


@dataclass(frozen=True)
class Key:
    """What an outcome depends on. digest: of the hand-in. version, variant, of: of the exercise, as released.

    rest: of everything else that is told apart only as a whole: the pack's hash, what the student borrowed.
    """

    digest: str
    exercise: str
    version: int
    variant: str
    of: float
    seed: int
    library: str
    rest: str = ""

    @property
    def name(self) -> str:
        """The name of its file; the seed cannot be read from it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


class Cache:
    """A folder of outcomes; `fresh` forgets what is there, and writes all the same."""

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        self.folder, self.fresh = folder, fresh

    def get(self, key: Key) -> Outcome | None:
        """The outcome of this key, None when there is none that can be read."""
        if self.fresh:
            return None
        try:
            return from_json(json.loads(self._file(key).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def put(self, key: Key, outcome: Outcome) -> None:
        """Keep it; where the disk is full, it will be judged again, and counts all the same."""
        file = self._file(key)
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(asdict(outcome), ensure_ascii=False))

    def _file(self, key: Key) -> Path:
        return self.folder / key.name[:2] / f"{key.name[2:]}.json"


def from_json(fields: Mapping[str, Any]) -> Outcome:
    """An outcome as it was written; raises TypeError or ValueError when it is none."""
    return Outcome(**fields)


def write_whole(file: Path, text: str, encoding: str = "utf-8") -> None:
    """Write a private file whole or not at all."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".part-")
    try:
        with os.fdopen(descriptor, "w", encoding=encoding, errors="backslashreplace", newline="") as out:
            out.write(text)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
