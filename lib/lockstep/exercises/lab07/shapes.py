"""What goes wrong in any schedule as lists, recognised by what stands in them.

Floor 4, room `exercises`; read `rows.py` first. These come after an exercise's own mistakes: a number of lists or of
micro-batches that is fixed, lists that are one list, texts and numbers of actions that are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab07.rows import Size, listed, stage_a_rank
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import Symptom
from lockstep.parallel.pipeline import Action

BACK = ("B", "I")  # what a gradient that comes back is for


def numbers(row: Iterable[Action], kinds: str) -> list[int]:
    """The micro-batches of the actions of these kinds, in order."""
    return [action.micro_batch for action in row if action.kind in kinds]


def in_the_right_orders(case: Case, seen: Observation, expected: Observation) -> bool:
    """Each rank's forwards are in the reference's order, and so are its backwards: only how they alternate differs."""
    mine, theirs = listed(seen.value), listed(expected.value)
    return [[[a for a in row if (a.kind == "F") is forward] for forward in (True, False)] for row in mine] == [
        [[a for a in row if (a.kind == "F") is forward] for forward in (True, False)] for row in theirs
    ]


def both(*symptoms: Symptom) -> Symptom:
    """All of them."""
    return lambda case, seen, expected: all(symptom(case, seen, expected) for symptom in symptoms)


def lacks_backwards(case: Case, seen: Observation, expected: Observation) -> bool:
    """All forwards are there, and fewer backwards."""
    mine, theirs = listed(seen.value), listed(expected.value)
    counts = [[sum(a.kind in kinds for row in rows for a in row) for kinds in ("F", BACK)] for rows in (mine, theirs)]
    return counts[0][0] == counts[1][0] and counts[0][1] < counts[1][1]


def forwards_first(case: Case, seen: Observation, expected: Observation) -> bool:
    """On no rank does a forward follow anything but forwards, and on some there is more than one."""
    kinds = ["".join(action.kind for action in row) for row in listed(seen.value)]
    return any("FF" in row for row in kinds) and all(re.fullmatch("F*[^F]*", row) for row in kinds)


def beyond_the_last(size: Callable[[Case], Size]) -> Symptom:
    """Forwards of micro-batches that do not exist, but no backwards of them: a warm-up that is too long."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        rows, m = listed(seen.value), size(case)[2]
        return any(i >= m for row in rows for i in numbers(row, "F")) and all(
            i < m for row in rows for i in numbers(row, "BIW")
        )

    return symptom


