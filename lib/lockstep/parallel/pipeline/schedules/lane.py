"""One chunk's micro-batches, in order, forward and backward.

Floor 2, room `parallel`.
"""

from __future__ import annotations

from lockstep.parallel.pipeline.schedule import Action


class Lane:
    """Counts a chunk's micro-batches: each call gives the action of the next one of its kind."""

    def __init__(self, chunk: int) -> None:
        self.chunk, self.forwards, self.backwards, self.weights = chunk, 0, 0, 0

    def forward(self) -> Action:
        """F of the next micro-batch."""
        self.forwards += 1
        return Action("F", self.chunk, self.forwards - 1)

    def backward(self, kind: str = "I") -> Action:
        """B or I of the next micro-batch."""
        self.backwards += 1
        return Action(kind, self.chunk, self.backwards - 1)

    def weight(self) -> Action:
        """W of the next micro-batch."""
        self.weights += 1
        return Action("W", self.chunk, self.weights - 1)
