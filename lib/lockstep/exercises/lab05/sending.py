"""What a rank has to send at least, for exercises that leave open how.

Floor 4, room `exercises`. In the simulated world all ranks live in one process, so numbers could reach another rank by
a global variable. What only one rank knows, and all need, has to leave it by a message.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.exercises.exercise import Case
from lockstep.exercises.judge import Finding, Judge
from lockstep.exercises.observe import Observation

Least = Callable[[Case, Observation, int], int]


def sends_at_least(least: Least) -> Judge:
    """Each rank sends `least(case, expected, rank)` bytes or more; one rank alone sends nothing."""

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        for rank, traffic in enumerate(seen.traffic if case.ranks > 1 else ()):
            got, want = traffic.bytes_sent, least(case, expected, rank)
            if got < want:
                sentence = (
                    f"The numbers are right, but rank {rank} sends {got} bytes, and what only it knows takes {want}."
                )
                sentence += " Ranks share no memory: on a cluster nothing gets across without a message."
                return Finding(sentence, f"at least {want} bytes", f"{got} bytes", ("silent", rank))
        return None

    return judge
