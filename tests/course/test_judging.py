"""One student's program becomes outcomes: verdicts, sentences, partial credit, and nothing of a hidden case."""

import ast
from dataclasses import replace

import numpy as np
import pytest
import torch
from cheats import SCALED, TOTAL, brief, scaled

from lockstep.comm import Traffic
from lockstep.course.grade import judging
from lockstep.course.grade.answers import OF_LAB
from lockstep.course.grade.credit import partial_points
from lockstep.course.grade.judging import definition, grade_program
from lockstep.course.grade.known import known
from lockstep.course.grade.recount import recounted
from lockstep.course.grade.submission import Program, Statement
from lockstep.course.sandbox import levels, trying
from lockstep.exercises import registry
from lockstep.exercises.observe import Observation
from lockstep.exercises.standalone import standalone

pytestmark = pytest.mark.skipif(bool(levels.lacking("process")), reason="students' code is graded on Linux only")


def program(text, cell=1):
    lines = text.splitlines()
    return Program(
        tuple(
            Statement("\n".join(lines[node.lineno - 1 : node.end_lineno]), cell, node.lineno)
            for node in ast.parse(text).body
        )
    )


def graded(text, *exercises, lab="05", seed="secret", level="process"):
    return grade_program(lab, program(text), seed, exercises=exercises, isolation=level)


def outcome(text, exercise=SCALED, **asked):
    (one,) = graded(text, exercise, **asked)
    return one


def test_exercises_of_every_kind_pass_in_the_box_with_what_traffic_and_time_they_need():
    # A drive with models and virtual time, a rank function with a forbidden collective, a kernel, a schedule; then a
    # trace, which did not arrive while a refusal of one dataclass reached what all with slots share; a case with a
    # class of its lab; an observer around another, of ranks.
    for id in ("05.4", "04.4", "01.2", "07.5", "11.1", "11.2", "11.4"):
        exercise = registry.find(id)
        text = standalone(exercise.reference) + f"\n\n{exercise.function} = {exercise.reference.__name__}\n"
        one = outcome(text, brief(id), lab=exercise.lab)
        assert (one.verdict, one.points, one.of) == ("passed", exercise.points, exercise.points), one
        assert one.level.startswith("process") and one.version == exercise.version


def test_every_lab_says_which_answers_refuse():
    assert {one.lab for one in registry.all()} - {"00"} == set(OF_LAB)


def test_a_known_mistake_gets_its_sentence_and_other_exercises_their_points():
    exercise = registry.find("05.2")
    slip = next(one for one in exercise.mistakes if one.name == "divides the loss and averages")
    text = standalone(slip.function) + f"\n\n{exercise.function} = {slip.function.__name__}\n"
    right = standalone(registry.find("05.6").reference)
    broken = "\n\ndef shard(n, rank, size, epoch, seed):\n    return undefined_name\n"
    wrong, late, crashed, never = graded(text + "\n\n" + right + broken, "05.2", "05.6", "05.1", "05.3")
    assert wrong.verdict == "wrong" and wrong.points == 0 and wrong.mistake == slip.name
    assert slip.sentence in wrong.sentence and wrong.hint == exercise.hints[0]
    assert late.verdict == "passed" and late.hint == ""
    assert (
        crashed.verdict == "crashed"
        and "NameError" in crashed.sentence
        and "`return undefined_name`" in crashed.sentence
    )
    assert never.verdict == "not attempted" and "`make_buckets`" in never.sentence


def test_a_statement_that_fails_costs_what_it_defines_and_is_named():
    text = "import nowhere, math\nfrom math import nothing, floor\nFACTOR = 1 / 0\nraise SystemExit\n"
    text += "def scaled(x, k):\n    return x * k + math.floor(1.5) + floor(0.5)\n"
    assert outcome(text).verdict == "passed"
    failed = outcome(text.replace("floor(0.5)", "FACTOR"))
    assert failed.verdict == "crashed" and "line 3, failed before: ZeroDivisionError" in failed.sentence


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("", "not attempted"),
        ("def scaled(x, k):\n    '''A docstring.'''\n    ...\n", "not attempted"),
        ("def scaled(x, k):\n    raise NotImplementedError('x times k, plus 1')  # as it was\n", "not attempted"),
        ("def scaled(x, k):\n    return ...\n", "not attempted"),
        ("scaled = 7\n", "crashed"),
        ("class scaled:\n    pass\n", "not attempted"),
    ],
)
def test_what_was_not_attempted_is_told_from_what_does_not_run(text, verdict):
    assert outcome(text).verdict == verdict


def test_what_does_not_repeat_is_unstable():
    text = "import os\ndef scaled(x, k):\n    return x * k + os.urandom(1)[0] % 2\n"
    assert outcome(text).verdict in ("unstable", "wrong")  # wrong twice in the same places, once in a while
    always = "import time\nSTART = time.time_ns()\ndef scaled(x, k):\n    raise OSError if len(x) > 2 else ValueError\n"
    assert outcome(always).verdict == "crashed"


def test_the_grade_of_a_hidden_case_tells_nothing_of_it():
    # A program could otherwise learn a hidden case from the page of feedback: by its error's words, or its type's name.
    spy = "def scaled(x, k):\n    raise type('Error' + str(k), (Exception,), {})(repr(x))\n"
    one = outcome(spy)
    hidden = [str(case.args[1]) for cases in known(SCALED, "secret").cases for case in cases]
    assert one.verdict == "crashed" and "an error of its own" in one.sentence
    assert not any(number in one.sentence.replace("line 2", "") for number in hidden)
    wrong = outcome("def scaled(x, k):\n    return x - k\n")
    assert wrong.sentence == judging.FAILS


