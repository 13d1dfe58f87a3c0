"""The race finder against all pairs of all accesses: random little programs, and the ways in which it saves work."""

import linecache
import random

import numpy as np
import pytest

from lockstep import simt
from lockstep.simt.choice import simulator as cuda
from lockstep.simt.kernel import Kernel
from lockstep.simt.run import memory, races
from lockstep.simt.slow import run_slowly

SHARED = ("t", "t", "t", "(t + 1) % 64", "t // 2", "0", "t ^ 1", "(t + 32) % 64", "t % 32", "63 - t")
GLOBAL = ("i", "i", "i", "(i + 1) % g.size", "t", "0", "i ^ 1")
GUARDS = ("", "", "", "if t < 32: ", "if t % 2: ", "if t == 0: ", "if t >= 32: ", "if cuda.blockIdx.x == 0: ")


def make(seed: int) -> Kernel:
    """A kernel of a few accesses to 64 shared cells and to `g`, with barriers and syncwarps between some of them."""
    rng = random.Random(seed)
    lines = ["def accesses(g):", "    i = cuda.grid(1)", "    t = cuda.threadIdx.x", "    v = 0"]
    lines += ["    s = cuda.shared.array(64, np.int32)", "    s[t] = t", "    cuda.syncthreads()"]
    for _ in range(rng.randint(2, 5)):
        how = rng.random()
        if how < 0.3:
            lines.append(f"    {rng.choice(['cuda.syncthreads()', 'cuda.syncthreads()', 'cuda.syncwarp()'])}")
            continue
        array, index = ("s", rng.choice(SHARED)) if rng.random() < 0.7 else ("g", rng.choice(GLOBAL))
        access = rng.choice(
            [f"{array}[{index}] = t", f"v += {array}[{index}]", f"v += {array}[{index}]"]
            + [f"cuda.atomic.add({array}, {index}, 1)"] * rng.randint(0, 1)
        )
        lines.append(f"    {rng.choice(GUARDS)}{access}")
    text = "\n".join(lines) + "\n"
    name = f"<accesses {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict = {"cuda": cuda, "np": np}
    exec(compile(text, name, "exec"), namespace)
    return Kernel(namespace["accesses"])


def verdict(run, *arguments) -> str:
    try:
        run(*arguments)
    except simt.RaceError as race:
        assert len(race.threads) == len(race.blocks) == len(race.lines) == 2
        assert (race.threads[0], race.blocks[0]) != (race.threads[1], race.blocks[1])
        return "race"
    return "none"


def disagreements(seeds: range) -> tuple[list[int], int]:
    """(seeds on which the machines disagree, how many race)."""
    wrong, found = [], 0
    for seed in seeds:
        kernel, blocks = make(seed), 1 + seed % 2
        expected = verdict(run_slowly, kernel[blocks, 64], np.zeros(128, np.int32))
        found += expected == "race"
        if verdict(kernel[blocks, 64], np.zeros(128, np.int32)) != expected:
            wrong.append(seed)
    return wrong, found


def test_random_accesses():
    wrong, found = disagreements(range(36))
    assert not wrong
    assert 8 < found < 28, found


def test_a_full_log_is_thinned_out_and_forgets_nothing(monkeypatch):
    monkeypatch.setattr(memory, "LOG_LIMIT", 100)
    monkeypatch.setattr(races, "LOG_LIMIT", 100)
    assert not disagreements(range(60, 72))[0]


@cuda.jit
def ragged(out):
    tile = cuda.shared.array(32, np.int32)
    t = cuda.threadIdx.x
    tile[t] = t
    cuda.syncthreads()
    for _ in range(cuda.blockIdx.x):
        other = tile[31 - t]
        cuda.syncthreads()
        tile[t] = other + 1
        cuda.syncthreads()
    out[cuda.grid(1)] = tile[t]


@cuda.jit
def ragged_without_barrier(out):
    tile = cuda.shared.array(32, np.int32)
    t = cuda.threadIdx.x
    tile[t] = t
    cuda.syncthreads()
    for _ in range(cuda.blockIdx.x):
        other = tile[31 - t]
        tile[t] = other + 1
        cuda.syncthreads()
    out[cuda.grid(1)] = tile[t]


def test_blocks_that_pass_barriers_a_different_number_of_times():
    fast, slow = np.zeros(128, np.int64), np.zeros(128, np.int64)
    ragged[4, 32](fast)
    run_slowly(ragged[4, 32], slow)
    assert np.array_equal(fast, slow)
    with pytest.raises(simt.RaceError) as race:
        ragged_without_barrier[4, 32](fast)
    assert race.value.blocks[0] == (1,)  # block 0 never enters the loop


@cuda.jit
def writes_in_two_launches(out, shift):
    out[(cuda.grid(1) + shift) % out.size] = 1


def test_one_launch_does_not_race_with_the_next():
    out = cuda.to_device(np.zeros(64, np.int32))
    writes_in_two_launches[2, 32](out, 0)
    writes_in_two_launches[2, 32](out, 1)


def test_a_race_explains_what_follows_from_it():
    # The unsynchronised read gives an index that is out of bounds; the race is the cause, and is what is reported.
    with pytest.raises(simt.RaceError):
        index_from_a_race[1, 64](np.zeros(64, np.int32))


@cuda.jit
def index_from_a_race(out):
    where = cuda.shared.array(64, np.int32)
    t = cuda.threadIdx.x
    where[63 - t] = t * 10
    out[where[t]] = 1
