"""Exercise 07.2: what students write in place of the right thing; `idle_mistakes.py` says what it is.

Floor 4, room `exercises`; the exercise is in `idle.py`. Most of these play the lists as `played` does, and go wrong in
one place: in what an action waits for, in what it takes, or in what is counted.
"""

from __future__ import annotations

import math


def needs(action, last):
    """The keys of what an action waits for; I counts as B."""
    if action.kind == "F" and action.chunk > 0:
        return {("F", action.chunk - 1, action.micro_batch)}
    if action.kind in "BI" and action.chunk < last:
        return {("B", action.chunk + 1, action.micro_batch)}
    return set()


def played(actions, costs, needs=needs, last=None, weights="W"):
    """Start and end of each action, by rank, in the lists' order; `weights`: the key under which a W is noted."""
    ends, times, at = {}, [[] for _ in actions], [0] * len(actions)
    last = max(action.chunk for row in actions for action in row) if last is None else last
    for _ in range(sum(map(len, actions))):
        for r, (row, own) in enumerate(zip(actions, times, strict=True)):
            if at[r] < len(row) and needs(row[at[r]], last) <= ends.keys():
                action = row[at[r]]
                start = max([own[-1][1] if own else 0, *(ends[need] for need in needs(action, last))])
                own.append((start, start + costs[action.kind]))
                kind = {"I": "B" if weights == "W" else "I", "W": weights}.get(action.kind, action.kind)
                ends[kind, action.chunk, action.micro_batch] = own[-1][1]
                at[r] += 1
    return times


def share(rows):
    """Idle time of all rows out of all their time."""
    makespan, idle = idle_times(rows)
    return sum(idle) / (len(idle) * makespan)


def idle_times(rows):
    makespan = max(end for row in rows for _, end in row)
    return makespan, [makespan - sum(end - start for start, end in row) for row in rows]


def counts_every_wait_twice(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return 2 * sum(idle) / (len(idle) * makespan)


def against_one_ranks_time(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return sum(idle) / makespan


def against_the_work(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return sum(idle) / (len(idle) * makespan - sum(idle))


def only_between_first_and_last(actions, costs):
    rows = played(actions, costs)
    makespan = max(end for row in rows for _, end in row)
    waits = sum(later[0] - earlier[1] for row in rows for earlier, later in zip(row, row[1:], strict=False))
    return waits / (len(rows) * makespan)


def forgets_the_end(actions, costs):
    rows = played(actions, costs)
    makespan = max(end for row in rows for _, end in row)
    waits = sum(row[-1][1] - sum(end - start for start, end in row) for row in rows)
    return waits / (len(rows) * makespan)


def waits_for_nobody(actions, costs):
    busy = [sum(costs[action.kind] for action in row) for row in actions]
    return 1 - sum(busy) / (len(busy) * max(busy))


def the_formula_of_gpipe(actions, costs):
    stages, micro_batches = len(actions), 1 + max(action.micro_batch for row in actions for action in row)
    return (stages - 1) / (micro_batches + stages - 1)


def of_rank_0(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return idle[0] / makespan


def the_share(actions, costs):
    return share(played(actions, costs))


def in_percent(actions, costs):
    return 100 * the_share(actions, costs)


def every_action_takes_one(actions, costs):
    return the_share(actions, dict.fromkeys(costs, 1))


def the_busy_share(actions, costs):
    return 1 - the_share(actions, costs)


def the_idle_time(actions, costs):
    return sum(idle_times(played(actions, costs))[1])


def only_forward_waits(actions, costs):
    return share(played(actions, costs, lambda a, last: needs(a, last) if a.kind == "F" else set()))


def only_backward_waits(actions, costs):
    return share(played(actions, costs, lambda a, last: set() if a.kind == "F" else needs(a, last)))


def micro_batch_after_micro_batch(actions, costs):
    turns = [(r, a) for r, row in enumerate(actions) for a in row]
    turns.sort(key=lambda turn: (turn[1].micro_batch, "FBIW".index(turn[1].kind) // 2 + (turn[1].kind == "B"),
               turn[1].chunk if turn[1].kind == "F" else -turn[1].chunk))  # fmt: skip
    return _what_is_missing_counts_as_over(actions, costs, turns)


def _what_is_missing_counts_as_over(actions, costs, turns):
    ends, times, last = {}, [[] for _ in actions], max(action.chunk for row in actions for action in row)
    for r, action in turns:
        start = max([times[r][-1][1] if times[r] else 0, *(ends.get(need, 0) for need in needs(action, last))])
        times[r].append((start, start + costs[action.kind]))
        ends["B" if action.kind == "I" else action.kind, action.chunk, action.micro_batch] = times[r][-1][1]
    return share(times)


def as_if_two_ranks(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return sum(idle) / (2 * makespan)


def until_rank_0_has_done(actions, costs):
    rows = played(actions, costs)
    return 1 - sum(end - start for row in rows for start, end in row) / (len(rows) * rows[0][-1][1])


def until_each_has_done(actions, costs):
    rows = played(actions, costs)
    return 1 - sum(end - start for row in rows for start, end in row) / sum(row[-1][1] for row in rows)


def from_each_ranks_first(actions, costs):
    rows = played(actions, costs)
    makespan, idle = idle_times(rows)
    return (sum(idle) - sum(row[0][0] for row in rows)) / (len(rows) * makespan)


def of_the_last_rank(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return idle[-1] / makespan


def the_largest(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return max(idle) / makespan


def known_costs(actions, costs):
    return the_share(actions, {"F": 1, "B": 2, "I": 1, "W": 1})


def weights_for_free(actions, costs):
    return the_share(actions, costs | {"W": 0})


def input_gradient_as_long_as_backward(actions, costs):
    return the_share(actions, costs | {"I": costs["B"]})


def halves_of_backward(actions, costs):
    return the_share(actions, costs | {"I": costs["B"] / 2, "W": costs["B"] / 2})


def gradient_leaves_with_the_weights(actions, costs):
    return share(played(actions, costs, weights="B"))


def one_chunk_for_each_rank(actions, costs):
    return share(played(actions, costs, last=len(actions) - 1))


def in_whole_steps(actions, costs):
    """One unit of time after the other; what has less than a unit left takes one."""
    return the_share(actions, {kind: math.ceil(cost) for kind, cost in costs.items()})


def in_hundredths(actions, costs):
    return round(the_share(actions, costs), 2)
