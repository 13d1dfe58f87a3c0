"""04.5 `tree_broadcast`: one rank's tensor to all, in as few steps as can be.

Floor 4, room `exercises`; solutions are in `broadcast_right.py` and `broadcast_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab04.broadcast_mistakes import MISTAKES, _levels
from lockstep.exercises.lab04.broadcast_right import (
    by_the_bits_of_the_place,
    halving_the_ranks,
    tree_broadcast,
    tree_broadcast_stub,
)
from lockstep.exercises.lab04.steps import NETWORK, counted, numbers, on_network, same_in_place
from lockstep.exercises.observe import Observation, Simulate


def few_levels(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The last rank has the tensor after ceil(lg p) messages one after another."""
    one = NETWORK.seconds(case.each[0][0].nbytes)
    got, want = round(seen.seconds / one, 2), _levels(case)
    if got <= want + 0.01:
        return None
    return Finding(
        f"The numbers are right, but the last rank has them after {got:g} messages one after the other; with "
        f"{case.ranks} ranks {want} {'is' if want == 1 else 'are'} enough.",
        f"{want} message times",
        f"{got:g} message times",
        ("levels", got, [one.messages_sent for one in seen.traffic]),
    )


def few_messages(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """p - 1 messages in all: every rank but the source receives the tensor once."""
    got, want = sum(one.messages_sent for one in seen.traffic), case.ranks - 1
    if got <= want:
        return None
    sentence = f"The numbers are right, but there are {got} messages; {want} would do, one to each rank but the source."
    return Finding(sentence, f"{want} messages in all", str(got), ("messages", [t.messages_sent for t in seen.traffic]))


def broadcast_cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = int(rng.integers(1, 8))
    for ranks, n, src in ((1, 3, 0), (2, 3, 0), (2, 2, 1), (3, 5, 0), (4, 6, 2), (5, 0, 1), (6, 4, 5), (8, 7, drawn)):
        each = [(numbers(rng, n),) for _ in range(ranks)]
        yield on_network(ranks, src, each=each, name=f"{counted(n)}, from rank {src}")


BROADCAST = Exercise(
    id="04.5",
    title="Tree broadcast",
    function="tree_broadcast",
    points=2,
    asks=(
        "Every rank hands in a tensor of the same shape. Afterwards all of them hold what rank `src` handed in, in "
        "place. With p ranks there are p - 1 messages in all, and the last rank has the tensor after log2 p levels, "
        "rounded up."
    ),
    reference=tree_broadcast,
    also_right=(halving_the_ranks, by_the_bits_of_the_place),
    stub=tree_broadcast_stub,
    cases=broadcast_cases,
    observe=Simulate(),
    judge=all_of(same_in_place(0, "tensor"), few_messages, few_levels),
    forbidden=("comm.broadcast", "comm.all_reduce", "comm.all_gather", "comm.scatter", "comm.reduce"),
    equivalent_mutants=(  # further levels, in which no rank has anybody to send to
        "line 3: for level in range((p - 1).bit_length()): -> for level in range((p + 1).bit_length()):",
        "line 3: for level in range((p - 1).bit_length()): -> for level in range((p - 0).bit_length()):",
    ),
    core=False,
    hints=(
        (
            "After one message two ranks have the tensor. If both send it on at the same time, how many have it after "
            "the second? And after the third?"
        ),
        (
            "Count the ranks from the source: a rank's place is its number less `src`, modulo p. While the first `have` "
            "places have the tensor, the rank at place i can send to place i + have."
        ),
        (
            "At each level a rank either sends (its place is below `have`, and place + have exists), or receives (its "
            "place is from `have` to below 2 * have), or does nothing. Then `have` doubles."
        ),
    ),
    mistakes=MISTAKES,
)
