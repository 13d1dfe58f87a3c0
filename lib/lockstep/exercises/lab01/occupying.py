"""01.7 `occupancy`: how many blocks one multiprocessor takes, and what share of its warps they fill.

Floor 4, room `exercises`. `sm` is a `lockstep.simt.occupancy.Capability`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import same_value
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.symptoms import raises
from lockstep.simt.occupancy import CAPABILITIES

SYSTEM = 1024


def occupancy(sm, threads, registers, shared_bytes):
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // 256) * 256
    by_warps = sm.warps // warps
    by_registers = sm.registers // (per_warp * warps)
    by_shared = sm.shared // (shared_bytes + 1024)
    blocks = min(by_warps, sm.blocks, by_registers, by_shared)
    return blocks, blocks * warps / sm.warps


def by_trying(sm, threads, registers, shared_bytes):
    warps = math.ceil(threads / 32)
    a_warp = 256 * math.ceil(32 * registers / 256)

    def fits(n):
        enough = n * warps <= sm.warps and n * warps * a_warp <= sm.registers
        return enough and n <= sm.blocks and n * (shared_bytes + 1024) <= sm.shared

    blocks = 0
    while fits(blocks + 1):
        blocks += 1
    return blocks, blocks * warps / sm.warps


def by_the_tightest(sm, threads, registers, shared_bytes):
    warps = (threads + 31) // 32
    eights = (registers + 7) // 8  # 256 registers a warp are 8 a thread
    limits = [sm.warps / warps, sm.blocks, sm.registers / (eights * 256 * warps), sm.shared / (1024 + shared_bytes)]
    blocks = math.floor(sorted(limits)[0])
    return blocks, (blocks * warps) / (sm.threads // 32)


def occupancy_stub(sm, threads, registers, shared_bytes):
    raise NotImplementedError("blocks on one SM, and the share of its warps that they fill")


def _least(sm, warps, by_registers, by_shared, blocks=None):
    found = min(sm.warps // warps, sm.blocks if blocks is None else blocks, by_registers, by_shared)
    return found, found * warps / sm.warps


def _limits(sm, threads, registers, shared_bytes):
    warps = -(-threads // 32)
    by_registers = sm.registers // (-(-registers * 32 // 256) * 256 * warps)
    return warps, by_registers, sm.shared // (shared_bytes + SYSTEM)


def counts_threads_for_warps(sm, threads, registers, shared_bytes):
    _, by_registers, by_shared = _limits(sm, threads, registers, shared_bytes)
    blocks = min(sm.threads // threads, sm.blocks, by_registers, by_shared)
    return blocks, blocks * threads / sm.threads


def rounds_warps_down(sm, threads, registers, shared_bytes):
    return occupancy(sm, max(32, threads // 32 * 32), registers, shared_bytes)


def registers_not_rounded(sm, threads, registers, shared_bytes):
    warps, _, by_shared = _limits(sm, threads, registers, shared_bytes)
    return _least(sm, warps, sm.registers // (registers * 32 * warps), by_shared)


def registers_ignored(sm, threads, registers, shared_bytes):
    warps, _, by_shared = _limits(sm, threads, registers, shared_bytes)
    return _least(sm, warps, sm.blocks, by_shared)


def shared_ignored(sm, threads, registers, shared_bytes):
    warps, by_registers, _ = _limits(sm, threads, registers, shared_bytes)
    return _least(sm, warps, by_registers, sm.blocks)


def system_share_forgotten(sm, threads, registers, shared_bytes):
    warps, by_registers, _ = _limits(sm, threads, registers, shared_bytes)
    return _least(sm, warps, by_registers, sm.shared // shared_bytes if shared_bytes else sm.blocks)


def block_limit_forgotten(sm, threads, registers, shared_bytes):
    return _least(sm, *_limits(sm, threads, registers, shared_bytes), blocks=10**6)


def takes_the_largest(sm, threads, registers, shared_bytes):
    warps, by_registers, by_shared = _limits(sm, threads, registers, shared_bytes)
    blocks = max(sm.warps // warps, sm.blocks, by_registers, by_shared)
    return blocks, blocks * warps / sm.warps


def share_of_the_blocks(sm, threads, registers, shared_bytes):
    blocks, _ = occupancy(sm, threads, registers, shared_bytes)
    return blocks, blocks / sm.blocks


def in_percent(sm, threads, registers, shared_bytes):
    blocks, fraction = occupancy(sm, threads, registers, shared_bytes)
    return blocks, 100 * fraction


def one_block(sm, threads, registers, shared_bytes):
    blocks, fraction = occupancy(sm, threads, registers, shared_bytes)
    return blocks, fraction / max(blocks, 1)


def rounds_registers_down(sm, threads, registers, shared_bytes):
    warps, _, by_shared = _limits(sm, threads, registers, shared_bytes)
    return _least(sm, warps, sm.registers // (registers * 32 // 256 * 256 * warps), by_shared)


def parts_of_blocks(sm, threads, registers, shared_bytes):
    warps = -(-threads // 32)
    per_block = -(-registers * 32 // 256) * 256 * warps
    blocks = min(sm.warps / warps, sm.blocks, sm.registers / per_block, sm.shared / (shared_bytes + SYSTEM))
    return blocks, blocks * warps / sm.warps


def divides_by_what_is_declared(sm, threads, registers, shared_bytes):
    warps, by_registers, _ = _limits(sm, threads, registers, shared_bytes)
    return _least(sm, warps, by_registers, sm.shared // shared_bytes)


def parts(case: Case, seen: Observation, expected: Observation) -> bool:
    """A number of blocks that is no integer."""
    blocks = seen.value[0] if isinstance(seen.value, (tuple, list)) and seen.value else 0
    return isinstance(blocks, (float, np.ndarray)) and np.ndim(blocks) == 0 and float(blocks) != int(blocks)


def with_floats(fn, *args):
    """What `fn` returns; an exact fraction is as good as a float."""
    found = fn(*args)
    if isinstance(found, (tuple, list)):
        return tuple(float(one) if isinstance(one, Fraction) else one for one in found)
    return found


def occupancy_cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = int(rng.integers(3, 6)) * 128, 8 * int(rng.integers(5, 9)), 1024 * int(rng.integers(5, 20))
    kernels = (
        ("sm_80", 256, 64, 0),
        ("sm_80", 1024, 33, 0),
        ("sm_86", 1024, 32, 0),
        ("sm_80", 32, 16, 0),
        ("sm_80", 97, 32, 0),
        ("sm_80", 128, 33, 0),
        ("sm_80", 128, 32, 16 * 1024),
        ("sm_86", 128, 32, 9 * 1024 + 128),
        ("sm_80", 128, 32, 19_968),
        ("sm_80", 128, 32, 19_969),
        ("sm_89", 64, 20, 0),
        ("sm_90", *drawn),
    )
    for name, threads, registers, shared in kernels:
        said = f"{name}, {threads} threads, {registers} registers, {shared:,} bytes shared"
        yield Case(said, (CAPABILITIES[name], threads, registers, shared))


OCCUPANCY = Exercise(
    id="01.7",
    title="How many fit",
    function="occupancy",
    points=2,
    core=False,
    asks=(
        "Return `(blocks, fraction)`: how many blocks of `threads` threads, `registers` registers a thread and "
        "`shared_bytes` a block fit on one multiprocessor `sm`, and what fraction of its warps they fill. Registers are "
        "given to warps in units of 256; the system takes 1,024 bytes of shared memory for every block, and "
        "`shared_bytes` may be 0."
    ),
    reference=occupancy,
    equivalent_mutants=(  # no SM here has a number of registers that these tell apart
        "line 3: per_warp = -(-registers * 32 // 256) * 256 -> per_warp = -(-registers * 32 // 257) * 256",
        "line 3: per_warp = -(-registers * 32 // 256) * 256 -> per_warp = -(-registers * 32 // 256) * 255",
    ),
    also_right=(by_trying, by_the_tightest),
    stub=occupancy_stub,
    cases=occupancy_cases,
    observe=Call(with_floats),
    judge=same_value(),
    hints=(
        "There are four limits: warps, blocks, registers, shared memory. For each of them: how many blocks would fit if "
        "it were the only one?",
        "A block of 100 threads is 4 warps, and the last one is paid for in full. A warp's registers are 32 times "
        "`registers`, rounded up to a multiple of 256.",
        "The tightest limit counts: `blocks = min(by_warps, sm.blocks, by_registers, by_shared)`. The fraction is the "
        "warps of all these blocks over `sm.warps`.",
    ),
    mistakes=(
        Mistake(
            "takes the largest",
            takes_the_largest,
            "You take the most generous limit. All of them hold at once, so the tightest one decides.",
        ),
        Mistake(
            "counts threads, not warps",
            counts_threads_for_warps,
            "You count threads. An SM has room for warps: a block of 100 threads takes 4 of them, and the last one is "
            "paid for in full.",
        ),
        Mistake(
            "rounds warps down",
            rounds_warps_down,
            "You round the number of warps down, so a block that does not fill its last warp gets it for nothing. Round "
            "up.",
        ),
        Mistake(
            "registers not rounded",
            registers_not_rounded,
            "A warp gets its registers in units of 256: 33 for each of 32 threads are 1,056, and cost 1,280.",
        ),
        Mistake(
            "registers rounded down",
            rounds_registers_down,
            "You round a warp's registers down to a multiple of 256, so it gets fewer than it needs. It pays for the last "
            "unit in full: round up.",
        ),
        Mistake(
            "parts of blocks",
            parts_of_blocks,
            "There is no part of a block: a block runs when all of it fits. Round down to a whole number, and take the "
            "fraction from that.",
            symptom=parts,
        ),
        Mistake(
            "divides by what is declared",
            divides_by_what_is_declared,
            "A kernel may declare no shared memory at all, and you divide by it. The system's 1,024 bytes come on top, so "
            "the sum is never 0.",
            symptom=raises("ZeroDivisionError"),
        ),
        Mistake(
            "registers do not count",
            registers_ignored,
            "Registers never limit your result. The SM has a fixed number of them for all threads that are on it, and "
            "`registers` is for one thread: a warp needs 32 times as many.",
        ),
        Mistake(
            "shared memory ignored",
            shared_ignored,
            "Shared memory is missing: what the blocks declare, together, has to fit into that of the SM.",
        ),
        Mistake(
            "the system's share forgotten",
            system_share_forgotten,
            "Each block costs 1,024 bytes of shared memory more than it declares, which the system takes.",
        ),
        Mistake(
            "limit of blocks forgotten",
            block_limit_forgotten,
            "An SM has a highest number of blocks, `sm.blocks`, however small they are.",
        ),
        Mistake(
            "share of the blocks",
            share_of_the_blocks,
            "The number of blocks is right. The fraction is that of warps: blocks times warps of a block, over sm.warps.",
        ),
        Mistake(
            "in percent",
            in_percent,
            "You return percent. A fraction lies between 0 and 1.",
        ),
        Mistake(
            "fraction of one block",
            one_block,
            "The number of blocks is right, and the fraction is that of a single one: all of them fill the SM together.",
        ),
    ),
)
