"""What a student achieves stays: the folder `my/`, one JSON file and the functions that passed.

Floor 4, room `exercises`. The folder is `LOCKSTEP_MY` if that is set, else `my/` beside the `labs/` of the
repository the notebook lies in, else `my/` in the working directory. It is written by whole files that are
renamed into place, under a lock, so that two kernels at once lose nothing; the version before the last change
stays as `record.before.json`, and takes over when `record.json` cannot be read. Nothing leaves the machine.

    record.json = {"exercises":   {"00.1": {"attempts": [...], "hints": 2, "passed": "2026-...", "points": 2, ...}},
                   "predictions": {"00.p1": {"value": 3.0, "at": ..., "revealed": ..., "late": false}},
                   "answers":     {"00.q1": [{"choice": "b", "confidence": 4, "right": true, "at": ...}]}}
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import cloudpickle
from filelock import FileLock, Timeout

from lockstep.exercises.source import at_home, source_of

PARTS = ("exercises", "predictions", "answers")
PATIENCE = 5.0  # seconds to wait for another kernel


def folder() -> Path:
    """Where everything is kept; made on first use."""
    chosen = os.environ.get("LOCKSTEP_MY")
    place = Path(chosen).expanduser() if chosen else _root() / "my"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _root() -> Path:
    here = Path.cwd()
    for place in (here, *here.parents):
        if (place / "labs").is_dir() and (place / "course").exists():
            return place
    return here


def now() -> str:
    """The time as it is kept: local, to the second, with the offset."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def read() -> dict[str, Any]:
    """The whole record, a copy; empty parts when nothing is kept yet."""
    with _locked() as place:
        return _empty() if place is None else _load(place)


@contextmanager
def change() -> Iterator[dict[str, Any]]:
    """The record, to be changed inside `with`; written when the block ends without an error.

    When the folder cannot be written it warns, and the change lasts no longer than the block.
    """
    with _locked() as place:
        record = _empty() if place is None else _load(place)
        yield record
        if place is None:
            return
        file = place / "record.json"
        try:
            if file.exists():
                _write(place / "record.before.json", file.read_bytes())
            _write(file, json.dumps(record, indent=1, ensure_ascii=False).encode())
        except OSError as error:
            _warn_not_kept(error)


def _empty() -> dict[str, Any]:
    return {part: {} for part in PARTS}


def _warn_not_kept(error: OSError) -> None:
    warnings.warn(f"This could not be kept: {error}. LOCKSTEP_MY may name a folder that can be written.", stacklevel=4)


class _Mine(threading.local):
    """Whether this thread has the record open."""

    open = False


_mine = _Mine()


@contextmanager
def _locked() -> Iterator[Path | None]:
    """The folder, ours alone; None when it cannot be used at all.

    Raises RuntimeError in a thread that has it already: it would wait for itself, and then lose one of two changes.
    """
    if _mine.open:
        raise RuntimeError("the record is open in this thread: read what is needed of it before `change`")
    _mine.open = True
    try:
        with _locked_folder() as place:
            yield place
    finally:
        _mine.open = False


@contextmanager
def _locked_folder() -> Iterator[Path | None]:
    try:
        place = folder()
    except OSError as error:
        _warn_not_kept(error)
        yield None
        return
    lock = FileLock(place / ".lock", timeout=PATIENCE)
    try:
        lock.acquire()
    except (Timeout, OSError):  # a drive without locks, as Colab's; renaming still keeps every file whole
        yield place
        return
    try:
        yield place
    finally:
        lock.release()


def _load(place: Path) -> dict[str, Any]:
    file = place / "record.json"
    if file.exists():
        record = _parsed(file)
        if record is not None:
            return record
        aside = _move_aside(file)
        before = _parsed(place / "record.before.json")
        rest = "the version before the last change is used" if before else "a new one is begun"
        warnings.warn(
            f"{file} could not be read. It was moved to {aside.name}, nothing was deleted, and {rest}; "
            "functions that passed are kept in their own files.",
            stacklevel=2,
        )
        if before is not None:
            return before
    else:
        before = _parsed(place / "record.before.json")
        if before is not None:
            return before
    return _empty()


def _parsed(file: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(file.read_bytes().decode())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not all(isinstance(record.setdefault(part, {}), dict) for part in PARTS):
        return None
    return record if all(_is_sound(part, record[part]) for part in PARTS) else None


def _is_sound(part: str, entries: dict[str, Any]) -> bool:
    """Entries have the shape that their readers count on; one edited by hand may not."""
    wanted = list if part == "answers" else dict
    return all(isinstance(entry, wanted) for entry in entries.values())


def _move_aside(file: Path) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    aside = next(a for n in range(1000) if not (a := file.with_name(f"record.unreadable-{stamp}-{n}.json")).exists())
    os.replace(file, aside)
    return aside


def _write(file: Path, content: bytes) -> None:
    """Write a whole file or none: readers see the old content or the new."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def entry(record: dict[str, Any], exercise_id: str) -> dict[str, Any]:
    """The part of the record about one exercise, made when it is new."""
    found = record["exercises"].setdefault(exercise_id, {})
    for key, empty in (("attempts", []), ("hints", 0), ("solution", None), ("passed", None), ("points", 0)):
        found.setdefault(key, empty)
    return found


def different(entry: dict[str, Any]) -> int:
    """How many different attempts an exercise's entry holds."""
    return len({attempt["is"] for attempt in entry["attempts"]})


def save_function(exercise_id: str, fn: Callable[..., Any]) -> str | None:
    """Keep a function that passed: its source to read, and itself with all it needs from the notebook to call.

    Returns None, or a sentence that says why later labs cannot call it.
    """
    try:
        place, source = folder(), source_of(fn)
        if source is not None:
            _write(place / f"{exercise_id}.py", source.encode())
        _write(place / f"{exercise_id}.pkl", cloudpickle.dumps(fn))
    except Exception as error:  # pickling runs code of the student's own objects
        return f"Your function could not be kept for later labs: {error}."
    return None


def load_function(exercise_id: str) -> Callable[..., Any] | None:
    """The student's function that passed, None when there is none; raises ValueError when it cannot be read back."""
    file = folder() / f"{exercise_id}.pkl"
    if not file.exists():
        return None
    try:
        return at_home(cloudpickle.loads(file.read_bytes()), file.with_suffix(".py"))
    except Exception as error:
        raise ValueError(f"{file.name} cannot be read by this Python ({type(error).__name__}: {error})") from error
