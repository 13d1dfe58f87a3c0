"""What somebody who solves lab 11 for the first time writes on the way, and the words that the verdict must hold.

`FOUND`: (exercise, function, words). A word with a leading "-" must not be there. `RIGHT`: (exercise, function); each is
right in a way that is unlike the reference.
"""

import numpy as np
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


# 11.4


def send_all(comm, count, buffers, work):
    way = [None, None]
    for i in range(count):
        if way[i % 2]:
            way[i % 2].wait()
        work(i, buffers[i % 2])
        way[i % 2] = comm.isend(buffers[i % 2], dst=1)
    for handle in way:
        if handle:
            handle.wait()


def receive_all(comm, count, buffers, work):
    coming = comm.irecv(buffers[0], src=0)
    for i in range(count):
        this = coming
        if i + 1 < count:
            coming = comm.irecv(buffers[(i + 1) % 2], src=0)
        this.wait()
        work(i, buffers[i % 2])


def on_ranks(sends=send_all, receives=receive_all):
    return lambda comm, *args: (receives if comm.rank else sends)(comm, *args)


def one_buffer_blocking(comm, count, buffers, work):
    for i in range(count):
        if comm.rank == 0:
            work(i, buffers[0])
            comm.send(buffers[0], 1)
        else:
            comm.recv(buffers[0], 0)
            work(i, buffers[0])


def into_the_same(comm, count, buffers, work):
    handle = comm.irecv(buffers[0], src=0)
    for i in range(count):
        handle.wait()
        if i + 1 < count:
            handle = comm.irecv(buffers[0], src=0)
        work(i, buffers[0])


def fetched_again_before_use(comm, count, buffers, work, own=lambda buffer: buffer):
    way = [comm.irecv(buffer, src=0) for buffer in buffers[:count]]
    for i in range(count):
        way[i % 2].wait()
        block = own(buffers[i % 2])
        if i + 2 < count:
            way[i % 2] = comm.irecv(buffers[i % 2], src=0)
        work(i, block)


def block_0_forgotten(comm, count, buffers, work):
    way = [None, None]
    for i in range(count):
        if i + 1 < count:
            way[(i + 1) % 2] = comm.irecv(buffers[(i + 1) % 2], src=0)
        if way[i % 2]:
            way[i % 2].wait()
        work(i, buffers[i % 2])


def two_by_two(comm, count, buffers, work):
    for i in range(0, count, 2):
        many = min(2, count - i)
        if comm.rank == 0:
            way = []
            for k in range(many):
                work(i + k, buffers[k])
                way.append(comm.isend(buffers[k], dst=1))
        else:
            way = [comm.irecv(buffers[k], src=0) for k in range(many)]
        for handle in way:
            handle.wait()
        for k in range(many if comm.rank else 0):
            work(i + k, buffers[k])


def sent_before_made(comm, count, buffers, work):
    way = [None, None]
    for i in range(count):
        if way[i % 2]:
            way[i % 2].wait()
        way[i % 2] = comm.isend(buffers[i % 2], dst=1)
        work(i, buffers[i % 2])
    for handle in filter(None, way):
        handle.wait()


def one_handle(comm, count, buffers, work):
    handle = comm.irecv(buffers[0], src=0)
    for i in range(count):
        if i + 1 < count:
            handle = comm.irecv(buffers[(i + 1) % 2], src=0)
        handle.wait()
        work(i, buffers[i % 2])


def waits_on_none(comm, count, buffers, work):
    way = [None, None]
    for i in range(count):
        way[i % 2].wait()
        work(i, buffers[i % 2])
        way[i % 2] = comm.isend(buffers[i % 2], dst=1)


def works_once(comm, count, buffers, work):
    work(0, buffers[0])


def recursively(comm, count, buffers, work, i=0, now=None):
    if comm.rank == 0:
        return send_all(comm, count, buffers, work)
    if i < count:
        now = now or comm.irecv(buffers[0], src=0)
        after = comm.irecv(buffers[1], src=0) if i + 1 < count else None
        now.wait()
        work(i, buffers[0])
        recursively(comm, count, buffers[::-1], work, i + 1, after)
    return None


