"""Which files are whose: a folder for each student, loose notebooks, `submit()` files, what an LMS downloads.

Floor 4, room `course`; read `archive` and `lms` first. Only names are read here; a student's files are opened later,
one student at a time, where a crash costs nobody else anything.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath

from lockstep.course.grade.archive import Piece, Unreadable, is_clutter, is_of_the_course, load, members
from lockstep.course.grade.lms import Sender, gradescope_metadata, sender

METADATA = "submission_metadata.yml"


@dataclass(frozen=True)
class Handin:
    """Everything that came from one student. lms_id: the platform's number. when: as the platform says, or None."""

    student: str
    pieces: tuple[Piece, ...] = ()
    lms_id: str = ""
    when: datetime | None = None


@dataclass
class _Pile:
    pieces: list[Piece] = field(default_factory=list)
    senders: set[str] = field(default_factory=set)
    when: datetime | None = None


def collect(place: Path, lab_names: Iterable[str] = ()) -> tuple[list[Handin], list[str]]:
    """The hand-ins under a folder (or in a zip) in the order of their students, and sentences about what was left out.

    lab_names: of the labs' notebooks, to be taken off a loose file's name: "05_data_parallel_jane.ipynb" is jane's.
    Raises ValueError when there is no such place.
    """
    place = Path(place)
    if not place.exists():
        raise ValueError(f"there is no {place}: give the folder, or the zip, with what the students handed in")
    left_out: list[str] = []
    found = list(_files(place, left_out))
    metadata = _gradescope(found)
    piles: dict[str, _Pile] = {}
    for name in _folders(place):  # one without any file is a student too
        piles.setdefault(_key(sender(name), name, metadata), _Pile())
    for parts, piece in found:
        if parts[-1] == METADATA or is_of_the_course(parts[1:-1]):
            continue
        whose = sender(parts[0])
        name = parts[0] if len(parts) > 1 else _of_a_loose_file(parts[0], lab_names)
        pile = piles.setdefault(_key(whose, name, metadata), _Pile())
        pile.pieces.append(piece)
        if whose is not None:
            pile.senders.add(whose.id)
            said = metadata[parts[0]].when if parts[0] in metadata else piece.when
            pile.when = max((one for one in (pile.when, said) if one is not None), default=None)
    return [_handin(key, pile) for key, pile in sorted(piles.items())], left_out


def _folders(place: Path) -> list[str]:
    inner = place.iterdir() if place.is_dir() else ()
    return sorted(one.name for one in inner if one.is_dir() and not one.is_symlink() and not is_clutter(one.name))


def _handin(student: str, pile: _Pile) -> Handin:
    id = min(pile.senders, default="")
    return Handin(student, tuple(pile.pieces), id, pile.when)


def _files(place: Path, left_out: list[str]) -> Iterator[tuple[tuple[str, ...], Piece]]:
    """Every file with the parts of its path; the files of an LMS's download as if it had been unpacked."""
    if place.is_file():
        yield from _inside(Piece(place), (), left_out)
        return
    for folder, folders, names in os.walk(place):
        inner = Path(folder).relative_to(place).parts
        for name in list(folders):
            if (Path(folder) / name).is_symlink():
                left_out.append(f"{PurePosixPath(*inner, name)} is a link to another folder and was left out.")
        folders[:] = sorted(name for name in folders if not is_clutter(name))
        for name in sorted(names):
            path = Path(folder) / name
            if is_clutter(name):
                continue
            if path.is_symlink():
                left_out.append(f"{PurePosixPath(*inner, name)} is a link and was left out.")
            elif not inner and name.lower().endswith(".zip"):
                yield from _inside(Piece(path), (name,), left_out)
            else:
                yield (*inner, name), Piece(path)


def _inside(piece: Piece, name: tuple[str, ...], left_out: list[str]) -> Iterator[tuple[tuple[str, ...], Piece]]:
    """What a loose zip holds, if a platform (or somebody who packed the whole folder) made it; else the zip itself."""
    try:
        inner, refused = members(piece)
    except Unreadable as error:
        if not name:
            raise ValueError(f"{piece.name} cannot be opened: {error}") from None
        inner, refused = [], []
    paths = [PurePosixPath(one.inside[-1]).parts for one in inner]
    tops = {parts[0] for parts in paths}
    download = any(sender(top) for top in tops) or any(parts[-1] == METADATA for parts in paths)
    if not download and name:
        yield name, piece
        return
    left_out += refused
    shared = len(tops) == 1 and all(len(parts) > 1 for parts in paths) and not any(map(sender, tops))
    for parts, one in zip(paths, inner, strict=True):
        yield (parts[1:] if shared else parts), one


def _gradescope(found: Iterable[tuple[tuple[str, ...], Piece]]) -> dict[str, object]:
    for parts, piece in found:
        if parts[-1] == METADATA:
            return gradescope_metadata(load(piece).decode("utf-8", errors="replace"))
    return {}


def _key(whose: Sender | None, name: str, metadata: dict) -> str:
    if name in metadata:
        return metadata[name].student
    if whose is None:
        said = name
    else:
        said = whose.student if whose.platform == "gradescope" else f"{whose.student} ({whose.id})"
    return " ".join(unicodedata.normalize("NFC", said).split()) or "unnamed"


def _of_a_loose_file(name: str, lab_names: Iterable[str]) -> str:
    """The student's part of a file's name: what is left without the lab's name, or all of it."""
    whose = sender(name)
    if whose is not None:
        return name
    stem = re.sub(r"(?:\.ipynb|\.zip|\.json|\.py|\.txt)+$", "", name, flags=re.IGNORECASE)
    for lab in sorted(lab_names, key=len, reverse=True):
        stem = stem.replace(lab, "")
    stem = re.sub(r"(?i)\blab[ _-]?\d\d\b|\(\d+\)|^copy of ", "", stem.replace("_", " ")).strip(" -.")
    return stem or re.sub(r"\.\w+$", "", name)
