"""Runs side by side in one table: how fast, how well the ranks were used, what was sent.

Floor 0. A run is anything with `.trace`, `.traffic` and `.seconds`.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lockstep.trace.events import Trace
from lockstep.trace.measures import usage
from lockstep.trace.units import show_bytes, show_number, show_seconds, show_share


class Finished(Protocol):
    """What `report` reads of a run."""

    trace: Trace
    traffic: Sequence[Any]
    seconds: float


# column: heading, and how a value is shown
COLUMNS = {
    "run": ("run", str),
    "world": ("world", str),
    "ranks": ("ranks", str),
    "seconds": ("time", show_seconds),
    "samples_per_second": ("samples/s", show_number),
    "speed_up": ("speed-up", "{:.2f}×".format),
    "efficiency": ("efficiency", show_share),
    "bytes_per_step": ("bytes/step, busiest rank", show_bytes),
    "exposed_seconds": ("exposed communication", show_seconds),
    "idle_share": ("idle", show_share),
    "peak_memory": ("peak memory", show_bytes),
    "accuracy": ("accuracy", "{:.1%}".format),
    "seconds_to_accuracy": ("time to accuracy", show_seconds),
}
OPTIONAL = ("samples_per_second", "peak_memory", "accuracy", "seconds_to_accuracy")


@dataclass(frozen=True)
class Report:
    """A table of runs: `rows` are plain dictionaries (None where nothing was measured); shows as text and as HTML."""

    rows: tuple[Mapping[str, Any], ...]
    note: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Keys of the columns shown: optional ones only where some run has a value."""
        return tuple(c for c in COLUMNS if c not in OPTIONAL or any(row[c] is not None for row in self.rows))

    def cells(self) -> list[list[str]]:
        """The table as text, headings first."""
        table = [[COLUMNS[c][0] for c in self.columns]]
        for row in self.rows:
            table.append(["–" if row[c] is None else COLUMNS[c][1](row[c]) for c in self.columns])
        return table

    def __repr__(self) -> str:
        table = self.cells()
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        lines = []
        for line in table:
            padded = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
            lines.append("  ".join(padded).rstrip())
        return "\n".join([*lines, self.note])

    def _repr_html_(self) -> str:
        heading, *body = self.cells()
        head = "".join(f'<th scope="col">{html.escape(c)}</th>' for c in heading)
        rows = "".join(
            f'<tr style="white-space: nowrap"><th scope="row">{html.escape(line[0])}</th>'
            + "".join(f"<td>{html.escape(c)}</td>" for c in line[1:])
            + "</tr>"
            for line in body
        )
        caption = f'<caption style="caption-side: bottom; text-align: left">{html.escape(self.note)}</caption>'
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def report(
    runs: Mapping[str, Finished],
    *,
    samples: int | Mapping[str, int] | None = None,
    steps: int = 1,
    baseline: str | None = None,
    peak_memory: Mapping[str, int] | None = None,
    accuracy: Mapping[str, float] | None = None,
    seconds_to_accuracy: Mapping[str, float] | None = None,
) -> Report:
    """Compare runs by name; speed-up and efficiency are relative to `baseline` (the first, if not named).

    samples: images that a run worked through, all ranks together; one number, or one per run.
    steps: training steps in each run.
    peak_memory (bytes), accuracy (0 to 1), seconds_to_accuracy: per run; shown only when given.

    speed-up = throughput / throughput of the baseline, efficiency = speed-up / (ranks / its ranks), with
    throughput = samples / seconds. With the same `samples` in every run (or none given) that is strong
    scaling; with samples that grow with the ranks it is weak scaling.
    bytes/step = what the busiest rank sent, its share of a backend's collectives as they should be included.
    exposed communication (seconds) and idle are means over the ranks; both need a trace, `measures` defines them.
    Raises ValueError when there is no run, or a name is not among the runs.
    """
    if not runs:
        raise ValueError("report() needs at least one run: report({'1 rank': run1, '4 ranks': run4}).")
    base = next(iter(runs)) if baseline is None else baseline
    given = {"peak_memory": peak_memory, "accuracy": accuracy, "seconds_to_accuracy": seconds_to_accuracy}
    given = {key: dict(value or {}) for key, value in given.items()}
    counts = dict(samples) if isinstance(samples, Mapping) else dict.fromkeys(runs, samples)
    for name in {base, *counts, *(n for values in given.values() for n in values)}:
        if name not in runs:
            raise ValueError(f"There is no run {name!r}; the runs are {', '.join(map(repr, runs))}.")
    if steps < 1:
        raise ValueError(f"steps is {steps}; a run has at least one step.")

    def throughput(name: str) -> float | None:
        """Samples per second, or runs per second where samples are not known."""
        work = counts.get(name) or (1 if not any(counts.values()) else None)
        return work / runs[name].seconds if work and runs[name].seconds > 0 else None

    rows = []
    for name, run in runs.items():
        rate, base_rate = throughput(name), throughput(base)
        speed_up = rate / base_rate if rate and base_rate else None
        row = {"run": name, "world": run.trace.world, "ranks": run.trace.ranks, "seconds": run.seconds}
        row["samples_per_second"] = rate if counts.get(name) else None
        row["speed_up"] = speed_up
        row["efficiency"] = speed_up * runs[base].trace.ranks / run.trace.ranks if speed_up else None
        row["bytes_per_step"] = _busiest(run.traffic) / steps if run.traffic else None
        rows.append(row | _shares(run.trace) | {key: values.get(name) for key, values in given.items()})
    return Report(tuple(rows), f"Speed-up and efficiency relative to {base!r}.")


def _busiest(traffic: Sequence[Any]) -> int:
    """Bytes sent by the rank that sent most; a backend's collectives as `nominal` lists them."""
    return max(t.bytes_sent + sum(t.nominal.values()) for t in traffic)


def _shares(trace: Trace) -> dict[str, float | None]:
    if not trace.spans:
        return {"exposed_seconds": None, "idle_share": None}
    parts = usage(trace)
    return {
        "exposed_seconds": sum(u.exposed for u in parts) / len(parts),
        "idle_share": sum(u.share("idle") for u in parts) / len(parts),
    }
