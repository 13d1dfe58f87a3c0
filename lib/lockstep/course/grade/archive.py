"""Files of a hand-in, read without ever unpacking one: a plain file, a member of a zip, a zip within a zip.

Floor 4, room `course`. Nothing is written to disk, so a member's name cannot leave a folder; what a zip claims about
its sizes is not believed, and reading stops at a limit. Whatever is wrong with a file becomes `Unreadable`, a sentence.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from lockstep.course.grade.characters import visible, writable

MOST_BYTES = 128 * 2**20  # of one file, once unpacked
MOST_MEMBERS = 20_000
DEEPEST = 3  # zips within zips: an LMS's, a student's, that of `submit()`


class Unreadable(ValueError):
    """A file or a hand-in that cannot be read; the message says why, in a sentence."""


@dataclass(frozen=True)
class Piece:
    """One file: where it lies on disk, and the members that lead to it inside a zip (none for a plain file)."""

    path: Path
    inside: tuple[str, ...] = ()
    when: datetime | None = None

    @property
    def name(self) -> str:
        """Its own file name, whatever leads to it."""
        return visible(writable(PurePosixPath(self.inside[-1]).name if self.inside else self.path.name))

    @property
    def is_zip(self) -> bool:
        return self.name.lower().endswith(".zip")


def load(piece: Piece) -> bytes:
    """The bytes of one file; raises Unreadable."""
    if not piece.inside:
        return _from_disk(piece.path)
    content: bytes | Path = _plain(piece.path)
    for member in piece.inside:
        with _opened(content) as archive:
            content = _unpacked(archive, member)
    return content


def members(piece: Piece) -> tuple[list[Piece], list[str]]:
    """The files inside a zip, and sentences about those that are left out; raises Unreadable for one that is no zip."""
    if len(piece.inside) >= DEEPEST:
        raise Unreadable(f"it lies inside {len(piece.inside)} other zips; more than {DEEPEST} are not opened")
    found, left_out = [], []
    with _opened(load(piece) if piece.inside else _plain(piece.path)) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_MEMBERS:
            raise Unreadable(f"it holds {len(entries):,} files; at most {MOST_MEMBERS:,} are looked at")
        for entry in entries:
            why = _refused(entry)
            if why:
                left_out.append(f"{piece.name}: {entry.filename!r} {why} and was left out.")
            elif not entry.is_dir() and not is_clutter(entry.filename):
                found.append(Piece(piece.path, (*piece.inside, entry.filename), _written(entry)))
    return found, left_out


def is_clutter(name: str) -> bool:
    """Whether a path is what systems leave behind: checkpoints of Jupyter, macOS's copies, hidden files."""
    return any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts if part not in (".", ".."))


def is_of_the_course(folders: tuple[str, ...]) -> bool:
    """Whether a file lies in a folder of a clone that holds the course's own notebooks, not the student's."""
    return bool({"solutions", "runs"} & set(folders))


def _plain(path: Path) -> Path:
    """The path itself, if it is a file: a link may lead anywhere, and a pipe never ends."""
    try:
        plain = stat.S_ISREG(os.lstat(path).st_mode)
    except OSError as error:
        raise Unreadable(f"it cannot be opened: {error.strerror or error}") from None
    if not plain:
        raise Unreadable("it is a link or no plain file")
    return path


def _from_disk(path: Path) -> bytes:
    try:
        with open(_plain(path), "rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"it cannot be opened: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise Unreadable(f"it has more than {MOST_BYTES >> 20} MiB, which no notebook has")
    return content


def _opened(content: bytes | Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(io.BytesIO(content) if isinstance(content, bytes) else content)
    except Exception as error:  # a damaged zip raises a dozen kinds
        raise Unreadable(f"it is no zip that can be opened ({error})") from None


def _unpacked(archive: zipfile.ZipFile, member: str) -> bytes:
    try:
        with archive.open(member) as stream:
            content = stream.read(MOST_BYTES + 1)
    except Exception as error:  # wrong sums, unknown methods, passwords, damaged streams
        raise Unreadable(f"it cannot be unpacked ({error})") from None
    if len(content) > MOST_BYTES:
        raise Unreadable(f"it unpacks to more than {MOST_BYTES >> 20} MiB, which no notebook has")
    return content


def _refused(entry: zipfile.ZipInfo) -> str:
    name = entry.filename.replace("\\", "/")
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "is a link"
    if name.startswith("/") or ".." in name.split("/") or name[1:2] == ":":
        return "has a path that leaves its folder"
    if not PurePosixPath(name).parts:
        return "has no name"
    return "is locked by a password" if entry.flag_bits & 1 else ""


def _written(entry: zipfile.ZipInfo) -> datetime | None:
    try:
        return datetime(*entry.date_time).astimezone()
    except (ValueError, OverflowError, OSError):
        return None
