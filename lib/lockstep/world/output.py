"""What ranks print: whole lines, labelled, live, and never a flood.

Floor 1. A rank may print 200 lines at once and 20 a second after that. What is more is counted and left
out, but never its last lines, which say how it ended.
"""

from __future__ import annotations

import codecs
import sys
import time
from collections import deque

BURST = 200  # lines
PER_SECOND = 20.0
LAST = 20  # lines that are shown at the end in any case
WIDEST = 2000  # characters of a line


class Output:
    """The lines of one rank."""

    def __init__(self, rank: int, label: bool = True) -> None:
        self.label = f"[rank {rank}] " if label else ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._allowed, self._since = float(BURST), time.monotonic()
        self._left_out: deque[str] = deque(maxlen=LAST)
        self._left_out_count = 0

    def feed(self, data: bytes) -> None:
        """Show the lines that `data` completes."""
        *lines, self._rest = (self._rest + self._decode(data)).split("\n")
        self._rest = self._rest[-WIDEST * 10 :]
        now = time.monotonic()
        self._allowed = min(float(BURST), self._allowed + (now - self._since) * PER_SECOND)
        self._since = now
        shown = int(min(self._allowed, len(lines)))
        if shown:
            self._allowed -= shown
            self._show(self._note_and_forget() + lines[:shown])
        self._left_out_count += len(lines) - shown
        self._left_out.extend(lines[shown:])

    def finish(self) -> None:
        """Show what has no end of line yet, and the last of what was left out."""
        rest = [line for line in [self._rest + self._decode(b"", final=True)] if line]
        last = list(self._left_out)
        self._left_out_count -= len(last)
        self._show(self._note_and_forget() + last + rest)
        self._rest = ""

    def _note_and_forget(self) -> list[str]:
        count, self._left_out_count = self._left_out_count, 0
        self._left_out.clear()
        return [f"... {count:,} lines left out ..."] if count > 0 else []

    def _show(self, lines: list[str]) -> None:
        text = "".join(f"{self.label}{_shorten(line)}\n" for line in lines)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()


def _shorten(line: str) -> str:
    """What a terminal would show: the text after the last carriage return, of a bearable length."""
    line = line.rstrip("\r").rsplit("\r", 1)[-1]
    return line if len(line) <= WIDEST else f"{line[:WIDEST]} ... ({len(line):,} characters)"
