"""Ways to points, and to other people's marks, that nobody had tried before; each worked once, and none does now."""

import ast
import errno
from pathlib import Path

import numpy as np
import pytest
from attacks import (
    CHARGES_ITSELF,
    CONSTANT_THAT_ACTS,
    FRAME,
    MODE,
    NAIVE_CONVOLUTION,
    PATCHED,
    PROPERTY,
    RESTORER,
    THREAD,
    ZERO2_AT_THE_END,
)
from cheats import brief
from hand_ins import TOTAL, notebook, rules, zipped
from rich.console import Console

from lockstep.course.grade import cache, ledger
from lockstep.course.grade.collect import collect
from lockstep.course.grade.deadline import read_due
from lockstep.course.grade.grading import Request, grade
from lockstep.course.grade.judging import grade_program
from lockstep.course.grade.lms import gradescope_metadata
from lockstep.course.grade.private import private_folder
from lockstep.course.grade.reaching import reaching
from lockstep.course.grade.show import notes, show_batch
from lockstep.course.grade.statements import statements
from lockstep.course.grade.submission import Program, Statement
from lockstep.course.grade.text_table import csv_text, read_table
from lockstep.course.sandbox import levels
from lockstep.course.sandbox.box import Box
from lockstep.course.sandbox.inside.kernels import described, remade
from lockstep.course.sandbox.wire import pack, unpack
from lockstep.exercises import registry
from lockstep.exercises.standalone import standalone
from lockstep.simt import cuda

HOME = Path(__file__).resolve().parents[2]
on_linux = pytest.mark.skipif(bool(levels.lacking("process")), reason="students' code is graded on Linux only")


def program(text):
    return Program(tuple(Statement(one.text, 1, one.line) for one in statements(text)[0]))


def graded(text, id, cases=2):
    (outcome,) = grade_program(id[:2], program(text), "secret", exercises=[brief(id, cases)], isolation="process")
    return outcome


# What is counted beside a student's code.


@on_linux
@pytest.mark.parametrize(
    "text",
    [
        THREAD + NAIVE_CONVOLUTION,
        CONSTANT_THAT_ACTS + NAIVE_CONVOLUTION.replace("weights[i, j] *", "ONE * weights[i, j] *"),
        PROPERTY + NAIVE_CONVOLUTION + "conv2d_tiled = Instead(conv2d_tiled)\n",
    ],
    ids=["thread", "constant", "property"],
)
def test_a_kernel_is_launched_where_nothing_else_of_its_program_has_run(text):
    # The simulator counts in the student's process. A thread, a constant that acts when it is read, and a property in the
    # place of the kernel's function changed `Report` while a case ran: 4 of 4 points for a kernel without shared memory.
    outcome = graded(text, "01.5")
    assert (outcome.verdict, outcome.points) == ("wrong", 0) and "numbers from global memory" in outcome.sentence


@on_linux
def test_what_is_taken_out_of_a_program_is_told_what_is_wrong_with_it():
    honest = standalone(registry.find("01.5").reference)
    assert graded(honest, "01.5").points == 4
    plain = graded(honest.replace("@cuda.jit\n", ""), "01.5")
    assert "`@cuda.jit` on the line above" in plain.sentence or "@cuda.jit" in plain.sentence
    text = NAIVE_CONVOLUTION.replace("total = np.float32(0)", "total = zero()") + "\ndef zero():\n    return 0\n"
    outcome = graded(text, "01.5")
    assert "zero is a function without @cuda.jit(device=True)" in outcome.sentence
    assert "total = zero()" in outcome.sentence, "with the line of the notebook"


SIDE, FACTORS, WEIGHTS, OFFSET = 3, (2, 0.5), np.array([1.0, 2.0], np.float32), np.int64(4)


