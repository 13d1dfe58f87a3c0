"""One event format for every run: what each rank did and which messages it sent.

Floor 0, imports nothing of ours. Read `Span` and `Message` first, then `Trace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

KINDS = ("compute", "collective", "send", "recv", "wait", "other")


@dataclass(frozen=True, slots=True)
class Span:
    """One rank busy with one thing from `start` to `end` (seconds since the run began).

    `kind` is "compute", "collective", "send", "recv", "wait" or "other"; `stream` is 0 for the
    rank's own thread of work and 1 for communication running beside it. A collective's `detail` has
    its "group" (the ranks in it) and "sequence" (its number in that group), so that what the ranks
    did together can be found again.
    """

    rank: int
    kind: str
    name: str
    start: float
    end: float
    micro_batch: int | None = None
    stream: int = 0
    bytes: int | None = None
    detail: Mapping[str, object] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Message:
    """One point-to-point transfer: `sent` is when it began to move, `received` when it was whole (seconds)."""

    src: int
    dst: int
    bytes: int
    sent: float
    received: float


@dataclass(frozen=True)
class Trace:
    """Every span and message of one run, in order of their start.

    `world` is "simulated", "processes" (measured) or "paced".
    """

    ranks: int
    spans: tuple[Span, ...] = ()
    messages: tuple[Message, ...] = ()
    world: str = "processes"

    @classmethod
    def of(cls, ranks: int, spans: Iterable[Span], messages: Iterable[Message], world: str = "processes") -> Trace:
        """Sort by start time, then by rank, so that equal runs give equal traces."""
        return cls(
            ranks,
            tuple(sorted(spans, key=lambda s: (s.start, s.end, s.rank, s.stream, s.kind, s.name))),
            tuple(sorted(messages, key=lambda m: (m.sent, m.received, m.src, m.dst, m.bytes))),
            world,
        )

    @property
    def seconds(self) -> float:
        """End of the last event; 0.0 for an empty trace."""
        return max([s.end for s in self.spans] + [m.received for m in self.messages], default=0.0)

    @property
    def window(self) -> tuple[float, float]:
        """Start of the first event and end of the last; (0.0, 0.0) for an empty trace.

        Shares are shares of this window: the setting-up of processes before the first event is no
        part of the program.
        """
        first = min([s.start for s in self.spans] + [m.sent for m in self.messages], default=0.0)
        return first, self.seconds

    def to_chrome(self, path: str | Path) -> Path:
        """Write a file that https://ui.perfetto.dev and chrome://tracing open; returns its path.

        Raises ValueError when an event has a time that is not a finite number.
        """
        from lockstep.trace.chrome import chrome_text  # here, because chrome.py needs this module

        path = Path(path)
        path.write_text(chrome_text(self), encoding="utf-8")
        return path
