"""What somebody who solved lab 07 for the first time wrote on the way, and what the verdict must say.

Each once passed, got a wrong cause, or none. `FOUND` lists (exercise, function, known mistake), `RIGHT` what failed
although it is right, `NONSENSE` what the check itself failed on.
"""

from itertools import accumulate

import numpy as np
import torch
from torch.nn import functional as F

from lockstep.parallel.pipeline import Action, Schedule

# Lists of actions: whole schedules, and parts to change.


def all_there_all_back(p, m):
    return [[Action(kind, r, i) for kind in "FB" for i in range(m)] for r in range(p)]


def one_each(p, m, warm=lambda r, p: p - 1 - r):
    rows = []
    for r in range(p):
        w = max(0, min(warm(r, p), m))
        row = [Action("F", r, i) for i in range(w)]
        for i in range(m - w):
            row += [Action("F", r, w + i), Action("B", r, i)]
        rows.append(row + [Action("B", r, i) for i in range(m - w, m)])
    return rows


def split_late(p, m):
    rows = []
    for r in range(p):
        f = min(p - 1 - r, m)
        row, w = [Action("F", r, i) for i in range(f)], 0
        for j in range(m):
            if f < m:
                row.append(Action("F", r, f))
                f += 1
            row.append(Action("I", r, j))
            if j >= r:
                row.append(Action("W", r, w))
                w += 1
        rows.append(row + [Action("W", r, i) for i in range(w, m)])
    return rows


def in_rounds(p, m, v, size=None, warm=None, chunk=None, cut=True):
    size, chunk, rows = size or p, chunk or (lambda j, r: j * p + r), []
    for r in range(p):
        order = [(j, i) for a in range(0, m, size) for j in range(v) for i in range(a, min(a + size, m))]
        fs = [Action("F", chunk(j, r), i) for j, i in order]
        bs = [Action("B", chunk(v - 1 - j, r), i) for j, i in order]
        w = warm(r) if warm else (v - 1) * p + 2 * (p - 1 - r)
        w = min(w, len(fs)) if cut else w
        rows.append(fs[:w] + [a for two in zip(fs[w:], bs, strict=False) for a in two] + bs[len(fs) - w :])
    return rows


# 07.1


def the_last_at_once(p, m):
    return [*all_there_all_back(p, m)[:-1], one_each(p, m)[-1]]


def swaps_two_forwards(p, m):
    rows = all_there_all_back(p, m)
    if p > 2 and m > 1:
        rows[1][:2] = rows[1][1::-1]
    return rows


def at_most_eight(p, m):
    return all_there_all_back(p, min(m, 8))


def another_schedule_for_many(p, m):
    return all_there_all_back(p, m) if m <= 8 else one_each(p, m)


def one_list_filled_further(p, m):
    row = []
    return [row for own in all_there_all_back(p, m) if row.extend(own) is None]


def loses_the_last_backward(p, m):
    return [row[:-1] for row in all_there_all_back(p, m)]


def names_kind_first(p, m):
    return [[f"{a.kind}{a.chunk}{a.micro_batch}" for a in row] for row in all_there_all_back(p, m)]


# 07.3


def at_most_four_first(p, m):
    return one_each(p, m, lambda r, p: min(p - 1 - r, 4))


def gpipe_when_few(p, m):
    return all_there_all_back(p, m) if m <= p else one_each(p, m)


def three_less_the_rank(p, m):
    return one_each(p, m, lambda r, p: 3 - r)


def one_less_than_m(p, m):
    return one_each(p, m, lambda r, p: min(p - 1 - r, max(m - 2, 0)))


def blocks(p, m):
    parts = [[range(a, min(a + p - r, m)) for a in range(0, m, p - r)] for r in range(p)]
    return [[Action(k, r, i) for part in parts[r] for k in "FB" for i in part] for r in range(p)]


def cool_down_reversed(p, m):
    rows = one_each(p, m)
    for r, row in enumerate(rows):
        w = min(p - 1 - r, m)
        row[len(row) - w :] = row[len(row) - w :][::-1]
    return rows


def nothing_appended(p, m):
    return []


# 07.5


