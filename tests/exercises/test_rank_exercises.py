"""Exercises whose function runs on ranks: deadlocks, loops, forbidden methods, traffic, and what a split does."""

from dataclasses import replace

import pytest
import torch
from proof import PROOFS

from lockstep.exercises import check, diagnose, registry
from lockstep.exercises.exercise import Exercise, Mistake, on_ranks
from lockstep.exercises.judge import all_of, same_collectives, same_traffic, same_value
from lockstep.exercises.observe import Simulate


def share(comm, own):
    total = own.clone()
    comm.all_reduce(total)
    return total


def share_by_gathering(comm, own):
    return comm.all_gather(own).reshape(comm.size, -1).sum(0)


def share_in_a_part(comm, own):
    return comm.split(0).all_reduce(own.clone())


def share_in_two(comm, own):
    total = own.clone()
    for half in total.chunk(2):
        comm.all_reduce(half)
    return total


def share_stub(comm, own):
    raise NotImplementedError("add up every rank's tensor")


def keeps_its_own(comm, own):
    return own


def both_send_first(comm, own):
    if comm.size == 1:
        return share(comm, own)
    other = torch.zeros_like(own)
    comm.send(own, (comm.rank + 1) % comm.size)
    comm.recv(other, (comm.rank - 1) % comm.size)
    return own + other


def only_rank_0(comm, own):
    return comm.all_reduce(own) if comm.rank == 0 else own


def means(comm, own):
    return comm.all_reduce(own, op="mean")


def cases(rng):
    for ranks in (1, 2, 4):
        own = [(torch.from_numpy(rng.normal(size=5)).float(),) for _ in range(ranks)]
        yield on_ranks(ranks, each=own, name="5 numbers each")


def waits(case, seen, expected):
    return seen.error is not None and seen.error.type == "Deadlock"


SHARE = Exercise(
    id="00.8",
    title="Share",
    function="share",
    asks="Return the sum of every rank's tensor.",
    reference=share,
    also_right=(share_by_gathering, share_in_a_part),
    stub=share_stub,
    cases=cases,
    observe=Simulate(),
    judge=all_of(same_value(), same_collectives()),
    hints=("Who knows the other tensors?", "`comm.all_reduce`"),
    mistakes=(
        Mistake("keeps its own", keeps_its_own, "Nothing came from the other ranks."),
        Mistake("both send first", both_send_first, "Every rank sends, and none receives.", symptom=waits),
        Mistake("only rank 0", only_rank_0, "A collective is called by every rank."),
        Mistake("means", means, "A mean is the sum divided by the number of ranks."),
        Mistake("too many collectives", share_in_two, "One all-reduce can move the whole tensor."),
    ),
)


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.__name__)
def test_a_rank_exercise_passes_every_proof(proof):
    proof(SHARE)


def test_a_deadlock_says_what_each_rank_waits_for():
    verdict = check(SHARE, both_send_first)
    assert verdict.status == "wrong" and "deadlock" in verdict.seen
    assert "rank 0 waits for" in verdict.seen and "rank 1 waits for" in verdict.seen
    assert verdict.case.startswith("2 ranks") and verdict.mistake == "both send first"


def test_an_error_names_its_rank_and_line():
    def raises(comm, own):
        share(comm, own)
        return own.reshape(2, 3) if comm.rank == 1 else own

    verdict = check(SHARE, raises)
    assert verdict.status == "crashed" or verdict.case.startswith("2 ranks")

    def raises_late(comm, own):
        total = share(comm, own)
        if comm.rank == 1:
            return total.reshape(2, 3)
        return total

    verdict = check(SHARE, raises_late)
    line = raises_late.__code__.co_firstlineno + 3
    assert verdict.seen.startswith("Rank 1 raises RuntimeError"), verdict.text
    assert f"on line {line}: `return total.reshape(2, 3)`" in verdict.seen


def test_a_rank_that_loops_is_stopped_at_its_line(monkeypatch):
    monkeypatch.setattr("lockstep.exercises.trial.LIMIT", 1.0)

    def loops(comm, own):
        total = share(comm, own)
        while comm.rank == 1:
            total = total * 1
        return total

    verdict = check(SHARE, loops)
    first = loops.__code__.co_firstlineno
    assert verdict.status == "timed out" and verdict.case.startswith("2 ranks"), verdict.text
    assert f"on line {first + 2}" in verdict.seen or f"on line {first + 3}" in verdict.seen


def named(comm, own):
    return comm.all_reduce(own)


