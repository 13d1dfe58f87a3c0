"""Exercise 08.2: what the judge and the symptoms of mistakes look at.

Floor 4, room `exercises`; the exercise is in `levels.py`.
"""

from __future__ import annotations

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case
from lockstep.exercises.judge import Finding
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import short


def right_levels(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The sum, on every rank; then what crosses between nodes; then what is sent inside."""
    for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
        difference = differs(got["sum"], want["sum"], 1e-4, 1e-5)
        if difference is not None:
            words = f"Rank {rank}: `tensor` does not hold the sum of all ranks' tensors: {difference}."
            return Finding(words, short(want["sum"]), short(got["sum"]), [one["sum"] for one in seen.value])
    for level, slack in (("across", 2 * case.args[0]), ("inside", 2 * case.ranks // case.args[0])):
        got, want = ([one[level] for one in who.value] for who in (seen, expected))
        most = max(want) + 4 * slack  # an element a message, for those who pad
        if max(got) > most:
            where = "to other nodes" if level == "across" else "inside its node"
            rank = got.index(max(got))
            words = (
                f"The sum is right, but rank {rank} sends {max(got):,} bytes {where}, where {max(want):,} are enough."
            )
            evidence = (level, got, levels_in_order(case, seen))
            return Finding(words, f"{max(want):,} bytes", f"{max(got):,} bytes", evidence)
    return None


def levels_in_order(case: Case, seen: Observation) -> list[bool]:
    """For each collective of rank 0, in order of time, whether its group is inside a node."""
    per_node = case.ranks // case.args[0]
    calls = [span for span in seen.trace.spans if span.kind == "collective" and span.rank == 0]
    return [max(span.detail["group"]) < per_node for span in sorted(calls, key=lambda span: span.start)]
