"""Schedules in the CSV of `torch.distributed.pipelining`: one row a rank, one action a cell, nothing where it pauses.

Floor 2, room `parallel`. The text of an action is torch's own ("2F0", "(0F5;7B0)OVERLAP_F_B"), so that a schedule goes
both ways: its `_load_csv(path)` reads what `write_csv` wrote, and `read_csv` reads what its `_dump_csv` wrote.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from lockstep.parallel.pipeline.schedule import Action, Item, Overlap, Schedule

_OVERLAP = re.compile(r"\(([^()]+)\)OVERLAP_F_B")
_DERIVED = re.compile(r"\d+(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)\d*")


def write_csv(schedule: Schedule, path: str | Path) -> Path:
    """Write the actions and give the path. Raises ValueError for a schedule with updates, which torch does not have."""
    if schedule.updates:
        raise ValueError(f"{schedule.name} updates weights between micro-batches, and torch's table has no such action")
    path = Path(path)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(schedule.actions)
    return path


def read_csv(path: str | Path, name: str | None = None) -> Schedule:
    """The schedule in a file; what torch adds for communication and sharding is left out, since it can be derived.

    Raises ValueError, naming the cell, for what is no action.
    """
    path = Path(path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = [list(_items(rank, row)) for rank, row in enumerate(csv.reader(file))]
    return Schedule.of(rows, name or path.stem)


def _items(rank: int, cells: list[str]) -> Iterator[Item]:
    for at, cell in enumerate(cells):
        text = cell.strip()
        if not text or _DERIVED.fullmatch(text):
            continue
        overlap = _OVERLAP.fullmatch(text)
        try:
            if overlap:
                yield Overlap(tuple(Action.parse(part) for part in overlap[1].split(";")))
            else:
                yield Action.parse(text)
        except ValueError as error:
            raise ValueError(f"row {rank}, cell {at}: {error}") from None
