"""What a kernel did, counted: `profile(kernel, grid, block, *arguments)`.

Floor 0. The kernel runs in the simulator, also where `cuda` is Numba's and a GPU is at hand. Caches are not modelled, so
bytes moved are an upper bound; the seconds come from a roofline and are labelled as a model wherever they are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lockstep.hardware import DEVICES, Device
from lockstep.simt.kernel import Kernel, Launch, simulated
from lockstep.simt.occupancy import Occupancy, occupancy
from lockstep.simt.places import WARP, Places, places
from lockstep.simt.run.counting import Counters, LineCounts
from lockstep.simt.run.patterns import SECTOR
from lockstep.simt.run.recording import Recorder, Request
from lockstep.trace.units import show_bytes, show_number, show_seconds, show_share


@dataclass(frozen=True)
class Line:
    """One source line of the kernel, or of a device function, with its counts."""

    function: str
    number: int
    text: str
    counts: LineCounts


@dataclass(frozen=True)
class Report:
    """Counts of one launch; `total` sums the lines. Bytes are those of global memory."""

    name: str
    places: Places
    lines: tuple[Line, ...]
    total: LineCounts
    shared_bytes: int

    @property
    def sectors_per_request(self) -> float:
        """Mean 32-byte sectors that a warp's access to global memory touches; 0 without any."""
        return self.total.sectors / self.total.global_requests if self.total.global_requests else 0.0

    @property
    def worst_sectors(self) -> int:
        """Sectors of the worst request to global memory."""
        return self.total.worst_sectors

    @property
    def bank_conflict(self) -> int:
        """Ways of the worst request to shared memory: 1 is no conflict."""
        return max(1, self.total.bank_conflict)

    @property
    def divergent_branches(self) -> int:
        """How often a warp's lanes parted at an `if`, a `while` or a `for`."""
        return self.total.divergent_branches

    @property
    def barriers(self) -> float:
        """Barriers that a block passes, on average."""
        mean = self.total.barriers / self.places.blocks
        return int(mean) if mean == int(mean) else mean

    @property
    def bytes_requested(self) -> int:
        return self.total.bytes_requested

    @property
    def bytes_moved(self) -> int:
        """Sectors times 32 bytes."""
        return self.total.sectors * SECTOR

    @property
    def flops(self) -> int:
        return self.total.flops

    @property
    def intensity(self) -> float:
        """Floating-point operations for each byte moved; infinite where nothing moves."""
        return self.flops / self.bytes_moved if self.bytes_moved else float("inf")

    @property
    def reads_per_thread(self) -> float:
        """Reads of global memory."""
        return self.total.global_reads / (self.places.threads * self.places.blocks)

    @property
    def writes_per_thread(self) -> float:
        """Writes to global memory."""
        return self.total.global_writes / (self.places.threads * self.places.blocks)

    @property
    def idle_share(self) -> float:
        """Share of lanes that stood by while their warp executed a statement."""
        return self.total.idle_lanes / (self.total.steps * WARP) if self.total.steps else 0.0

    @property
    def issued(self) -> int:
        """Instructions that warps issue, estimated, with one more for each replay of a shared-memory request."""
        return self.total.instructions + self.total.shared_passes - self.total.shared_requests

    def occupancy(self, capability: str | tuple[int, int] = "sm_80", registers: int = 32) -> Occupancy:
        """This block size and this much shared memory on one SM; `registers` a thread are for you to declare."""
        return occupancy(capability, self.places.threads, registers, self.shared_bytes)

    def modelled_seconds(self, device: Device | str = "A100", dtype: str = "float32") -> float:
        """A model, not a measurement: the longer of flops / peak and bytes moved / bandwidth. No caches, no latency.

        Source: Williams, Waterman, Patterson 2009, "Roofline", section 3.
        """
        chosen = DEVICES[device] if isinstance(device, str) else device
        return max(self.flops / chosen.rate(dtype), self.bytes_moved / chosen.memory_bandwidth)

    def __str__(self) -> str:
        return "\n".join([*_summary(self), "", *_table(self)])

    def _repr_pretty_(self, printer, cycle: bool) -> None:
        printer.text(str(self))


