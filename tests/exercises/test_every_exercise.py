"""Every exercise of every lab: right ones pass, the stub is not attempted, each mistake gets its own sentence,
mutants fail. The time for one exercise is at most about 1.5 s, so that eighty of them take two minutes."""

import pytest
from proof import PROOFS

from lockstep.exercises import all, check


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.__name__)
@pytest.mark.parametrize("exercise", all(), ids=lambda exercise: exercise.id)
def test_in_this_process(exercise, proof):
    proof(exercise)


@pytest.mark.parametrize("exercise", all(), ids=lambda exercise: exercise.id)
def test_through_the_child(exercise):
    assert check(exercise.id, exercise.reference, strict=True).points == exercise.points
    mistake = exercise.mistakes[0]
    assert check(exercise.id, mistake.function).cause == mistake.sentence


def test_ids_are_unique_and_in_order():
    ids = [one.id for one in all()]
    assert ids and len(set(ids)) == len(ids)
