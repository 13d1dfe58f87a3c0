"""How many blocks of a kernel fit on one multiprocessor, and what holds the next one back.

Floor 0. Source of the table and the rules: NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities"; registers go to
warps in units of 256, to four warps at a time; each block's shared memory costs 1 KiB more, which the system uses.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.simt.places import MOST_THREADS, WARP

REGISTER_UNIT = 256
WARP_UNIT = 4
SHARED_UNIT = 128
SYSTEM_SHARED = 1024
MOST_REGISTERS = 255


@dataclass(frozen=True)
class Capability:
    """The limits of one multiprocessor (SM); shared memory in bytes."""

    threads: int
    blocks: int
    registers: int
    shared: int
    shared_per_block: int

    @property
    def warps(self) -> int:
        return self.threads // WARP


CAPABILITIES = {
    "sm_80": Capability(2048, 32, 65536, 164 * 1024, 163 * 1024),
    "sm_86": Capability(1536, 16, 65536, 100 * 1024, 99 * 1024),
    "sm_89": Capability(1536, 24, 65536, 100 * 1024, 99 * 1024),
    "sm_90": Capability(2048, 32, 65536, 228 * 1024, 227 * 1024),
}


@dataclass(frozen=True)
class Occupancy:
    """`fraction` is the share of the SM's warps that are in use; `limited_by` names what is full."""

    blocks_per_sm: int
    fraction: float
    limited_by: str

    def __str__(self) -> str:
        blocks = "1 block" if self.blocks_per_sm == 1 else f"{self.blocks_per_sm} blocks"
        return f"{blocks} per SM, {self.fraction:.1%} of its warps, limited by {self.limited_by}"


def capability(name: str | tuple[int, int]) -> Capability:
    """The limits of "sm_80", "8.0" or (8, 0); ValueError for one that is not in the table."""
    digits = "".join(map(str, name)) if isinstance(name, tuple) else str(name).removeprefix("sm_").replace(".", "")
    if f"sm_{digits}" not in CAPABILITIES:
        raise ValueError(f"no limits are known for {name!r}; known: {', '.join(CAPABILITIES)}")
    return CAPABILITIES[f"sm_{digits}"]


def occupancy(name: str | tuple[int, int], threads: int, registers: int = 32, shared_bytes: int = 0) -> Occupancy:
    """Blocks of `threads` threads, `registers` a thread and `shared_bytes` a block on one SM of capability `name`.

    256 threads of 64 registers on sm_80: 4 blocks, 50 %. ValueError for a block that fits on no SM of this kind.
    """
    sm = capability(name)
    for what, value, least, most in (
        ("threads", threads, 1, MOST_THREADS),
        ("registers", registers, 1, MOST_REGISTERS),
        ("shared_bytes", shared_bytes, 0, sm.shared_per_block),
    ):
        if not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{what} must be an integer from {least} to {most:,}, not {value!r}")
    warps = -(-threads // WARP)
    registers_per_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    warps_by_registers = sm.registers // registers_per_warp // WARP_UNIT * WARP_UNIT
    shared = -(-shared_bytes // SHARED_UNIT) * SHARED_UNIT + SYSTEM_SHARED
    fits = {
        "warps": sm.warps // warps,
        "blocks": sm.blocks,
        "registers": warps_by_registers // warps,
        "shared memory": sm.shared // shared,
    }
    limit = min(fits, key=fits.__getitem__)
    if fits[limit] == 0:
        raise ValueError(
            f"a block of {threads:,} threads with {registers} registers each needs "
            f"{registers_per_warp * warps:,} registers, and {name} has {sm.registers:,}: make the block smaller"
        )
    return Occupancy(fits[limit], fits[limit] * warps / sm.warps, limit)
