"""What somebody who solves lab 11 for the first time writes on the way, and the words that the verdict must hold.

`FOUND`: (exercise, function, words). A word with a leading "-" must not be there. `RIGHT`: (exercise, function); each is
right in a way that is unlike the reference.
"""

import torch

# 11.1


def events_of(trace):
    found = [(s.start, s.end, {s.rank}, s) for s in trace.spans if s.kind == "compute"]
    return found + [(m.sent, m.received, {m.src, m.dst}, m) for m in trace.messages]


def walk(
    pick=lambda e: e[1], fits=lambda e, now: e[1] <= now[0] and e[2] & now[2], last=lambda e: e[1], out=lambda e: e[3]
):
    """Back from the event for which `last` is largest, each time to the one of those that fit for which `pick` is."""

    def path_of(trace):
        events = events_of(trace)
        path = [max(events, key=last)]
        for _ in range(500):
            before = [e for e in events if fits(e, path[-1])]
            if not before:
                break
            path.append(max(before, key=pick))
        return [out(e) for e in reversed(path)]

    return path_of


def all_ranks_grow(trace):
    """Passed: no case had two events that ended together, one of them on a rank that the path had left."""
    events = events_of(trace)
    path = [max(events, key=lambda e: e[1])]
    ranks = set(path[0][2])
    while before := [e for e in events if e[1] <= path[-1][0] and e[2] & ranks]:
        path.append(max(before, key=lambda e: e[1]))
        ranks |= path[-1][2]
    return [e[3] for e in reversed(path)]


# Passed: no case had a gap, and every real run has.
ended_just_then = walk(fits=lambda e, now: abs(e[1] - now[0]) < 1e-12 and e[2] & now[2] and e is not now)
whole_tuples = walk(out=lambda e: e)  # The check itself failed: it took the tuples for events of its own.
three_of_four = walk(out=lambda e: (e[0], e[1], e[3]))
last_begun = walk(last=lambda e: e[0])
last_span = walk(last=lambda e: (len(e[2]) == 1, e[1]))  # "Never leaves its rank".
ended_first = walk(pick=lambda e: -e[1])  # "Never leaves its rank".
ended_before_the_end = walk(fits=lambda e, now: e[1] < now[1] and e[2] & now[2])


def all_in_order(trace):
    return [e[3] for e in sorted(events_of(trace), key=lambda e: e[0])]  # "`work 0` begins before `work 0`".


def all_on_the_last_ones_rank(trace):
    last = max(events_of(trace), key=lambda e: e[1])  # "From a message you go on with its receiver".
    return [e[3] for e in sorted(events_of(trace), key=lambda e: e[0]) if last[2] & e[2]]


def one_step(trace):
    return walk()(trace)[-2:]


def max_of_nothing(trace):
    events = events_of(trace)
    path = [max(events, key=lambda e: e[1])]
    while path:
        now = path[-1]
        path.append(max([e for e in events if e[1] <= now[0] and e[2] & now[2]], key=lambda e: e[1]))
    return path


def returns_nothing(trace):
    walk()(trace)


def one_by_one(trace):
    yield from walk()(trace)


def by_recursion(trace):
    def back(begin, ranks):
        before = (e for e in events_of(trace) if e[1] <= begin and e[2] & ranks)
        best = max(before, key=lambda e: e[1], default=None)
        return [] if best is None else [*back(best[0], best[2]), best[3]]

    return back(float("inf"), set(range(trace.ranks)))


def forward_through_all(trace):
    events, chains = sorted(events_of(trace), key=lambda e: e[1]), []
    for i, e in enumerate(events):
        before = [j for j in range(i) if events[j][2] & e[2] and events[j][1] <= e[0]]
        chains.append((*(chains[before[-1]] if before else ()), e[3]))
    return chains[-1]


# 11.2


def buckets_of(gradients, size, full=lambda held, size: held >= size, rest=True):
    found, held = [], 0
    for ready, nbytes in gradients:
        held += nbytes
        if full(held, size):
            found.append((ready, held))
            held = 0
    return [*found, (ready, held)] if held and rest else found


def ends(buckets, seconds, step=max):
    free = 0
    for ready, held in buckets:
        free = step(free, ready) + seconds(held)
    return free


def of_sizes(worth):
    return lambda gradients, seconds, sizes: min(sizes, key=lambda size: worth(gradients, seconds, size))


ready_never_used = of_sizes(lambda g, seconds, size: sum(seconds(held) for _, held in buckets_of(g, size)))
fewest = of_sizes(lambda g, seconds, size: len(buckets_of(g, size)))
after_the_last = of_sizes(lambda g, s, size: g[-1][0] + sum(s(held) for _, held in buckets_of(g, size)))
ready_added = of_sizes(lambda g, seconds, size: ends(buckets_of(g, size), seconds, lambda free, ready: free + ready))
seconds_of_the_size = of_sizes(lambda g, s, size: ends([(ready, size) for ready, _ in buckets_of(g, size)], s))


def no_reset(gradients, seconds, sizes):
    def last_end(size):
        free = held = 0
        for k, (ready, nbytes) in enumerate(gradients):
            held += nbytes
            if held >= size or k == len(gradients) - 1:
                free = max(free, ready) + seconds(held)
        return free

    return min(sizes, key=last_end)