def test_a_kernel_is_the_same_when_it_is_made_again():
    @cuda.jit(device=True)
    def scaled(x):
        return x * FACTORS[0] + OFFSET

    def make(times):
        @cuda.jit
        def kernel(out):
            i = cuda.grid(1)
            if i < out.shape[0]:
                out[i] = scaled(i) * times + SIDE + WEIGHTS[i % 2] + math_pi()

        return kernel

    @cuda.jit(device=True)
    def math_pi():
        return np.float64(np.pi)

    kernel = make(7)
    buffers = []
    carried = unpack(pack(described(kernel), buffers), [bytearray(one) for one in buffers])
    again = remade(carried)
    before, after = np.zeros(5), np.zeros(5)
    kernel[1, 32](before)
    again[1, 32](after)
    assert np.array_equal(before, after) and after[0] != 0
    assert again.py_func.__globals__ is not kernel.py_func.__globals__
    assert described(lambda: 0) is None and described(None) is None
    text = "def kernel(x: print('annotation'), y=print('default')) -> print('result'):\n    pass\n"
    remade([[f"@print\n{text}", "<cell 1>", 1, False, {}]])  # nothing of this runs


@on_linux
@pytest.mark.parametrize("before", [PATCHED, RESTORER + PATCHED, MODE], ids=["torch", "restorer", "mode"])
def test_bytes_held_are_not_the_program_s_to_choose(before):
    # The library was put back after a program, but not torch, which it measures with; and `Unchanged.restore` itself,
    # and the builtins that it calls, could be replaced. 3 of 3 points for gradients that stay whole to the end.
    outcome = graded(before + ZERO2_AT_THE_END, "09.4", 99)
    assert outcome.verdict == "partial" and "several buckets whole" in outcome.sentence, outcome


@on_linux
def test_a_layer_s_time_is_spent_by_its_hooks_and_by_nobody_else():
    # A class for 05.4 took away the hooks that charge, computed everything, and spent the layers' time itself beside
    # reductions in the right order: 3 of 3 points.
    outcome = graded(CHARGES_ITSELF, "05.4")
    assert (outcome.verdict, outcome.points) == ("wrong", 0) and "take no time any more" in outcome.sentence


def test_what_a_notebook_reaches_for_is_named():
    for name, text in (("sys", FRAME), ("lockstep.course", RESTORER), ("torch.Tensor.untyped_storage", PATCHED)):
        assert name in reaching(program(text)), name
    for text in (
        "comm._ask('spend')",
        "model.forward = f",
        "x.__globals__",
        "exec('1')",
        "for m in a: m._hooks.clear()",
    ):
        assert reaching(program(f"def f(comm, model):\n    {text}")), text
    for source in sorted((HOME / "solutions").glob("0[459]_*.py")):
        honest = [
            one for one in statements(source.read_text())[0] if isinstance(one.node, (ast.FunctionDef, ast.ClassDef))
        ]
        assert honest and not reaching(Program(tuple(Statement(one.text, 1, one.line) for one in honest))), source


# Whose, and when.

EXPORT = """\
submission_11:
  :submitters:
  - :name: Jane Doe
    :email: jane@uni.edu
  - :name: Her Partner
    :email: partner@uni.edu
  :created_at: 2026-12-03 22:19:17 Z
  :results:
    tests:
    - name: 05.1
      output: |-
        wrong. The function raises ValueError: x
          :email: victim@uni.edu
          :created_at: 2020-01-01 00:00:00 Z
  :history:
  - :id: 5
    :created_at: 2026-11-01 10:00:00 Z
"""


def test_what_a_function_raises_names_no_other_student_and_no_earlier_time():
    # An export of Gradescope holds the output of the last grading, which quotes students, and the times of earlier
    # submissions. The last line that looked like an address or a time counted.
    said = gradescope_metadata(EXPORT)["submission_11"]
    assert (said.student, said.when.isoformat()) == ("jane@uni.edu", "2026-12-03T22:19:17+00:00")


