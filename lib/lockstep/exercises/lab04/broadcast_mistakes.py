"""04.5 `tree_broadcast`: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `broadcast.py`, wrong solutions are in `broadcast_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.lab04 import broadcast_wrong as wrong
from lockstep.exercises.lab04.steps import NO_SUCH_RANK, deadlocked
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import raises, says


def _levels(case: Case) -> int:
    return (case.ranks - 1).bit_length()


def right_numbers(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank holds what it should."""
    return seen.error is None and alike(seen.arguments, expected.arguments)


def the_root_does_it_all(case: Case, seen: Observation, expected: Observation) -> bool:
    """Right, but every message leaves from the source."""
    most = max(t.messages_sent for t in seen.traffic) if seen.traffic else 0
    return right_numbers(case, seen, expected) and case.ranks > 3 and most == case.ranks - 1


def as_a_chain(case: Case, seen: Observation, expected: Observation) -> bool:
    """Right, but nobody sends more than once."""
    return right_numbers(case, seen, expected) and max(t.messages_sent for t in seen.traffic) <= 1


def as_a_heap(case: Case, seen: Observation, expected: Observation) -> bool:
    """Right, but nobody sends more than twice, and no order of the sends would make that fast enough."""
    most = max(t.messages_sent for t in seen.traffic) if seen.traffic else 0
    return right_numbers(case, seen, expected) and most == 2 and not along_a_good_tree(case, seen, expected)


def along_a_good_tree(case: Case, seen: Observation, expected: Observation) -> bool:
    """Right, and sent along a tree that is fast enough if every rank sends one after the other in a good order."""

    def levels(rank: int) -> int:
        below = sorted(map(levels, seen.traffic[rank].sent_to), reverse=True)
        return max((i + 1 + deep for i, deep in enumerate(below)), default=0)

    is_tree = sum(t.messages_sent for t in seen.traffic) == case.ranks - 1
    return is_tree and right_numbers(case, seen, expected) and levels(case.args[0]) <= _levels(case)


def holds_rank_0s(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank ends with the numbers of rank 0, which is not the source."""
    return seen.error is None and case.args[0] != 0 and all(alike(one[0], case.each[0][0]) for one in seen.arguments)


SENDS_TO_NOBODY: Symptom = deadlocked("send")

MISTAKES = (
    Mistake(
        "the source sends to everyone",
        wrong.sends_to_everyone,
        "The numbers are right, but the source sends every message itself, one after the other. Whoever has the "
        "tensor can help to spread it.",
        symptom=the_root_does_it_all,
    ),
    Mistake(
        "a chain",
        wrong.passes_it_along,
        "The numbers are right, but each rank passes the tensor on to one other, so the last one waits for all "
        "before it. A rank that has the tensor can send it again and again, to a new rank each time.",
        symptom=as_a_chain,
    ),
    Mistake(
        "each rank sends to two others only",
        wrong.passes_it_to_two_others,
        "The numbers are right, but each rank passes the tensor to two others and then stops, while the levels below "
        "are still at work. Whoever has the tensor goes on at every level, each time to a new rank.",
        symptom=as_a_heap,
    ),
    Mistake(
        "starts its sends together",
        wrong.starts_its_sends_together,
        "Your tree is right, but not the time of its messages. Sends that a rank starts together share its link, and "
        "who has most to pass on may be served last. Wait for each send before the next one starts, and begin with "
        "the rank that has most others behind it.",
        symptom=along_a_good_tree,
    ),
    Mistake(
        "a handle that nobody waits for",
        wrong.never_waits,
        "You return while a message may still be on its way. Keep the handle that `isend` or `irecv` gives, and "
        "`wait()` for it: for an `irecv` before you pass the tensor on, for an `isend` before the next one.",
        symptom=raises("NeverWaited"),
    ),
    Mistake(
        "takes a place for a rank",
        wrong.takes_a_place_for_a_rank,
        "A rank is to send to itself, because places and ranks are mixed up. A place is counted from the source, and "
        "`send` and `recv` want ranks: turn it back into a rank, `(place + src) % comm.size`. What has been computed "
        "from `comm.rank` is a rank already, and gets no `src` added.",
        symptom=says("has itself as"),
    ),
    Mistake(
        "assumes a power of two",
        wrong.assumes_a_power_of_two,
        "At the last level some ranks send to a rank that has the tensor already, since the number wraps around. "
        "When the number of ranks is no power of two, the last level is not full: send only where there is a rank.",
        symptom=SENDS_TO_NOBODY,
    ),
    Mistake(
        "sends beyond the last rank",
        wrong.sends_beyond_the_last_rank,
        "You send to a rank that does not exist. Count places from the source, and take the result modulo the "
        "number of ranks; at a level that is not full, somebody has nobody to send to.",
        symptom=NO_SUCH_RANK,
    ),
    Mistake(
        "always from rank 0",
        wrong.always_from_rank_0,
        "Your tree grows from rank 0, whatever `src` is. Count the ranks from the source.",
        symptom=holds_rank_0s,
    ),
    Mistake(
        "stops one level early",
        wrong.stops_one_level_early,
        "Some ranks never get the tensor: the last level is missing. Go on until as many have it as there are ranks.",
    ),
    Mistake(
        "only the source sends",
        wrong.only_the_source_sends,
        "You double the distance, but only the source sends, so the ranks in between get nothing. At each level "
        "every rank that has the tensor sends.",
    ),
    Mistake(
        "nobody receives",
        wrong.only_the_source_takes_part,
        "The source sends and nobody receives, because the call stands inside `if comm.rank == src`. A message has "
        "two sides: the others have to call `recv`.",
    ),
    Mistake(
        "nobody sends",
        wrong.receives_before_it_can,
        "Your ranks only receive. At each level decide which side a rank is on: those that have the tensor send.",
        symptom=deadlocked("recv"),
    ),
    Mistake(
        "not in place",
        wrong.not_in_place,
        "The tensor arrives in a copy. The one that was handed in has to hold it.",
    ),
)
