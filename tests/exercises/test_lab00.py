"""Lab 00: right answers in other clothes pass, and the mistakes students make get their own sentence."""

import numpy as np
import pytest
import torch

from lockstep.exercises import check, find
from lockstep.exercises.exercise import Exercise
from lockstep.exercises.lab00 import EXERCISES, QUESTIONS

RANKS = 4  # what the notebook's own parameter is called


def verdict(exercise_id: str, fn) -> tuple[str, str]:
    """Status, and the known mistake it was taken for."""
    outcome = check(exercise_id, fn)
    return outcome.status, outcome.mistake


# --- 00.1


def test_hello_may_reduce_a_numpy_backed_tensor():
    def hello(comm):
        total = torch.from_numpy(np.array([comm.rank**2]))
        comm.all_reduce(total)
        return comm.rank**2, total.numpy()[0]

    assert verdict("00.1", hello) == ("passed", "")


def test_hello_may_return_matrices_of_one_element():
    def hello(comm):
        square = torch.full((1, 1), float(comm.rank)) ** 2
        return square, comm.all_reduce(square.clone())

    assert verdict("00.1", hello) == ("passed", "")


def test_hello_may_leave_out_the_call_when_there_is_one_rank():
    def hello(comm):
        total = torch.tensor(comm.rank**2)
        if comm.size > 1:
            comm.all_reduce(total)
        return comm.rank**2, total

    assert verdict("00.1", hello) == ("passed", "")


def test_hello_may_communicate_more_than_it_must():
    def hello(comm):
        comm.barrier()
        both = torch.tensor([comm.rank**2, 1.0])
        comm.all_reduce(both)
        return comm.rank * comm.rank, both[0]

    assert verdict("00.1", hello) == ("passed", "")


def test_hello_with_the_notebooks_own_number_of_ranks_is_hard_coded():
    def hello(comm):
        return comm.rank**2, sum(rank**2 for rank in range(RANKS))

    assert verdict("00.1", hello) == ("wrong", "hard-codes the size")


def test_hello_that_gathers_is_told_that_it_gathers():
    def hello(comm):
        squares = comm.all_gather(torch.tensor([comm.rank**2]))
        return comm.rank**2, squares.sum()

    outcome = check("00.1", hello)
    assert outcome.status == "wrong" and "all_gather instead of all_reduce" in outcome.seen


def test_hello_that_returns_early_on_some_ranks_is_a_missing_call():
    def hello(comm):
        square = comm.rank**2
        if square == 0:
            return 0, 0
        return square, comm.all_reduce(torch.tensor(square)).item()

    assert verdict("00.1", hello) == ("wrong", "not every rank calls it")


def test_hello_that_hands_in_a_plain_number_is_told_that_a_tensor_is_needed():
    def hello(comm):
        return comm.rank**2, comm.all_reduce(comm.rank**2)

    outcome = check("00.1", hello)
    assert not outcome.passed and "tensor" in outcome.text


# --- 00.2


def test_amdahl_may_use_numpy():
    def amdahl(serial_share, workers):
        return np.divide(1.0, np.float64(serial_share) + (1 - serial_share) / np.float64(workers))

    assert verdict("00.2", amdahl) == ("passed", "")


def test_amdahl_in_percent_of_a_hundred_is_percent():
    def amdahl(serial_share, workers):
        return 100 / (serial_share + (100 - serial_share) / workers)

    assert verdict("00.2", amdahl) == ("wrong", "percent for share")


def test_amdahl_without_brackets_is_wrong():
    def amdahl(serial_share, workers):
        return 1 / serial_share + (1 - serial_share) / workers if serial_share else workers

    assert not check("00.2", amdahl).passed


def test_amdahl_rounded_is_wrong():
    def amdahl(serial_share, workers):
        return round(1 / (serial_share + (1 - serial_share) / workers), 1)

    assert not check("00.2", amdahl).passed


# --- what the lab promises


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_the_smallest_case_comes_first(exercise: Exercise):
    size = [case.ranks or 1 for case in exercise.draw(7)]
    assert size == sorted(size)
    assert find(exercise.id) is exercise


def test_three_questions_with_the_right_answer_in_different_places():
    assert [question.id for question in QUESTIONS] == ["00.q1", "00.q2", "00.q3"]
    right = [next(letter for letter, o in q.letters.items() if o.right) for q in QUESTIONS]
    assert len(set(right)) == 3


def test_the_numbers_of_the_last_question():
    by_amdahl = find("00.2").reference
    assert f"{by_amdahl(0.1, 100):.1f} {by_amdahl(0.1, 1000):.1f}" == "9.2 9.9"
