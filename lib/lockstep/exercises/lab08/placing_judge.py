"""Exercise 08.4: what the judge and the symptoms of mistakes look at.

Floor 4, room `exercises`; the exercise is in `placing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.comm import MeshShape
from lockstep.exercises.exercise import Case
from lockstep.exercises.judge import Finding
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import short


def between(order: Sequence[str], axes: Mapping[str, int], sent: Mapping[str, int], per_node: int) -> int:
    """Bytes that cross between nodes when every rank sends `sent[name]` to the next one along each axis."""
    shape = MeshShape({name: axes[name] for name in order})
    total = 0
    for rank in range(shape.ranks):
        here = shape.coordinates(rank)
        for name in order:
            there = shape.rank(here | {name: (here[name] + 1) % axes[name]})
            total += sent[name] * (rank // per_node != there // per_node)
    return total


def as_good_an_order(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Any order whose bytes between nodes are the fewest."""
    axes, sent, per_node = case.args
    got, want = seen.value, list(expected.value)
    if not isinstance(got, (list, tuple)) or sorted(map(str, got)) != sorted(axes):
        words = f"The order names each of {', '.join(axes)} once; yours is {short(got)}."
        return Finding(words, short(want), short(got), ("no order", got))
    mine, least = (between(order, axes, sent, per_node) for order in (got, want))
    if mine <= least:
        return None
    words = f"In your order, {short(list(got))}, {mine:,} bytes cross between nodes; {least:,} are possible."
    return Finding(words, f"{short(want)}: {least:,} bytes", f"{short(list(got))}: {mine:,} bytes", list(got))
