"""Exercise 07.2: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `idle.py`. Most of these play the lists as `played` does, and go wrong in
one place: in what an action waits for, in what it takes, or in what is counted.
"""

from __future__ import annotations

import math

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.observe import Observation

TWIN = "ZB-H1, 3 ranks, 5 micro-batches"  # comes with whole costs, and then with others


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


def is_the_formula(case: Case, seen: Observation, expected: Observation) -> bool:
    """The formula's value, where it goes wrong first; elsewhere it may be a coincidence."""
    return case.name.startswith("naive") and alike(seen.value, the_formula_of_gpipe(*case.args))


def is_rounded(case: Case, seen: Observation, expected: Observation) -> bool:
    """The right share with a few digits."""
    right = isinstance(seen.value, float) and isinstance(expected.value, float)
    return right and any(seen.value == round(expected.value, digits) for digits in (1, 2, 3, 4, 5))


def has_halves(case: Case, seen: Observation, expected: Observation) -> bool:
    """Costs that are no whole numbers, in a schedule that came before with whole ones."""
    return case.name.startswith(TWIN) and any(cost != int(cost) for cost in case.args[1].values())


MISTAKES = (
    Mistake(
        "counts the bubble per rank twice",
        counts_every_wait_twice,
        "The share is twice what it should be: each idle time is counted twice, as the wait of the one rank and "
        "again as what the other makes it wait, or before an action and again after the one before it.",
    ),
    Mistake(
        "divides by the time of one rank",
        against_one_ranks_time,
        "You add up the idle time of all ranks and divide by the makespan of one. Divide by the time of all of "
        "them, ranks times makespan, or take the mean over ranks.",
    ),
    Mistake(
        "divides by the work",
        against_the_work,
        "You divide idle time by working time. That is how much longer it takes than without a bubble, and can "
        "be more than 1. The share is idle time over all time.",
    ),
    Mistake(
        "counts no wait at the start and at the end",
        only_between_first_and_last,
        "You count the waits between actions only. A rank that has not begun yet, or has finished while others "
        "work, is idle, too: from 0 to the end of the last action of all.",
    ),
    Mistake(
        "forgets the wait at the end",
        forgets_the_end,
        "You stop counting when a rank has done its own last action. It is idle until the last rank has finished.",
    ),
    Mistake(
        "lets nobody wait for anybody",
        waits_for_nobody,
        "Every rank seems to start at 0 and to work without a break. An action has to wait for what it needs: F "
        "for the F of the chunk before, B for the B of the chunk after.",
    ),
    Mistake(
        "the formula of GPipe",
        the_formula_of_gpipe,
        "(p - 1)/(m + p - 1) is the bubble of GPipe and 1F1B, with one chunk a rank. Here any schedule may come: "
        "play it through.",
        symptom=is_the_formula,
    ),
    Mistake(
        "rank 0's share",
        of_rank_0,
        "That is the idle share of rank 0 alone. The ranks differ when they do not do the same amount of work; "
        "ask for all of them together.",
    ),
    Mistake("in percent", in_percent, "That is in percent. A share goes from 0 to 1."),
    Mistake(
        "every action takes as long",
        every_action_takes_one,
        "You give every action the same time. `costs` says what each kind takes: backward usually twice as much "
        "as forward.",
    ),
    Mistake(
        "the busy share",
        the_busy_share,
        "That is the share of time in which the ranks work. The bubble is the rest.",
    ),
    Mistake(
        "the idle time",
        the_idle_time,
        "That is the idle time itself. Divide it by the time of all ranks: ranks times makespan.",
    ),
    Mistake(
        "backward does not wait",
        only_forward_waits,
        "Your backwards start too early. B or I of a chunk needs the gradient from the chunk after it, and if that is "
        "not over yet, it does not count as over at 0: the action has to be asked again, in a later round.",
    ),
    Mistake(
        "forward does not wait",
        only_backward_waits,
        "Your forwards start as soon as the rank is free. F of a chunk needs the activation from the chunk before it.",
    ),
    Mistake(
        "an order of its own",
        micro_batch_after_micro_batch,
        "You play micro-batch after micro-batch. A rank does its actions in the order of its list, whatever their numbers.",
    ),
    Mistake(
        "divides by two ranks",
        as_if_two_ranks,
        "You divide by the time of two ranks. There are `len(actions)` of them.",
    ),
    Mistake(
        "the makespan of rank 0",
        until_rank_0_has_done,
        "You take rank 0's last end for the makespan. Where weight gradients are put off, or rank 0 does not have the first "
        "chunk, another rank ends last: the makespan is the latest end of all.",
    ),
    Mistake(
        "each rank's own end",
        until_each_has_done,
        "You count each rank up to its own last action. All of them count from 0 to the makespan, the last end of all.",
    ),
    Mistake(
        "from the first action",
        from_each_ranks_first,
        "You count each rank from its own first action. It is idle before that, too: from 0.",
    ),
    Mistake(
        "the last rank's share",
        of_the_last_rank,
        "That is the idle share of the last rank alone. The ranks differ when they do not do the same amount of work; ask "
        "for all of them together.",
    ),
    Mistake(
        "the largest share",
        the_largest,
        "That is the share of the rank that is idle longest. The ranks differ when they do not do the same amount of work; "
        "ask for all of them together.",
    ),
    Mistake(
        "costs that it knows",
        known_costs,
        "You do not use `costs`: F = 1 and B = 2 is what they often are. It says what each kind takes.",
    ),
    Mistake(
        "W takes no time",
        weights_for_free,
        "Your W takes no time, or is left out. Nobody else waits for it, but its rank does it, and that takes `costs['W']`.",
    ),
    Mistake(
        "I as long as B",
        input_gradient_as_long_as_backward,
        "Your I takes as long as a whole backward. Each kind has its own time: `costs['I']`.",
    ),
    Mistake(
        "half of B",
        halves_of_backward,
        "You give I and W half of B each. Each kind has its own time: `costs['I']` and `costs['W']`.",
    ),
    Mistake(
        "waits for W",
        gradient_leaves_with_the_weights,
        "The chunk before waits for your W. The gradient that it needs is ready when I is over; that is why backward is split.",
    ),
    Mistake(
        "as many chunks as ranks",
        one_chunk_for_each_rank,
        "You take the number of ranks for that of chunks. A rank may have several: the last chunk is the highest number that "
        "there is.",
    ),
    Mistake(
        "rounded",
        in_hundredths,
        "The share is right, but rounded. Return it as it is.",
        symptom=is_rounded,
    ),
    Mistake(
        "whole steps",
        in_whole_steps,
        "This schedule is right with whole costs, and wrong with halves. Costs may be any numbers: reckon with starts and "
        "ends in place of whole steps of time.",
        symptom=has_halves,
    ),
)
