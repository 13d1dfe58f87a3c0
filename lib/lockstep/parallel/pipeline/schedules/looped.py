"""Schedules in which the model goes round the ranks several times: interleaved 1F1B and looped BFS.

Floor 2, room `parallel`. Legend: p stages (ranks), m micro-batches, v chunks a rank, r rank. Rank r holds the chunks
r, r + p, r + 2p, ...: after the last rank comes the first again.

Interleaved 1F1B takes micro-batches in *rounds* of k: k through the rank's first chunk, the same k through its second,
..., then the next k. Backward goes through the chunks from the last to the first in the same way.
"""

from __future__ import annotations

from lockstep.parallel.pipeline.schedule import Action, Schedule, counted


def interleaved(stages: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """1F1B with `chunks` chunks of the model on each rank: a bubble of (p - 1)(F + B) with F and B of one chunk.

    With m >= p a chunk's F and B are v times smaller than a stage's, and so is the bubble. There are max(1, m // p)
    rounds. Raises ValueError when m is no multiple of that number.
    Source: Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters", section 2.2.
    """
    p, m, v = counted("stages", stages), counted("micro_batches", micro_batches), counted("chunks", chunks)
    rounds = max(1, m // p)
    k = m // rounds
    if m % rounds:
        raise ValueError(
            f"micro_batches is {m}: {p} stages take them in {rounds} rounds, which must be equal. "
            f"Use {m - m % rounds} or {m - m % rounds + rounds}."
        )
    rows = []
    for r in range(p):
        forward = [Action("F", j * p + r, i) for j, i in _in_rounds(m, v, k)]
        backward = [Action("B", (v - 1 - j) * p + r, i) for j, i in _in_rounds(m, v, k)]
        warm_up = min((v - 1) * k + 2 * (p - 1 - r), m * v)
        row = forward[:warm_up]
        for f, b in zip(forward[warm_up:], backward, strict=False):
            row += [f, b]
        rows.append(tuple(row + backward[m * v - warm_up :]))
    return Schedule("interleaved 1F1B", p * v, m, tuple(rows))


def looped_bfs(stages: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """All micro-batches through a rank's first chunk, then all through its second, ..., and back the same way.

    Breadth first: GPipe with `chunks` chunks a rank, and with all m v of them in flight.
    Source: Lamy-Poirier 2023, "Breadth-first pipeline parallelism", section 4.
    """
    p, m, v = counted("stages", stages), counted("micro_batches", micro_batches), counted("chunks", chunks)
    rows = []
    for r in range(p):
        own = range(r, p * v, p)
        row = [Action("F", chunk, i) for chunk in own for i in range(m)]
        rows.append(tuple(row + [Action("B", chunk, i) for chunk in reversed(own) for i in reversed(range(m))]))
    return Schedule("looped BFS", p * v, m, tuple(rows))


def _in_rounds(m: int, v: int, k: int) -> list[tuple[int, int]]:
    """(chunk on the rank, micro-batch), k micro-batches at a time through each of the v chunks."""
    return [(j, i) for first in range(0, m, k) for j in range(v) for i in range(first, first + k)]
