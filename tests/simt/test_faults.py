"""Every fault that the simulator refuses, planted in a small kernel, on both machines: who, where, and in which words."""

import numpy as np
import pytest

from lockstep import simt
from lockstep.simt import errors
from lockstep.simt.choice import simulator as cuda
from lockstep.simt.slow import run_slowly


def lines_of(kernel, *marks):
    """The numbers of the kernel's lines that end in a comment `# mark`."""
    from lockstep.simt.compile.source import read

    lines = read(kernel.py_func).lines
    return tuple(next(number for number, text in lines.items() if text.endswith(f"# {mark}")) for mark in marks)


def refused(fault, launch, *arguments):
    """The error of the compiled machine, after the slow one refused the same at the same lines."""
    with pytest.raises(fault) as slow:
        run_slowly(launch, *arguments)
    with pytest.raises(fault) as fast:
        launch(*arguments)
    assert type(fast.value) is type(slow.value) is fault
    assert set(fast.value.lines) == set(slow.value.lines)
    return fast.value


@cuda.jit
def misses_a_barrier(x, out):
    tile = cuda.shared.array((8, 8), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    tile[ty, tx] = x[ty, tx]
    cuda.syncthreads()  # first
    tile[ty, tx] = x[tx, ty]  # write
    out[ty, tx] = tile[ty, (tx + 1) % 8]  # read
    cuda.syncthreads()  # last


def test_a_missing_barrier_names_threads_cell_and_lines():
    x, out = np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32)
    race = refused(simt.RaceError, misses_a_barrier[1, (8, 8)], x, out)
    first, last, write, read = lines_of(misses_a_barrier, "first", "last", "write", "read")
    assert race.threads == ((0, 0), (1, 0)) and race.blocks == ((0,), (0,))
    assert str(race) == (
        f"threads (0,0) and (1,0) of block 0 touch tile[0,1] between the barriers at lines {first} and {last}, and one "
        f"writes: line {read} reads it, line {write} writes it. Put cuda.syncthreads() between the two."
    )


