"""Lab 04: right answers in other clothes pass, and what students get wrong is named."""

import math

import numpy as np
import pytest
import torch
from newcomer_04 import FOUND
from proof import verdict_on

from lockstep.exercises import diagnose, find, registry
from lockstep.exercises.lab04 import EXERCISES, QUESTIONS
from lockstep.exercises.trial import observe_here
from lockstep.world import simulate


def verdict(exercise_id, fn):
    """Status, known mistake and what was seen: as `check`, without a child process for each function."""
    outcome = verdict_on(find(exercise_id), fn)
    return outcome.status, outcome.mistake, outcome.seen


@pytest.mark.parametrize("exercise_id, fn, words", FOUND, ids=[f"{id}-{fn.__name__}" for id, fn, _ in FOUND])
def test_what_a_newcomer_wrote_gets_its_cause(exercise_id, fn, words):
    # Each got a wrong cause or none: a symptom that was too wide, or one error that was taken for another.
    outcome = verdict_on(find(exercise_id), fn)
    assert not outcome.passed
    for word in words:
        assert (word.removeprefix("-") in outcome.cause) is not word.startswith("-"), outcome.text


def test_the_cores_come_first_in_points_and_the_cases_grow():
    assert [one.id for one in EXERCISES if one.core] == ["04.1", "04.2", "04.4", "04.6"]
    for exercise in EXERCISES:
        ranks = [case.ranks for case in exercise.draw(7) if case.ranks]
        assert ranks == sorted(ranks), exercise.id
        assert find(exercise.id) is exercise


def test_no_reference_fails_on_a_case():
    # A case that could not even be sent failed alike for the reference and for every mistake, so all of them passed.
    for exercise in EXERCISES:
        for case, seen in zip(
            exercise.draw(1), observe_here(exercise, exercise.reference, exercise.draw(1)), strict=True
        ):
            assert seen.error is None, f"{exercise.id}, {case.name}: {seen.error.sentence}"


def test_right_answers_stand_in_different_places():
    right = [next(letter for letter, o in q.letters.items() if o.right) for q in QUESTIONS]
    assert len(QUESTIONS) >= 3 and len(set(right)) >= 3


class TestExchange:
    def test_three_phases_for_an_odd_ring_are_fine(self):
        def exchange(comm, outgoing, incoming):
            right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            if comm.rank == 0:
                comm.recv(incoming, left)
                comm.send(outgoing, right)
            elif comm.rank % 2:
                comm.send(outgoing, right)
                comm.recv(incoming, left)
            else:
                comm.recv(incoming, left)
                comm.send(outgoing, right)

        assert verdict("04.1", exchange)[0] == "passed"

    def test_a_barrier_is_one_message_too_many(self):
        def exchange(comm, outgoing, incoming):
            comm.barrier()
            comm.exchange([(outgoing, (comm.rank + 1) % comm.size)], [(incoming, (comm.rank - 1) % comm.size)])

        status, _, seen = verdict("04.1", exchange)
        assert status == "wrong" and "sends 2 messages where 1" in seen


class TestReduceScatter:
    def test_a_left_turning_ring_of_even_and_odd_ranks(self):
        def ring_reduce_scatter(comm, tensor):
            chunks = list(tensor.clone().tensor_split(comm.size))
            right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            for s in range(1, comm.size):
                out, own = chunks[(comm.rank + s) % comm.size], chunks[(comm.rank + s + 1) % comm.size]
                came = torch.empty_like(own)
                if comm.rank % 2:
                    comm.recv(came, right)
                    comm.send(out, left)
                else:
                    comm.send(out, left)
                    comm.recv(came, right)
                own += came
            return chunks[comm.rank]

        assert verdict("04.2", ring_reduce_scatter)[0] == "passed"

    def test_the_classical_numbering_is_told_apart_from_a_wrong_sum(self):
        def ring_reduce_scatter(comm, tensor):
            p, chunks = comm.size, tensor.clone().tensor_split(comm.size)
            for s in range(p - 1):
                buffer = torch.zeros_like(chunks[(comm.rank - s - 1) % p])
                handle = comm.isend(chunks[(comm.rank - s) % p], (comm.rank + 1) % p)
                comm.recv(buffer, (comm.rank - 1) % p)
                handle.wait()
                chunks[(comm.rank - s - 1) % p].add_(buffer)
            return chunks[(comm.rank + 1) % p]

        assert verdict("04.2", ring_reduce_scatter)[:2] == ("wrong", "chunk index off by one")


