"""What a kernel may be written in, against NumPy; and what is refused, by name and line."""

import linecache
import math
import pickle

import cloudpickle
import numpy as np
import pytest

from lockstep import simt
from lockstep.simt.choice import simulator as cuda
from lockstep.simt.kernel import simulated
from lockstep.simt.slow import run_slowly

LIMIT = 3
TABLE = np.array([3, 1, 4, 1, 5], np.int32)
PAIR = (2, 5)


def both(kernel, grid, block, *arguments):
    """The arguments after the compiled machine ran, which the slow one changes in the same way."""
    fast = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
    slow = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
    kernel[grid, block](*fast)
    run_slowly(kernel[grid, block], *slow)
    for a, b in zip(fast, slow, strict=True):
        assert np.array_equal(a, b, equal_nan=isinstance(a, np.ndarray) and a.dtype.kind == "f")
    return fast


@cuda.jit
def index_3d(out, sizes):
    x, y, z = cuda.grid(3)
    out[z, y, x] = cuda.threadIdx.x + 10 * cuda.threadIdx.y + 100 * cuda.threadIdx.z + 1000 * cuda.blockIdx.z
    if x == 0 and y == 0 and z == 0:
        sizes[0] = cuda.gridsize(1)
        sizes[1] = cuda.blockDim.y * cuda.gridDim.y
        sizes[2] = cuda.warpsize
        sizes[3] = out.ndim + len(out)


