"""07.5 `interleaved`: 1F1B with several chunks a rank.

Floor 4, room `exercises`. Narayanan et al. 2021, section 2.2.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Exercise
from lockstep.exercises.lab07 import judging
from lockstep.exercises.lab07.rounds_mistakes import MISTAKES
from lockstep.exercises.lab07.rows import written
from lockstep.exercises.lab07.shapes import of_any_schedule
from lockstep.exercises.observe import Call
from lockstep.parallel.pipeline import Action


def interleaved(stages, micro_batches, chunks):
    p, m, v = stages, micro_batches, chunks
    order = [(j, i) for first in range(0, m, p) for j in range(v) for i in range(first, first + p)]
    rows = []
    for r in range(p):
        forward = [Action("F", j * p + r, i) for j, i in order]
        backward = [Action("B", (v - 1 - j) * p + r, i) for j, i in order]
        warm_up = min((v - 1) * p + 2 * (p - 1 - r), m * v)
        row = forward[:warm_up]
        for f, b in zip(forward[warm_up:], backward, strict=False):
            row += [f, b]
        rows.append(row + backward[m * v - warm_up :])
    return rows


def by_counting(stages, micro_batches, chunks):
    """As Megatron-LM counts: the k-th forward of a rank, the k-th backward of a rank."""
    total = micro_batches * chunks

    def name(kind, rank, k):
        within = k % (stages * chunks)
        chunk, i = within // stages, k // (stages * chunks) * stages + within % stages
        if kind == "B":
            chunk = chunks - 1 - chunk
        return f"{chunk * stages + rank}{kind}{i}"

    rows = []
    for rank in range(stages):
        ahead = min(total, 2 * (stages - rank - 1) + (chunks - 1) * stages + 1)
        row = [name("F", rank, k) for k in range(ahead)]
        for k in range(total):
            row.append(name("B", rank, k))
            if ahead + k < total:
                row.append(name("F", rank, ahead + k))
        rows.append(row)
    return rows


def by_what_is_held(stages, micro_batches, chunks):
    """Forwards and backwards as two queues; forward as long as there is room."""
    rows = []
    for rank in range(stages):
        there, back = [], []
        for round_ in range(micro_batches // stages):
            batches = range(round_ * stages, (round_ + 1) * stages)
            there += [Action("F", c, i) for c in range(rank, stages * chunks, stages) for i in batches]
            back += [Action("B", c, i) for c in range(stages * (chunks - 1) + rank, rank - 1, -stages) for i in batches]
        room, held, row = (chunks - 1) * stages + 2 * (stages - 1 - rank) + 1, 0, []
        while back:
            forward = bool(there) and held < room
            row.append((there if forward else back).pop(0))
            held += 1 if forward else -1
        rows.append(row)
    return rows


def with_less_in_flight(stages, micro_batches, chunks):
    """As fast while messages take no time: the ranks in front hold fewer, and have none to spare for a message."""
    rows = []
    for r, row in enumerate(interleaved(stages, micro_batches, chunks)):
        forward, backward = ([a for a in row if a.kind == kind] for kind in "FB")
        warm_up = min((chunks - 1) * stages + stages - 1 - r, len(forward))
        pairs = [a for pair in zip(forward[warm_up:], backward, strict=False) for a in pair]
        rows.append(forward[:warm_up] + pairs + backward[len(forward) - warm_up :])
    return rows


def interleaved_stub(stages, micro_batches, chunks):
    raise NotImplementedError("a list of actions for each rank")


INTERLEAVED = Exercise(
    id="07.5",
    title="Interleaved 1F1B",
    function="interleaved",
    points=2,
    asks=(
        "Return, for each rank, the list of its actions `Action(kind, chunk, i)`, kind F or B, with `chunks` chunks a "
        "rank: chunk c is on rank c % stages. Micro-batches (a multiple of the stages) come in rounds of as many as there "
        "are stages. The bubble is that of one chunk, (p - 1)(F + B), and rank r has at most (v - 1)p + 2(p - 1 - r) + 1 "
        "in flight."
    ),
    reference=interleaved,
    also_right=(by_counting, by_what_is_held, with_less_in_flight),
    stub=interleaved_stub,
    cases=judging.sizes_of_rounds,
    observe=Call(written),
    judge=judging.INTERLEAVED,
    forbidden=("lockstep.parallel.pipeline.interleaved",),
    equivalent_mutants=(
        "line 8: warm_up = min((v - 1) * p + 2 * (p - 1 - r), m * v) -> "
        "warm_up = min((v - 1) * p + 1 * (p - 1 - r), m * v)",
    ),  # as `with_less_in_flight`
    core=False,
    hints=(
        "Write the order of a rank's forwards first: with two ranks and two chunks each, micro-batches 0 and 1 go "
        "through its first chunk, 0 and 1 through its second, then 2 and 3 through the first, and so on.",
        "The backwards come in the same order of micro-batches, but through the chunks from the last to the first. Then "
        "put the two lists together as in 1F1B: a warm-up of forwards, pairs, the backwards that are left.",
        "The warm-up of rank r: (v - 1)p forwards until the last chunk's turn comes, and one or two for every rank after "
        "this one. It is at most m v, which is all there are.",
    ),
    mistakes=(*MISTAKES, *of_any_schedule(interleaved, judging.several_chunks)),
)
