"""Exercise 06.2: where to cut a chain of layers so that the slowest part is as fast as it can be.

Floor 4, room `exercises`. There are often several best cuts: what is judged is the time of the slowest part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake, Symptom
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


def balanced_partition(costs, parts, communication):
    n, carried = len(costs), [0, *communication, 0]

    def seconds(a, b):
        return carried[a] + sum(costs[a:b]) + carried[b]

    best = {b: (seconds(0, b), []) for b in range(1, n + 1)}
    for part in range(1, parts):
        best = {
            b: min((max(best[a][0], seconds(a, b)), [*best[a][1], a]) for a in range(part, b))
            for b in range(part + 1, n + 1)
        }
    return best[n][1]


def partition_by_trying_all(costs, parts, communication):
    def slowest(cuts):
        edges = [0, *cuts, len(costs)]
        times = [sum(costs[a:b]) for a, b in pairwise(edges)]
        for j, cut in enumerate(cuts):
            times[j] += communication[cut - 1]
            times[j + 1] += communication[cut - 1]
        return max(times)

    return list(min(combinations(range(1, len(costs)), parts - 1), key=slowest))


def partition_by_asking_what_is_left(costs, parts, communication):
    @cache
    def rest(start, left):
        before = communication[start - 1] if start else 0
        if left == 1:
            return before + sum(costs[start:]), ()
        options = []
        work = before
        for cut in range(start + 1, len(costs) - left + 2):
            work += costs[cut - 1]
            behind, cuts = rest(cut, left - 1)
            options.append((max(work + communication[cut - 1], behind), (cut, *cuts)))
        return min(options)

    return list(rest(0, parts)[1])


def balanced_partition_stub(costs, parts, communication):
    raise NotImplementedError("return the index of the first layer of each part but the first")


def cuts_equal_counts(costs, parts, communication):
    return [round(j * len(costs) / parts) for j in range(1, parts)]


def ignores_the_communication(costs, parts, communication):
    return balanced_partition(costs, parts, [0] * len(communication))


def counts_each_message_once(costs, parts, communication):
    n, carried = len(costs), [0, *communication, 0]
    best = {b: (sum(costs[:b]) + carried[b], []) for b in range(1, n + 1)}
    for part in range(1, parts):
        best = {
            b: min((max(best[a][0], sum(costs[a:b]) + carried[b]), [*best[a][1], a]) for a in range(part, b))
            for b in range(part + 1, n + 1)
        }
    return best[n][1]


def fills_up_to_the_average(costs, parts, communication):
    average, cuts, held = sum(costs) / parts, [], 0
    for i, cost in enumerate(costs):
        if held and held + cost > average and len(cuts) < parts - 1:
            cuts.append(i)
            held = 0
        held += cost
    return cuts + list(range(len(costs) - (parts - 1 - len(cuts)), len(costs)))


def adds_the_parts_up(costs, parts, communication):
    def in_all(cuts):
        return sum(costs) + 2 * sum(communication[cut - 1] for cut in cuts)

    return list(min(combinations(range(1, len(costs)), parts - 1), key=in_all))


def gives_the_last_layer_of_each_part(costs, parts, communication):
    return [cut - 1 for cut in balanced_partition(costs, parts, communication)]


def gives_the_sizes(costs, parts, communication):
    edges = [0, *balanced_partition(costs, parts, communication), len(costs)]
    return [b - a for a, b in pairwise(edges)]


def gives_the_outer_bounds_too(costs, parts, communication):
    return [0, *balanced_partition(costs, parts, communication), len(costs)]


def leaves_parts_empty(costs, parts, communication):
    best = [sum(costs), []]
    for many in range(1, parts):
        cuts = balanced_partition(costs, many + 1, communication) if many + 1 <= len(costs) else []
        worst = slowest_of(cuts, costs, communication)
        if cuts and worst < best[0]:
            best = [worst, cuts]
    return best[1] + [len(costs)] * (parts - 1 - len(best[1]))


def slowest_of(cuts: Sequence[int], costs: Sequence[float], communication: Sequence[float]) -> float:
    """Seconds of the slowest part, its messages included."""
    carried = [0, *communication, 0]
    return max(carried[a] + sum(costs[a:b]) + carried[b] for a, b in pairwise([0, *cuts, len(costs)]))


def best_slowest(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The cuts are a list of `parts - 1` rising indices, and the slowest part takes no longer than it must."""
    costs, parts, communication = case.args
    cuts, want = seen.value, expected.value
    if not isinstance(cuts, (list, tuple)) or not all(_is_index(cut) for cut in cuts):
        words = "It returns None: is there a `return`?" if cuts is None else "It should be a list of whole numbers."
        return Finding(words, short(want), short(cuts), ("kind", str(type(cuts))))
    cuts = [int(cut) for cut in cuts]
    if len(cuts) != parts - 1:
        words = f"{parts} parts have {parts - 1} cuts between them, and it gives {len(cuts)}."
        return Finding(words, short(want), short(cuts), ("many", cuts))
    if any(a >= b for a, b in pairwise([0, *cuts, len(costs)])):
        words = f"The cuts must rise, from at least 1 to at most {len(costs) - 1}, so that every part has a layer."
        return Finding(words, short(want), short(cuts), ("order", cuts))
    got, least = slowest_of(cuts, costs, communication), slowest_of(want, costs, communication)
    if got > least * (1 + 1e-9):
        words = f"The slowest part takes {got:g}; with the cuts {want} it takes {least:g}."
        return Finding(words, f"{want}, slowest part {least:g}", f"{cuts}, slowest part {got:g}", ("slowest", cuts))
    return None


