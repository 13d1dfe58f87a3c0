"""Lab 10: right answers in other clothes pass, what students get wrong is named, and references agree with the library."""

import math
from fractions import Fraction

import newcomer_10
import newcomer_10_again
import newcomer_10_later
import numpy as np
import pytest
import torch
from proof import verdict_on

from lockstep.compress import LocalSGD, OneBit, PowerSGD, RandomK, TopK
from lockstep.exercises import find
from lockstep.exercises.judge import judged
from lockstep.exercises.lab10 import EXERCISES, QUESTIONS
from lockstep.exercises.trial import observe_here
from lockstep.world import simulate

WRITTEN = newcomer_10, newcomer_10_later, newcomer_10_again
FOUND = [one for each in WRITTEN for one in each.FOUND]
RIGHT = [one for each in WRITTEN for one in each.RIGHT]


def test_the_cores_are_named_and_the_right_answers_stand_in_different_places():
    assert [one.id for one in EXERCISES if one.core] == ["10.1", "10.3", "10.4", "10.7"]
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


def test_random_rounding_passes_whatever_is_drawn():
    """Unseeded, as a student's own generator may be; a right solution fails in fewer than one of 10^9 checks."""
    exercise, random = find("10.1"), np.random.default_rng()

    def unseeded(comm, g, block):
        rows = np.zeros((-(-len(g) // block), block), np.float32)
        rows.reshape(-1)[: len(g)] = g.numpy()
        scales = np.abs(rows).max(1, keepdims=True) / 127
        steps = rows / np.where(scales > 0, scales, 1)
        codes = np.floor(steps + random.random(steps.shape)).clip(-127, 127).astype(np.int8)
        codes, scales = comm.all_gather(torch.tensor(codes)), comm.all_gather(torch.tensor(scales))
        return (codes * scales).view(comm.size, -1).mean(0)[: len(g)]

    for seed in range(3):
        cases = exercise.draw(seed)
        right = observe_here(exercise, exercise.reference, cases)
        for case, seen, expected in zip(cases, observe_here(exercise, unseeded, cases), right, strict=True):
            assert judged(exercise.judge, case, seen, expected) is None


def test_bytes_and_seconds_are_the_librarys():
    n, ranks, k, bandwidth = 1_000_000, 128, 10_000, 1e9
    pays_off = find("10.7").reference
    top = pays_off(n, ranks, k, "top-k", 0.0, bandwidth)
    assert top["compressed"] / top["dense"] == pytest.approx(1.28)
    for method, compressor in (("top-k", TopK(0.01)), ("random-k", RandomK(0.01))):
        seconds = pays_off(n, ranks, k, method, 0.0, bandwidth)["compressed"]
        assert seconds * bandwidth * ranks == pytest.approx(compressor.wire_bytes((n,), ranks))


def both_ways(comm):
    """What the exercises' references and the library make of the same gradients; drawn apart on each rank."""
    g, m = torch.randn(30), torch.randn(8, 9)
    q = torch.ones(9, 2) * torch.tensor([1.0, -1]) + torch.arange(18.0).view(9, 2).sin()
    library = PowerSGD(2)
    library.keep_q("m", q, alive=True)
    means = torch.empty(30), torch.empty(8, 9)
    TopK(0.1).begin(comm, [g], ["g"]).finish(means[:1])
    library.begin(comm, [m], ["m"]).finish(means[1:])
    own = find("10.3").reference(comm, g, 3)[0], find("10.5").reference(comm, m, q)[0]
    return own, means


def test_references_average_as_the_library_does():
    for own, means in simulate(both_ways, 3, timeout=60).values:
        for mine, theirs in zip(own, means, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_one_bit_is_the_librarys():
    g = torch.randn(21, generator=torch.Generator().manual_seed(1))
    bits, low, high = find("10.2").reference(g)
    payload = OneBit().compress(g)
    assert payload.nbytes == bits.nbytes + 8
    numbers = torch.where(torch.tensor(np.unpackbits(bits.numpy(), bitorder="little")[:21]).bool(), high, low)
    torch.testing.assert_close(numbers, OneBit().decompress(payload))


def local_both_ways(comm):
    found = []
    for ours in (True, False):
        model = torch.nn.Linear(2, 1)
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(0.5)
        average = LocalSGD(comm, model, every=2)

        def step(i, model=model, average=average, ours=ours):
            model(torch.full((1, 2), 1.0 + i + comm.rank)).sum().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(0.01 * p.grad.tanh() * (1 + p))
                    p.grad = None
            if not ours:
                average.step()

        if ours:
            find("10.8").reference(comm, list(model.parameters()), step, 4, 2)
        else:
            for i in range(4):
                step(i)
        found.append([p.detach().clone() for p in model.parameters()])
    return found


def test_local_sgd_is_the_librarys():
    for mine, theirs in simulate(local_both_ways, 2, timeout=60).values:
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other)


def test_equal_bytes_never_pay_and_fractions_are_numbers():
    right = find("10.7").reference(8000, 8, 1000, "top-k", 0.0, 1e9)
    assert right["break_even"] == 0 and right["dense"] == right["compressed"]

    def in_fractions(n, ranks, k, method, seconds, bandwidth):
        ring = Fraction(2 * (ranks - 1), ranks)
        dense, sent = 4 * n * ring, (8 * (ranks - 1) if method == "top-k" else 4 * ring) * k
        limit = 0 if sent >= dense else (dense - sent) / Fraction(seconds) if seconds else math.inf
        return {
            "break_even": limit,
            "dense": dense / Fraction(bandwidth),
            "compressed": sent / Fraction(bandwidth) + Fraction(seconds),
        }

    assert verdict_on(find("10.7"), in_fractions).passed
