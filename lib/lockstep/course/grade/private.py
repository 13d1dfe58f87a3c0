"""The folder of grades: for its owner alone, unseen by git; and names that stand for students where none may.

Floor 4, room `course`.
"""

from __future__ import annotations

import base64
import hmac
import os
from pathlib import Path


def private_folder(place: Path) -> Path:
    """Make the folder (0700, with a `.gitignore` for everything in it); raises ValueError when it cannot be written."""
    ignored = place / ".gitignore"
    try:
        place.mkdir(parents=True, exist_ok=True)
        if ignored.exists() and ignored.read_text(encoding="utf-8", errors="replace") != "*\n":
            raise ValueError(
                f"{place} has a .gitignore of its own, and grades need a folder for themselves: name a new one"
            )
        if os.name != "nt":
            place.chmod(0o700)
        ignored.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the folder {place} cannot be written: {error.strerror}") from None
    return place


def inner(place: Path, name: str) -> Path:
    """A folder inside it, made when it is new."""
    folder = place / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def pseudonym(seed: int, student: str) -> str:
    """ "kq3vd2m": the same in every run of a release, and nobody gets the name from it without the seed."""
    key = seed.to_bytes((seed.bit_length() + 7) // 8 or 1, "big")
    digest = hmac.new(key, student.encode("utf-8", errors="replace"), "sha256").digest()
    return base64.b32encode(digest).decode().lower().translate(str.maketrans("", "", "aeiou="))[:7]