@cuda.jit
def writes_one_cell(out):
    out[cuda.threadIdx.x // 2] = 1.0  # write


@cuda.jit
def blocks_meet(x, out, copy):
    i = cuda.grid(1)
    out[i] = x[i]  # write
    if cuda.threadIdx.x == 0 and cuda.blockIdx.x > 0:
        copy[cuda.blockIdx.x] = out[i - 1]  # read


@cuda.jit
def reads_what_atomics_change(out, copy):
    cuda.atomic.add(out, 0, 1)  # add
    copy[cuda.grid(1)] = out[0]  # read


@cuda.jit
def forgets_syncwarp(out):
    shared = cuda.shared.array(32, np.int32)
    lane = cuda.threadIdx.x
    shared[lane] = lane
    cuda.syncwarp()
    other = shared[(lane + 1) % 32]  # read
    shared[lane] = other  # write
    out[lane] = other


def test_other_races():
    out = np.zeros(64, np.float32)
    race = refused(simt.RaceError, writes_one_cell[1, 64], out)
    assert race.threads == ((0,), (1,)) and "both write" in str(race) and "out[0]" in str(race)
    race = refused(simt.RaceError, blocks_meet[2, 32], np.ones(64, np.float32), out, np.zeros(2))
    assert race.threads == ((31,), (0,)) and race.blocks == ((0,), (1,))
    assert str(race).startswith("thread 31 of block 0 and thread 0 of block 1 touch out[31], and one writes")
    assert "Barriers never order two blocks" in str(race)
    race = refused(simt.RaceError, reads_what_atomics_change[1, 32], np.zeros(1, np.int32), np.zeros(32, np.int32))
    assert "one changes it atomically" in str(race)
    race = refused(simt.RaceError, forgets_syncwarp[1, 32], np.zeros(32, np.int32))
    assert race.lines[0] != race.lines[1]
    with pytest.raises(simt.RaceError):  # also where the second block comes in a later batch
        blocks_meet[2000, 32](np.ones(64000), np.zeros(64000), np.zeros(2000))


@cuda.jit
def barrier_in_a_branch(out):
    t = cuda.threadIdx.x
    if t < 10:  # branch
        cuda.syncthreads()  # barrier
    out[t] = t


@cuda.jit
def returns_before_the_barrier(out):
    t = cuda.threadIdx.x
    if t == 5:
        return  # return
    cuda.syncthreads()  # barrier
    out[t] = t


@cuda.jit
def barrier_in_a_ragged_loop(out):
    t = cuda.threadIdx.x
    for _ in range(t // 16):  # loop
        cuda.syncthreads()  # barrier
    out[t] = t


def test_barriers_that_part_of_a_block_misses():
    out = np.zeros(32, np.float32)
    with pytest.raises(simt.BarrierError):
        run_slowly(barrier_in_a_branch[1, 32], out)
    with pytest.raises(simt.BarrierError) as missed:
        barrier_in_a_branch[1, 32](out)
    branch, barrier = lines_of(barrier_in_a_branch, "branch", "barrier")
    assert missed.value.lines == (barrier, branch) and missed.value.threads[0] == (10,)
    assert str(missed.value) == (
        f"threads 10, 11 and 20 others of block 0 do not reach the barrier at line {barrier}: the branch or loop at "
        f"line {branch} left it without them. Every thread of a block has to reach the same barrier: move it out of "
        "that branch or loop"
    )
    with pytest.raises(simt.BarrierError, match=r"thread 5 of block 0 does not reach .* returned before it"):
        returns_before_the_barrier[1, 32](out)
    with pytest.raises(simt.BarrierError):
        run_slowly(returns_before_the_barrier[1, 32], out)
    with pytest.raises(simt.BarrierError) as missed:
        barrier_in_a_ragged_loop[1, 32](out)
    assert missed.value.lines == lines_of(barrier_in_a_ragged_loop, "barrier", "loop")


@cuda.jit
def past_the_end(x, out):
    i = cuda.grid(1)
    out[i] = x[i + 1]  # read


@cuda.jit
def before_the_start(x, out):
    y, x_ = cuda.grid(2)
    out[y, x_] = x[y - 1, x_]  # read


def test_out_of_bounds():
    x, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    outside = refused(simt.OutOfBounds, past_the_end[2, 32], x, out)
    line = lines_of(past_the_end, "read")[0]
    assert (outside.threads, outside.blocks) == (((31,),), ((1,),)) and isinstance(outside, IndexError)
    assert str(outside) == (
        f"thread 31 of block 1 touches x[64] at line {line}, and x has 64 elements: guard the access with `if`"
    )
    square = np.zeros((8, 8), np.float32)
    outside = refused(simt.OutOfBounds, before_the_start[(2, 2), (4, 4)], square, square.copy())
    assert "touches x[-1,0]" in str(outside) and "has the shape 8x8: an index below 0 is never meant" in str(outside)
    assert outside.threads == ((0, 0),)


@cuda.jit
def reads_unwritten(out):
    shared = cuda.shared.array(33, np.int32)
    t = cuda.threadIdx.x
    shared[t] = t
    cuda.syncthreads()
    out[t] = shared[t + 1]  # read


@cuda.jit
def unwritten_local(out):
    mine = cuda.local.array(2, np.int32)
    mine[0] = 1
    out[cuda.threadIdx.x] = mine[cuda.threadIdx.x % 2]  # read


@cuda.jit
def unassigned(out):
    t = cuda.threadIdx.x
    if t < 31:
        value = t
    out[t] = value  # read


def test_what_was_never_written():
    out = np.zeros(32, np.int32)
    unwritten = refused(simt.UninitializedRead, reads_unwritten[1, 32], out)
    assert unwritten.threads == ((31,),) and "reads shared[32]" in str(unwritten)
    assert refused(simt.UninitializedRead, unwritten_local[1, 32], out).threads == ((1,),)
    unwritten = refused(simt.UninitializedRead, unassigned[1, 32], out)
    assert unwritten.threads == ((31,),) and "reads value" in str(unwritten)


@cuda.jit
def never_ends(out):
    i = 0
    while out[cuda.grid(1)] == 0:  # loop
        i += 1


@cuda.jit
def counts_to(out, rounds):
    while out[0] < rounds:
        out[0] += 1


@cuda.jit
def divides(x, out):
    i = cuda.grid(1)
    out[i] = 10 // x[i]  # divide


@cuda.jit
def loops_for_ever(out):
    while True:
        pass


def test_loops_and_divisions():
    with simt.step_limit(50):
        endless = refused(simt.EndlessLoop, never_ends[1, 32], np.zeros(32, np.int32))
        assert "still going after 50 rounds for threads 0, 1 and 30 others of block 0" in str(endless)
        with pytest.raises(simt.EndlessLoop):
            counts_to[1, 1](np.zeros(1, np.int32), 60)
        # Without an end or a return the compiler looked for a kind of result that there is not: "list index out of range".
        refused(simt.EndlessLoop, loops_for_ever[1, 32], np.zeros(32, np.int32))
    out = np.zeros(1, np.int32)
    with simt.step_limit(100):
        counts_to[1, 1](out, 60)
    assert out[0] == 60
    with pytest.raises(ValueError, match="above 0"), simt.step_limit(0):
        pass
    zero = refused(simt.DivisionByZero, divides[1, 4], np.array([1, 2, 0, 3], np.int32), np.zeros(4, np.int32))
    assert zero.threads == ((2,),) and "10 // x[i]" in str(zero)


@cuda.jit
def too_much_shared(out):
    big = cuda.shared.array((100, 128), np.float32)
    big[0, 0] = 1
    out[0] = big[0, 0]


@cuda.jit
def dynamic_sum(x, out):
    shared = cuda.shared.array(0, np.float32)
    t = cuda.threadIdx.x
    shared[t] = x[t]
    cuda.syncthreads()
    if t == 0:
        total = 0.0
        for i in range(shared.size):
            total += shared[i]
        out[0] = total


def test_launches_that_no_gpu_takes():
    out = np.zeros(64, np.float32)
    launches = [
        (lambda: writes_one_cell[1, (33, 32)](out), "33x32 has 1,056 threads, and a GPU takes at most 1,024"),
        (lambda: writes_one_cell[1, 0](out), "each dimension is 1 to 1,024"),
        (lambda: writes_one_cell[64 / 32, 32](out), "`//` divides integers"),
        (lambda: writes_one_cell[1, 32](out, out), r"takes 1 arguments \(out\), not 2"),
        (lambda: writes_one_cell[1, 32]([1.0]), "out is a list"),
        (lambda: writes_one_cell(out), "needs a grid and a block"),
        (lambda: writes_one_cell[32](out), r"kernel\[grid, block\]"),
        (lambda: too_much_shared[1, 1](out), "declares 51,200 bytes of shared memory, and a block may declare 49,152"),
        (lambda: dynamic_sum[1, 32, 0, 300_000](out, out), "no GPU has more than 232,448"),
        (lambda: writes_one_cell[1, 32](np.zeros(3, complex)), "complex128"),
    ]
    for launch, words in launches:
        with pytest.raises(errors.LaunchError, match=words):
            launch()
    x = np.arange(64, dtype=np.float32)
    dynamic_sum[1, 64, 0, 256](x, out)
    assert out[0] == x.sum()


def test_a_fault_leaves_the_host_s_arrays_alone():
    out = np.full(64, 7, np.float32)
    with pytest.raises(simt.OutOfBounds):
        past_the_end[2, 32](np.zeros(64, np.float32), out)
    assert (out == 7).all()


def test_a_notebook_shows_the_sentence_and_the_line_alone():
    # It showed sixty lines of ours, generated code among them, and not the line of the student's own kernel.
    with pytest.raises(simt.KernelFault) as fault:
        barrier_in_a_branch[1, 32](np.zeros(32, np.float32))
    said, *lines = fault.value._render_traceback_()
    assert said == f"BarrierError: {fault.value}" and len(lines) == len(set(fault.value.lines)) == 2
    assert any("syncthreads" in line for line in lines), lines
    with pytest.raises(simt.LaunchError) as launch:
        barrier_in_a_branch[1, 4096](np.zeros(32, np.float32))
    assert launch.value._render_traceback_() == [f"LaunchError: {launch.value}"]
