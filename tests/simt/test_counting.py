"""Counters: the textbook's cases exactly, random accesses against sets, and the order of Harris's seven steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.simt import occupancy, profile, warp_requests
from lockstep.simt.choice import simulator as cuda
from lockstep.simt.kernels import reduction, transpose, vectors
from lockstep.simt.run import patterns


@cuda.jit
def strided(x, out, stride):
    i = cuda.grid(1)
    out[i] = x[i * stride]


@cuda.jit
def column_of_tile(out):
    tile = cuda.shared.array((32, 32), np.float32)
    t = cuda.threadIdx.x
    for row in range(32):
        tile[row, t] = t
    cuda.syncthreads()
    out[t] = tile[t, 3]


@cuda.jit
def column_of_padded_tile(out):
    tile = cuda.shared.array((32, 33), np.float32)
    t = cuda.threadIdx.x
    for row in range(32):
        tile[row, t] = t
    cuda.syncthreads()
    out[t] = tile[t, 3]


def test_textbook_sectors_and_banks():
    x, out = np.zeros(4096, np.float32), np.zeros(64, np.float32)
    assert profile(strided, 2, 32, x, out, 1).sectors_per_request == 4
    report = profile(strided, 2, 32, x, out, 32)
    loads = next(line for line in report.lines if "x[i * stride]" in line.text).counts
    assert (loads.global_requests, loads.sectors) == (4, 2 * 32 + 2 * 4)
    assert (report.bytes_requested, report.bytes_moved) == (2 * 64 * 4, 72 * 32)
    assert profile(strided, 2, 32, x.astype(np.float64), out.astype(np.float64), 1).sectors_per_request == 8
    assert profile(column_of_tile, 1, 32, out).bank_conflict == 32
    assert profile(column_of_padded_tile, 1, 32, out).bank_conflict == 1


@cuda.jit
def half_a_warp(x, out):
    t = cuda.threadIdx.x
    if t < 16:
        out[t] = x[0]
    else:
        out[t] = x[t] * np.float32(2) + np.float32(1)
    cuda.syncthreads()


def test_branches_idle_lanes_flops_and_barriers():
    x, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    report = profile(half_a_warp, 1, 64, x, out)
    counts = {line.text: line.counts for line in report.lines}
    assert counts["if t < 16:"].divergent_branches == report.divergent_branches == 1
    assert counts["if t < 16:"].branches == 2
    assert counts["out[t] = x[0]"].idle_lanes == 16
    assert counts["out[t] = x[0]"].sectors == 1 + 2  # one word for all, and 64 bytes written
    assert report.flops == 2 * 48 and report.barriers == 1
    assert (report.reads_per_thread, report.writes_per_thread) == (1, 1)
    text = str(report)
    assert "1 of 2 branches diverge" in text and "model" in text and "out[t] = x[0]" in text
    uneven = profile(vectors.vector_add, 1, 40, x, x, out)
    assert uneven.idle_share == pytest.approx(24 / 64)


@cuda.jit
def meets(counts, which):
    mine = cuda.shared.array(32, np.int32)
    t = cuda.threadIdx.x
    mine[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(mine, which[t], 1)
    cuda.syncthreads()
    cuda.atomic.add(counts, 0, mine[t])


def test_contention_of_atomics():
    which = np.array([0] * 5 + [1] * 3 + list(range(8, 32)), np.int32)
    report = profile(meets, 1, 32, np.zeros(1, np.int32), which)
    assert {line.counts.atomic_conflict for line in report.lines if line.counts.atomics} == {5, 32}
    assert report.total.atomics == 64


addresses = st.lists(st.one_of(st.none(), st.integers(0, 300)), min_size=32, max_size=32).filter(any)


@settings(max_examples=25, deadline=None)
@given(st.lists(addresses, min_size=1, max_size=3), st.sampled_from([1, 2, 4]))
def test_patterns_equal_what_sets_say(warps, itemsize):
    cells = np.array([[at if at is not None else 10**6 for at in warp] for warp in warps])
    active = np.array([[at is not None for at in warp] for warp in warps])
    for count, period, expected in (
        (patterns.sectors, 32 // itemsize, lambda at: len({a * itemsize // 32 for a in at})),
        (patterns.bank_ways, 128 // itemsize, lambda at: ways({a * itemsize // 4 for a in at})),
    ):
        rows, times = patterns.distinct_rows(cells, active, period)
        total = int((count(rows, itemsize) * times).sum())
        assert total == sum(expected([at for at in warp if at is not None]) for warp in warps)


def ways(words: set[int]) -> int:
    return max(sum(word % 32 == bank for word in words) for bank in range(32))


def test_many_alike_warps_are_counted_like_few():
    rng = np.random.default_rng(0)
    few = rng.integers(0, 200, (3, 32))
    many = few[rng.integers(0, 3, 500)]
    rows, times = patterns.distinct_rows(many, None, 8)
    assert times.sum() == 500
    assert (patterns.sectors(rows, 4) * times).sum() == patterns.sectors(many, 4).sum()


def test_a_good_transpose_shows():
    matrix = np.zeros((64, 64), np.float32)
    naive, tiled, padded = (
        profile(kernel, (2, 2), (32, 8), matrix, matrix.copy())
        for kernel in (transpose.transpose_naive, transpose.transpose_tiled, transpose.transpose_padded)
    )
    assert [report.sectors_per_request for report in (naive, tiled, padded)] == [18, 4, 4]
    assert [report.bank_conflict for report in (naive, tiled, padded)] == [1, 32, 1]
    assert [report.worst_sectors for report in (naive, tiled, padded)] == [32, 4, 4]
    assert naive.bytes_moved == 4.5 * padded.bytes_moved
    assert naive.modelled_seconds("A100") > padded.modelled_seconds("A100")


def test_one_warp_s_requests():
    matrix = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    requests = warp_requests(transpose.transpose_tiled, (2, 2), (32, 8), matrix, matrix.copy(), of_block=3, warp=2)
    assert [(request.array, request.space, request.kind) for request in requests[:2]] == [
        ("source", "global", "r"),
        ("tile", "shared", "w"),
    ]
    assert requests[0].cells == tuple((32 + 2) * 64 + 32 + lane for lane in range(32))
    assert len(requests) == 16
    reads = [request for request in requests if (request.array, request.kind) == ("tile", "r")]
    assert set(reads[0].banks) == {2} and reads[0].cost == 32
    assert requests[0].cost == 4 == len(set(requests[0].sectors))
    one = warp_requests(vectors.vector_add, 1, 40, *(np.zeros(35, np.float32) for _ in range(3)), warp=1)
    assert one[0].cells == (32, 33, 34) + (None,) * 29 and one[0].cost == 1
    with pytest.raises(ValueError, match="warps 0 to 1, no warp 2"):
        warp_requests(vectors.vector_add, 1, 40, *(np.zeros(35, np.float32) for _ in range(3)), warp=2)


def test_harris_s_order():
    """Harris 2007, slide 35: each of the seven steps takes less time than the one before (8.054 ms to 0.268 ms)."""
    numbers = np.ones(1 << 15, np.int32)
    passes = []
    for step, kernel in enumerate(reduction.STEPS, 1):
        stretch = reduction.THREADS * (1 if step < 4 else 2)
        grid = numbers.size // stretch if step < 7 else 16
        passes.append(profile(kernel, grid, reduction.THREADS, numbers, np.zeros(grid, np.int32)).issued)
    assert passes == sorted(passes, reverse=True) and len(set(passes)) == 7, passes


def test_occupancy():
    assert occupancy("sm_80", 256, registers=64).fraction == 0.5
    assert occupancy("sm_80", 256, registers=64).blocks_per_sm == 4
    assert occupancy((8, 0), 1024, registers=33).fraction == 0.5
    assert occupancy((8, 0), 1024, registers=33).blocks_per_sm == 1
    assert occupancy("8.6", 1024).fraction == pytest.approx(2 / 3)
    assert occupancy("sm_80", 32, registers=16).limited_by == "blocks"
    by_shared = occupancy("sm_80", 128, shared_bytes=40_000)
    assert (by_shared.blocks_per_sm, by_shared.limited_by) == (4, "shared memory")
    assert str(by_shared) == "4 blocks per SM, 25.0% of its warps, limited by shared memory"
    assert profile(column_of_tile, 1, 32, np.zeros(32, np.float32)).occupancy("sm_80").blocks_per_sm == 32
    for arguments, words in (
        (("sm_70", 256), "known: sm_80"),
        (("sm_80", 1025), "threads must be"),
        (("sm_80", 256, 300), "registers must be"),
        (("sm_86", 256, 32, 100 * 1024), "shared_bytes must be"),
        (("sm_80", 1024, 100), "make the block smaller"),
    ):
        with pytest.raises(ValueError, match=words):
            occupancy(*arguments)