def of_any_schedule(
    reference: Callable[..., list[list[Action]]], size: Callable[[Case], Size] = stage_a_rank
) -> tuple[Mistake, ...]:
    """The mistakes that every list of lists invites, made of the exercise's own `reference`."""

    def changed(change: Callable[[Action], Any]) -> Callable[..., list[list[Any]]]:
        return lambda *args: [[change(action) for action in row] for row in reference(*args)]

    def all_in_one(*args):
        return [action for row in reference(*args) for action in row]

    def the_same_for_all(stages, *rest):
        return [all_in_one(stages, *rest)] * stages

    def always_two(stages, *rest):
        return reference(2, *rest)

    def eight_rounds(stages, micro_batches, *rest):
        return reference(stages, 8 * stages, *rest)

    def a_round_too_few(stages, micro_batches, *rest):
        return reference(stages, micro_batches - stages if micro_batches > stages else micro_batches, *rest)

    def without_the_last(*args):
        return [[a for a in row if a.kind == "F" or a.micro_batch < args[1] - 1] for row in reference(*args)]

    def back_first(*args):
        return [sorted(row, key=lambda action: action.kind == "F") for row in reference(*args)]

    def same_lists(case: Case, seen: Observation, expected: Observation) -> bool:
        rows = listed(seen.value)
        return len(rows) > 1 and all(row == rows[0] for row in rows) and len({a.chunk for a in rows[0]}) > 1

    def other_count(case: Case, seen: Observation, expected: Observation) -> bool:
        rows = seen.value
        return isinstance(rows, list) and all(isinstance(row, list) for row in rows) and len(rows) != size(case)[0]

    def chunk_0_alone(case: Case, seen: Observation, expected: Observation) -> bool:
        rows = listed(seen.value)
        return len(rows) > 1 and all(row and {a.chunk for a in row} == {0} for row in rows)

    def from_one(case: Case, seen: Observation, expected: Observation) -> bool:
        chunks = {action.chunk for row in listed(seen.value) for action in row}
        return bool(chunks) and min(chunks) == 1 and max(chunks) == size(case)[1]

    def too_many(case: Case, seen: Observation, expected: Observation) -> bool:
        return any(i >= size(case)[2] for row in listed(seen.value) for i in numbers(row, "BIW"))

    def too_few(case: Case, seen: Observation, expected: Observation) -> bool:
        rows, m = listed(seen.value), size(case)[2]
        return bool(rows) and all(len(set(numbers(row, "F"))) < m for row in rows)

    def before_its_forward(case: Case, seen: Observation, expected: Observation) -> bool:
        return any(row and row[0].kind in BACK for row in listed(seen.value))

    def other_text(case: Case, seen: Observation, expected: Observation) -> bool:
        rows = seen.value if isinstance(seen.value, list) else []
        texts = [item for row in rows if isinstance(row, list) for item in row if isinstance(item, str)]
        return any(re.fullmatch(r"[FBIW]\W*\d*\W*\d*", text.strip()) for text in texts)

    return (
        Mistake(
            "one list for all ranks",
            all_in_one,
            "You return one list in which the actions of all ranks stand one after the other. Each rank works through a "
            "list of its own, at the same time: return a list of lists.",
        ),
        Mistake(
            "the same list for every rank",
            the_same_for_all,
            "All ranks have the same actions, those of all of them. `[[]] * n` is n times one list, and a list that is "
            "filled further for each rank is one list, too: begin a new one for every rank.",
            symptom=same_lists,
        ),
        Mistake(
            "a fixed number of lists",
            always_two,
            "There is one list for each rank, and there are `stages` ranks. Is every rank's list made, and put into what "
            "you return?",
            symptom=other_count,
        ),
        Mistake(
            "every rank has stage 0",
            changed(lambda a: Action(a.kind, 0, a.micro_batch)),
            "All ranks do the actions of stage 0. Rank r has stage r, and every stage has to be somewhere.",
            symptom=chunk_0_alone,
        ),
        Mistake(
            "counts stages from one",
            changed(lambda a: Action(a.kind, a.chunk + 1, a.micro_batch)),
            "You count stages from 1. They are counted from 0, as ranks are: rank 0 has stage 0.",
            symptom=from_one,
        ),
        Mistake(
            "kind first in the text",
            changed(lambda a: f"{a.kind}{a.chunk}{a.micro_batch}"),
            'In the text of an action the stage comes first, then the kind, then the micro-batch: "2F0" is forward of '
            "micro-batch 0 on stage 2.",
            symptom=other_text,
        ),
        Mistake(
            "a fixed number of micro-batches",
            eight_rounds,
            "There are actions of micro-batches that do not exist. `micro_batches` says how many there are, and they have "
            "the numbers 0 to micro_batches - 1.",
            symptom=too_many,
        ),
        Mistake(
            "not all micro-batches",
            a_round_too_few,
            "Not all micro-batches are there: `micro_batches` says how many, with the numbers 0 to micro_batches - 1, "
            "whatever the number of stages.",
            symptom=too_few,
        ),
        Mistake(
            "some backwards are missing",
            without_the_last,
            "Some backwards are missing. Every micro-batch that goes forward through a stage also goes back through it.",
            symptom=lacks_backwards,
        ),
        Mistake(
            "backward before forward",
            back_first,
            "A rank begins with a backward. Before a micro-batch can go back through a stage it has to go forward "
            "through it.",
            symptom=before_its_forward,
        ),
    )