def test_three_dimensions():
    out, sizes = both(index_3d, (2, 1, 3), (4, 3, 2), np.zeros((6, 3, 8)), np.zeros(4, np.int64))
    z, y, x = np.indices(out.shape)
    assert np.array_equal(out, x % 4 + 10 * y + 100 * (z % 2) + 1000 * (z // 2))
    assert sizes.tolist() == [8, 3, 32, 3 + 6]


@cuda.jit
def wraps(small, unsigned, wide, x):
    i = cuda.grid(1)
    small[i] = x[i] * x[i]  # int32 * int32 is int64; only the store into int8 wraps
    unsigned[i] = -x[i]
    wide[i] = x[i] * x[i]


def test_only_stores_wrap():
    x = np.array([100, -7, 46341, 2_000_000_000], np.int32)
    small, unsigned, wide, _ = both(wraps, 1, 4, np.zeros(4, np.int8), np.zeros(4, np.uint8), np.zeros(4, np.int64), x)
    squares = x.astype(np.int64) ** 2
    assert np.array_equal(wide, squares)
    assert np.array_equal(small, squares.astype(np.int8)) and np.array_equal(unsigned, (-x).astype(np.uint8))


@cuda.jit
def changes_kind(x, out):
    i = cuda.grid(1)
    total = 0
    for k in range(i):
        total += x[k]  # int64 before the loop, float64 in it
    best = x[i]
    if i % 2:
        best = best * 0.5  # float32, or float64 on this path: float64 after the branch
    out[i] = total / 3 + best * x[i]


def test_paths_that_meet_share_a_kind():
    x = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    _, out = both(changes_kind, 1, 32, x, np.zeros(32))
    wide = x.astype(np.float64)
    best = np.where(np.arange(32) % 2, wide * 0.5, wide)
    expected = (np.cumsum(wide) - wide) / 3 + best * wide
    assert np.allclose(out, expected, rtol=1e-14, atol=1e-15)


PADDED = False


@cuda.jit
def chooses_by_constant(x, out):
    i = cuda.grid(1)
    value = x[i]
    if PADDED and i > 3:
        value = 0.0  # never reached, so value stays float32
    if 2 < 1:
        value = value * 0.5
    elif not PADDED:
        value = value * (0.5 if PADDED else x[i])
    out[i] = value * x[i]


def test_arms_that_are_never_taken_do_not_count():
    x = np.random.default_rng(3).standard_normal(8).astype(np.float32)
    _, out = both(chooses_by_constant, 1, 8, x, np.zeros(8))
    assert np.array_equal(out, (x * x * x).astype(np.float64))  # rounded to float32 each time


@cuda.jit(device=True)
def collatz(n):
    steps = 0
    while True:
        if n == 1:
            return steps
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1


@cuda.jit(device=True)
def ordered(a, b):
    if a > b:
        return b, a
    return a, b


@cuda.jit
def calls_others(out, low):
    i = cuda.grid(1)
    out[i] = collatz(i + 1)
    first, second = ordered(i % 5, i % 3)
    low[i] = first * 10 + second


def test_device_functions():
    out, low = both(calls_others, 1, 30, np.zeros(30, np.int64), np.zeros(30, np.int64))
    assert out[:7].tolist() == [0, 1, 7, 2, 5, 8, 16]
    assert low.tolist() == [min(i % 5, i % 3) * 10 + max(i % 5, i % 3) for i in range(30)]


@cuda.jit
def odds_and_ends(x, out):
    i = cuda.grid(1)
    table = cuda.const.array_like(TABLE)
    mine = cuda.local.array((2, 2), np.float64)
    for r in range(2):
        for c in range(2):
            mine[r, c] = r * 10 + c + i
    small, large = PAIR
    a, b = small, large
    a, b = b, a
    value: float = a * 100 + b + table[i % 5] + TABLE[i % len(TABLE)] + mine[1, i % 2]
    if not 1 <= i < LIMIT:
        value += math.sqrt(x[i]) + math.pi
    elif i == 2 or x[i] > 100:
        value -= abs(-x[i]) + float(round(x[i])) + int(x[i])
    else:
        pass
    value += max(x[i], 2.5, 1.0) - min(i, 3)
    out[i] = value


def test_odds_and_ends():
    x = np.abs(np.random.default_rng(1).standard_normal(8)) * 9
    _, out = both(odds_and_ends, 1, 8, x, np.zeros(8))
    for i, v in enumerate(x):
        expected = 502 + 2 * TABLE[i % 5] + 10 + i % 2 + i
        if not 1 <= i < LIMIT:
            expected += math.sqrt(v) + math.pi
        elif i == 2:
            expected -= v + round(v) + int(v)
        assert out[i] == pytest.approx(expected + max(v, 2.5) - min(i, 3))


@cuda.jit
def short_circuit(x, out):
    i = cuda.grid(1)
    if i > 0 and x[i - 1] > 0:
        out[i] = 1
    last = i + 1 >= x.size or x[i + 1] < 0
    out[i] += 2 if last else (4 if x[i + 1] > 5 else 8)


def test_what_guards_is_not_evaluated_beyond():
    x = np.array([1, -1, 3, 9, -2, 4.0])
    _, out = both(short_circuit, 1, 6, x, np.zeros(6))
    assert out.tolist() == [2, 9, 4, 3, 9, 2]


@cuda.jit
def together(out, votes):
    t = cuda.threadIdx.x
    lane = cuda.laneid
    out[t] = cuda.shfl_sync(0xFFFFFFFF, t, 3) + 100 * cuda.shfl_up_sync(0xFFFFFFFF, lane, 2)
    out[t] += 10_000 * cuda.shfl_xor_sync(0xFFFFFFFF, lane, 1)
    count = cuda.syncthreads_count(int(t % 3 == 0))
    every, some = cuda.syncthreads_and(int(t >= 0)), cuda.syncthreads_or(int(t > 1000))
    bits = cuda.ballot_sync(0xFFFFFFFF, lane < 4)
    if t == 40:
        votes[0], votes[1], votes[2], votes[3] = count, every, some, bits
        votes[4] = cuda.popc(np.uint32(0xF0F0))
    if cuda.any_sync(0xFFFFFFFF, t == 5) and not cuda.all_sync(0xFFFFFFFF, t == 5):
        out[t] = -out[t]


def test_warps_and_votes():
    out, votes = both(together, 1, 64, np.zeros(64, np.int64), np.zeros(5, np.int64))
    t = np.arange(64)
    lane = t % 32
    expected = t // 32 * 32 + 3 + 100 * np.where(lane < 2, lane, lane - 2) + 10_000 * (lane ^ 1)
    assert np.array_equal(out, np.where(t < 32, -expected, expected))
    assert votes.tolist() == [22, 1, 0, 15, 8]


@cuda.jit
def all_atomics(x, out, seen):
    i = cuda.grid(1)
    seen[i] = cuda.atomic.add(out, 0, 1)
    cuda.atomic.max(out, 1, x[i])
    cuda.atomic.min(out, 2, x[i])
    cuda.atomic.sub(out, 3, 2)
    cuda.atomic.or_(out, 4, 1 << (i % 8))
    cuda.atomic.and_(out, 5, ~i)
    cuda.atomic.xor(out, 6, i)
    cuda.atomic.cas(out, 7, 0, i + 1)
    cuda.atomic.exch(out, 8 + i, x[i])


def test_atomics():
    x = np.random.default_rng(2).integers(-50, 50, 64).astype(np.int32)
    out = np.zeros(72, np.int32)
    out[5] = -1
    _, out, seen = both(all_atomics, 2, 32, x, out, np.zeros(64, np.int32))
    assert sorted(seen) == list(range(64))
    assert out[:8].tolist() == [64, x.max(), min(0, x.min()), -128, 255, -64, 0, 1]
    assert np.array_equal(out[8:], x)


@cuda.jit
def with_nan(x, out, top):
    i = cuda.grid(1)
    out[i, 0] = max(x[i], 2.0)
    out[i, 1] = max(x[i], 2)
    out[i, 2] = min(x[i], x[i], 1.0)
    cuda.atomic.max(top, 0, x[i])
    cuda.atomic.min(top, 1, x[i])
    top[i + 2] = cuda.atomic.max(top, i + 2, x[i])


def test_nan_in_min_and_max():
    # Two floats are the GPU's own instruction, in which a NaN loses; anything else is compared as Python does it.
    nan = np.nan
    _, out, top = both(with_nan, 1, 2, np.array([nan, 5.0]), np.zeros((2, 3)), np.array([1.0, nan, 7.0, nan]))
    assert np.array_equal(out, [[2, nan, nan], [5, 5, 1]], equal_nan=True)
    assert np.array_equal(top, [5, nan, 7, nan], equal_nan=True)


def test_device_arrays_are_views_on_the_device():
    device = cuda.to_device(np.arange(12, dtype=np.float32).reshape(3, 4))
    out = cuda.device_array_like(device.T)
    kernel = simulated(copies_transposed)
    kernel[1, (4, 3)](device.T, out)
    assert np.array_equal(out.copy_to_host(), np.arange(12).reshape(3, 4).T)
    kernel[1, (2, 3)](device[:, ::2].T, out[:2])
    assert np.array_equal(out[:2].copy_to_host(), np.arange(12).reshape(3, 4).T[::2])
    fortran = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4))
    kernel[1, (3, 4)](fortran, out.reshape(3, 4))
    assert np.array_equal(out.reshape((3, 4)).copy_to_host(), fortran)
    with pytest.raises(simt.RaceError):  # two parameters, one allocation
        shifts[1, 8](out.ravel()[:8], out.ravel()[1:9])