def test_equal_seeds_give_equal_marks_and_others_other_cases():
    one, other = (known(SCALED, secret) for secret in ("a", "b"))
    assert [case.args[1] for case in one.cases[0]] == [case.args[1] for case in other.cases[0]]
    assert [case.args[1] for case in one.cases[1]] != [case.args[1] for case in other.cases[1]]
    assert known(SCALED, "a") is one
    assert one.visible == 0 and known(registry.find("05.2"), "a").visible == 5


class TestPartialCredit:
    """Worth something: what a function that does nothing fails, on inputs that nobody can learn by heart."""

    def findings(self, exercise, fn, secret="secret"):
        draws = known(exercise, secret)
        seen = [[Observation(value=fn(*case.args)) for case in cases] for cases in draws.cases]
        return draws, [judging._findings(exercise, draws, i, one) for i, one in enumerate(seen)]

    def test_most_kinds_right_in_every_draw_earn_their_share(self):
        draws, found = self.findings(SCALED, lambda x, k: scaled(x, k) if len(x) < 7 else x)
        assert partial_points(SCALED, draws, found) == 3
        one = outcome("def scaled(x, k):\n    return x * k + (len(x) < 7)\n")
        assert (one.verdict, one.points, one.of) == ("partial", 3, 4)

    def test_half_is_not_enough_and_one_point_cannot_be_shared(self):
        draws, found = self.findings(SCALED, lambda x, k: scaled(x, k) if len(x) < 5 else x)
        assert partial_points(SCALED, draws, found) == 0
        single = replace(SCALED, points=1)
        draws, found = self.findings(single, lambda x, k: scaled(x, k) if len(x) < 7 else x)
        assert partial_points(single, draws, found) == 0

    def test_inputs_that_never_change_earn_nothing(self):
        def fixed(rng):
            yield from SCALED.draw(5)[:3]
            yield SCALED.draw(int(rng.integers(99)))[3]

        exercise = replace(SCALED, cases=fixed)
        draws, found = self.findings(exercise, lambda x, k: scaled(x, k) if len(x) < 7 else x)
        assert [any(one) for one in found] == [True] * 3 and partial_points(exercise, draws, found) == 0

    def test_what_somebody_gets_right_who_does_nothing_earns_nothing(self):
        exercise = replace(SCALED, judge=lambda case, seen, expected: None)
        draws, found = self.findings(exercise, lambda x, k: None)
        assert partial_points(exercise, draws, found) == 0


def test_bytes_that_a_drive_told_are_recounted_from_what_was_seen_to_be_sent():
    # The drive reads them off beside the student's code, which can make it read 0.
    case, traffic = replace(TOTAL.draw(0)[0], args=(1,)), (Traffic(bytes_sent=12, sent_to={1: (1, 12)}), Traffic())
    told = (
        {"forward": 4, "backward": 0},
        {"inside": 0, "across": 0},
        {"sent": [3, 0]},
        {"sent": [[1, 2], [0, 0]]},
        [1],
    )
    right = (
        {"forward": 4, "backward": 8},
        {"inside": 12, "across": 0},
        {"sent": [3, 9]},
        {"sent": [[1, 2], [0, 9]]},
        [1],
    )
    for one, other in zip(told, right, strict=True):
        seen = Observation(value=[one, "no dictionary"], traffic=traffic)
        assert recounted(case, seen).value == [other, "no dictionary"]


def test_bad_requests_are_sentences():
    for asked in ({"lab": "77"}, {"exercises": ["05.99"]}, {"exercises": ["04.1"]}, {"isolation": "magic"}):
        with pytest.raises(ValueError, match=r"lab '77'|no exercise '05.99'|not of lab|isolation is"):
            grade_program(asked.pop("lab", "05"), Program(), 1, **asked)
    assert definition(program("if True:\n    def scaled(x): ...\nscaled = scaled\n"), "scaled") == "scaled = scaled"
    assert definition(program("import math as scaled\n"), "scaled") is not None


def test_a_rank_function_is_seen_by_the_grader_not_by_itself():
    # The same numbers with twice the messages, and a deadlock whose sentence names the student's line.
    twice = "def total(comm, x):\n    y = sum(comm.all_gather(x[None]))\n    comm.all_gather(x[None])\n    return y\n"
    assert outcome(twice, TOTAL).verdict == "wrong"
    stuck = registry.find("04.1")
    one = outcome(
        "def exchange(comm, outgoing, incoming):\n    comm.recv(incoming, (comm.rank + 1) % comm.size)\n",
        stuck,
        lab="04",
    )
    assert one.verdict == "wrong" and "deadlock" in one.sentence and "on line 2" in one.sentence


def test_the_seconds_of_the_processor_end_a_loop_and_the_line_is_named(monkeypatch):
    monkeypatch.setattr(trying, "EACH", 0.5)
    exercise = replace(SCALED, cases=registry.find("05.6").cases)  # shown by `check`, so the line may be told
    one = outcome("def scaled(x, k, lr):\n    while True:\n        x = x + 1\n", replace(exercise, function="scaled"))
    assert one.verdict == "timed out" and "on line" in one.sentence


def test_generators_start_as_check_starts_them():
    text = "import torch, numpy, random\ndef scaled(x, k):\n    return x * k + 1 + 0 * torch.rand(1) * numpy.random.rand()\n"
    assert outcome(text).verdict == "passed"
    assert torch.initial_seed() != 0 or np.random.get_state() is not None  # the grader's own are its own
