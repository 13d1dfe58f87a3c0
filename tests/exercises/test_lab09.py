"""Lab 09: right answers in other clothes pass, what students get wrong is named, and references agree with the library."""

import newcomer_09
import newcomer_09_again
import newcomer_09_later
import pytest
import torch
from proof import verdict_on
from torch import nn

from lockstep.cost import zero_memory
from lockstep.exercises import find
from lockstep.exercises.lab09 import EXERCISES, QUESTIONS
from lockstep.exercises.lab09.toys import Held, Momentum
from lockstep.parallel import ZeRO
from lockstep.world import simulate

WRITTEN = newcomer_09, newcomer_09_later, newcomer_09_again
FOUND = [one for each in WRITTEN for one in each.FOUND]
RIGHT = [one for each in WRITTEN for one in each.RIGHT]


def test_the_cores_come_first_and_the_right_answers_stand_in_different_places():
    assert [one.id for one in EXERCISES if one.core] == ["09.1", "09.2", "09.3", "09.5"]
    for exercise in EXERCISES:
        assert find(exercise.id) is exercise
    right = [next(letter for letter, o in q.letters.items() if o.right) for q in QUESTIONS]
    assert len(QUESTIONS) == 4 and len(set(right)) >= 3


def named(found):
    """An id for each, by its place: some of the functions have one name."""
    return [f"{id}-{i}" for i, (id, *_) in enumerate(found)]


@pytest.mark.parametrize("exercise_id, fn, words", FOUND, ids=named(FOUND))
def test_what_a_newcomer_wrote_is_told_why(exercise_id, fn, words):
    outcome = verdict_on(find(exercise_id), fn)
    assert not outcome.passed
    for word in words:
        told = f"{outcome.seen} {outcome.cause}"
        assert (word.removeprefix("-") in told) is not word.startswith("-"), outcome.text


@pytest.mark.parametrize("exercise_id, fn", RIGHT, ids=named(RIGHT))
def test_what_a_newcomer_wrote_is_right(exercise_id, fn):
    outcome = verdict_on(find(exercise_id), fn)
    assert outcome.passed, outcome.text


def test_state_bytes_are_the_librarys():
    for optimizer in ("sgd", "momentum", "adam"):
        for precision in ("fp32", "mixed"):
            for stage in range(4):
                settings = 12_345, 7, stage, optimizer, precision
                assert find("09.1").reference(*settings) == zero_memory(*settings)


def one_step(comm, by_hand):
    """New parameters after a clipped step of stage 1: the exercise's, or the library's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    x = torch.arange(10.0).view(2, 5).sin() + comm.rank
    if by_hand:
        parameters = list(model.parameters())
        shard = nn.Parameter(find("09.2").reference(parameters, comm.rank, comm.size))
        model(x).square().mean().backward()
        find("09.3").reference(comm, parameters, shard, Momentum([shard]), 0.5)
        return list(model.state_dict().values())
    zero = ZeRO(model, Momentum, comm, stage=1)
    zero(x).square().mean().backward()
    zero.clip_grad_norm_(0.5)
    zero.step()
    return list(zero.full_state_dict().values())


def test_a_step_of_the_exercise_is_one_of_the_library():
    mine, theirs = (simulate(one_step, 3, by_hand, timeout=60).values[1] for by_hand in (True, False))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_held_memory_knows_what_is_freed_resized_or_kept_by_a_window():
    held = Held()
    flat = torch.zeros(100)
    window = flat[:10]
    held.note(flat)
    assert held.bytes == 400
    del flat
    assert held.bytes == 400, "a window keeps all of it"
    window.untyped_storage().resize_(40)
    assert held.bytes == 40
    del window
    assert held.bytes == 0 and held.peak == 400
