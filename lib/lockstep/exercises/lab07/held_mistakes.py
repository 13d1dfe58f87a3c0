"""Exercise 07.4: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `held.py`.
"""

from __future__ import annotations

import re
from itertools import accumulate

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.symptoms import says


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
    return max(peaks(actions, "BW"))


def added_up(actions):
    return sum(peaks(actions, "BW"))


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


def after_backwards_only(actions):
    found = []
    for row in actions:
        held = most = 0
        for action in row:
            held += 1 if action.kind == "F" else -1 if action.kind in "BW" else 0
            most = max(most, held if action.kind != "F" else 0)
        found.append(most)
    return found


def the_longest_run(actions):
    return [max(map(len, re.split("[^F]+", "".join(action.kind for action in row)))) for row in actions]


def never_begins_again(actions):
    found, most = [], 0
    for own in peaks(actions, "BW"):
        most = max(most, own)
        found.append(most)
    return found


def from_the_last_rank(actions):
    return peaks(actions, "BW")[::-1]


def two_ranks(actions):
    return peaks(actions[:2], "BW")


def one_way_for_each_rank(actions):
    """Whole or split, by what the rank does anywhere."""
    return [peaks([row], "W" if any(action.kind == "W" for action in row) else "B")[0] for row in actions]


def each_chunk_by_itself(actions):
    return [max(_by_chunk(row)) for row in actions]


def peaks_of_chunks_added(actions):
    return [sum(_by_chunk(row)) for row in actions]


def _by_chunk(row):
    return [peaks([[a for a in row if a.chunk == c]], "BW")[0] for c in {action.chunk for action in row}]


def half_at_each_half(actions):
    change = {"F": 1, "B": -1, "I": -0.5, "W": -0.5}
    return [max(accumulate(change[action.kind] for action in row)) for row in actions]


def as_a_share(actions):
    return [
        own / sum(action.kind == "F" for action in row) for own, row in zip(peaks(actions, "BW"), actions, strict=True)
    ]


def takes_actions_for_texts(actions):
    return [max(accumulate(1 if "F" in action else -1 for action in row)) for row in actions]


MISTAKES = (
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
        "You stop at the first backward. The counter may grow further later on, if two forwards follow one another.",
    ),
    Mistake(
        "looks after backwards only",
        after_backwards_only,
        "You look at the counter after a backward, when it has just become smaller. It is largest after a forward.",
    ),
    Mistake(
        "the longest run of forwards",
        the_longest_run,
        "You look for the most forwards in a row. Those that came before and are not back yet are held as well: the counter "
        "goes on where it was.",
    ),
    Mistake(
        "never begins again",
        never_begins_again,
        "Your largest value goes on from one rank to the next. Each rank has a peak of its own: begin at 0 for every rank.",
    ),
    Mistake(
        "ranks the other way round",
        from_the_last_rank,
        "The numbers are right, but the last rank's comes first: `actions[r]` is rank r's list, and so is its place in what "
        "you return.",
    ),
    Mistake("two ranks", two_ranks, "There may be any number of ranks: one number for each list in `actions`."),
    Mistake(
        "one way for each rank",
        one_way_for_each_rank,
        "A rank may take one micro-batch back whole and split another. Each is held until its own gradients are done: until "
        "its B, or its W.",
    ),
    Mistake(
        "each chunk by itself",
        each_chunk_by_itself,
        "You take the chunk that holds most. A rank holds the inputs of all its chunks at the same time: count them together.",
    ),
    Mistake(
        "adds up the chunks' peaks",
        peaks_of_chunks_added,
        "You add up what each chunk holds at most. The chunks have their peaks at different times: count them together.",
    ),
    Mistake(
        "half at each half",
        half_at_each_half,
        "You let go of half at I. The layer's input is needed whole until W.",
    ),
    Mistake(
        "as a share",
        as_a_share,
        "That is a share of all micro-batches. The number of them is asked for.",
    ),
    Mistake(
        "takes actions for texts",
        takes_actions_for_texts,
        "An action is no text: it has the fields `kind`, `chunk` and `micro_batch`.",
        symptom=says("'Action'"),
    ),
)
