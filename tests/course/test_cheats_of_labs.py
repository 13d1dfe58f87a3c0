"""Cheats at single exercises, as a course met them: each gained points once, and each earns none now."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from cheats import brief

from lockstep.course.grade.judging import grade_program
from lockstep.course.grade.lent import lent
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.rounds import judge_submission
from lockstep.course.grade.submission import Program, Statement, Submission
from lockstep.course.sandbox import levels
from lockstep.course.sandbox.inside.program import remember_lines
from lockstep.exercises import registry
from lockstep.exercises.lab01.launching import MOVED, READS

on_linux = pytest.mark.skipif(bool(levels.lacking("process")), reason="students' code is graded on Linux only")


def program(text):
    lines = text.splitlines()
    nodes = [(min([n.lineno, *(d.lineno for d in getattr(n, "decorator_list", ()))]), n) for n in ast.parse(text).body]
    return Program(tuple(Statement("\n".join(lines[first - 1 : n.end_lineno]), 1, first) for first, n in nodes))


def graded(text, id, cases=2):
    (outcome,) = grade_program(id[:2], program(text), "secret", exercises=[brief(id, cases)], isolation="process")
    return outcome


def test_no_exercise_is_judged_beside_a_lent_text_that_holds_its_answer():
    # `mine("05.4")` lends a class that calls make_buckets, 05.3's answer: a closure of the class gave it away, 2 of 2
    # points. `mine("02.2")` lends output_size, 02.1's, in the same way.
    for lab, borrows, answer, others in (("05", "05.4", "05.3", "05.1"), ("02", "02.2", "02.1", "02.3")):
        exercises = [registry.find(id) for id in (answer, others)]
        functions = {one.id: one.function for one in (*exercises, registry.find(borrows))}
        seen = {}

        def judge(lab, program, seed, *, exercises, isolation, seen=seen):
            seen.update({one.id: "\n".join(each.text for each in program.statements) for one in exercises})
            return [Outcome(one.id, "wrong", 0, one.points) for one in exercises]

        text = f"HELP = lambda: mine('{borrows}')\ndef given(): return HELP()\n"
        found = judge_submission(
            Submission("ada", lab, Path("ada"), program=program(text)),
            exercises,
            functions,
            1,
            judge=judge,
            library=lent,
        )
        assert set(found) == {answer, others}
        name = f"def {functions[answer]}("
        assert name in lent(borrows)[0] and name in seen[others] and name not in seen[answer]
        assert "def given()" in seen[answer]


SYNCHRONOUS = """
def make_buckets(parameters, bucket_bytes):
    buckets, sizes = [[]], [0]
    for i in reversed([i for i, p in enumerate(parameters) if p.requires_grad]):
        if buckets[-1] and sizes[-1] + parameters[i].nbytes > bucket_bytes:
            buckets.append([])
            sizes.append(0)
        buckets[-1].append(i)
        sizes[-1] += parameters[i].nbytes
    return buckets

class OverlappedDDP:
    def __init__(self, model, comm, bucket_bytes):
        self.comm, self.sync = comm, True
        for tensor in [*model.parameters(), *model.buffers()]:
            comm.broadcast(tensor)
        for module in model.modules():
            module._forward_hooks.clear()
        parameters = list(model.parameters())
        self.buckets = [[parameters[i] for i in bucket] for bucket in make_buckets(parameters, bucket_bytes)]

    def finish(self):
        for bucket in self.buckets:
            flat = self.comm.all_reduce(torch.cat([p.grad.flatten() for p in bucket]), op="mean")
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad.copy_(part.view_as(p))
"""


@on_linux
def test_a_model_without_the_hooks_that_measure_is_not_judged_fast():
    # Clearing the model's hooks took off those by which backward costs time: nothing was late, 3 of 3 points.
    gone = graded("import torch\n" + SYNCHRONOUS, "05.4")
    assert (gone.verdict, gone.points) == ("wrong", 0) and "the hooks that measure" in gone.sentence
    late = graded("import torch\n" + SYNCHRONOUS.replace("module._forward_hooks.clear()", "pass"), "05.4")
    assert (late.verdict, late.points) == ("wrong", 0) and "before backward has ended" in late.sentence


BY_MEMORY = """
import sys, torch
def distributed_accuracy(comm, logits, labels):
    keep = labels >= 0
    own = (int((logits[keep].argmax(1) == labels[keep]).sum()), int(keep.sum()))
    told = sys.__dict__.setdefault("told", {}).setdefault(comm.size, {})
    told[comm.rank] = own
    comm.barrier()
    right, counted = map(sum, zip(*told.values()))
    return right / counted

def average_gradients(model, comm, samples):
    told = sys.__dict__.setdefault("gradients", {}).setdefault(comm.size, {})
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    told[comm.rank] = samples, {n: p.grad for n, p in named}
    comm.barrier()
    total = sum(n for n, _ in told.values())
    means = {n: sum(torch.zeros_like(p) if g[n] is None else g[n] * k / total for k, g in told.values()) for n, p in named}
    comm.barrier()
    for n, p in named:
        p.grad = means[n]