# 11.5


def merged(pairs, end=max):
    found = []
    for a, b in sorted(pairs):
        if found and a <= found[-1][1]:
            found[-1] = (found[-1][0], end(found[-1][1], b))
        else:
            found.append((a, b))
    return found


def length(pairs):
    return sum(b - a for a, b in pairs)


def share(computing, moving, counts=lambda works, moves: True, end=max):
    hidden = total = 0
    for works, moves in zip(computing, moving, strict=True):
        works, moves = merged(works, end), merged(moves, end)
        if counts(works, moves):
            total += length(moves)
            hidden += sum(max(0, min(b, d) - max(a, c)) for a, b in works for c, d in moves)
    return hidden / total if total else None


def none_at_the_first_without(computing, moving):
    return share(computing, moving) if all(moving) else None  # Passed: in no case did one rank alone move nothing.


def without_idle_ranks(computing, moving):
    return share(computing, moving, counts=lambda works, moves: works)  # Passed: every rank computed.


def lesser_sum(computing, moving):
    works, moves = (sum(length(merged(own)) for own in ranks) for ranks in (computing, moving))
    return min(works, moves) / moves if moves else None


def without_max(computing, moving):
    return share(computing, moving, end=lambda one, other: other)


def on_many_points(computing, moving):
    hidden = total = 0
    for works, moves in zip(computing, moving, strict=True):
        times = np.linspace(0, max((b for _, b in [*works, *moves]), default=1), 20_001)
        on = [np.any([(times >= a) & (times < b) for a, b in pairs] or [times < 0], axis=0) for pairs in (works, moves)]
        hidden, total = hidden + times[1] * (on[0] & on[1]).sum(), total + times[1] * on[1].sum()
    return float(hidden / total) if total else None


def divides_at_once(computing, moving):
    return sum(share([w], [m]) * length(merged(m)) for w, m in zip(computing, moving, strict=True) if m) / sum(
        length(merged(m)) for m in moving
    )


def by_the_complement(computing, moving):
    total = sum(length(merged(m)) for m in moving)
    exposed = sum(length(merged([*m, *w])) - length(merged(w)) for w, m in zip(computing, moving, strict=True))
    return 1 - exposed / total if total else None


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
    ("11.4", one_buffer_blocking, ["Launch with `isend`"]),
    ("11.4", on_ranks(receives=into_the_same), ["still using"]),
    ("11.4", on_ranks(receives=fetched_again_before_use), ["about to use"]),
    (
        "11.4",
        on_ranks(receives=lambda *args: fetched_again_before_use(*args, own=torch.clone)),
        ["uses the copy"],
    ),
    ("11.4", on_ranks(receives=block_0_forgotten), ["that of block 0", "-does nothing"]),
    ("11.4", on_ranks(receives=lambda *args: None), ["without having received"]),
    ("11.4", two_by_two, ["two by two", "-asks for a block"]),
    ("11.4", on_ranks(sends=sent_before_made), ["before `work` has filled", "-i - 2"]),
    ("11.4", on_ranks(receives=one_handle), ["where the handle of this block was"]),
    ("11.4", on_ranks(sends=waits_on_none), ["no handle to wait for"]),
    ("11.4", on_ranks(receive_all, send_all), ["changed parts"]),
    ("11.4", works_once, ["Nothing is sent", "-the other"]),
    ("11.5", none_at_the_first_without, ["as soon as one rank"]),
    ("11.5", without_idle_ranks, ["ranks that compute nothing"]),
    ("11.5", lesser_sum, ["the lesser of both", "-some computation meets"]),
    ("11.5", without_max, ["the larger of both ends"]),
    ("11.5", on_many_points, ["points of a grid"]),
    ("11.5", divides_at_once, ["you divide by 0"]),
]

RIGHT = [
    ("11.1", by_recursion),
    ("11.1", forward_through_all),
    ("11.2", closed_form),
    ("11.2", in_a_tensor),
    ("11.3", by_earliest_begin),
    ("11.4", recursively),
    ("11.5", by_the_complement),
]
