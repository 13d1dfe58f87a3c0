"""Exercise 07.5: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `rounds.py`, what goes wrong in any schedule in `shapes.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab07.judging import INTERLEAVED, breaks
from lockstep.exercises.lab07.rows import listed
from lockstep.exercises.lab07.shapes import both, in_the_right_orders, lacks_backwards
from lockstep.exercises.observe import Observation
from lockstep.parallel.pipeline import Action


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


def rounds_of_as_many_as_chunks(stages, micro_batches, chunks):
    firsts = range(0, micro_batches, chunks)
    order = [(j, i) for a in firsts for j in range(chunks) for i in range(a, min(a + chunks, micro_batches))]
    return built(stages, micro_batches, chunks, order)


def chunks_counted_on_each_rank(stages, micro_batches, chunks):
    return built(stages, micro_batches, chunks, place=lambda j, r: j)


def chunks_apart_by_their_number(stages, micro_batches, chunks):
    return built(stages, micro_batches, chunks, place=lambda j, r: j * chunks + r)


def always_two_chunks(stages, micro_batches, chunks):
    return built(stages, micro_batches, 2)


def warm_up_of_two_chunks(stages, micro_batches, chunks):
    return built(stages, micro_batches, chunks, warm_up=lambda r: stages + 2 * (stages - 1 - r) - (chunks == 2))


def warm_up_through_all_chunks(stages, micro_batches, chunks):
    return built(stages, micro_batches, chunks, warm_up=lambda r: chunks * stages + stages - 1 - r)


def warm_up_beyond_the_list(stages, micro_batches, chunks):
    """All is well but for the warm-up, which is not cut at the number of forwards."""
    rows = built(stages, micro_batches, chunks)
    spare = [(chunks - 1) * stages + 2 * (stages - 1 - r) - micro_batches * chunks for r in range(stages)]
    return [
        row if over <= 0 else row[: len(row) // 2] + row[len(row) - over :]
        for row, over in zip(rows, spare, strict=True)
    ]


def first_round(case: Case, seen: Observation, expected: Observation) -> int:
    """How many micro-batches rank 0 takes through its first chunk before another chunk has its turn."""
    forwards = [action for row in listed(seen.value)[:1] for action in row if action.kind == "F"]
    return next((at for at, action in enumerate(forwards) if action.chunk != forwards[0].chunk), len(forwards))


def all_in_one_round(case: Case, seen: Observation, expected: Observation) -> bool:
    """The first round has all micro-batches, and more than it should."""
    return first_round(case, seen, expected) == case.args[1] > case.args[0] and case.args[2] > 1


def another_round(case: Case, seen: Observation, expected: Observation) -> bool:
    """The first round has another number of micro-batches than there are stages."""
    return first_round(case, seen, expected) not in (0, 1, case.args[0]) and case.args[2] > 1


def counted_on_each_rank(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank has the same low chunk numbers."""
    chunks = [{action.chunk for action in row} for row in listed(seen.value)]
    return len(chunks) > 1 and case.args[2] > 1 and all(own == set(range(case.args[2])) for own in chunks)


def out_of_place(case: Case, seen: Observation, expected: Observation) -> bool:
    """A chunk that is on another rank, or that does not exist, while each rank has as many as it should."""
    p, _, v = case.args
    rows = listed(seen.value)
    wrong = any(a.chunk % p != r or a.chunk >= p * v for r, row in enumerate(rows) for a in row)
    return wrong and all(len({a.chunk for a in row if a.kind == "F"}) == v for row in rows)


def another_number_of_chunks(case: Case, seen: Observation, expected: Observation) -> bool:
    """Some rank has more or fewer chunks than it should."""
    return any(len({a.chunk for a in row}) != case.args[2] for row in listed(seen.value) if row)


MISTAKES = (
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
        symptom=all_in_one_round,
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
    Mistake(
        "rounds of another size",
        rounds_of_as_many_as_chunks,
        "A round has as many micro-batches as there are stages: when the last of them has left rank 0, the first is back "
        "from going round. Yours has another number.",
        symptom=another_round,
    ),
    Mistake(
        "chunks counted on each rank",
        chunks_counted_on_each_rank,
        "You number the chunks of every rank from 0. Chunks are counted through the whole model: chunk c is on rank "
        "c % stages, so rank r has r, p + r, 2 p + r and so on.",
        symptom=counted_on_each_rank,
    ),
    Mistake(
        "chunks out of place",
        chunks_apart_by_their_number,
        "Some chunks are on ranks where they do not belong, or do not exist. Chunk c is on rank c % stages: from one chunk "
        "of a rank to its next it is `stages` further.",
        symptom=out_of_place,
    ),
    Mistake(
        "a fixed number of chunks",
        always_two_chunks,
        "`chunks` says how many chunks a rank has, one or more: `stages * chunks` in all, and each has to be done.",
        symptom=another_number_of_chunks,
    ),
    Mistake(
        "warm-up beyond the list",
        warm_up_beyond_the_list,
        "With as many micro-batches as stages the warm-up is longer than the list of forwards: it is at most "
        "`micro_batches * chunks`. Counted from its end, too few backwards are left.",
        symptom=lacks_backwards,
    ),
    Mistake(
        "a warm-up that is too short",
        warm_up_of_two_chunks,
        "The warm-up is too short: backward is to begin before anything has come back to this rank, or every pair waits. It "
        "has (v - 1)p forwards, and at least one more for every rank after this one.",
        symptom=both(breaks(INTERLEAVED, "faults", "makespan"), in_the_right_orders),
    ),
    Mistake(
        "a warm-up that is too long",
        warm_up_through_all_chunks,
        "The warm-up is too long: more is in flight, and nothing is faster. It ends when the last chunk's turn has come, after "
        "(v - 1)p forwards, and at most two more for every rank after this one.",
        symptom=both(breaks(INTERLEAVED, "in flight"), in_the_right_orders),
    ),
)
