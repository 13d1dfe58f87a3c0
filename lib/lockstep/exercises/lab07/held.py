"""07.4 `in_flight`: the most activations that each rank holds at a time.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import same_value
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call
from lockstep.parallel import pipeline


def in_flight(actions):
    peaks = []
    for row in actions:
        held = most = 0
        for action in row:
            if action.kind == "F":
                held += 1
            elif action.kind in "BW":
                held -= 1
            most = max(most, held)
        peaks.append(most)
    return peaks


def by_running_sums(actions):
    change = {"F": 1, "B": -1, "I": 0, "W": -1}
    return [max(accumulate(change[action.kind] for action in row)) for row in actions]


def by_sets(actions):
    def most_of(row):
        held, sizes = set(), []
        for action in row:
            key = action.chunk, action.micro_batch
            if action.kind == "F":
                held.add(key)
            if action.kind in ("B", "W"):
                held.remove(key)
            sizes.append(len(held))
        return max(sizes)

    return tuple(map(most_of, actions))


def in_flight_stub(actions):
    raise NotImplementedError("for each rank, the most that it holds at a time")


def peaks(actions, ends, key=lambda a: (a.chunk, a.micro_batch)):
    """The mistakes: what is held ends at one of the kinds `ends`."""
    found = []
    for row in actions:
        held, most = set(), 0
        for action in row:
            if action.kind == "F":
                held.add(key(action))
            elif action.kind in ends:
                held.discard(key(action))
            most = max(most, len(held))
        found.append(most)
    return found


def frees_at_the_input_gradient(actions):
    return peaks(actions, "BI")


def frees_when_sent(actions):
    return [1 for _ in actions]


def only_whole_backward(actions):
    return peaks(actions, "B")


def counts_micro_batches_not_chunks(actions):
    return peaks(actions, "BW", key=lambda a: a.micro_batch)


def frees_twice(actions):
    found = []
    for row in actions:
        held = most = 0
        for action in row:
            held += 1 if action.kind == "F" else -1
            most = max(most, held)
        found.append(most)
    return found


def one_number(actions):
    return max(in_flight(actions))


def added_up(actions):
    return sum(in_flight(actions))


def at_the_end(actions):
    return [0 for _ in actions]


def all_forwards(actions):
    return [sum(action.kind == "F" for action in row) for row in actions]


def formula_of_1f1b(actions):
    micro_batches = 1 + max(action.micro_batch for row in actions for action in row)
    return [min(micro_batches, len(actions) - r) for r in range(len(actions))]


def up_to_the_first_backward(actions):
    counts = []
    for row in actions:
        kinds = [action.kind for action in row]
        counts.append(next(at for at, kind in enumerate(kinds) if kind != "F"))
    return counts


def any_schedule(rng: np.random.Generator) -> Iterator[Case]:
    """With whole and with split backward, with one chunk a rank and with several."""
    m = int(rng.integers(5, 8))
    for schedule in (
        pipeline.naive(2, 2),
        pipeline.gpipe(2, 3),
        pipeline.one_f_one_b(3, 4),
        pipeline.one_f_one_b(4, m),
        pipeline.zero_bubble(2, 4),
        pipeline.zero_bubble(4, m),
        pipeline.interleaved(3, 6, 2),
        pipeline.zbv(3, m),
    ):
        yield _case(schedule)
    for name, order in (
        ("whole backward", "F0 B0 F1 F2 B1 F3 B2 B3"),
        ("split backward", "F0 I0 W0 F1 F2 I1 W1 F3 I2 W2 I3 W3"),
    ):
        late, last = order.split(), "F0 B0 F1 B1 F2 B2 F3 B3".split()
        rows = [[pipeline.Action(a[0], r, int(a[1])) for a in row] for r, row in enumerate((late, last))]
        yield Case(f"one that begins slowly, {name}, 2 ranks, 4 micro-batches", (rows,))


def _case(schedule: pipeline.Schedule) -> Case:
    name = f"{schedule.name}, {schedule.ranks} ranks, {schedule.micro_batches} micro-batches"
    return Case(name, ([list(row) for row in schedule.actions],))


JUDGE = same_value()

IN_FLIGHT = Exercise(
    id="07.4",
    title="What is in flight",
    function="in_flight",
    asks=(
        "Return, for each rank, the most micro-batches that it holds at a time, counted for each chunk. F of a "
        "micro-batch on a chunk makes one more; it stays until its gradients are all done: until B, or until W where "
        "backward is split into I and W."
    ),
    reference=in_flight,
    also_right=(by_running_sums, by_sets),
    stub=in_flight_stub,
    cases=any_schedule,
    observe=Call(),
    judge=JUDGE,
    forbidden=("lockstep.parallel.pipeline.prove", "lockstep.parallel.pipeline.Schedule.prove"),
    hints=(
        "You need no times: the order of a rank's own list says what it holds. Go through it with a counter.",
        "Which kinds of action make the counter larger, which smaller, and which leave it as it is? Keep the largest "
        "value that it has had.",
        "F adds one. B takes one away. Of a split backward only W does: the weight gradient needs what the layer was fed.",
    ),
    mistakes=by_first_failure(
        Call(),
        JUDGE,
        (
            Mistake(
                "frees activations too early",
                frees_at_the_input_gradient,
                "You let go of a micro-batch at I. The weight gradient still needs the layer's input: it is held until W.",
            ),
            Mistake(
                "frees a micro-batch when it is sent on",
                frees_when_sent,
                "You let go of a micro-batch when the next rank has it. Backward needs the activations of this stage: "
                "they stay here until its B.",
            ),
            Mistake(
                "never frees after a split backward",
                only_whole_backward,
                "Micro-batches whose backward is split stay for ever. W ends what F began, as B does.",
            ),
            Mistake(
                "frees twice",
                frees_twice,
                "Everything but F makes your counter smaller, so I and W of one micro-batch take two away. Only one of "
                "them frees it.",
            ),
            Mistake(
                "counts micro-batches, not chunks",
                counts_micro_batches_not_chunks,
                "A rank with two chunks may hold the activations of one micro-batch twice, once for each chunk. Both take "
                "memory: count pairs of chunk and micro-batch.",
            ),
            Mistake("one number", one_number, "That is one number. Each rank has a peak of its own: return a list."),
            Mistake(
                "adds up the ranks",
                added_up,
                "That is the sum over ranks. Each has its own memory, and its own peak: return a list.",
            ),
            Mistake(
                "what is left at the end",
                at_the_end,
                "At the end nothing is left: that is the counter's last value. Keep the largest that it ever had.",
            ),
            Mistake(
                "counts all forwards",
                all_forwards,
                "You count the forwards of a rank. That is right for GPipe alone, where nothing goes back before all "
                "have come: elsewhere backwards in between make room.",
            ),
            Mistake(
                "the formula of 1F1B",
                formula_of_1f1b,
                "min(m, p - r) holds for 1F1B. Here any schedule may come: count.",
            ),
            Mistake(
                "counts up to the first backward",
                up_to_the_first_backward,
                "You stop at the first backward. The counter may grow further later on, if two forwards follow one "
                "another.",
            ),
        ),
    ),
)