def test_names_of_files_do_not_move_the_cursor(tmp_path):
    # On a terminal, a file called so wiped out the line above it, and wrote another.
    name = "x\x1b[1A\x1b[2Kada  7 of 7\u202e.txt"
    (tmp_path / "in").mkdir()
    (tmp_path / "in/bob.zip").write_bytes(zipped({name: b"?"}))
    (tmp_path / "in/c\x1b[2Kid.ipynb").write_bytes(notebook(TOTAL))
    batch = grade(Request(tmp_path / "in", tmp_path / "out"), rules(tmp_path))
    console = Console(force_terminal=True, width=200, record=True, color_system=None)
    with console.capture() as shown:
        show_batch(batch, console)
    assert "\x1b[2K" not in shown.get() and "\x1b[1A" not in shown.get() and "\\x1b[2K" in shown.get()
    assert "\x1b" not in notes(batch) and "\u202e" not in notes(batch)
    assert csv_text([["a\x1b[2Kb", "＝1+1"]]) == "a\\x1b[2Kb,'＝1+1\n"


def test_a_deadline_is_for_a_lab_that_is_graded(tmp_path):
    # --due "5=..." was kept under "5", and nobody was late.
    assert list(read_due(["5=2026-12-01 23:59"])) == ["05"]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/ann.ipynb").write_bytes(notebook(TOTAL))
    with pytest.raises(ValueError, match="--due is given for lab 06, and released are 00"):
        grade(Request(tmp_path / "in", tmp_path / "out", due=["06=2026-12-01 23:59"]), rules(tmp_path))


def test_grades_have_a_folder_for_themselves(tmp_path):
    # `--out submissions/grades` made a student called "grades" in the next run; `--out .` took the place of a .gitignore.
    (tmp_path / "in").mkdir()
    (tmp_path / "in/ann.ipynb").write_bytes(notebook(TOTAL))
    with pytest.raises(ValueError, match="lies among what was handed in"):
        grade(Request(tmp_path / "in", tmp_path / "in/grades"), rules(tmp_path))
    assert [one.student for one in collect(tmp_path / "in")[0]] == ["ann"]
    (tmp_path / ".gitignore").write_text("/private\n")
    with pytest.raises(ValueError, match=r"has a \.gitignore of its own"):
        private_folder(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "/private\n"
    private_folder(private_folder(tmp_path / "grades"))


def test_a_full_disk_is_a_sentence_and_loses_no_mark(tmp_path, monkeypatch):
    # A cache that could not be written left students without the result that was there; the ledger ended in a traceback.
    (tmp_path / "in").mkdir()
    (tmp_path / "in/ann.ipynb").write_bytes(notebook(total=TOTAL))
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(cache, "write_whole", lambda *_: (_ for _ in ()).throw(full))
    batch = grade(Request(tmp_path / "in", tmp_path / "out"), rules(tmp_path))
    assert [one.points for one in batch.results] == [2] and batch.complete
    monkeypatch.setattr(ledger, "write_whole", lambda *_: (_ for _ in ()).throw(full))
    with pytest.raises(ValueError, match=r"ledger.json could not be written \(No space left on device\)"):
        grade(Request(tmp_path / "in", tmp_path / "out"), rules(tmp_path))


def test_a_table_with_an_endless_cell_is_a_sentence(tmp_path):
    (tmp_path / "marks.csv").write_text('question,pseudonym,points\n05.w1,"' + "x" * 200_000 + "\n")
    with pytest.raises(ValueError, match="is a quotation mark missing"):
        read_table(tmp_path / "marks.csv", ["question"])


@pytest.mark.skipif(bool(levels.lacking("user")), reason="only root changes the user")
def test_two_graders_never_have_the_same_user():
    # At the end of a student's process all processes of its user are killed. Users went by the number of the grader's
    # process modulo 4,000: two graders at once could have had the same, and killed each other's.
    first = object.__new__(Box)
    one = Box._a_user(first)
    second = object.__new__(Box)
    other = Box._a_user(second)
    assert one != other
    first._taken.close()
    assert Box._a_user(object.__new__(Box)) == one
    second._taken.close()
