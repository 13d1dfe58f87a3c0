"""The box: what goes in, what comes out, and what is not there."""

import os
import pickletools
import random
import re
import signal
import socket
import struct
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import psutil
import pytest
import torch
from cheats import SCALED

from lockstep.course import machine
from lockstep.course.grade.judging import grade_program
from lockstep.course.grade.submission import Program, Statement
from lockstep.course.sandbox import box as boxes
from lockstep.course.sandbox import levels, trying, wire
from lockstep.course.sandbox.box import BoxLost, box
from lockstep.course.sandbox.inside.program import remember_lines
from lockstep.course.sandbox.package import copy_package
from lockstep.course.sandbox.reading import read_failure, read_observation
from lockstep.exercises import registry
from lockstep.exercises.compare import alike
from lockstep.exercises.plain import Strange

pytestmark = pytest.mark.skipif(bool(levels.lacking("process")), reason="students' code is graded on Linux only")
VALUES = (
    None, True, -(2**70), 1.5, float("inf"), 2j, "ä\udcff", b"\0\1", [1, (2.0, [])], {"a": {1: (None,)}, (1, "b"): 2},
    torch.arange(6).reshape(2, 3), torch.zeros(0, 3), torch.tensor(1.5, dtype=torch.bfloat16), torch.tensor([1 + 2j]),
    torch.ones(3, 2).t(), np.arange(4.0).reshape(2, 2), np.array(3, dtype=np.int8), np.zeros((2, 0)), Strange("Odd", "o"),
)  # fmt: skip


def said(text, cell=1):
    return Program((Statement(text, cell, 1),))


def outcome(text, exercise, level="process"):
    exercise = registry.find(exercise)
    (one,) = grade_program(exercise.lab, said(text), "s", exercises=[exercise], isolation=level)
    return one


def over_a_wire(value):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.Line(ours).send({"value": value})
        return wire.Line(theirs).receive()["value"]


