"""`release.toml`: what was released, with the secret seed. Written once, private, read by grading.

Floor 4, room `course`. The file holds tables of texts, numbers, true/false and lists of texts; nothing else is needed,
so writing it is a page of code, and Python's own `tomllib` reads it.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

FORMAT = 1
HEAD = """\
# A release of the course, for the instructor only: the seed draws the hidden cases. Keep this file; there is no other
# copy of the seed. Points may be changed here: grading takes them from this file.
"""


@dataclass(frozen=True)
class ReleasedLab:
    """number: "04". notebook: its file name. sha256: of the source that it was made from."""

    number: str
    notebook: str
    sha256: str


@dataclass(frozen=True)
class ReleasedExercise:
    """An exercise that counts. origin: "course" or "pack". variants: their names, in the order of the choice."""

    id: str
    version: int
    points: int
    core: bool = True
    origin: str = "course"
    variants: tuple[str, ...] = ()

    @property
    def lab(self) -> str:
        return self.id[:2]


@dataclass(frozen=True)
class Pack:
    """An instructor's own exercises: the folder, and the hash of its files when they were released."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class Release:
    """One release. seed: secret, of 256 bits. repository: where the students' notebooks point to, or ""."""

    path: Path
    made: datetime
    lockstep: str
    seed: int
    labs: tuple[ReleasedLab, ...]
    exercises: tuple[ReleasedExercise, ...]
    dropped: tuple[str, ...] = ()
    repository: str = ""
    has_variants: bool = False
    pack: Pack | None = None

    def listed(self, lab: str) -> tuple[ReleasedExercise, ...]:
        """The exercises of one lab that count; raises ValueError when the lab is not in this release."""
        if lab not in {one.number for one in self.labs}:
            there = ", ".join(one.number for one in self.labs)
            raise ValueError(f"lab {lab!r} is not in {self.path.name}, which releases {there}")
        return tuple(one for one in self.exercises if one.lab == lab)

    def values(self, lab: str, student: str = "") -> list[Any]:
        """The exercises of one lab as values to judge with: in this student's variant, with this release's points.

        Those of the pack are among them. Raises ValueError when the pack has changed or an exercise no longer exists.
        """
        from lockstep.course.release.values import value

        return [value(self, one, student) for one in self.listed(lab)]

    def variant(self, exercise: str, student: str) -> str:
        """The name of the variant that this student has of "04.2"; "" where there is only one form of it."""
        from lockstep.course.release.values import variant_of

        return variant_of(self, exercise, student)

    def drift(self) -> list[str]:
        """What is no longer as it was released, a sentence each: library, exercises, pack."""
        from lockstep.course.release.values import drift

        return drift(self)


def read_release(path: str | Path) -> Release:
    """Read a release; raises ValueError with a sentence that names the file and what is wrong in it."""
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"the release {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not valid TOML: {error}") from None
    if table.get("format") != FORMAT:
        raise ValueError(
            f"{path.name} has format {table.get('format')!r}; this version of Lockstep reads format {FORMAT}"
        )
    try:
        return _release(path, table)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path.name} is not a release as `lockstep release` writes it: {said}") from None


def _release(path: Path, table: Mapping[str, Any]) -> Release:
    if not re.fullmatch(r"[0-9a-f]{64}", table["seed"]):
        raise ValueError("the seed is not 64 hexadecimal digits")
    labs = tuple(_filled(ReleasedLab, one) for one in table["labs"])
    exercises = tuple(_exercise(one) for one in table["exercises"])
    strange = [one.id for one in exercises if one.lab not in {lab.number for lab in labs}]
    if strange:
        raise ValueError(f"exercise {strange[0]} belongs to none of its labs")
    if len({one.id for one in exercises}) < len(exercises):
        raise ValueError("an exercise is listed twice")
    pack = table.get("pack")
    return Release(
        path=path,
        made=table["made"],
        lockstep=table["lockstep"],
        seed=int(table["seed"], 16),
        labs=labs,
        exercises=exercises,
        dropped=tuple(table["dropped"]),
        repository=table["repository"],
        has_variants=table["variants"],
        pack=None if pack is None else Pack(path.parent / pack["path"], pack["sha256"]),
    )


def _exercise(table: Mapping[str, Any]) -> ReleasedExercise:
    origin, rest = table["from"], {key: value for key, value in table.items() if key != "from"}
    one = _filled(ReleasedExercise, rest | {"origin": origin, "variants": tuple(table["variants"])})
    if type(one.points) is not int or one.points < 0:
        raise ValueError(f"{one.id} is worth {one.points!r} points; a whole number from 0 on is needed")
    if one.origin not in ("course", "pack"):
        raise ValueError(f"{one.id} comes from {one.origin!r}, neither course nor pack")
    return one


def _filled(kind: type, table: Mapping[str, Any]) -> Any:
    unknown = set(table) - {one.name for one in fields(kind)}
    if unknown:
        raise ValueError(f"there is an unknown entry {sorted(unknown)[0]!r}")
    return kind(**table)


def write_release(release: Release) -> None:
    """Write a release to its path, readable by its owner alone. Never replaces a file: the old seed would be lost."""
    text = as_toml(release)
    try:
        file = os.open(release.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ValueError(
            f"{release.path} exists and holds the seed of an earlier release; move it, or name another with --to"
        ) from None
    with os.fdopen(file, "w", encoding="utf-8", newline="\n") as out:
        out.write(text)


def as_toml(release: Release) -> str:
    """The file's text."""
    top = {
        "format": FORMAT,
        "made": release.made.replace(microsecond=0),
        "lockstep": release.lockstep,
        "repository": release.repository,
        "seed": f"{release.seed:064x}",
        "variants": release.has_variants,
        "dropped": release.dropped,
    }
    parts = [HEAD + _table(top)]
    if release.pack is not None:
        parts.append(
            "[pack]\n" + _table({"path": _from(release.path, release.pack.path), "sha256": release.pack.sha256})
        )
    parts += ["[[labs]]\n" + _table(asdict(one)) for one in release.labs]
    for one in release.exercises:
        entries = {"from" if key == "origin" else key: value for key, value in asdict(one).items()}
        parts.append("[[exercises]]\n" + _table(entries))
    return "\n".join(parts)


def _from(file: Path, folder: Path) -> str:
    """Where the folder lies, seen from the file; its whole path when it is on another drive."""
    try:
        return Path(os.path.relpath(folder.resolve(), file.resolve().parent)).as_posix()
    except ValueError:
        return folder.resolve().as_posix()


def _table(entries: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in entries.items())


def _value(value: Any) -> str:
    """A TOML value. JSON's strings are TOML's, but for DEL, which TOML wants escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"a release holds no {type(value).__name__}")
