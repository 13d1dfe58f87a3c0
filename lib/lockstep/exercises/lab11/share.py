"""11.5 `overlap_share`: how much of the communication is hidden behind computation.

Floor 4, room `exercises`. Right functions and the judge; wrong ones are in `share_wrong.py`, what
they are told in `share_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab11.share_mistakes import MISTAKES
from lockstep.exercises.lab11.told import by_what_it_alone_does
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import kind, short


def overlap_share(computing, moving):
    hidden = total = 0.0
    for works, transfers in zip(computing, moving, strict=True):
        times = sorted({time for pair in (*works, *transfers) for time in pair})
        for begin, end in zip(times, times[1:], strict=False):
            if any(a <= begin and end <= b for a, b in transfers):
                total += end - begin
                if any(a <= begin and end <= b for a, b in works):
                    hidden += end - begin
    return hidden / total if total else None


def by_merging(computing, moving):
    """Intervals that neither touch nor overlap, then the parts that two of them share."""

    def merged(pairs):
        found = []
        for a, b in sorted(map(tuple, pairs)):
            if found and a <= found[-1][1]:
                found[-1][1] = max(b, found[-1][1])
            else:
                found.append([a, b])
        return found

    both = everything = 0
    for own, sent in zip(map(merged, computing), map(merged, moving), strict=True):
        everything += sum(b - a for a, b in sent)
        both += sum(max(0, min(b, d) - max(a, c)) for a, b in sent for c, d in own)
    if everything == 0:
        return None
    return both / everything


def by_events(computing, moving):
    """A sweep that counts what is open."""
    seconds = {"hidden": 0.0, "exposed": 0.0}
    for rank in range(len(moving)):
        turns = [(t, step, "work") for a, b in computing[rank] for t, step in ((a, 1), (b, -1))]
        turns += [(t, step, "move") for a, b in moving[rank] for t, step in ((a, 1), (b, -1))]
        now, still = 0.0, {"work": 0, "move": 0}
        for when, step, what in sorted(turns):
            if still["move"] > 0:
                seconds["hidden" if still["work"] > 0 else "exposed"] += when - now
            still[what] += step
            now = when
    whole = sum(seconds.values())
    return None if whole == 0 else 1 - seconds["exposed"] / whole


def overlap_share_stub(computing, moving):
    raise NotImplementedError("return hidden seconds / seconds in which something moves, over all ranks")


def same_share(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The same number, or None where there is none."""
    got, want = seen.value, expected.value
    number = got.item() if getattr(got, "ndim", 1) == 0 else got
    if want is None:
        if got is None:
            return None
        return Finding(
            "Nothing moves, so there is no share: None is asked for.", "None", short(got), ("none", str(got))
        )
    if got is None:
        words = "The function returns None, and something does move: is there a `return` on every path?"
        return Finding(words, short(want), "None", ("none", "None"))
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return Finding("A number is asked for.", short(want), kind(got), ("type", str(got)))
    if abs(number - want) <= 1e-6:
        return None
    digits = 4 if f"{want:.4g}" != f"{number:.4g}" else 9
    shown = [f"{one:.{digits}g}" for one in (want, number)]
    return Finding(f"The share is {shown[0]}, not {shown[1]}.", *shown, (number,))


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One rank first; then several, transfers side by side, in any order."""
    yield Case("one transfer, 4 to 8, half of it hidden by 0 to 6", ([[(0, 6)]], [[(4, 8)]]))
    yield Case("one transfer, 3 to 8, across two computations, 0 to 4 and 6 to 9", ([[(0, 4), (6, 9)]], [[(3, 8)]]))
    yield Case(
        "one computation, 0 to 6; two transfers at the same time, 2 to 8 and 3 to 7", ([[(0, 6)]], [[(2, 8), (3, 7)]])
    )
    yield Case(
        "two ranks: computing 0 to 6, and 1 to 2; moving 5 to 9, and 0 to 2",
        ([[(0, 6)], [(1, 2)]], [[(5, 9)], [(0, 2)]]),
    )
    yield Case("nothing moves", ([[(0, 3)], []], [[], []]))
    yield Case(
        "two ranks: computing 0 to 6, and 1 to 3; moving nothing, and 2 to 6", ([[(0, 6)], [(1, 3)]], [[], [(2, 6)]])
    )
    yield Case(
        "three ranks: computing 0 to 6, nothing, and 0 to 3; moving 4 to 7, 2 to 4, and nothing",
        ([[(0, 6)], [], [(0, 3)]], [[(4, 7)], [(2, 4)], []]),
    )
    yield Case("nothing is hidden: computing 0 to 3, moving 3 to 4 and 5 to 7", ([[(0, 3)]], [[(3, 4), (5, 7)]]))
    yield Case(
        "in any order: computing 6 to 9 and 0 to 4, moving 7 to 11, 3 to 5 and 1 to 2",
        ([[(6, 9), (0, 4)]], [[(7, 11), (3, 5), (1, 2)]]),
    )
    yield Case(
        "two ranks, a computation of rank 0, 2 to 5, inside another, 0 to 8",
        ([[(0, 8), (2, 5)], [(1, 3)]], [[(1, 6), (7, 10)], [(2, 6)]]),
    )
    for ranks, many in ((2, 5), (4, 9)):
        drawn = [[_pairs(rng, many) for _ in range(ranks)] for _ in range(2)]
        yield Case(f"{ranks} ranks, {many} of each, drawn", tuple(drawn))


def _pairs(rng: np.random.Generator, many: int) -> list[tuple[float, float]]:
    begins, lengths = rng.integers(0, 200, many) / 4, rng.integers(1, 60, many) / 4
    return [(float(a), float(a + n)) for a, n in zip(begins, lengths, strict=True)]


OBSERVE, JUDGE = Call(), same_share

OVERLAP_SHARE = Exercise(
    id="11.5",
    title="How much is hidden",
    function="overlap_share",
    asks=(
        "Return the share of the communication that is hidden: of all seconds in which at least one transfer of a rank "
        "moves, those in which that rank also computes, over all ranks together. `computing[r]` and `moving[r]` are lists "
        "of (begin, end) of rank r, in any order; they may overlap among themselves. None when nothing moves."
    ),
    reference=overlap_share,
    also_right=(by_merging, by_events),
    stub=overlap_share_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    core=False,
    forbidden=("lockstep.trace.overlap_share",),
    equivalent_mutants=(
        "line 3: for works, transfers in zip(computing, moving, strict=True): -> "
        "for works, transfers in zip(computing, moving, strict=False):",  # both have an entry for each rank
    ),
    hints=(
        "Two transfers that move at the same time take that time once. How would you cut a rank's time into pieces in "
        "which nothing begins or ends?",
        "Sort all begins and ends of a rank. Between two neighbours nothing changes: either something moves all the time or "
        "not at all, and the same goes for computing.",
        "`if any(a <= begin and end <= b for a, b in transfers):` that piece counts; with the same question for the "
        "computations it is hidden.",
    ),
    mistakes=by_what_it_alone_does(OBSERVE, JUDGE, MISTAKES),
)