def _is_index(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float, np.ndarray)) and float(value).is_integer() if np.ndim(value) == 0 else False


def cuts_as(wrong: Any) -> Symptom:
    """The cuts of a known mistake on the failing case."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        return seen.error is None and isinstance(seen.value, (list, tuple)) and list(seen.value) == wrong(*case.args)

    return symptom


def cases(rng: np.random.Generator) -> Iterator[Case]:
    fixed = (
        ([3, 2], 1, [1]),
        ([5, 1, 1, 1], 2, [0, 0, 0]),
        ([2, 1, 1, 2], 2, [0, 0, 0]),
        ([1.5, 2, 1], 2, [0, 0]),
        ([1, 2, 3, 4, 5], 2, [0, 0, 0, 0]),
        ([4, 4, 4, 4], 2, [1, 9, 1]),
        ([6, 2, 2, 2, 6], 3, [3, 1, 1, 3]),
        ([1, 9, 1, 1], 3, [5, 5, 5]),
        ([2, 2, 9, 3, 3, 9, 1], 3, [4, 1, 2, 1, 5, 1]),
    )
    for costs, parts, communication in fixed:
        yield Case(_named(costs, parts, communication), (costs, parts, communication))
    for n, parts in ((8, 3), (9, 4), (12, 5)):
        costs = [int(c) for c in rng.integers(1, 30, n)]
        communication = [int(c) for c in rng.integers(0, 12, n - 1)]
        yield Case(_named(costs, parts, communication), (costs, parts, communication))


def _named(costs: list[float], parts: int, communication: list[int]) -> str:
    return f"costs {costs} in {parts} part{'s' * (parts > 1)}, communication {communication}"


OBSERVE, JUDGE = Call(), best_slowest

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
    observe=OBSERVE,
    judge=JUDGE,
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
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "equal layer counts for equal work",
                cuts_equal_counts,
                "Your parts have equally many layers, and layers cost unequally. It is the sum of a part's costs that "
                "has to be small, however many layers make it.",
                symptom=cuts_as(cuts_equal_counts),
            ),
            Mistake(
                "ignores the communication",
                ignores_the_communication,
                "Your parts balance the layers alone. A cut behind a layer with a large activation costs both its neighbours "
                "time: add `communication[i]` for a cut behind layer i.",
                symptom=cuts_as(ignores_the_communication),
            ),
            Mistake(
                "counts each message once",
                counts_each_message_once,
                "You add a message to the part that sends it only. The part that receives it is busy with it as well: a "
                "cut costs the part before it and the part behind it.",
                symptom=cuts_as(counts_each_message_once),
            ),
            Mistake(
                "fills parts up to the average",
                fills_up_to_the_average,
                "You fill one part after the other up to the average, and the last one takes what is left, which can be a "
                "lot. Going from left to right cannot know what comes; compare whole lists of cuts.",
                symptom=cuts_as(fills_up_to_the_average),
            ),
            Mistake(
                "adds the parts up",
                adds_the_parts_up,
                "Your cuts make the sum over all parts small, so they lie where the messages are smallest. Every layer is "
                "somewhere, whatever you do; what decides is the slowest part: the maximum over the parts, then the least of "
                "that over the cuts.",
                symptom=cuts_as(adds_the_parts_up),
            ),
            Mistake(
                "gives the last layer of each part",
                gives_the_last_layer_of_each_part,
                "Your cuts are one too low: each is the index of the *first* layer of the next part, not of the last layer "
                "before it.",
                symptom=cuts_as(gives_the_last_layer_of_each_part),
            ),
            Mistake(
                "gives the sizes of the parts",
                gives_the_sizes,
                "You return how many layers each part has. The cuts are places: where each part but the first begins.",
                symptom=cuts_as(gives_the_sizes),
            ),
            Mistake(
                "gives the outer bounds too",
                gives_the_outer_bounds_too,
                "Leave out 0 and the number of layers: only the cuts between two parts are asked.",
                symptom=cuts_as(gives_the_outer_bounds_too),
            ),
            Mistake(
                "leaves parts empty",
                leaves_parts_empty,
                "A part of yours has no layer. That can even look faster, because a cut fewer means a message fewer, but a "
                "device would stand idle: every part needs a layer.",
                symptom=cuts_as(leaves_parts_empty),
            ),
        ),
    ),
)