def looked_up(comm, own):
    return getattr(comm, "all_" + "reduce")(own)


def split_off(comm, own):
    return comm.split(0).all_reduce(own)


def swallowed(comm, own):
    try:
        return getattr(comm, "all_" + "reduce")(own)
    except Exception:  # what students write
        return own


@pytest.mark.parametrize("fn", [named, looked_up, split_off, swallowed])
def test_a_forbidden_method_is_named_however_it_is_called(fn):
    verdict = check(replace(SHARE, forbidden=("comm.all_reduce",)), fn)
    assert verdict.status == "forbidden" and "`comm.all_reduce`" in verdict.seen


def test_what_the_library_calls_inside_is_not_forbidden():
    """reduce_scatter may be built from send and receive, or from other collectives."""

    def scatters(comm, own):
        return comm.all_gather(
            comm.reduce_scatter(own), sizes=[5 // comm.size + (r < 5 % comm.size) for r in range(comm.size)]
        )

    names = ("comm.send", "comm.recv", "comm.exchange", "comm.isend", "comm.irecv")
    verdict = check(replace(SHARE, judge=same_value(), forbidden=names), scatters)
    assert verdict.passed, verdict.text


def test_traffic_is_judged_by_rank():
    def sends_twice(comm, own):
        share(comm, own)
        return share(comm, own)

    verdict = check(replace(SHARE, judge=all_of(same_value(), same_traffic())), sends_twice)
    assert "The numbers are right, but rank 0 sends" in verdict.seen and "bytes" in verdict.seen


@pytest.fixture
def only_share(monkeypatch):
    monkeypatch.setattr(registry, "all", lambda: [SHARE])


def test_diagnose_shows_a_run_to_be_named_from_a_list(only_share):
    for seed in range(6):
        run = diagnose("00", seed=seed)
        assert run.options[run.right] in repr(run)
        assert run.sentence not in repr(run)
        assert "right" in run.answer(run.right).text and run.sentence in " ".join(run.answer(run.right).text.split())
        wrong = next(letter for letter in run.options if letter != run.right)
        assert "not that" in run.answer(wrong).text and "not one of" in run.answer("z").text
        assert repr(diagnose("00", seed=seed)) == repr(run)


# Story: values were cut off with nothing beside them: a mean in place of a sum looked like a run with nothing wrong.
def test_a_riddle_shows_what_should_have_come(only_share):
    for run in (diagnose("00", seed=seed) for seed in range(12)):
        if run.seen.error is None:
            right = run.options[run.right] == "nothing is wrong"
            every = [row.text for row in run.card.rows if row.label.startswith("Rank") or row.label == "Sent"]
            told = any("expected" in text or "it should be" in text for text in every)
            assert told != right, repr(run)


def test_diagnose_shows_a_timeline_in_a_notebook(only_share, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    run = next(one for one in (diagnose("00", seed=s) for s in range(20)) if one.seen.trace is not None)
    run._ipython_display_()
    assert len(shown) == 2 and "Share" in shown[0].alt


# Story: an exercise whose smallest case has eight ranks ended `diagnose` with "max() arg is an empty sequence".
def test_diagnose_passes_over_exercises_with_more_ranks_than_one_can_read(monkeypatch):
    wide = replace(SHARE, cases=lambda rng: [on_ranks(8)])
    monkeypatch.setattr(registry, "all", lambda: [wide])
    assert "no exercise" in diagnose("00").text


def test_diagnose_without_rank_exercises_says_so():
    assert "no exercise" in diagnose("98").text


# Story: half of the riddles were runs with nothing wrong, the same one came twice in a row, and two options fitted one
# run: with four ranks a function that returns 14 looks like one that works the sum out.
def test_diagnose_draws_riddles_that_differ_and_have_one_answer():
    told = [run.options[run.right] for run in (diagnose("00") for _ in range(12))]
    assert all(one != following for one, following in zip(told, told[1:], strict=False))
    assert told.count("nothing is wrong") <= 6


# Story: a riddle ended with ", /somewhere/exercises/forbidden.py, line 138: return method(*args, **kwargs)".
def test_a_deadlock_shows_the_students_line_and_no_path_of_the_library(only_share):
    verdict = check(SHARE, only_rank_0)
    assert "on line" in verdict.seen and "`return comm.all_reduce(own) if comm.rank == 0 else own`" in verdict.seen
    for seed in range(5):
        assert ".py" not in repr(diagnose("00", seed=seed))