def not_cut(p, m, v):
    return in_rounds(p, m, v, cut=False)


def at_least_two_chunks(p, m, v):
    return in_rounds(p, m, max(v, 2))


def own_numbers(p, m, v):
    return in_rounds(p, m, v, chunk=lambda j, r: j)


def no_rounds(p, m, v):
    return in_rounds(p, m, v, size=m)


def rounds_of_v(p, m, v):
    return in_rounds(p, m, v, size=v)


def warm_up_without_chunks(p, m, v):
    return in_rounds(p, m, v, warm=lambda r: 2 * (p - 1 - r))


def gpipe_for_one_round(p, m, v):
    return in_rounds(p, m, v, warm=(lambda r: m * v) if m == p else None)


# 07.7


def stages_twice_over(p, m):
    return in_rounds(p, -(-m // p) * p, 2)


def drops_one(p, m):
    return split_late(p, max(1, m - 1))


def few_stages_only(p, m):
    return split_late(p, m) if p <= 6 else one_each(p, m)


def few_micro_batches_only(p, m):
    return split_late(p, m) if m <= 12 else one_each(p, m)


def not_for_one(p, m):
    return split_late(p, m) if m > 1 else one_each(p, m)


def twice_the_first(p, m):
    return [
        [Action("F", r, i) for i in range(min(m, 2 * (p - 1 - r)))]
        + [a for i in range(m) for a in [Action("F", r, i + 2 * (p - 1 - r)), Action("I", r, i), Action("W", r, i)]
           if a.micro_batch < m] for r in range(p)
    ]  # fmt: skip


# 07.2


def play(actions, costs, f=True, b=True, missing=None, order=None, key="I", end=None, over=None):
    """Go round until nothing moves; each argument but the first two changes one thing."""
    last = max(a.chunk for row in actions for a in row)
    ends, at, free = {}, [0] * len(actions), [0] * len(actions)
    work = sum(costs[a.kind] for row in actions for a in row)
    for _ in range(sum(map(len, actions))):
        for r, row in enumerate(actions):
            while at[r] < len(row):
                a = row[at[r]]
                need = ("F", a.chunk - 1, a.micro_batch) if a.kind == "F" and a.chunk and f else None
                if a.kind in "BI" and a.chunk < last and b:
                    need = ("back", a.chunk + 1, a.micro_batch)
                start = ends.get(need, missing) if need else 0
                if start is None:
                    break
                free[r] = max(free[r], start) + costs[a.kind]
                ends["back" if a.kind in ("B", key) else a.kind, a.chunk, a.micro_batch] = free[r]
                at[r] += 1
    makespan = end(free) if end else max(free)
    return 1 - work / ((over or len(actions)) * makespan)


def no_gradient(actions, costs):
    return play(actions, costs, b=False)


def missing_is_zero(actions, costs):
    return play(actions, costs, missing=0)


def ends_with_rank_0(actions, costs):
    return play(actions, costs, end=lambda free: free[0])


def own_ends(actions, costs):
    return play(actions, costs, end=lambda free: sum(free) / len(free))


def gradient_with_w(actions, costs):
    return play(actions, costs, key="W")


def one_and_two(actions, costs):
    return play(actions, {"F": 1, "B": 2, "I": 1, "W": 1})


def w_for_nothing(actions, costs):
    return play(actions, {**costs, "W": 0})


def two_decimals(actions, costs):
    return round(play(actions, costs), 2)


def over_two_ranks(actions, costs):
    return play(actions, costs) * len(actions) / 2


def ticks(actions, costs):
    todo, running, done, time, idle = [list(row) for row in actions], [None] * len(actions), set(), 0, 0
    last = max(a.chunk for row in actions for a in row)
    while any(todo) or any(running):
        for r, row in enumerate(todo):
            if running[r] is None and row:
                a = row[0]
                ready = a.kind == "W" or (a.kind == "F" and (not a.chunk or ("F", a.chunk - 1, a.micro_batch) in done))
                if a.kind in "BI":
                    ready = a.chunk == last or ("back", a.chunk + 1, a.micro_batch) in done
                running[r] = [row.pop(0), costs[a.kind]] if ready else None
        for r, job in enumerate(running):
            idle += job is None
            if job:
                job[1] -= 1
                if job[1] <= 0:
                    done.add(("back" if job[0].kind in "BI" else job[0].kind, job[0].chunk, job[0].micro_batch))
                    running[r] = None
        time += 1
    return idle / time / len(actions)


# 07.4


def counted(row, ends="BW"):
    return list(accumulate((a.kind == "F") - (a.kind in ends) for a in row))


def of_the_library(actions):
    return list(Schedule.of(actions).simulate().in_flight)


def by_the_rank(actions):
    return [max(counted(row, "W" if any(a.kind == "W" for a in row) else "B")) for row in actions]


def only_after_backwards(actions):
    return [max(n for n, a in zip(counted(row), row, strict=True) if a.kind != "F") for row in actions]


def longest_run(actions):
    return [max(map(len, "".join(a.kind if a.kind == "F" else " " for a in row).split())) for row in actions]


def goes_on(actions):
    return list(accumulate((max(counted(row)) for row in actions), max))


def an_array(actions):
    return np.array([max(counted(row)) for row in actions])


# 07.6


def from_p_on(micro_batch, rank, stages, vertical_sync):
    version = micro_batch - (stages - 1 - (0 if vertical_sync else rank))
    return (0, 0) if micro_batch < stages else (version, version)


def synced_from_p_on(micro_batch, rank, stages, vertical_sync):
    synced = vertical_sync and micro_batch >= stages
    return (max(0, micro_batch - (stages - 1 - (0 if synced else rank))),) * 2


def one_ahead(micro_batch, rank, stages, vertical_sync):
    return (max(0, micro_batch - (stages - 2 - (0 if vertical_sync else rank))),) * 2


def of_four(micro_batch, rank, stages, vertical_sync):
    return (max(0, micro_batch - (3 - (0 if vertical_sync else rank))),) * 2


def quotient(micro_batch, rank, stages, vertical_sync):
    return micro_batch // stages, micro_batch // stages


def sync_swapped(micro_batch, rank, stages, vertical_sync):
    return (max(0, micro_batch - (stages - 1 - (rank if vertical_sync else 0))),) * 2


def never_above_20(micro_batch, rank, stages, vertical_sync):
    return (min(20, max(0, micro_batch - (stages - 1 - (0 if vertical_sync else rank)))),) * 2


# 07.8


def parts_of(inputs, targets, m):
    return zip(inputs.tensor_split(m), targets.tensor_split(m), strict=True)


def cross_entropy(model, loss, inputs, targets, m):
    for x, y in parts_of(inputs, targets, m):
        (F.cross_entropy(model(x), y) * len(x) / len(inputs)).backward()


def sample_by_sample(model, loss, inputs, targets, m):
    for k in range(len(inputs)):
        (loss(model(inputs[k : k + 1]), targets[k : k + 1]) / len(inputs)).backward()


def with_a_step(model, loss, inputs, targets, m):
    in_32_bits(model, loss, inputs, targets, m)
    with torch.no_grad():
        for p in model.parameters():
            p.sub_(p.grad)


def overwrites(model, loss, inputs, targets, m):
    ps = list(model.parameters())
    total = [torch.zeros_like(p) for p in ps]
    for x, y in parts_of(inputs, targets, m):
        gs = torch.autograd.grad(loss(model(x), y) * len(x) / len(inputs), ps)
        total = [t + g for t, g in zip(total, gs, strict=True)]
    for p, t in zip(ps, total, strict=True):
        p.grad = t


def all_forward_then_back(model, loss, inputs, targets, m):
    for part in [loss(model(x), y) * len(x) / len(inputs) for x, y in parts_of(inputs, targets, m)]:
        part.backward()


def returns_them(model, loss, inputs, targets, m):
    return torch.autograd.grad(loss(model(inputs), targets), list(model.parameters()))


def rest_left_out(model, loss, inputs, targets, m):
    size = len(inputs) // m
    for k in range(m):
        part = slice(k * size, (k + 1) * size)
        (loss(model(inputs[part]), targets[part]) * size / len(inputs)).backward()


def in_32_bits(model, loss, inputs, targets, m):
    for x, y in parts_of(inputs, targets, m):
        loss(model(x), y).backward(torch.tensor(len(x) / len(inputs)))


FOUND = [
    ("07.1", the_last_at_once, "the last rank goes back at once"),
    ("07.1", swaps_two_forwards, "forward in another order on some ranks"),
    ("07.1", at_most_eight, "not all micro-batches"),
    ("07.1", another_schedule_for_many, "the last rank goes back at once"),
    ("07.1", one_list_filled_further, "the same list for every rank"),
    ("07.1", loses_the_last_backward, "some backwards are missing"),
    ("07.1", names_kind_first, "kind first in the text"),
    ("07.3", at_most_four_first, "a warm-up that is too short"),
    ("07.3", gpipe_when_few, "this is GPipe"),
    ("07.3", three_less_the_rank, "a warm-up that is too long"),
    ("07.3", one_less_than_m, "a warm-up that is too short"),
    ("07.3", blocks, "in blocks"),
    ("07.3", cool_down_reversed, "the newest goes back first"),
    ("07.3", the_last_at_once, "the last rank alone"),
    ("07.3", nothing_appended, "a fixed number of lists"),
    ("07.5", not_cut, "warm-up beyond the list"),
    ("07.5", at_least_two_chunks, "a fixed number of chunks"),
    ("07.5", own_numbers, "chunks counted on each rank"),
    ("07.5", no_rounds, "all through the first chunk"),
    ("07.5", rounds_of_v, "rounds of another size"),
    ("07.5", warm_up_without_chunks, "a warm-up that is too short"),
    ("07.5", gpipe_for_one_round, "a warm-up that is too long"),
    ("07.7", stages_twice_over, "several stages a rank"),
    ("07.7", drops_one, "not all micro-batches"),
    ("07.7", few_stages_only, "this is 1F1B"),
    ("07.7", few_micro_batches_only, "this is 1F1B"),
    ("07.7", not_for_one, "this is 1F1B"),
    ("07.7", twice_the_first, "more warm-up than there is room for"),
    ("07.2", no_gradient, "backward does not wait"),
    ("07.2", missing_is_zero, "backward does not wait"),
    ("07.2", ends_with_rank_0, "the makespan of rank 0"),
    ("07.2", own_ends, "each rank's own end"),
    ("07.2", gradient_with_w, "waits for W"),
    ("07.2", one_and_two, "costs that it knows"),
    ("07.2", w_for_nothing, "W takes no time"),
    ("07.2", two_decimals, "rounded"),
    ("07.2", over_two_ranks, "divides by two ranks"),
    ("07.2", ticks, "whole steps"),
    ("07.4", by_the_rank, "one way for each rank"),
    ("07.4", only_after_backwards, "looks after backwards only"),
    ("07.4", longest_run, "the longest run of forwards"),
    ("07.4", goes_on, "never begins again"),
    ("07.6", from_p_on, "version 0 for the first p"),
    ("07.6", synced_from_p_on, "sync when all have begun"),
    ("07.6", one_ahead, "one too new"),
    ("07.6", of_four, "always four stages"),
    ("07.6", quotient, "one update a round"),
    ("07.6", sync_swapped, "sync the wrong way round"),
    ("07.6", never_above_20, ""),
    ("07.8", cross_entropy, "a loss of its own"),
    ("07.8", sample_by_sample, "one sample at a time"),
    ("07.8", with_a_step, "makes a step"),
    ("07.8", overwrites, "clears the gradients first"),
    ("07.8", all_forward_then_back, "one backward at the end"),
    ("07.8", returns_them, "no backward"),
    ("07.8", rest_left_out, "drops the rest"),
]
RIGHT = [("07.1", all_there_all_back), ("07.3", one_each), ("07.5", in_rounds), ("07.7", split_late), ("07.2", play),
         ("07.4", an_array), ("07.8", in_32_bits)]  # fmt: skip
NONSENSE = (None, 3, "0F0", [], {}, {0: ["0F0"]}, [None, None], ["0F0", "0B0"], [[1, 2], [None]], float("nan"))