class TestAllReduce:
    def test_returning_it_as_well_is_fine(self):
        def ring_all_reduce(comm, tensor):
            p, flat = comm.size, tensor.view(-1)
            edges = [len(flat) * c // p for c in range(p + 1)]
            at = comm.rank
            for s in range(2 * p - 2):
                before = (at - 1) % p
                came = flat.new_empty(edges[before + 1] - edges[before])
                comm.exchange([(flat[edges[at] : edges[at + 1]], (comm.rank + 1) % p)], [(came, (comm.rank - 1) % p)])
                flat[edges[before] : edges[before + 1]] = came + (
                    flat[edges[before] : edges[before + 1]] if s < p - 1 else 0
                )
                at = before
            return tensor

        assert verdict("04.4", ring_all_reduce)[0] == "passed"

    def test_rebinding_the_name_is_not_in_place(self):
        reduce_scatter, all_gather = find("04.2").reference, find("04.3").reference

        def ring_all_reduce(comm, tensor):
            chunk = reduce_scatter(comm, tensor.clone())
            tensor = all_gather(comm, chunk, [len(c) for c in tensor.tensor_split(comm.size)])
            return tensor

        status, mistake, seen = verdict("04.4", ring_all_reduce)
        assert (status, mistake) == ("wrong", "not in place") and "still holds" in seen


class TestBroadcast:
    def test_a_tree_that_halves_the_distance(self):
        def tree_broadcast(comm, tensor, src):
            place, d = (comm.rank - src) % comm.size, 1
            while d < comm.size:
                d *= 2
            while d > 1:
                d //= 2
                if place % (2 * d) == 0 and place + d < comm.size:
                    comm.send(tensor, (comm.rank + d) % comm.size)
                elif place % (2 * d) == d:
                    comm.recv(tensor, (comm.rank - d) % comm.size)

        assert verdict("04.5", tree_broadcast)[0] == "passed"


class TestSeconds:
    def test_whole_elements_make_no_difference_where_they_divide(self):
        def predict_seconds(algorithm, nbytes, ranks, latency, bandwidth):
            if algorithm == "ring_all_reduce":
                chunk = math.ceil(nbytes / 4 / ranks) * 4
                return 2 * (ranks - 1) * (latency + chunk / bandwidth)
            lg = math.log2(ranks)
            levels = math.ceil(lg) if algorithm == "tree_broadcast" else int(lg) + 2 * (lg != int(lg))
            return levels * latency + levels * nbytes / bandwidth

        assert verdict("04.6", predict_seconds)[0] == "passed"

    def test_a_missing_return_is_said(self):
        def predict_seconds(algorithm, nbytes, ranks, latency, bandwidth):
            if algorithm == "ring_all_reduce":
                return 2 * (ranks - 1) * (latency + nbytes / ranks / bandwidth)

        assert "return" in verdict("04.6", predict_seconds)[2]


def test_choose_must_give_one_of_the_names():
    status, _, seen = verdict("04.7", lambda nbytes, ranks, latency, bandwidth: "ring")
    assert status == "wrong" and "one of" in seen


def test_an_empty_tensor_made_from_an_array_can_be_sent():
    # torch gives it stride 0, and neither a rank's arguments nor `isend` could see it as bytes.
    def program(comm, tensor):
        own = torch.tensor(np.arange(0), dtype=torch.float32)
        handle = comm.isend(own, 1 - comm.rank)
        comm.recv(tensor, 1 - comm.rank)
        handle.wait()
        return comm.all_reduce(tensor).numel()

    assert simulate(program, 2, torch.tensor(np.arange(0), dtype=torch.float32)).values == [0, 0]


def test_a_crash_in_place_shows_what_the_tensor_should_hold():
    # It showed "Expected [None, None, None]".
    def ring_all_reduce(comm, tensor):
        comm.recv(tensor, (comm.rank - 1) % comm.size) if comm.size > 1 else None

    assert verdict_on(find("04.4"), ring_all_reduce).expected.startswith("on every rank, in place: float32[4]")
    assert verdict_on(find("04.1"), lambda comm, a, b: 1 / 0).expected.startswith("[{'incoming': ")
    assert "stay as they are" in verdict_on(find("04.4"), lambda comm, tensor: 1 / 0).expected


def test_a_riddle_in_place_shows_the_tensors(monkeypatch):
    # It showed that every rank returns None, and offered both "not in place" and "nothing is wrong".
    broadcast = find("04.5")
    monkeypatch.setattr(registry, "all", lambda: (broadcast,))
    ended = next(run for run in (diagnose("04", seed=seed) for seed in range(9)) if run.seen.error is None)
    assert "leaves in place float" in repr(ended) and "returns None" not in repr(ended), repr(ended)