def copies_transposed(source, out):
    x, y = cuda.grid(2)
    out[x, y] = source[x, y]


@cuda.jit
def shifts(source, out):
    i = cuda.grid(1)
    out[i] = source[i]


REFUSED = {
    "out[0] = [1, 2][0]": r"line \d+: a kernel cannot use \[1, 2\]",
    "with out: pass": "a kernel cannot contain `with`",
    "print(out[0])": "store the value in an array",
    "out[0] = np.sqrt(out[0])": "kernels use math.sqrt",
    "x = np.zeros(4)": "numpy.zeros: kernels use cuda.shared.array and cuda.local.array",
    "out[0] = np.sum(out)": "numpy.sum: kernels use loops",
    "out[0] = sum(out)": "sum is Python's own, and kernels know only range, len,",
    "try:\n        out[0] = 1\n    except ValueError:\n        pass": "a kernel cannot contain `try`: try:$",
    "out[0] = unknown": "unknown is not defined",
    "out[0] = late": "late is read before anything is assigned to it",
    "out[0] = out": "only a number goes into an array",
    "out[0, 0] = 1": "a 1-D array is indexed by 1, not 2",
    "out[0.5] = 1": "an index is an integer, not float64",
    "out[0:2] = 1": "single elements, not slices",
    "out[0] = cuda.shared.array(out.size, np.float32)[0]": "the shape must be a constant",
    "out[0] = out[0] << 2": "`<<` takes integers",
    "return 3": "a kernel returns nothing",
    "for x in out: pass": r"`for` goes over range\(...\) only",
    "out[0] = cuda.grid(4)": "the number of dimensions is a constant: 1, 2 or 3",
    "x = cuda.syncthreads()": "returns nothing that x could hold",
    "out[0] = cuda.nanosleep(1)": "a kernel cannot call cuda.nanosleep",
    "x = out if out.size else 1": "on one path and",
    "out[0] = again(1)": "again calls itself",
    "while out[0]: pass\n    else: pass": "no `else`",
    "out[0] = 'a'": "a kernel cannot use 'a'",
    "TABLE[0] = 1": "constant memory: it is only read",
    "a, b = 1, 2, 3": "cannot be unpacked into 2 names",
    "out[0] = math.atan2(1, 2)": "takes floats",
    "x = cuda.atomic.add(TABLE, 0, 1)": "atomics work on global and shared arrays",
    "shape = (1, 2); out[0] = shape[out.size]": "indexed by a constant",
    "cuda.syncthreads_or(out[0] > 1)": r"takes an integer: wrap a condition in int\(...\)",
    "x = cuda.shared.array(2 * TABLE.ndim, np.float32)": "compute it outside the kernel",
    "lambda: 1": "a kernel cannot use lambda",
}


