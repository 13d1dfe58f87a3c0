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
from lockstep.course.grade.characters import visible, writable
from lockstep.course.grade.lms import Handed, Sender, gradescope_metadata, sender

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
    metadata = _gradescope(found, left_out)
    piles: dict[str, _Pile] = {}
    for name in _folders(place):  # one without any file is a student too
        piles.setdefault(_key(sender(name), name, metadata), _Pile())
    for parts, piece in found:
        if parts == (METADATA,) or is_of_the_course(parts[1:-1]):
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
        yield from _download(Piece(place), left_out)
        return
    if downloads := _downloads(place) if place.is_dir() else []:
        for piece in downloads:
            if len(downloads) > 1:
                left_out.append(
                    f"{piece.name} was opened as what a platform downloads, with many students' files in it."
                )
            yield from _download(piece, left_out)
        return
    for folder, folders, names in os.walk(place):
        inner = Path(folder).relative_to(place).parts
        for name in list(folders):
            if (Path(folder) / name).is_symlink():
                left_out.append(f"{_shown(*inner, name)} is a link to another folder and was left out.")
        folders[:] = sorted(name for name in folders if not is_clutter(name))
        for name in sorted(names):
            path = Path(folder) / name
            if is_clutter(name):
                continue
            if path.is_symlink():
                left_out.append(f"{_shown(*inner, name)} is a link and was left out.")
            else:
                yield (*inner, name), Piece(path)


def _downloads(place: Path) -> list[Piece]:
    """The zips of a folder that holds downloads of a platform and nothing else.

    One zip among other files is its student's, whatever the names in it: those can be anybody's.
    """
    inner = sorted(one for one in place.iterdir() if not is_clutter(one.name))
    zips = [Piece(one) for one in inner if one.suffix.lower() == ".zip" and one.is_file() and not one.is_symlink()]
    return zips if len(zips) == len(inner) and all(map(_is_download, zips)) else []


def _is_download(piece: Piece) -> bool:
    if sender(piece.name) is not None:
        return False
    try:
        paths = [parts for parts, _ in _unwrapped(members(piece)[0])]
    except Unreadable:
        return False
    return any(parts == (METADATA,) or sender(parts[0]) for parts in paths)


def _download(piece: Piece, left_out: list[str]) -> Iterator[tuple[tuple[str, ...], Piece]]:
    """What a zip holds that the instructor gave: a platform's download, or a folder that somebody packed."""
    try:
        inner, refused = members(piece)
    except Unreadable as error:
        raise ValueError(f"{piece.name} cannot be opened: {error}") from None
    left_out += refused
    yield from _unwrapped(inner)


def _unwrapped(inner: list[Piece]) -> list[tuple[tuple[str, ...], Piece]]:
    """The pieces with the parts of their paths, without the one folder that all lie in."""
    paths = [PurePosixPath(one.inside[-1]).parts for one in inner]
    tops = {parts[0] for parts in paths}
    shared = len(tops) == 1 and all(len(parts) > 1 for parts in paths) and not any(map(sender, tops))
    return [(parts[1:] if shared else parts, one) for parts, one in zip(paths, inner, strict=True)]


def _gradescope(found: Iterable[tuple[tuple[str, ...], Piece]], left_out: list[str]) -> dict[str, Handed]:
    """What the export's own metadata say. A file of that name in a student's folder says nothing of anybody."""
    said: dict[str, Handed] = {}
    for parts, piece in found:
        if parts == (METADATA,):
            try:
                said |= gradescope_metadata(load(piece).decode("utf-8", errors="replace"))
            except Unreadable as error:
                left_out.append(f"{METADATA}: {error}. Students are called by Gradescope's numbers, without times.")
    return said


def _shown(*parts: str) -> str:
    return visible(writable(str(PurePosixPath(*parts))))


def _key(whose: Sender | None, name: str, metadata: dict[str, Handed]) -> str:
    if name in metadata:
        said = metadata[name].student
    elif whose is None:
        said = name
    else:
        said = whose.student if whose.platform == "gradescope" else f"{whose.student} ({whose.id})"
    return visible(" ".join(unicodedata.normalize("NFC", writable(said)).split())) or "unnamed"


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
