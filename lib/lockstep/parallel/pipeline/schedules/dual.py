"""DualPipeV: each rank has a chunk from the front of the model and one from its back, and works on both at once.

Floor 2, room `parallel`. Legend: p stages (ranks), m micro-batches, r rank. The chunks lie in a V: rank r holds chunk r
on the way there and chunk 2p - 1 - r on the way back, so that the last rank hands over to itself.
"""

from __future__ import annotations

from collections import deque

from lockstep.parallel.pipeline.schedule import Action, Item, Overlap, Schedule, counted
from lockstep.parallel.pipeline.schedules.lane import Lane


def dualpipev(stages: int, micro_batches: int) -> Schedule:
    """Forward of one chunk runs beside backward of the other as one action, so that each hides the other's messages.

    Raises ValueError for fewer micro-batches than chunks, 2p.
    Source: DeepSeek-AI 2024, "DeepSeek-V3 technical report", section 3.2.1, cut in half as in github.com/deepseek-ai/
    DualPipe (2025), whose eight steps these are.
    """
    p, m = counted("stages", stages), counted("micro_batches", micro_batches)
    if m < 2 * p:
        raise ValueError(f"micro_batches is {m}: DualPipeV on {p} stages needs at least {2 * p}, one for each chunk")
    return Schedule("DualPipeV", 2 * p, m, tuple(tuple(_row(r, p, m)) for r in range(p)))


def _row(r: int, p: int, m: int) -> list[Item]:
    there, back = Lane(r), Lane(2 * p - 1 - r)
    late: deque[Action] = deque()  # weight gradients that are still owed
    row: list[Item] = []

    def weights() -> None:
        if late:
            row.append(late.popleft())

    def backward(lane: Lane, split: bool) -> None:
        row.append(lane.backward("I" if split else "B"))
        if split:
            late.append(Action("W", lane.chunk, row[-1].micro_batch))

    row += [there.forward() for _ in range(2 * (p - 1 - r))]
    for _ in range(r + 1):
        row += [there.forward(), back.forward()]
    for _ in range(p - 1 - r):
        backward(back, split=True)
        weights()
        row.append(back.forward())
    for i in range(m - 2 * p + r + 1):
        pair = there.forward(), back.backward("B")
        # On the last rank the first pair would only wait for itself.
        row += pair if i == 0 and r == p - 1 else [Overlap(pair)]
        row.append(Overlap((back.forward(), there.backward("B"))))
    for _ in range(p - 1 - r):
        row.append(back.backward("B"))
        row.append(Overlap((back.forward(), there.backward("B"))))
    # From the middle of these on, weight gradients are put off to fill the gaps at the end.
    for i in range(2 * (r + 1)):
        backward(there if i % 2 else back, split=i >= r + 1)
    for _ in range(p - 1 - r):
        weights()
        backward(there, split=True)
    while late:
        weights()
    return row
