"""`check` on right, wrong and hostile functions: it never raises, and says what a teaching assistant would."""

import os
import statistics
import sys
import threading
import time

import numpy as np
import pytest
from proof import verdict_on
from small import HALVES, doubles, floors, halves_in_a_loop, halves_stub

from lockstep.exercises import check, keep


def test_a_pass_is_kept_with_its_points():
    verdict = check(HALVES, halves_in_a_loop)
    assert verdict.passed and verdict.points == verdict.of == 3, verdict.text
    entry = keep.read()["exercises"]["00.7"]
    assert entry["points"] == 3 and entry["passed"]
    assert keep.load_function("00.7")([4.0]) == [2.0]


def test_a_wrong_answer_shows_the_smallest_failing_case_and_the_likely_cause():
    verdict = check(HALVES, floors)
    assert verdict.status == "wrong"
    assert verdict.case == "one number"
    assert verdict.cause == "Whole-number division drops the fraction."
    assert (verdict.expected, verdict.got) == ("[1.5]", "[1.0]")
    assert 'hint("00.7")' in verdict.next
    for part in (HALVES.asks, "one number", "[1.5]", verdict.cause, verdict.next):
        assert part in verdict.text


def test_a_mistake_is_recognised_by_what_it_does_not_by_its_source():
    verdict = check(HALVES, lambda xs: [x + x for x in xs])
    assert verdict.mistake == "doubles"


def test_a_fault_that_is_no_known_mistake_still_says_what_is_wrong():
    verdict = check(HALVES, lambda xs: [x / 3 for x in xs])
    assert verdict.status == "wrong" and not verdict.cause
    assert verdict.seen == "Expected 1.5 at [0], got 1.0."


def test_strict_raises_with_the_whole_verdict():
    with pytest.raises(AssertionError, match="Twice as much"):
        check(HALVES, doubles, strict=True)
    assert check(HALVES, halves_in_a_loop, strict=True).passed


def empty(numbers):
    """Only words."""


def dots(numbers): ...


def later(numbers):
    count = len(numbers)
    raise NotImplementedError(f"{count} to go")


@pytest.mark.parametrize("fn", [halves_stub, empty, dots, later])
def test_not_attempted(fn):
    verdict = check(HALVES, fn)
    assert verdict.status == "not attempted"
    assert keep.read()["exercises"] == {}, "no attempt is counted"


def raises(numbers):
    return 1 / 0


def prints(numbers):
    print("<b>looking</b> at", numbers)
    return numbers


def prints_without_end(numbers):
    for _ in range(20_000):
        print("x" * 100)
    return numbers


def leaves(numbers):
    os._exit(0)


def leaves_politely(numbers):
    sys.exit("enough")


def forks(numbers):
    os.fork()
    return [n / 2 for n in numbers]


def recurses(numbers):
    return recurses(numbers)


def kills_itself(numbers):
    os.kill(os.getpid(), 9)


def too_many(numbers, factor, offset):
    return numbers


async def promises(numbers):
    return numbers


def yields(numbers):
    yield from numbers


class EqualsEverything:
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __iter__(self):
        return iter([self])

    def __len__(self):
        return 1

    __hash__ = None


class LiesAboutItself(list):
    def __eq__(self, other):
        return True


class BadRepr:
    def __repr__(self):
        raise RuntimeError("no")


class CannotSay(Exception):
    def __str__(self):
        raise RuntimeError("no")


def raises_mutely(numbers):
    raise CannotSay


def not_a_number(numbers):
    return [float("nan")] * len(numbers)


def holds_itself(numbers):
    numbers.append(numbers)
    return numbers


def holds_a_lock():
    lock = threading.Lock()
    return lambda numbers: lock


