"""Lab 01: right kernels in other clothes pass, what students get wrong is named, and a fault names lines of their cell."""

import linecache

import numpy as np
import pytest
import torch
from newcomer_01 import FOUND, RIGHT
from proof import verdict_on

from lockstep.exercises import check, diagnose, find, mine
from lockstep.exercises.lab01 import EXERCISES, QUESTIONS
from lockstep.exercises.mutate import mutants
from lockstep.exercises.trial import observe_here
from lockstep.simt import KernelFault, cuda, occupancy, profile

TILE, RADIUS, WIDTH, HALO, THREADS = 16, 2, 5, 20, 128


def verdict(exercise_id, fn):
    """Status, known mistake and what was seen: as `check`, without a child process for each function."""
    outcome = verdict_on(find(exercise_id), fn)
    return outcome.status, outcome.mistake, outcome.seen


def in_a_cell(code, name, number):
    """A kernel as a notebook cell defines it: compiled from a text that only `linecache` has."""
    file, scope = f"/tmp/ipykernel_1/{number}.py", {"cuda": cuda, "np": np}
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    exec(compile(code, file, "exec"), scope)
    return scope[name]


def test_the_core_and_where_right_answers_stand():
    assert [one.id for one in EXERCISES if one.core] == ["01.1", "01.2", "01.5", "01.6"]
    right = [next(letter for letter, o in q.letters.items() if o.right) for q in QUESTIONS]
    assert len(QUESTIONS) >= 3 and len(set(right)) >= 3