class TestWire:
    @pytest.mark.parametrize("value", VALUES, ids=repr)
    def test_plain_data_come_out_as_they_went_in(self, value):
        found = over_a_wire(value)
        assert type(found) is type(value)
        if isinstance(value, (torch.Tensor, np.ndarray)):
            assert found.dtype == value.dtype and found.shape == value.shape and alike(found, value)
        else:
            assert found == value
        assert isinstance(over_a_wire({1, 2}), Strange) and isinstance(over_a_wire([object()])[0], Strange)

    def test_a_byte_of_2_is_no_boolean_that_equals_everything(self):
        buffers = [bytearray(b"\2")]
        assert wire.unpack({"T": ["bool", [1], 0]}, buffers).view(torch.uint8).item() == 1
        assert wire.unpack({"A": ["|b1", [1], 0]}, buffers).view(np.uint8).item() == 1

    def test_whatever_is_no_message_is_garbled_and_nothing_else(self):
        values = (
            {"T": ["float32", [3], 0]}, {"T": ["float32", [-1], 0]}, {"T": ["object", [1], 0]}, {"T": [1, 2]}, {"A": ["O", [1], 0]},
            {"A": ["i4,f4", [1], 0]}, {"A": ["<f4", [2**62, 2**62], 0]}, {"d": [[{"l": []}, 1]]}, {"x": 1}, {"l": 5}, {}, [1],
            {"T": ["uint8", [1] * 33, 0]}, {"y": 7}, {"c": ["a", 1]}, {"T": ["uint8", [True], 0]},
        )  # fmt: skip
        for value in values:
            with pytest.raises(wire.Garbled):
                wire.unpack(value, [bytearray(4)])
        deep = 1
        for _ in range(30):
            deep = {"l": [deep]}
        with pytest.raises(wire.Garbled, match="deep"):
            wire.unpack(deep, [])
        rng = random.Random(0)
        for case in range(60):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                head = struct.pack("!IIQ", *(rng.choice((0, 3, 2**31)) for _ in range(2)), rng.choice((0, 5, 2**60)))
                ours.sendall((head if case % 2 else b"") + rng.randbytes(rng.randrange(40)))
                ours.shutdown(socket.SHUT_WR)
                with pytest.raises((wire.Garbled, wire.Gone)):
                    while True:
                        wire.Line(theirs).receive()

    def test_a_side_that_says_nothing_is_late_and_one_that_says_too_much_is_cut_off(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with pytest.raises(wire.Late):
                wire.Line(theirs).receive(deadline=0)
            line = wire.Line(theirs)
            line._left = 100
            wire.Line(ours).send({"much": b"x" * 99})
            with pytest.raises(wire.Garbled, match="more than an answer"):
                line.receive()


class TestWhatIsInTheBox:
    def test_observers_carry_no_reference_and_need_nothing_of_the_exercises_but_what_is_there(self):
        there = {"lockstep.exercises.plain", "lockstep.exercises.observe", "lockstep.exercises.forbidden"}
        for exercise in registry.all():
            sent = trying._observer(exercise)
            words = {arg for _, arg, _ in pickletools.genops(sent) if isinstance(arg, str)}
            asked = {one for one in words if re.fullmatch(r"lockstep\.(exercises|course)[\w.]*", one)} - there
            homes = {exercise.reference.__module__, exercise.reference.__module__.rpartition(".")[0]}
            for module in asked:  # the name of the module that a function came from stays with it, as a mere word
                assert re.match(r"lockstep\.exercises\.lab\d\d", module) or module in homes, (exercise.id, module)
            for fn in (exercise.reference, *exercise.also_right, *(one.function for one in exercise.mistakes)):
                code = getattr(getattr(fn, "py_func", fn), "__code__", None)
                assert code is None or len(code.co_code) < 60 or code.co_code not in sent, (exercise.id, fn)
            assert not {exercise.title, exercise.hints[-1]} & words

    def test_the_copy_of_the_package_has_no_exercise_no_solution_and_nothing_compiled(self, tmp_path):
        library = copy_package(tmp_path)
        files = {str(path.relative_to(library / "lockstep")) for path in library.rglob("*") if path.is_file()}
        ours = {one for one in files if one.startswith(("exercises", "course"))}
        assert not any(re.search(r"lab\d\d|judg|assess|known|check|registry|answers|\.pyc", one) for one in ours)
        assert "exercises/plain.py" in files and "course/sandbox/inside/zygote.py" in files and "comm/mesh.py" in files
        assert "def average_gradients" not in "".join((library / "lockstep" / one).read_text() for one in ours)

    def test_the_library_s_own_answers_refuse_however_they_are_reached(self):
        head = "def make_buckets(parameters, bucket_bytes):\n    import gc, importlib, sys\n    "
        programs = (
            (head + "from lockstep.parallel import make_buckets as answer\n    return answer(parameters, bucket_bytes)", "05.3"),
            (head + "answer = getattr(sys.modules['lockstep.parallel.buckets'], 'make_' + 'buckets')\n    "
             "return answer(parameters, bucket_bytes)", "05.3"),
            (head + "answer = next(f for f in gc.get_objects() if getattr(f, '__qualname__', '') == 'make_buckets' and\n"
             "                  f.__module__ == 'lockstep.parallel.buckets')\n    return answer(parameters, bucket_bytes)", "05.3"),
            ("from lockstep.comm.collectives import ring_all_reduce\nring_all_reduce = ring_all_reduce", "04.4"),
        )  # fmt: skip
        for text, id in programs:
            one = outcome(text, id)
            # The collector no longer shows what was there before the fork.
            assert (one.verdict, one.points) == ("crashed" if "gc.get" in text else "forbidden", 0), (text, one)
        convolution = registry.find("02.2")
        calls = (
            "torch.nn.functional.conv2d",
            "torch.conv2d",
            "torch.ops.aten.convolution.default",
            "torch._C._nn.slow_conv3d",
        )
        for call in calls:
            rest = (
                ", None, [stride] * 2, [padding] * 2"
                if "aten" not in call
                else ", None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1"
            )
            text = f"import torch\ndef {convolution.function}(x, weight, *rest):\n    stride, padding = 1, 0\n    return {call}(x, weight{rest})"
            assert outcome(text, convolution).points == 0, call

    def test_one_function_of_torch_less_leaves_the_others(self):
        one = outcome("import torch\ndef scaled(x, k):\n    return torch.nn.functional.conv2d(x.view(1, 1, 1, -1),"
                      " torch.full((1, 1, 1, 1), k, dtype=x.dtype)).view(-1) + 1\n", SCALED)  # fmt: skip
        assert one.verdict == "passed"
        forbidden = replace(SCALED, forbidden=("torch.nn.functional.conv2d", "torch.conv2d"))
        one = outcome("import torch\ndef scaled(x, k):\n    return torch.ops.aten.convolution(x.view(1, 1, 1, -1),"
                      " torch.full((1, 1, 1, 1), k, dtype=x.dtype), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1).view(-1) + 1\n", forbidden)  # fmt: skip
        assert one.verdict == "forbidden"


class TestLevels:
    def test_what_a_machine_gives_is_said_in_sentences(self, monkeypatch):
        assert levels.level() in levels.LEVELS and not levels.lacking(levels.level())
        finding = machine.grading()
        assert levels.level() in finding.says and finding.means.endswith(".")
        monkeypatch.setattr(levels, "lacking", lambda level: "" if level == "process" else f"no {level} here")
        assert levels.level() == "process"
        assert [one for one in levels.missing() if "No isolation" in one] == [
            "No isolation 'bubblewrap': no bubblewrap here.", "No isolation 'user': no user here."
        ]  # fmt: skip
        with pytest.raises(ValueError, match="does not give isolation 'user': no user here"):
            levels.level("user")

    def test_nothing_of_the_grader_can_be_opened_in_the_box(self):
        home = os.path.dirname(os.path.dirname(os.path.abspath(registry.__file__)))
        for shown in levels.readable():
            assert not home.startswith(shown.rstrip("/") + "/"), shown
        shown = [one for word, one in pairwise(levels.bubblewrap_options()) if word == "--ro-bind-try"]
        assert shown and not any(home.startswith(one + "/") for one in shown)


def test_a_course_that_lies_in_tmp_is_not_hidden_by_the_empty_one():
    # A clone under /tmp had no Python in its own box: the empty /tmp was mounted over it.
    options = levels.bubblewrap_options()
    at = options.index("/tmp")
    assert options[at - 1] == "--tmpfs" and all(options.index(folder) > at for folder in levels.python_folders())


def test_a_box_that_ends_is_replaced_and_one_that_cannot_start_says_why(monkeypatch):
    first = box("process")
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    assert outcome("def scaled(x, k):\n    return x * k + 1", SCALED).verdict == "passed"
    assert box("process") is not first
    monkeypatch.setattr(boxes, "BOOT", "raise ImportError('no torch')")
    with pytest.raises(BoxLost, match="does not start: ImportError: no torch"):
        boxes.Box("process")


def test_of_many_processes_that_fork_the_oldest_are_let_go(monkeypatch):
    monkeypatch.setattr(boxes, "KINDS", 2)
    one = box("process")
    for name in ("lockstep.cost", "lockstep.plan", "lockstep.comm", "lockstep.cost"):
        with one.child(boxes.Limits(), (name,)) as child:
            child.send(time.monotonic() + 30, define=[("import math", 1, 1)], seconds=30.0)
            assert child.receive(time.monotonic() + 30) == {"problems": []}
    assert list(one._lines) == [("lockstep.comm",), ("lockstep.cost",)]
    until = time.monotonic() + 30
    while len([p for p in psutil.Process(one.process.pid).children() if p.status() != psutil.STATUS_ZOMBIE]) > 2:
        assert time.monotonic() < until, "one is left"
        time.sleep(0.05)


def test_what_a_process_says_of_itself_is_read_with_suspicion():
    fields = {"type": "E", "message": "m", "line": 3, "own": True, "file": "/etc/passwd", "quoted": []}
    remember_lines([("one\ntwo\nthree", 3, 1)])
    assert read_failure(fields).file == "" and read_failure(fields | {"file": "<cell 3>"}).line == 3
    assert read_failure(fields | {"file": "<cell 3>", "line": 4}).line == 0, "a line that the cell has not"
    wrong = ({}, [], fields | {"line": "3"}, fields | {"own": 1}, fields | {"message": None})
    for one in wrong:
        with pytest.raises(wire.Garbled):
            read_failure(one)
        with pytest.raises(wire.Garbled):
            read_observation(one)
