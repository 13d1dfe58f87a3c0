"""The texts that everybody can read: solutions, other right answers and the library, to be compared with submissions.

Floor 4, room `course`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import lockstep
from lockstep.course.grade.likeness import Likeness, alike, fingerprints
from lockstep.course.grade.program import LabText, source_of
from lockstep.course.grade.result import Result
from lockstep.exercises import source

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
    results: Iterable[Result], exercises: Iterable[Any], labs: Mapping[str, LabText]
) -> tuple[list[Likeness], dict[tuple[str, str], str]]:
    """The pairs to look at over all exercises, and the texts by (student or public place, exercise)."""
    found: list[Likeness] = []
    shown: dict[tuple[str, str], str] = {}
    results, (library, prints) = list(results), _library()
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
            shown[place, one.id] = texts.get(place) or public.get(place) or library.get(place, "")
    return found, shown


@cache
def _library() -> tuple[dict[str, str], dict[str, frozenset[int]]]:
    """The library's texts and their fingerprints; two seconds of work, done once."""
    texts = dict(library_texts())
    return texts, {place: fingerprints(text) for place, text in texts.items()}


def library_texts() -> Iterator[tuple[str, str]]:
    """Every function and class of the library that labs are about, by "lib: comm/collectives/ring.py, all_reduce"."""
    home = Path(lockstep.__file__).parent
    for file in sorted(path for room in ROOMS for path in (home / room).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        lines = text.split("\n")
        for node in ast.parse(text).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                where = f"lib: {file.relative_to(home).as_posix()}, {node.name}"
                yield where, "\n".join(lines[node.lineno - 1 : node.end_lineno])