class TestOracles:
    """The references against libraries that know nothing of kernels."""

    def test_convolutions_against_torch(self):
        for exercise_id in ("01.4", "01.5"):
            exercise = find(exercise_id)
            cases = exercise.draw(5)
            for case, seen in zip(cases, observe_here(exercise, exercise.reference, cases), strict=True):
                image, weights = (torch.from_numpy(one)[None, None] for one in case.args[2:4])
                padding = tuple(side // 2 for side in weights.shape[2:])
                want = torch.nn.functional.conv2d(image, weights, padding=padding)[0, 0].numpy()
                np.testing.assert_allclose(seen.arguments[-1], want, rtol=1e-4, atol=1e-5)

    def test_sums_and_transposes_against_numpy(self):
        for exercise_id, oracle in (
            ("01.3", lambda source: source.T),
            ("01.6", lambda source: np.add.reduceat(source, range(0, source.size, THREADS))),
        ):
            exercise = find(exercise_id)
            cases = exercise.draw(5)
            for case, seen in zip(cases, observe_here(exercise, exercise.reference, cases), strict=True):
                np.testing.assert_array_equal(seen.arguments[-1], oracle(case.args[2]))

    def test_occupancy_against_the_library_and_the_programming_guide(self):
        exercise = find("01.7")
        for seed in range(3):
            for case in exercise.draw(seed):
                sm, *kernel = case.args
                found = occupancy(case.name.partition(",")[0], *kernel)
                assert exercise.reference(sm, *kernel) == (found.blocks_per_sm, found.fraction), case.name
        names = [case.name for case in exercise.draw(0)]
        values = [exercise.reference(*case.args) for case in exercise.draw(0)]
        assert values[:2] == [(4, 0.5), (1, 0.5)] and "sm_86, 1024 threads" in names[2]
        assert values[2] == (1, pytest.approx(2 / 3))


class TestRight:
    def test_a_loop_over_the_grid(self):
        @cuda.jit
        def global_index(out):
            x, y = cuda.grid(2)
            across, down = cuda.gridsize(2)
            for row in range(y, out.shape[0], down):
                for column in range(x, out.shape[1], across):
                    out[row, column] = row * out.shape[1] + column

        assert verdict("01.1", global_index)[0] == "passed"

    def test_numpy_integers_and_lists(self):
        def launch_shape(shape, block):
            grid = [np.int64(-(-shape[1] // block[0])), np.int64(-(-shape[0] // block[1]))]
            return grid, int(grid[0] * grid[1] * block[0] * block[1] - shape[0] * shape[1])

        assert verdict("01.2", launch_shape)[0] == "passed"

    def test_the_last_warp_alone(self):
        from lockstep.simt.kernels.reduction import last_warp

        @cuda.jit
        def reduce_sum(source, out):
            shared = cuda.shared.array(THREADS, np.int32)
            thread, i = cuda.threadIdx.x, cuda.grid(1)
            shared[thread] = source[i] if i < source.size else 0
            cuda.syncthreads()
            if thread < 64:
                shared[thread] += shared[thread + 64]
            cuda.syncthreads()
            if thread < 32:
                last_warp(shared, thread)
            if thread == 0:
                out[cuda.blockIdx.x] = shared[0]

        assert verdict("01.6", reduce_sum)[0] == "passed"


class TestWrong:
    def test_a_right_transpose_that_is_not_coalesced_is_told_so(self):
        @cuda.jit
        def transpose(source, out):
            x, y = cuda.grid(2)
            if y < out.shape[0] and x < out.shape[1]:
                out[y, x] = source[x, y]

        status, mistake, seen = verdict("01.3", transpose)
        assert (status, mistake) == ("wrong", "walks down columns")
        assert seen.startswith("The result is right, but a request of a warp moves 32 sectors where 4 would do")

    def test_counters_of_the_reduction(self):
        for mistake, words in (
            ("stride doubling that diverges", "warps part at 24 branches where 6 will do"),
            ("cells that share a bank", "takes 4 passes"),
            ("one thread adds", "stand idle"),
            ("atomics on one cell", "128 atomic additions"),
        ):
            wrong = next(one.function for one in find("01.6").mistakes if one.name == mistake)
            assert words in verdict("01.6", wrong)[2]

    def test_what_a_newcomer_wrote(self):
        @cuda.jit
        def first_barrier_missing(source, out):
            shared = cuda.shared.array(THREADS, np.int32)
            thread, i = cuda.threadIdx.x, cuda.grid(1)
            shared[thread] = source[i] if i < source.size else 0
            stride = THREADS // 2
            while stride > 0:
                if thread < stride:
                    shared[thread] += shared[thread + stride]
                cuda.syncthreads()
                stride //= 2
            if thread == 0:
                out[cuda.blockIdx.x] = shared[0]

        @cuda.jit
        def never_ends(source, out):
            stride = THREADS // 2
            while stride >= 0:
                stride //= 2

        @cuda.jit
        def loop_without_an_end(source, out):
            while True:
                pass

        @cuda.jit
        def barrier_in_the_loading_loop(image, weights, out):
            tile = cuda.shared.array((HALO, HALO), np.float32)
            for j in range(cuda.threadIdx.x, HALO, TILE):
                tile[cuda.threadIdx.y, j] = 0
                cuda.syncthreads()

        @cuda.jit
        def one_too_many(out):
            x, y = cuda.grid(2)
            if x <= out.shape[1] and y <= out.shape[0]:
                out[y, x] = y * out.shape[1] + x

        @cuda.jit
        def numpy_for_shared(image, weights, out):
            tile = np.zeros((HALO, HALO))
            out[0, 0] = tile[0, 0]

        @cuda.jit
        def still_the_skeleton(source, out):
            shared = cuda.shared.array(THREADS, np.int32)
            shared[cuda.threadIdx.x] = 0
            raise NotImplementedError("load one number a thread, then halve until one is left")

        def forgot_the_decorator(out):
            out[0, 0] = 1

        for exercise_id, fn, status, mistake, words in (
            ("01.6", first_barrier_missing, "crashed", "no barrier after loading", "before the barrier"),
            ("01.6", never_ends, "crashed", "never halves", "EndlessLoop"),
            ("01.6", loop_without_an_end, "crashed", "never halves", "EndlessLoop"),
            ("01.5", barrier_in_the_loading_loop, "crashed", "barrier inside the loop", "others of block"),
            ("01.1", one_too_many, "crashed", "no guard", "guard the access"),
            ("01.5", numpy_for_shared, "crashed", "", "cuda.shared.array"),
            ("01.6", still_the_skeleton, "not attempted", "", ""),
            ("01.1", forgot_the_decorator, "crashed", "", "`@cuda.jit` on the line above"),
        ):
            found = verdict(exercise_id, fn)
            assert found[:2] == (status, mistake) and words in found[2], (fn, found)


@pytest.mark.parametrize(("exercise_id", "fn", "words"), FOUND, ids=[fn.__name__ for _, fn, _ in FOUND])
def test_what_a_newcomer_wrote_gets_its_cause(exercise_id, fn, words):
    outcome = verdict_on(find(exercise_id), fn)
    assert not outcome.passed
    for word in words:
        told = f"{outcome.seen} {outcome.cause}"
        assert (word.removeprefix("-") in told) is not word.startswith("-"), outcome.text


@pytest.mark.parametrize(("exercise_id", "fn"), RIGHT)
def test_what_a_newcomer_wrote_and_was_right_passes(exercise_id, fn):
    assert verdict(exercise_id, fn)[0] == "passed"


def test_a_crash_is_told_once_and_a_launch_is_no_kernel():
    # "Got" and "What is wrong" were one long text twice, and `kernel[1, 2]` was called a plain function.
    race = next(one.function for one in find("01.6").mistakes if one.name == "missing barrier")
    assert verdict_on(find("01.6"), race).got == "RaceError"
    assert "alone" in verdict("01.6", find("01.6").reference[1, 2])[2]


RACES = """

@cuda.jit
def reduce_sum(source, out):
    shared = cuda.shared.array(128, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    stride = 64
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]
"""

HELPER = """@cuda.jit(device=True)
def half(number):
    return number // 2
"""


def test_a_fault_in_the_child_process_names_lines_of_the_cell():
    outcome = check("01.6", in_a_cell(RACES, "reduce_sum", 1))
    assert outcome.mistake == "missing barrier"
    said = outcome.seen
    assert "line 13 reads it, line 13 writes it" in said and "threads 0 and 32 of block 0" in said, said
    assert "Line 13: `shared[thread] += shared[thread + stride]`" in said


def test_a_kernel_with_a_device_function_of_another_cell_passes_through_the_child_and_is_kept():
    half = in_a_cell(HELPER, "half", 2)
    code = RACES.replace("        stride //= 2", "        cuda.syncthreads()\n        stride = half(stride)")
    kernel = in_a_cell(code, "reduce_sum", 3)
    kernel.py_func.__globals__["half"] = half
    assert check("01.6", kernel).status == "passed"
    numbers, sums = np.arange(300, dtype=np.int32), np.zeros(3, np.int32)
    report = profile(mine("01.6"), 3, 128, numbers, sums)
    assert sums.sum() == numbers.sum()
    assert {line.function for line in report.lines} == {"reduce_sum", "half"}
    # Its lines are those of the file in `my/`, which begins with the decorator.
    assert min(line.number for line in report.lines if line.function == "reduce_sum") == 3


def test_a_riddle_of_a_kernel_shows_what_was_counted():
    runs = [diagnose("01", seed=seed) for seed in (0, 5, 7)]
    counted = [run for run in runs if run.seen.counts]
    assert counted and "divergent branches: " in repr(counted[0])
    assert any("It is given" in repr(run) for run in runs), "a plain function shows its arguments"
    assert all(run.options[run.right] == "nothing is wrong" or len(run.options) > 1 for run in runs)
    first = counted[0]
    assert "right" in repr(first.answer(first.right))


def test_mutants_of_a_kernel_are_kernels():
    # They once were cut off from their text, so that the simulator refused every one, and a blind check passed.
    changed = {one.description: one.function for one in mutants(find("01.6").reference)}
    assert {type(one) for one in changed.values()} == {type(find("01.6").reference)}
    barrier = next(fn for what, fn in changed.items() if "cuda.syncthreads() -> None" in what)
    with pytest.raises(KernelFault, match="no barrier|before the barrier|after the barrier"):
        profile(barrier, 1, 128, np.ones(128, np.int32), np.zeros(1, np.int32))
