"""Small exercises for testing the machinery: `half`, a plain function with several known mistakes."""

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import all_of, same_arguments, same_value
from lockstep.exercises.observe import Call


def halves(numbers):
    return [n / 2 for n in numbers]


def halves_by_array(numbers):
    return list(np.asarray(numbers) / 2)


def halves_in_a_loop(numbers):
    found = []
    for n in numbers:
        found.append(0.5 * n)
    return found


def halves_stub(numbers):
    raise NotImplementedError("return the halves")


def doubles(numbers):
    return [n * 2 for n in numbers]


def floors(numbers):
    return [float(n // 2) for n in numbers]


def forgets_the_last(numbers):
    return [n / 2 for n in numbers[:-1]]


def raises_on_many(numbers):
    return [numbers[0] / 2, numbers[1] / 2, numbers[2] / 2]


def cases(rng):
    yield Case("one number", ([3.0],))
    for length in (2, 5):
        yield Case(f"{length} numbers", (list(map(float, rng.integers(1, 1000, length))),))


HALVES = Exercise(
    id="00.7",
    title="Halves",
    points=3,
    function="halves",
    asks="Return the half of each number in a list.",
    reference=halves,
    also_right=(halves_by_array, halves_in_a_loop),
    stub=halves_stub,
    cases=cases,
    observe=Call(),
    judge=all_of(same_value(), same_arguments()),
    hints=("What is the half of 3?", "A list comprehension goes through all numbers.", "`[n / 2 for n in numbers]`"),
    mistakes=(
        Mistake("doubles", doubles, "Twice as much, not half as much."),
        Mistake("floors", floors, "Whole-number division drops the fraction."),
        Mistake("forgets the last", forgets_the_last, "The last number is missing: a slice ends before its bound."),
        Mistake("counts on three", raises_on_many, "The list may have any length.",
                symptom=lambda case, seen, expected: seen.error is not None and seen.error.type == "IndexError"),
    ),
    forbidden=("numpy.divide", "statistics.mean"),
)  # fmt: skip
