"""Exercise 06.2: where to cut a chain of layers so that the slowest part is as fast as it can be.

Floor 4, room `exercises`. There are often several best cuts: what is judged is the time of the slowest part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab06.balancing_mistakes import MISTAKES
from lockstep.exercises.lab06.balancing_right import (
    balanced_partition,
    balanced_partition_stub,
    partition_by_asking_what_is_left,
    partition_by_trying_all,
    slowest_of,
)
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


def partition(fn: Callable[..., Any], costs: list[float], parts: int, communication: list[float]) -> Any:
    """What `fn` returns, as a list where it can be read one by one."""
    cuts = fn(costs, parts, communication)
    if cuts is not ... and not isinstance(cuts, (str, bytes, set, frozenset, dict)) and hasattr(cuts, "__iter__"):
        cuts = [cut.item() if getattr(cut, "ndim", None) == 0 else cut for cut in cuts]
    return cuts


def best_slowest(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The cuts are `parts - 1` rising indices, the slowest part takes no longer than it must, and the lists are as before."""
    costs, parts, communication = case.args
    cuts, want = seen.value, expected.value
    if not isinstance(cuts, list) or any(type(cut) is not int for cut in cuts):
        return Finding(_no_cuts(cuts), short(want), short(cuts), ("kind", str(type(cuts))))
    if len(cuts) != parts - 1:
        words = f"{parts} part{'s have' if parts > 1 else ' has'} {parts - 1} cuts, and it gives {len(cuts)}."
        return Finding(words, short(want), short(cuts), ("many", cuts))
    if any(a >= b for a, b in pairwise([0, *cuts, len(costs)])):
        words = f"The cuts must rise, from at least 1 to at most {len(costs) - 1}, so that every part has a layer."
        return Finding(words, short(want), short(cuts), ("order", cuts))
    got, least = slowest_of(cuts, costs, communication), slowest_of(want, costs, communication)
    if got > least * (1 + 1e-9):
        words = f"The slowest part takes {got:g}; with the cuts {want} it takes {least:g}."
        return Finding(words, f"{want}, slowest part {least:g}", f"{cuts}, slowest part {got:g}", ("slowest", cuts))
    for name, had, has in (("costs", costs, seen.arguments[0]), ("communication", communication, seen.arguments[2])):
        if has != had:
            return Finding(f"The cuts are right, but `{name}` is changed.", short(had), short(has), ("changed", name))
    return None


def _no_cuts(value: Any) -> str:
    """Why this is no list of cuts."""
    if value is None:
        return "It returns None: is there a `return`, and did the search find anything?"
    if isinstance(value, list) and any(isinstance(one, (list, tuple)) for one in value):
        return "There are lists in the list. Asked are the cuts alone: whole numbers, where each next part begins."
    if isinstance(value, list) and any(isinstance(one, float) for one in value):
        return "The cuts are floats. Layers are counted: only whole numbers, such as 2 and not 2.0, can cut a list."
    if isinstance(value, (int, float)):
        return "It is one number. Asked is the list of the cuts that make the slowest part fast, not its time."
    return "It should be a list of whole numbers."


def cases(rng: np.random.Generator) -> Iterator[Case]:
    fixed = (
        ([3, 2], 1, [1]),
        ([4, 6, 1, 1, 8], 3, [0, 0, 0, 0]),
        ([1.5, 2, 1], 2, [0, 0]),
        ([4, 4, 4, 4], 2, [1, 9, 1]),
        ([1, 9, 1, 1], 3, [5, 5, 5]),
        # seconds: whole ones are all 0, and every message takes less than the least layer
        ([0.0006, 0.0004, 0.0003, 0.0005, 0.0005, 0.0007], 3, [0.0001, 0, 0.0001, 0.0002, 0]),
        ([2500, 500, 600, 2500], 2, [200, 800, 800]),
        # longer parts than the first one that fits are worth a look: 1 of 2 cuts is dear
        ([14, 5, 16, 15, 1, 15, 1, 16], 3, [1, 9, 1, 5, 9, 7, 0]),
        # steps from equal counts and filling up to a limit end elsewhere
        ([4, 6, 8, 5, 3, 8, 7, 8, 10], 4, [13, 16, 2, 16, 11, 20, 20, 14]),
    )
    for costs, parts, communication in fixed:
        yield Case(_named(costs, parts, communication), (costs, parts, communication))
    for n, parts in ((8, 3), (12, 5)):
        # large numbers, so that hardly ever two lists are equally good, under whatever is taken for the time of a part
        costs = [int(c) for c in rng.integers(100, 3000, n)]
        communication = [int(c) for c in rng.integers(0, 1200, n - 1)]
        yield Case(_named(costs, parts, communication), (costs, parts, communication))


def _named(costs: list[float], parts: int, communication: list[int]) -> str:
    return f"costs {costs} in {parts} part{'s' * (parts > 1)}, communication {communication}"


BALANCED_PARTITION = Exercise(
    id="06.2",
    title="Cuts that balance",
    function="balanced_partition",
    points=3,
    asks=(
        "Cut a chain of layers into `parts` contiguous parts, each with a layer. Layer i costs `costs[i]`; a cut behind it "
        "costs `communication[i]` to *both* parts beside it. Return the list of `parts - 1` cuts, each the index of the "
        "first layer of a next part, that makes the slowest part as fast as possible. Of several best lists any is right."
    ),
    reference=balanced_partition,
    also_right=(partition_by_trying_all, partition_by_asking_what_is_left),
    stub=balanced_partition_stub,
    cases=cases,
    observe=Call(partition),
    judge=best_slowest,
    hints=(
        (
            "Begin with a function for the time of a part with the layers a to b - 1: its layers, the message of its cut "
            "in front, if there is one, and that of its cut behind."
        ),
        (
            "The simplest right answer tries all: `itertools.combinations(range(1, n), parts - 1)` gives every list of "
            "cuts, and `min(..., key=...)` takes the best. For 16 layers in 3 parts that is 105 lists."
        ),
        (
            "For long chains: let best(j, b) be the bottleneck of the best cut of the first b layers into j parts. The last of "
            "these parts begins at some a. Then best(j, b) is the least, over a, of the larger of best(j - 1, a) and the "
            "time of the part from a to b."
        ),
        "The key of the simple way: `max(seconds(a, b) for a, b in itertools.pairwise([0, *cuts, n]))`.",
    ),
    equivalent_mutants=(
        # a first part without layers is never asked for: later parts begin at 1 at the earliest
        "line 7: best = {b: (seconds(0, b), []) for b in range(1, n + 1)} -> "
        "best = {b: (seconds(0, b), []) for b in range(0, n + 1)}",
    ),
    mistakes=MISTAKES,
)
