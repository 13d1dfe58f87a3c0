"""What references and mistakes do is found out once, and only what says something of them is remembered."""

from dataclasses import replace

from small import HALVES, floors

from lockstep.exercises import check
from lockstep.exercises.known import known
from lockstep.exercises.observe import Failure, Observation
from lockstep.exercises.remembered import remembered


def test_references_and_mistakes_run_once_for_many_checks():
    runs = []

    def observe(fn, case):
        runs.append((fn.__name__, case.name))
        return HALVES.observe(fn, case)

    exercise = replace(HALVES, observe=observe)
    verdicts = [check(exercise, floors) for _ in range(3)]
    assert {verdict.cause for verdict in verdicts} == {"Whole-number division drops the fraction."}
    ours = [run for run in runs if run[0] != "floors"]  # the child's own list is not this one
    assert ours.count(("halves", "one number")) == 1 and len(set(runs)) == len(runs)
    assert ("doubles", "one number") in runs and ("doubles", "5 numbers") not in runs, "it differs on the first"
    assert known(exercise, 1).cases[1].args != known(exercise, 0).cases[1].args


def test_what_a_symptom_compares_with_is_run_once_for_each_case():
    runs = []

    def observe(fn, case):
        runs.append(case.name)
        return HALVES.observe(fn, case)

    one, other = HALVES.draw(0)[:2]
    assert remembered(observe, floors, one) is remembered(observe, floors, one)
    assert remembered(observe, floors, other).value != remembered(observe, floors, one).value
    assert runs == [one.name, other.name]


def test_a_time_limit_that_a_busy_machine_reached_is_not_remembered():
    # A reference that had timed out once made every later right answer wrong.
    slow = [Observation(error=Failure("Timeout", "20 s"))]

    def observe(fn, case):
        return slow.pop() if slow else HALVES.observe(fn, case)

    expected = known(replace(HALVES, observe=observe), 0).expected
    assert expected[0].error.type == "Timeout"
    assert expected[0].value == [1.5]
    slow.append(Observation(error=Failure("Timeout", "20 s")))
    (case, *_) = HALVES.draw(0)
    assert remembered(observe, HALVES.reference, case).error and remembered(observe, HALVES.reference, case).value == [
        1.5
    ]