@cuda.jit(device=True)
def again(n):
    return again(n - 1) if n > 0 else 0


@pytest.mark.parametrize("line", REFUSED)
def test_refused_by_name_and_line(line):
    text = f"def refused(out):\n    {line}\n    late = 1\n"
    name = f"<refused {abs(hash(line))}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace = {"cuda": cuda, "np": np, "math": math, "TABLE": TABLE, "again": again}
    exec(compile(text, name, "exec"), namespace)
    with pytest.raises(simt.Unsupported, match=REFUSED[line]) as refused:
        cuda.jit(namespace["refused"])[1, 1](np.zeros(4, np.float32))
    assert refused.value.lines


def test_refused_before_any_launch():
    with pytest.raises(simt.Unsupported, match="a signature"):
        cuda.jit("void(float32[:])")
    with pytest.raises(simt.Unsupported, match="link="):
        cuda.jit(link=[])(copies_transposed)
    with pytest.raises(simt.Unsupported, match="inside a kernel only"):
        cuda.syncthreads()
    with pytest.raises(simt.LaunchError, match="is a device function"):
        collatz[1, 1]
    with pytest.raises(simt.Unsupported, match="no defaults"):
        cuda.jit(lambda_with_default)[1, 1](1)


SENT = """
@cuda.jit(device=True)
def twice(x):
    return 2 * x

@cuda.jit
def sent(out):
    out[cuda.grid(1)] = twice(cuda.grid(1))  # 8
    out[cuda.grid(1) + 1] = 0  # 9
"""


def test_a_kernel_of_a_notebook_runs_in_another_process():
    # A check sends the student's kernel by value into a child process, which has never seen the notebook's cells.
    name = "<cell>"
    linecache.cache[name] = (len(SENT), None, SENT.splitlines(keepends=True), name)
    namespace = {"cuda": cuda, "__name__": "__main__"}
    exec(compile(SENT, name, "exec"), namespace)
    with pytest.raises(simt.RaceError):
        namespace["sent"][1, 4](np.zeros(8))  # compiled here, which must not hinder
    sent = cloudpickle.dumps(namespace["sent"])
    del linecache.cache[name]
    received = cloudpickle.loads(sent)
    again = cloudpickle.loads(cloudpickle.dumps(received))
    for kernel in (received, again):
        with pytest.raises(simt.RaceError) as race:
            kernel[1, 4](np.zeros(8))
        assert set(race.value.lines) == {8, 9}
        copy = pickle.loads(pickle.dumps(race.value))
        assert (copy.threads, copy.lines, str(copy)) == (race.value.threads, race.value.lines, str(race.value))


def lambda_with_default(a=1):
    pass
