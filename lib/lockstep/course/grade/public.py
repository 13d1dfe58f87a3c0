"""The texts that everybody can read: solutions, other right answers and the library, to be compared with submissions.

Floor 4, room `course`.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import lockstep
from lockstep.course.grade.cache import write_whole
from lockstep.course.grade.likeness import Likeness, alike, fingerprints
from lockstep.course.grade.program import LabText, source_of
from lockstep.course.grade.result import Result
from lockstep.exercises import source

HOME = Path(lockstep.__file__).parent
ROOMS = (
    "comm",
    "compress",
    "cost",
    "data",
    "nn",
    "parallel",
    "plan",
    "simt",
)  # where a lab's answers could be copied from


def likenesses(
    results: Iterable[Result], exercises: Iterable[Any], labs: Mapping[str, LabText], cache: Path | None = None
) -> tuple[list[Likeness], dict[tuple[str, str], str]]:
    """The pairs to look at over all exercises, and the texts by (student or public place, exercise).

    cache: a folder in which the library's fingerprints are kept for the next time.
    """
    found: list[Likeness] = []
    shown: dict[tuple[str, str], str] = {}
    results, prints = list(results), _library_prints(cache)
    for one in exercises:
        texts = {
            result.student: text
            for result in results
            if result.lab == one.lab and (text := source_of(result.submission.program, one.function))
        }
        public = {f"course: {fn.__name__}": source.source_of(fn) or "" for fn in (one.reference, *one.also_right)}
        skeleton = labs[one.lab].skeletons.get(one.function, "")
        own = {place: fingerprints(text) for place, text in public.items()}
        pairs = alike(one.id, texts, {**own, **prints}, skeleton)
        found += pairs
        for place in {who for pair in pairs for who in (pair.student, pair.other)}:
            shown[place, one.id] = texts.get(place) or public.get(place) or _library().get(place, "")
    return found, shown


@cache
def _library() -> dict[str, str]:
    return dict(library_texts())


def _library_prints(folder: Path | None) -> dict[str, frozenset[int]]:
    """The library's fingerprints by place: seconds of work, unless they were kept for the library as it is."""
    written = "\0".join(file.read_text(encoding="utf-8") for file in _library_files())
    file = folder and folder / f"library-{hashlib.sha256(written.encode()).hexdigest()[:16]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        if file:
            return {place: frozenset(kept) for place, kept in json.loads(file.read_text(encoding="utf-8")).items()}
    prints = {place: fingerprints(text) for place, text in _library().items()}
    with contextlib.suppress(OSError):  # a full disk costs the next run these seconds
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps({place: sorted(one) for place, one in prints.items()}))
    return prints


def library_texts() -> Iterator[tuple[str, str]]:
    """Every function and class of the library that labs are about, by "lib: comm/collectives/ring.py, all_reduce"."""
    for file in _library_files():
        text = file.read_text(encoding="utf-8")
        lines = text.split("\n")
        for node in ast.parse(text).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                where = f"lib: {file.relative_to(HOME).as_posix()}, {node.name}"
                yield where, "\n".join(lines[node.lineno - 1 : node.end_lineno])


def _library_files() -> list[Path]:
    return sorted(path for room in ROOMS for path in (HOME / room).rglob("*.py"))
