"""07.5 `interleaved`: 1F1B with several chunks a rank.

Floor 4, room `exercises`. Narayanan et al. 2021, section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.lab07.rows import Size, each_on_its_rank, holds_at_most, schedule_that, takes_at_most, written
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
    return built(stages, micro_batches, chunks, warm_up=lambda r: (chunks - 1) * stages + stages - 1 - r)


def interleaved_stub(stages, micro_batches, chunks):
    raise NotImplementedError("a list of actions for each rank")


def built(stages, micro_batches, chunks, order=None, warm_up=None, back=None, place=None):
    """The mistakes: any part of the reference in another way."""
    p, m, v = stages, micro_batches, chunks
    place = place or (lambda j, r: j * p + r)
    order = order or [(j, i) for first in range(0, m, p) for j in range(v) for i in range(first, first + p)]
    rows = []
    for r in range(p):
        forward = [Action("F", place(j, r), i) for j, i in order]
        backward = [Action("B", place((back or (lambda j: v - 1 - j))(j), r), i) for j, i in order]
        first = min(max(0, (warm_up or (lambda r: (v - 1) * p + 2 * (p - 1 - r)))(r)), m * v)
        row = forward[:first]
        for f, b in zip(forward[first:], backward, strict=False):
            row += [f, b]
        rows.append(row + backward[m * v - first :])
    return rows


def chunks_in_a_block(stages, micro_batches, chunks):
    return built(stages, micro_batches, chunks, place=lambda j, r: r * chunks + j)


def warm_up_of_1f1b(stages, micro_batches, chunks):
    return built(stages, micro_batches, chunks, warm_up=lambda r: stages - 1 - r)


def warm_up_one_long(stages, micro_batches, chunks):
    return built(
        stages, micro_batches, chunks, warm_up=lambda r: (chunks - 1) * stages + 2 * (stages - 1 - r) + 1
    )  # fmt: skip


def back_through_the_first_chunk_first(stages, micro_batches, chunks):
    return built(stages, micro_batches, chunks, back=lambda j: j)


def all_through_the_first_chunk(stages, micro_batches, chunks):
    order = [(j, i) for j in range(chunks) for i in range(micro_batches)]
    return built(
        stages, micro_batches, chunks, order, lambda r: (chunks - 1) * micro_batches + 2 * (stages - 1 - r)
    )  # fmt: skip


def each_through_all_chunks(stages, micro_batches, chunks):
    return built(stages, micro_batches, chunks, [(j, i) for i in range(micro_batches) for j in range(chunks)])


def breadth_first(stages, micro_batches, chunks):
    own = [range(r, stages * chunks, stages) for r in range(stages)]
    return [
        [Action("F", c, i) for c in mine for i in range(micro_batches)]
        + [Action("B", c, i) for c in reversed(mine) for i in reversed(range(micro_batches))]
        for mine in own
    ]


def one_chunk_a_rank(stages, micro_batches, chunks):
    return built(stages, micro_batches, 1, warm_up=lambda r: stages - 1 - r)


def chunks_cases(rng: np.random.Generator) -> Iterator[Case]:
    """The micro-batches are a multiple of the stages."""
    for stages, rounds, chunks in (
        (1, 2, 2),
        (2, 1, 2),
        (2, 3, 2),
        (3, 2, 2),
        (2, 2, 3),
        (4, 2, int(rng.integers(2, 4))),
    ):
        m = stages * rounds
        words = f"{stages} rank{'s' * (stages > 1)}, {m} micro-batches, {chunks} chunks a rank"
        yield Case(words, (stages, m, chunks))


def several_chunks(case: Case) -> Size:
    """Ranks, chunks in all, micro-batches."""
    stages, micro_batches, chunks = case.args
    return stages, stages * chunks, micro_batches


def shortest(case: Case) -> int:
    """All work of a rank, m v (F + B), and a bubble of (p - 1)(F + B)."""
    stages, micro_batches, chunks = case.args
    return 3 * (micro_batches * chunks + stages - 1)


def room(case: Case) -> list[int]:
    """min(v m, (v - 1) p + 2 (p - 1 - r) + 1) chunk inputs on rank r."""
    p, m, v = case.args
    return [min(v * m, (v - 1) * p + 2 * (p - 1 - r) + 1) for r in range(p)]


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
    cases=chunks_cases,
    observe=Call(written),
    judge=schedule_that(
        each_on_its_rank, holds_at_most(room), takes_at_most(shortest, "F = 1, B = 2, for a chunk"), size=several_chunks
    ),
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
    mistakes=(
        Mistake(
            "neighbouring chunks on one rank",
            chunks_in_a_block,
            "Your ranks hold neighbouring chunks. Then the model is cut as before, only finer named: a rank's chunks lie "
            "p apart, so that every micro-batch goes round the ranks v times.",
        ),
        Mistake(
            "the warm-up of 1F1B",
            warm_up_of_1f1b,
            "With p - 1 - r forwards a rank wants to go back before any micro-batch has been through all chunks. The "
            "warm-up has to fill v - 1 rounds first.",
        ),
        Mistake(
            "warm-up one long",
            warm_up_one_long,
            "It is no faster with one forward more in the warm-up, but one more is in flight. The next F belongs to the "
            "first pair.",
        ),
        Mistake(
            "back through the first chunk first",
            back_through_the_first_chunk_first,
            "Backward begins with the rank's first chunk. Gradients come from the end of the model: the last chunk goes "
            "first.",
        ),
        Mistake(
            "all through the first chunk",
            all_through_the_first_chunk,
            "You take all micro-batches through the first chunk before any goes on to the second. In rounds of p it is "
            "as fast, and fewer are in flight.",
        ),
        Mistake(
            "each through all chunks at once",
            each_through_all_chunks,
            "A micro-batch goes from one chunk of a rank straight to its next. In between it has to go round all the "
            "other ranks: take p micro-batches through a chunk, and the first is back.",
        ),
        Mistake(
            "breadth first",
            breadth_first,
            "This is GPipe with several chunks: everything is in flight before the first backward. As in 1F1B, go back "
            "as soon as you can.",
        ),
        Mistake(
            "one chunk a rank",
            one_chunk_a_rank,
            "You use one chunk of each rank. There are `stages * chunks` of them, and each has to be done.",
        ),
    ),
)