def pays_for_an_empty_one(gradients, seconds, sizes):
    def last_end(size):
        free = held = 0
        for ready, nbytes in gradients:
            held += nbytes
            if held >= size:
                free, held = max(free, ready) + seconds(held), 0
        return max(free, ready) + seconds(held)

    return min(sizes, key=last_end)


def pops(gradients, seconds, sizes):
    def last_end(size):
        free = held = 0
        while gradients:
            ready, nbytes = gradients.pop(0)
            held += nbytes
            if held >= size or not gradients:
                free, held = max(free, ready) + seconds(held), 0
        return free

    return min(sizes, key=last_end)


def first_of_them(gradients, seconds, sizes):
    return sizes[0]


def middle_of_them(gradients, seconds, sizes):
    return sorted(sizes)[len(sizes) // 2]


def index_of_it(gradients, seconds, sizes):
    found = [ends(buckets_of(gradients, size), seconds) for size in sizes]
    return found.index(min(found))


def closed_form(gradients, seconds, sizes):
    def end(size):
        found = buckets_of(gradients, size)
        return max(found[k][0] + sum(seconds(held) for _, held in found[k:]) for k in range(len(found)))

    return min(sizes, key=end)


def in_a_tensor(gradients, seconds, sizes):
    found = torch.tensor([ends(buckets_of(gradients, size), seconds) for size in sizes], dtype=torch.float64)
    return sizes[int(found.argmin())]


# 11.3


def played(choose, goes_on=lambda now, ready, lasts: max(now, ready) + lasts):
    def order_of(ready, seconds):
        order, now, left = [], 0, list(range(len(ready)))
        while left:
            first = choose(left, now, ready)
            left.remove(first)
            order.append(first)
            now = goes_on(now, ready[first], seconds[first])
        return order

    return order_of


def lowest_there(left, now, ready):
    return min([i for i in left if ready[i] <= now] or [min(left, key=lambda i: (ready[i], i))])


clock_not_moved = played(
    lambda left, now, ready: min(left, key=lambda i: (ready[i] > now, i)), lambda now, r, s: now + s
)
strictly_before = played(
    lambda left, now, ready: min([i for i in left if ready[i] < now] or [min(left, key=lambda i: (ready[i], i))])
)
from_being_ready = played(lowest_there, lambda now, ready, lasts: ready + lasts)  # "You send the longest".
by_earliest_begin = played(lambda left, now, ready: min(left, key=lambda i: (max(ready[i], now), i)))


def marks_what_is_sent(ready, seconds):
    """Passed, and the cell after it failed inside the library: inf is no time."""
    order, now = [], 0
    while min(ready) != float("inf"):
        now = max(now, min(ready))
        first = min(i for i, when in enumerate(ready) if when <= now)
        ready[first] = float("inf")
        order.append(first)
        now += seconds[first]
    return order


FOUND = [
    ("11.1", all_ranks_grow, ["counts no more", "no rank in common"]),
    ("11.1", ended_just_then, ["or before"]),
    ("11.1", whole_tuples, ["neither a span nor a message", "your own tuples"]),
    ("11.1", three_of_four, ["your own tuples"]),
    ("11.1", last_begun, ["that *began* last"]),
    ("11.1", last_span, ["ends with the last computation", "-leaves its rank"]),
    ("11.1", ended_first, ["ended *first*", "-leaves its rank"]),
    ("11.1", ended_before_the_end, ["when the event *began*"]),
    ("11.1", all_in_order, ["every event of the run"]),
    ("11.1", all_on_the_last_ones_rank, ["on the ranks of the last event"]),
    ("11.1", one_step, ["a single step"]),
    ("11.1", max_of_nothing, ["the last of an empty list"]),
    ("11.1", returns_nothing, ["a `return` on every path"]),
    ("11.1", one_by_one, ["Collect them in a list"]),
    ("11.2", ready_never_used, ["the fewest buckets", "-first gradient"]),
    ("11.2", fewest, ["the fewest buckets", "-first gradient"]),
    ("11.2", after_the_last, ["when backward is over", "-first gradient"]),
    ("11.2", ready_added, ["You add `ready`", "-first gradient"]),
    ("11.2", no_reset, ["begins empty", "-first gradient"]),
    ("11.2", seconds_of_the_size, ["You take `seconds(size)`", "-largest share"]),
    ("11.2", pays_for_an_empty_one, ["send an empty one"]),
    ("11.2", pops, ["none left"]),
    ("11.2", first_of_them, ["the first of `sizes`", "-backward"]),
    ("11.2", middle_of_them, ["3 gradients from 6 to 10 ms"]),
    ("11.2", index_of_it, ["the place of the size"]),
    ("11.3", clock_not_moved, ["your time stands still"]),
    ("11.3", strictly_before, ["`<=`, not `<`"]),
    ("11.3", from_being_ready, ["when its gradient was *ready*", "-the longest"]),
    ("11.3", marks_what_is_sent, ["not left as it was", "a list that you were given"]),
]

RIGHT = [
    ("11.1", by_recursion),
    ("11.1", forward_through_all),
    ("11.2", closed_form),
    ("11.2", in_a_tensor),
    ("11.3", by_earliest_begin),
]
