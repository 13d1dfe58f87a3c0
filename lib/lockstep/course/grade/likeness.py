"""Which submissions look alike by structure, for a person to look at. It is never scored.

Floor 4, room `course`. Each function becomes the sequence of its syntax tree's nodes, without names, texts and
comments; windows of it are hashed, and of neighbouring hashes the smallest is kept (winnowing: Schleimer, Wilkerson
and Aiken 2003, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD). What the skeleton holds, and what
most of a group share, tells nothing and is left out.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from lockstep.course.grade.statements import CANNOT, parse

NODES = 8  # in a window: shorter stretches are alike by chance
WINDOW = 6  # hashes of which the smallest is kept; any shared stretch of NODES + WINDOW - 1 nodes is found
ALIKE = 0.75  # of the shorter function's fingerprints
FEWEST = 10  # shared fingerprints; short functions are alike because there is one way to write them
COMMON = 0.4  # shared by more of a group than this: how the exercise is written
GROUP = 8  # smaller groups say nothing about what is common


@dataclass(frozen=True)
class Likeness:
    """Two texts of one exercise. other: a student's key, or where the public text stands. share: of the shorter."""

    exercise: str
    student: str
    other: str
    share: float
    fingerprints: int
    public: bool


@lru_cache(maxsize=4096)
def fingerprints(source: str) -> frozenset[int]:
    """The winnowed hashes of a function's structure; empty for what is no Python or too short to tell."""
    try:
        tokens = [token for statement in parse(source).body for token in _tokens(statement)]
    except CANNOT:
        return frozenset()
    hashes = [_hash(tokens[i : i + NODES]) for i in range(len(tokens) - NODES + 1)]
    return frozenset(min(hashes[i : i + WINDOW]) for i in range(max(0, len(hashes) - WINDOW + 1)))


def _tokens(node: ast.AST) -> Iterator[str]:
    """Kinds of nodes in order; of a call or attribute its name counts, as the library's names are everybody's."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return  # a docstring
    if isinstance(node, (ast.arguments, ast.expr_context)):
        return
    extra = node.attr if isinstance(node, ast.Attribute) else repr(node.value) if _number(node) else ""
    yield type(node).__name__ + extra
    for child in ast.iter_child_nodes(node):
        yield from _tokens(child)


def _number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float, bool))


def _hash(tokens: Sequence[str]) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(tokens).encode(), digest_size=8).digest(), "big")


def alike(
    exercise: str, texts: Mapping[str, str], public: Mapping[str, frozenset[int]] | None = None, skeleton: str = ""
) -> list[Likeness]:
    """Pairs that a person should look at, the most alike first.

    texts: source by student. public: fingerprints of what everybody can read, by where it stands.
    """
    own = {student: fingerprints(text) for student, text in texts.items()}
    dull = fingerprints(skeleton) | _common(own.values())
    own = {student: found - dull for student, found in own.items()}
    found = [
        Likeness(exercise, a, b, share, count, False)
        for (a, first), (b, second) in combinations(sorted(own.items()), 2)
        for share, count in [_shared(first, second)]
        if share >= ALIKE and count >= FEWEST
    ]
    bare = {place: theirs - dull for place, theirs in (public or {}).items()}
    for student, mine in sorted(own.items()):
        near = max(((*_shared(mine, theirs), place) for place, theirs in bare.items()), default=(0.0, 0, ""))
        if near[0] >= ALIKE and near[1] >= FEWEST:
            found.append(Likeness(exercise, student, near[2], near[0], near[1], True))
    return sorted(found, key=lambda one: (-one.share, -one.fingerprints, one.student, one.other))


def _common(found: Iterable[frozenset[int]]) -> frozenset[int]:
    written = [one for one in found if one]
    if len(written) < GROUP:
        return frozenset()
    counted = Counter(one for prints in written for one in prints)
    return frozenset(one for one, count in counted.items() if count > COMMON * len(written))


def _shared(first: frozenset[int], second: frozenset[int]) -> tuple[float, int]:
    shorter = min(len(first), len(second))
    shared = len(first & second)
    return (shared / shorter if shorter else 0.0), shared