HOSTILE = {
    "None": (None, "cannot run"),
    "a number": (3, "cannot run"),
    "the value of a call": ([1.5], "cannot run"),
    "a builtin": (len, "wrong"),
    "a class": (EqualsEverything, "crashed"),
    "a module": (time, "cannot run"),
    "raises": (raises, "crashed"),
    "prints": (prints, "wrong"),
    "prints without end": (prints_without_end, "wrong"),
    "os._exit": (leaves, "crashed"),
    "sys.exit": (leaves_politely, "crashed"),
    "recursion": (recurses, "crashed"),
    "SIGKILL": (kills_itself, "crashed"),
    "wrong signature": (too_many, "crashed"),
    "coroutine": (promises, "wrong"),
    "generator": (yields, "wrong"),
    "equals everything": (lambda numbers: EqualsEverything(), "wrong"),
    "equals everything, each": (lambda numbers: [EqualsEverything() for _ in numbers], "wrong"),
    "a list that lies": (lambda numbers: LiesAboutItself(), "wrong"),
    "no repr": (lambda numbers: BadRepr(), "wrong"),
    "an error without words": (raises_mutely, "crashed"),
    "nan": (not_a_number, "wrong"),
    "holds itself": (holds_itself, "wrong"),
    "an enormous number": (lambda numbers: [10**5000], "wrong"),
    "a lock in a closure": (holds_a_lock(), "cannot run"),
    "the arguments changed": (lambda numbers: [numbers.pop() / 2 for _ in list(numbers)][::-1], "wrong"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_functions_get_a_verdict(name):
    fn, status = HOSTILE[name]
    verdict = check(HALVES, fn)
    assert verdict.status == status, verdict.text
    assert verdict.seen.strip() and len(verdict.text) < 6000
    assert verdict.points == 0
    assert "The check itself failed" not in verdict.text
    assert "Traceback" not in verdict.text


def test_how_a_process_ended_is_said():
    assert "it was killed by SIGKILL" in check(HALVES, kills_itself).seen
    assert "exit code 0" in check(HALVES, leaves).seen and "rank" not in check(HALVES, leaves).seen


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_function_that_forks_is_judged_once():
    assert check(HALVES, forks).passed


def test_what_is_printed_is_shown_and_escaped():
    verdict = check(HALVES, prints)
    assert "<b>looking</b> at [3.0]" in verdict.text
    html = verdict._repr_html_()
    assert "&lt;b&gt;looking" in html and "<b>" not in html and "<script" not in html


def halves_aloud(numbers):
    print("at", numbers)
    return [n / 2 for n in numbers]


def half_done(numbers):
    for i in range(30):
        print(i)
    raise NotImplementedError


# Story: prints were swallowed wherever there was no failing case to show them with, and for ever in a loop.
def test_what_a_right_or_unfinished_function_prints_is_shown_too():
    assert verdict_on(HALVES, halves_aloud).printed == "at [3.0]"
    verdict = verdict_on(HALVES, half_done)
    assert verdict.status == "not attempted"
    assert verdict.printed.splitlines() == [*map(str, range(20)), "…"]


def test_an_error_names_its_line():
    verdict = check(HALVES, raises)
    line = raises.__code__.co_firstlineno + 1
    assert f"on line {line}: `return 1 / 0`" in verdict.seen
    assert "ZeroDivisionError: division by zero" in verdict.got


def test_a_wrong_signature_is_told_by_how_the_function_is_called():
    verdict = check(HALVES, too_many)
    assert "`halves(numbers)`" in verdict.cause


def loops(numbers):
    print("begins")
    while True:
        numbers.sort()


@pytest.mark.stalls
def test_an_endless_loop_is_stopped_and_its_line_named(monkeypatch):
    monkeypatch.setattr("lockstep.exercises.trial.LIMIT", 1.0)
    begin = time.monotonic()
    verdict = check(HALVES, loops)
    assert verdict.status == "timed out", verdict.text
    assert time.monotonic() - begin < 8
    first = loops.__code__.co_firstlineno
    assert f"on line {first + 2}" in verdict.text or f"on line {first + 3}" in verdict.text
    assert verdict.printed == "begins" and "within 1 s" in verdict.text


def loops_on_five(numbers):
    while len(numbers) == 5:
        pass
    return [2 * n for n in numbers]


def test_cases_before_a_loop_are_judged(monkeypatch):
    monkeypatch.setattr("lockstep.exercises.trial.LIMIT", 1.0)
    verdict = check(HALVES, loops_on_five)
    assert verdict.case == "one number" and verdict.mistake == "doubles"


def uses_numpy(numbers):
    return list(np.divide(numbers, 2))


def uses_it_under_another_name(numbers):
    return [statistics.mean([0, n]) for n in numbers]


def hides_the_call(numbers):
    return [getattr(statistics, "me" + "an")([0.0, n]) for n in numbers]


def swallows_it(numbers):
    try:
        return [getattr(statistics, "me" + "an")([0.0, n]) for n in numbers]
    except Exception:  # what students write
        return [n / 2 for n in numbers]


@pytest.mark.parametrize(
    "fn, name",
    [(uses_numpy, "numpy.divide"), (uses_it_under_another_name, "statistics.mean"), (hides_the_call, "statistics.mean"),
     (swallows_it, "statistics.mean")],
)  # fmt: skip
def test_a_forbidden_call_is_named(fn, name):
    verdict = check(HALVES, fn)
    assert verdict.status == "forbidden" and f"`{name}`" in verdict.seen, verdict.text


def test_a_forbidden_call_without_source_is_seen_while_it_runs():
    scope = {"average": statistics.mean}
    exec("def fn(numbers):\n    return [average([0.0, n]) for n in numbers]", scope)
    assert check(HALVES, scope["fn"]).status == "forbidden"


def test_arguments_the_other_way_round_and_unknown_exercises():
    assert "no exercise '99.1'" in check("99.1", floors).seen
    assert check(floors, "99.1").status == "cannot run"
    assert check(None, None).status == "cannot run"


def test_the_state_of_the_notebook_does_not_change_the_expected_values():
    """A student who sets torch's default dtype in the kernel was told that float32 should have been float64."""
    from dataclasses import replace

    import torch

    from lockstep.exercises.exercise import Case

    ones = replace(
        HALVES, cases=lambda rng: [Case("3", (3,))], reference=_tensor_of_ones, also_right=(), forbidden=(),
        judge=HALVES.judge,
    )  # fmt: skip
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    try:
        assert check(ones, _ones_too).passed, check(ones, _ones_too).text
        assert torch.equal(state, torch.get_rng_state())
    finally:
        torch.set_default_dtype(torch.float32)


def _tensor_of_ones(n):
    import torch

    return torch.ones(n)


def _ones_too(n):
    import torch

    return 1 + torch.zeros(n)


def test_attempts_are_counted_by_different_source():
    for _ in range(3):
        check(HALVES, doubles)
    check(HALVES, floors)
    assert len(keep.read()["exercises"]["00.7"]["attempts"]) == 2


def test_a_folder_that_cannot_be_written_costs_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LOCKSTEP_MY", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="could not be kept"):
        verdict = check(HALVES, halves_in_a_loop)
    assert verdict.passed and "could not be kept" in verdict.next
