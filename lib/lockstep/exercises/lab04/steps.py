"""What the exercises of lab 04 ask beside the numbers: neighbours, bytes, messages and steps; and cases for rings.

Floor 4, room `exercises`. A *step* is one message time of the network that all cases run on, where every pair of
ranks is joined by the same link, so that steps can be read from the simulated seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from lockstep.comm.collectives import chunk_sizes
from lockstep.exercises.compare import alike, differs
from lockstep.exercises.exercise import Case, Symptom, on_ranks
from lockstep.exercises.judge import Finding, Judge
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import short
from lockstep.exercises.remembered import remembered
from lockstep.exercises.symptoms import matches
from lockstep.hardware import Link

SIMULATE = Simulate()
NETWORK = Link(10e-6, 1e9, "a uniform network, to count steps on")
PATIENCE = 3.5  # times the reference's seconds: even ranks first, then odd ones, is still side by side


def numbers(rng: np.random.Generator, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """n whole numbers, whose sum is exact in whatever order it is taken."""
    return torch.tensor(rng.integers(-99, 100, n), dtype=dtype)


def on_network(ranks: int, *args: object, each: Sequence[Sequence[object]], name: str) -> Case:
    """A case on `NETWORK`."""
    return on_ranks(ranks, *args, each=each, name=name, cluster=NETWORK)


def counted(n: int) -> str:
    """ "1 number", "7 numbers"."""
    return f"{n} number" + ("" if n == 1 else "s")


def same_in_place(place: int, called: str) -> Judge:
    """Argument `place` (after comm), which the student knows as `called`, ends as in the reference on every rank."""

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        returned = all(alike(got, want[place]) for got, want in zip(seen.value, expected.arguments, strict=True))
        for rank, (got, want) in enumerate(zip(seen.arguments, expected.arguments, strict=True)):
            difference = differs(got[place], want[place])
            if difference is None:
                continue
            sentence = f"Rank {rank}, `{called}`: {difference}."
            if differs(got[place], case.each[rank][place]) is None:
                sentence = f"Rank {rank}: `{called}` still holds what it held before the call."
            if returned:
                sentence = sentence[:-1] + ", while what you return is right."
            evidence = "returned" if returned else [own[place] for own in seen.arguments]
            return Finding(sentence, short(want[place]), short(got[place]), (evidence,))
        return None

    return judge


def one_neighbour(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """In a ring every rank sends to one neighbour only, all of them the same way round."""
    p = case.ranks
    ways = {(dst - rank) % p for rank, one in enumerate(seen.traffic) for dst in one.sent_to}
    if ways <= {1} or ways <= {p - 1}:
        return None
    listed = "; ".join(f"rank {r} sends to {sorted(t.sent_to)}" for r, t in enumerate(seen.traffic) if t.sent_to)
    return Finding(
        "The numbers are right, but this is no ring: in a ring every rank sends to one of its two neighbours only.",
        "one neighbour each, all the same way round",
        listed,
        ("neighbours", [sorted(t.sent_to) for t in seen.traffic]),
    )


def at_most(what: str, most: Callable[[Case, int], int]) -> Judge:
    """No rank counts more than `most(case, rank)` of `what`: "bytes_sent", "bytes_received" or "messages_sent"."""
    unit, verb = what.split("_")
    verb = "sends" if verb == "sent" else "receives"

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        got = [getattr(one, what) for one in seen.traffic]
        want = [most(case, rank) for rank in range(case.ranks)]
        for rank, (g, w) in enumerate(zip(got, want, strict=True)):
            if g > w:
                return Finding(
                    f"The numbers are right, but rank {rank} {verb} {g:,} {unit} where {w:,} are enough.",
                    f"at most {short(want)} {unit}, by rank",
                    short(got),
                    (what, got),
                )
        return None

    return judge


def side_by_side(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The ranks work at the same time: a run may not take several times the reference's seconds."""
    if seen.seconds <= PATIENCE * expected.seconds:
        return None
    got, want = (round(one.seconds / NETWORK.latency, 1) for one in (seen, expected))
    return Finding(
        f"The numbers and bytes are right, but the ranks take turns: it lasts as long as {got:g} messages one after "
        f"the other, where {want:g} are enough.",
        f"about {want:g} message times",
        f"{got:g} message times",
        ("steps", round(got)),
    )


def deadlocked(*words: str) -> Symptom:
    """A deadlock in which at least one rank waits in a call whose description holds one of the words."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        stuck = seen.error is not None and seen.error.type == "Deadlock"
        return stuck and any(not words or any(word in what for word in words) for _, what in seen.error.waits)

    return symptom


def all_deadlocked(start: str) -> Symptom:
    """A deadlock in which every rank waits in a call whose description begins with `start`."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        stuck = seen.error is not None and seen.error.type == "Deadlock"
        return stuck and all(what.startswith(start) for _, what in seen.error.waits)

    return symptom


NO_SUCH_RANK = matches(r"(dst|src) is -?\d+: this communicator has ranks")
PAIR_FOR_LIST = matches(r"values to unpack|(dst|src) is tensor\(")  # a tensor of two numbers unpacks to a pair

MISMATCH = re.compile(r"receives into (\w+)(\[.*?\]), rank \d+ sends (\w+)(\[.*?\]):")


def another_dtype(case: Case, seen: Observation, expected: Observation) -> bool:
    """A receive met a message of as many numbers, but of another dtype."""
    found = MISMATCH.search(seen.error.message) if seen.error else None
    return found is not None and found[2] == found[4]


def another_length(case: Case, seen: Observation, expected: Observation) -> bool:
    """A receive met a message of another length, on a case whose chunks do not all have the same length."""
    found = MISMATCH.search(seen.error.message) if seen.error else None
    handed_in = {own[0].numel() for own in case.each}
    unequal = len(handed_in) > 1 or min(handed_in) % case.ranks > 0
    return found is not None and found[2] != found[4] and unequal


def behaves_like(what: str, *forms: Callable[..., Any]) -> Symptom:
    """`what` ("value" or "arguments") is on this case what one of `forms` makes of it, and no error."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None or case.ranks == 1:
            return False
        return any(alike(getattr(seen, what), getattr(remembered(SIMULATE, form, case), what)) for form in forms)

    return symptom


def unchanged(place: int) -> Symptom:
    """Argument `place` still holds on every rank what it held before."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None:
            return False
        return all(alike(got[place], had[place]) for got, had in zip(seen.arguments, case.each, strict=True))

    return symptom


def sends_more(than: float) -> Symptom:
    """Right numbers, but more than `than` times the bytes of the reference."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None or case.ranks is None:
            return False
        got, want = (sum(one.bytes_sent for one in who.traffic) for who in (seen, expected))
        return got > than * want > 0

    return symptom


def chunk_size(case: Case, rank: int) -> int:
    """Elements of the chunk of `rank`, for cases that give every rank a whole tensor."""
    return chunk_sizes(case.each[0][0].numel(), case.ranks)[rank]
