"""What the simulator refuses, each with the threads and the source lines that did it.

Floor 0. A fault found while a kernel runs is a `KernelFault`; a launch that no GPU accepts is a `LaunchError`; a
construct that kernels here may not use is `Unsupported`.
"""

from __future__ import annotations


class ShownAlone(Exception):
    """An error that IPython shows by its sentence and the lines it speaks of: our frames say nothing about a cell.

    `lines` are source lines, and `quoted` the text of those that are at hand.
    """

    lines: tuple[int, ...] = ()
    quoted: tuple[tuple[int, str], ...] = ()

    def _render_traceback_(self) -> list[str]:
        said = f"{type(self).__name__}: {self}"
        return [said, *(f"  line {line}: {code}" for line, code in self.quoted)]


class KernelFault(ShownAlone, RuntimeError):
    """A kernel did what a GPU would do wrongly or not at all.

    `threads` are thread indices, `blocks` their block indices (x first, one tuple each), `lines` source lines.
    """

    def __init__(self, message: str, threads: tuple = (), blocks: tuple = (), lines: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.threads = threads
        self.blocks = blocks
        self.lines = lines


class RaceError(KernelFault):
    """Two threads touch one cell, nothing orders them, and at least one writes."""


class BarrierError(KernelFault):
    """A barrier, a shuffle or a vote that part of a block or of a warp does not reach."""


class OutOfBounds(KernelFault, IndexError):
    """An index below 0, or not below the array's size."""


class UninitializedRead(KernelFault):
    """A cell of shared or local memory, or a variable, read before anything was written there."""


class DivisionByZero(KernelFault, ZeroDivisionError):
    """An integer divided by zero."""


class EndlessLoop(KernelFault):
    """A loop that went on past the step limit."""


class LaunchError(ShownAlone, ValueError):
    """A grid, a block, arguments or an amount of shared memory that no GPU accepts."""


class Unsupported(ShownAlone, TypeError):
    """Something that a kernel may not use here; names it, its line and what to write instead."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.lines = (line,) if line else ()