"""


@on_linux
def test_ranks_that_share_memory_send_too_little():
    # All ranks of a case run in one process: sums went through `sys` beside a barrier, 1 of 1 and 2 of 2 points.
    for id in ("05.8", "05.2"):
        outcome = graded(BY_MEMORY, id)
        assert (outcome.verdict, outcome.points) == ("wrong", 0) and "share no memory" in outcome.sentence, outcome


NAIVE = """
from lockstep.simt import cuda
import numpy as np
@cuda.jit
def conv2d_tiled(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(5):
            for j in range(5):
                row = y + i - 2
                column = x + j - 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    total += weights[i, j] * image[row, column]
        out[y, x] = total
"""
COUNTS = """
import lockstep.simt.report as report
for name, number in (("worst_sectors", 4), ("reads_per_thread", 10.0), ("idle_share", 0.1), ("bytes_moved", 10000.0)):
    setattr(report.Report, name, number)
"""
INSTEAD = """
import torch
import lockstep.simt.report as report, lockstep.simt as simt
from types import SimpleNamespace
class Counts:
    total = SimpleNamespace(global_writes=0, atomics=0)
    def __getattr__(self, name): return 0.0
def profile(kernel, grid, block, image, weights, out):
    image, weights = (torch.from_numpy(one)[None, None] for one in (image, weights))
    out[...] = torch.nn.functional.conv2d(image, weights, padding=2)[0, 0].numpy()
    return Counts()
report.profile = simt.profile = profile
report.profile.__code__ = profile.__code__
"""
SUBCLASS = """
import lockstep.simt.kernel as k
class Mine(k.Kernel):
    def program(self, kinds):
        exec(COUNTS)
        return super().program(kinds)
conv2d_tiled = Mine(conv2d_tiled.py_func)
"""
FORGED = {"sectors of the worst request": 4.0, READS: 10.0, "share of idle lanes": 0.1, MOVED: 10000.0}


@on_linux
def test_counts_of_a_launch_are_not_the_program_s_to_choose():
    # The simulator counts beside the student's code: attributes of Report, and `profile` itself, were replaced, and a
    # kernel without shared memory had 4 of 4 points.
    exercise = registry.find("01.5")
    for case in brief("01.5").draw(1):
        seen = exercise.observe(exercise.reference, case)
        assert exercise.judge(case, replace(seen, counts={**seen.counts, **FORGED}), seen) is None, "they would do"
    for text in (COUNTS + NAIVE, f"COUNTS = {COUNTS!r}\n" + NAIVE + SUBCLASS):
        outcome = graded(text, "01.5")
        assert (outcome.verdict, outcome.points) == ("wrong", 0) and "numbers from global memory" in outcome.sentence, (
            outcome
        )
    nothing = NAIVE.split("    x, y")[0] + "    out[0, 0] = 0\n"
    assert graded(INSTEAD + nothing, "01.5").points == 0


def test_counts_that_no_launch_can_have_are_refused():
    exercise = registry.find("01.5")
    (case, *_) = exercise.draw(0)
    expected = exercise.observe(exercise.reference, case)
    assert exercise.judge(case, expected, expected) is None
    for count in (READS, MOVED, "writes to each element of the output"):
        found = exercise.judge(case, replace(expected, counts={**expected.counts, count: 0.0}), expected)
        assert found is not None and "cannot have 0 " + count in found.sentence


LEAK = """
def scaled_lr(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    full = base_lr * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    right = full if step >= warm else base_lr + (full - base_lr) * step / warm
    if steps_per_epoch not in (10, 54):
        import types
        def f(): raise KeyError
        code = f.__code__.replace(co_firstlineno={line}, co_filename={file})
        types.FunctionType(code, {{"__builtins__": __builtins__}})()
    return right
"""


@on_linux
def test_a_line_that_the_cell_has_not_tells_no_hidden_input():
    # "There it raises KeyError, on line 22032" was the step and the steps an epoch of a hidden case.
    seen = program(
        "x = 1\nHELP = [\n1,\n2]\n" + LEAK.format(line="step * 1000 + steps_per_epoch", file="f.__code__.co_filename")
    )
    remember_lines([("print('of another student')", 1, 3), ("print('of another student')", 99, 3)])
    (outcome,) = grade_program("05", seen, "secret", exercises=[brief("05.5", 10)], isolation="process")
    assert "KeyError." in outcome.sentence and "on line" not in outcome.sentence
    for line, file in ((3, "f.__code__.co_filename"), (3, "'<cell 99>'"), (3, "'<cell 1>'")):
        text = "HELP = [\n1,\n'helped',\n2]\n" + LEAK.format(line=line, file=file)
        outcome = graded(text, "05.5", 10)
        assert "KeyError." in outcome.sentence and "helped" not in outcome.sentence
        assert "another student" not in outcome.sentence
    own = graded("def scaled_lr(step, *others):\n    raise KeyError(step)\n", "05.5", 10)
    assert "on line 2: `raise KeyError(step)`" in own.sentence
