"""Who raced with whom: from a cell that is known to be fought over to a sentence with both threads and both lines.

Floor 0, part of `races`. Runs once, when a race was found, so it is written to be read.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.simt.errors import RaceError
from lockstep.simt.places import WARP, name

DOES = {"r": "reads it", "w": "writes it", "a": "changes it atomically"}


@dataclass(frozen=True, order=True)
class Culprit:
    """One thread's touch of the cell; `order` counts its warp's syncwarps."""

    line: int
    block: int
    lane: int
    kind: str
    order: int = 0
    text: str = ""

    def races_with(self, other: Culprit) -> bool:
        if (self.block, self.lane) == (other.block, other.lane):
            return False
        if "w" not in (self.kind, other.kind) and self.kind == other.kind:
            return False
        if self.block != other.block:
            return True
        return self.order == other.order or self.lane // WARP != other.lane // WARP


def first_pair(culprits: list[Culprit]) -> tuple[Culprit, Culprit]:
    """The pair to show: in one block if there is one, the nearest threads, the earliest lines."""
    culprits = sorted(set(culprits))
    writers = [culprit for culprit in culprits if culprit.kind != "r"]
    pairs = [(a, b) for a in writers[:200] for b in culprits[:2000] if a.races_with(b)]
    a, b = min(pairs, key=lambda pair: (pair[0].block != pair[1].block, abs(pair[0].lane - pair[1].lane), pair))
    return (a, b) if (a.block, a.lane, a.line) <= (b.block, b.lane, b.line) else (b, a)


def within_interval(races, memory, touches: list, cell: int, closed: int) -> None:
    """Raise RaceError for a cell fought over since the last barrier."""
    batch, culprits = races.batch, []
    for touch in touches:
        for at in (touch.cells == cell).nonzero()[0]:
            block, lane = divmod(int(touch.who[at]), batch.lanes)
            order = 0 if touch.order is None else int(touch.order[at])
            culprits.append(Culprit(touch.site.line, batch.first + block, lane, touch.kind, order, touch.site.text))
    a, b = first_pair(culprits)
    opened = int(races.opened[a.block - batch.first]) if a.block == b.block else -1
    raise race(batch.places, memory, cell, a, b, between(opened, closed))


def between(opened: int, closed: int) -> str:
    """Where in the kernel: -1 opened means two blocks, which no barrier orders."""
    if opened < 0:
        return ""
    if opened and closed:
        where = f" between the barriers at lines {opened} and {closed}"
        return f" between two passes of the barrier at line {opened}" if opened == closed else where
    if closed:
        return f" before the barrier at line {closed}"
    return f" after the barrier at line {opened}" if opened else " with no barrier between them"


def race(places, memory, cell: int, a: Culprit, b: Culprit, where: str) -> RaceError:
    """The error for two touches of `cell`."""
    threads = tuple(places.thread(culprit.lane) for culprit in (a, b))
    blocks = tuple(places.block_index(culprit.block) for culprit in (a, b))
    text = a.text if a.kind != "r" else b.text
    cell_name = f"{text}[{','.join(map(str, memory.index(cell)))}]"
    if a.block == b.block:
        who = f"threads {name(threads[0])} and {name(threads[1])} of block {name(blocks[0])}"
        cure = "Put cuda.syncthreads() between the two."
    else:
        who = " and ".join(
            f"thread {name(thread)} of block {name(block)}" for thread, block in zip(threads, blocks, strict=True)
        )
        cure = "Barriers never order two blocks: use cuda.atomic, or one kernel after the other."
    writers = [culprit for culprit in (a, b) if culprit.kind == "w"]
    verb = "both write" if len(writers) == 2 else "one writes" if writers else "one changes it atomically"
    if len(writers) == 2 and a.block == b.block:
        cure = "Give each thread its own cell, or use cuda.atomic."
    if a.line == b.line and a.kind == b.kind:
        lines = f"line {a.line} {DOES[a.kind]}"
    else:
        lines = f"line {a.line} {DOES[a.kind]}, line {b.line} {DOES[b.kind]}"
    return RaceError(f"{who} touch {cell_name}{where}, and {verb}: {lines}. {cure}", threads, blocks, (a.line, b.line))