def profile(
    kernel: Kernel | Callable,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *arguments: object,
    shared_bytes: int = 0,
) -> Report:
    """Run `kernel[grid, block](*arguments)` in the simulator and count what it does.

    Arrays are written as in a launch; `shared_bytes` is the dynamic shared memory. Raises what a launch raises.
    """
    chosen, counters = simulated(kernel), Counters()
    shape = places(grid, block)
    program = Launch(chosen, shape, shared_bytes).run(arguments, counters)
    texts = {part.source.function: part.source.lines for part in program.used}
    total = LineCounts()
    lines = []
    for (part, number), counts in sorted(counters.lines.items()):
        function = program.sources[part]
        total.add(counts)
        lines.append(Line(function.__name__, number, texts[function][number].strip(), counts))
    return Report(chosen.__name__, shape, tuple(lines), total, program.shared_bytes + shared_bytes)


def warp_requests(
    kernel: Kernel | Callable,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *arguments: object,
    of_block: int = 0,
    warp: int = 0,
    shared_bytes: int = 0,
) -> tuple[Request, ...]:
    """Every access to global and shared memory of one warp, in order: number `warp` of block number `of_block`.

    The launch runs in the simulator as in `profile`. ValueError for a warp or a block that it does not have.
    """
    shape = places(grid, block)
    for what, number, count in (("block", of_block, shape.blocks), ("warp", warp, shape.lanes // WARP)):
        if not 0 <= number < count:
            raise ValueError(f"this launch has {what}s 0 to {count - 1}, no {what} {number}")
    recorder = Recorder(of_block, warp)
    Launch(simulated(kernel), shape, shared_bytes).run(arguments, recorder)
    return tuple(recorder.requests)


def _summary(report: Report) -> list[str]:
    total, shape = report.total, report.places
    grid, block = ("x".join(map(str, sizes)) for sizes in (shape.grid, shape.block))
    rows = [f"{report.name}: grid {grid}, block {block}, {shape.threads * shape.blocks:,} threads"]
    if total.global_requests:
        share = report.bytes_requested / report.bytes_moved
        useful = f" ({show_share(share)} used)" if share <= 1 else ", as lanes share what they read"
        rows.append(
            f"  global memory  {total.global_requests:,} requests of {show_number(report.sectors_per_request)} sectors; "
            f"{show_bytes(report.bytes_requested)} requested, {show_bytes(report.bytes_moved)} moved{useful}"
        )
        rows.append(
            f"  a thread       reads {show_number(report.reads_per_thread)} and writes "
            f"{show_number(report.writes_per_thread)} elements of global memory"
        )
    if total.shared_requests:
        conflict = "no bank conflict" if report.bank_conflict == 1 else f"{report.bank_conflict}-way bank conflict"
        rows.append(
            f"  shared memory  {total.shared_requests:,} requests in {total.shared_passes:,} passes: {conflict}; "
            f"{report.shared_bytes:,} bytes a block"
        )
    if total.atomics:
        rows.append(f"  atomics        {total.atomics:,}, at most {total.atomic_conflict} lanes of a warp on one cell")
    rows.append(
        f"  warps          {total.divergent_branches:,} of {total.branches:,} branches diverge, "
        f"{show_share(report.idle_share)} of lanes idle, {show_number(report.barriers)} barriers a block"
    )
    seconds = show_seconds(report.modelled_seconds())
    intensity = "no traffic" if not report.bytes_moved else f"{show_number(report.intensity)} FLOP a byte"
    rows.append(f"  model          {seconds} on an A100 by its roofline, without caches or latency ({intensity})")
    return rows


COLUMNS = (
    ("line", lambda line: str(line.number)),
    ("warps", lambda line: f"{line.counts.steps:,}"),
    ("idle", lambda line: show_share(line.counts.idle_lanes / (line.counts.steps * WARP)) if line.counts.steps else ""),
    ("parted", lambda line: f"{line.counts.divergent_branches:,}" if line.counts.branches else ""),
    ("sectors", lambda line: _ratio(line.counts.sectors, line.counts.global_requests)),
    ("ways", lambda line: str(line.counts.bank_conflict or "")),
    ("atomic", lambda line: str(line.counts.atomic_conflict or "")),
)


def _ratio(count: int, requests: int) -> str:
    return show_number(count / requests) if requests else ""


def _table(report: Report) -> list[str]:
    rows = [[name for name, _ in COLUMNS], *([show(line) for _, show in COLUMNS] for line in report.lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = ["source", *(line.text for line in report.lines)]
    shown = [
        "  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), text])
        for row, text in zip(rows, texts, strict=True)
    ]
    for at in range(len(report.lines) - 1, 0, -1):
        if report.lines[at].function != report.lines[at - 1].function:
            shown.insert(at + 1, f"  in {report.lines[at].function}:")
    return shown
