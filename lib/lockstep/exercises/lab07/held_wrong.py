"""Exercise 07.4: what students write in place of the right thing; `held_mistakes.py` says what it is.

Floor 4, room `exercises`; the exercise is in `held.py`.
"""

from __future__ import annotations

import re
from itertools import accumulate


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
