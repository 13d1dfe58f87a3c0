"""Wrong functions for exercise 11.2, and by what some of them show.

Floor 4, room `exercises`; what they are told is in `bucket_mistakes.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case
from lockstep.exercises.lab11.told import changes_an_argument
from lockstep.exercises.observe import Observation


def plan(gradients, size, closes=lambda held, size: held >= size):
    """The buckets of one size: lists of (ready, bytes)."""
    buckets = [[]]
    for gradient in gradients:
        if buckets[-1] and closes(sum(n for _, n in buckets[-1]), size):
            buckets.append([])
        buckets[-1].append(gradient)
    return buckets


def chosen(gradients, seconds, sizes, *, buckets=plan, begin=None, cost=None, score=None, pick=min):
    """The right function, in which one thing can be another.

    begin(free, bucket), cost(bucket), and score(times) of [(begin, end), ...], of which the least is taken.
    """
    begin = begin or (lambda free, bucket: max(free, bucket[-1][0]))
    cost = cost or (lambda bucket: seconds(sum(n for _, n in bucket)))
    score = score or (lambda times: times[-1][1])

    def worth(size):
        free, times = 0.0, []
        for bucket in buckets(gradients, size):
            start = begin(free, bucket)
            free = start + cost(bucket)
            times.append((start, free))
        return score(times) if times else 0.0

    return pick(sizes, key=worth)


def several_at_once(gradients, seconds, sizes):
    return chosen(gradients, seconds, sizes, begin=lambda free, b: b[-1][0], score=lambda t: max(e for _, e in t))


def most_hidden(gradients, seconds, sizes):
    last = gradients[-1][0]

    def exposed_share(times):
        return sum(max(0, e - max(s, last)) for s, e in times) / sum(e - s for s, e in times)

    return chosen(gradients, seconds, sizes, score=exposed_share)


def least_time_on_the_link(gradients, seconds, sizes):
    return chosen(gradients, seconds, sizes, score=lambda times: sum(e - s for s, e in times))


def smallest(gradients, seconds, sizes):
    return min(sizes)


def without_the_last(gradients, seconds, sizes):
    def full(gradients, size):
        return [b for b in plan(gradients, size) if sum(n for _, n in b) >= size]

    return chosen(gradients, seconds, sizes, buckets=full)


def never_above(gradients, seconds, sizes):
    def buckets(gradients, size):
        found = [[]]
        for gradient in gradients:
            if found[-1] and sum(n for _, n in found[-1]) + gradient[1] > size:
                found.append([])
            found[-1].append(gradient)
        return found

    return chosen(gradients, seconds, sizes, buckets=buckets)


def closes_above(gradients, seconds, sizes):
    return chosen(gradients, seconds, sizes, buckets=lambda g, size: plan(g, size, lambda held, size: held > size))


def at_the_first_gradient(gradients, seconds, sizes):
    return chosen(gradients, seconds, sizes, begin=lambda free, bucket: max(free, bucket[0][0]))


def starts_with_the_last_layer(gradients, seconds, sizes):
    return chosen(gradients[::-1], seconds, sizes)


def the_slowest(gradients, seconds, sizes):
    return chosen(gradients, seconds, sizes, pick=max)


def its_end(gradients, seconds, sizes):
    size = chosen(gradients, seconds, sizes)
    end = 0.0
    for bucket in plan(gradients, size):
        end = max(end, bucket[-1][0]) + seconds(sum(n for _, n in bucket))
    return end


def how_many(gradients, seconds, sizes):
    return len(plan(gradients, chosen(gradients, seconds, sizes)))


def the_last_one_alone(gradients, seconds, sizes):
    return chosen(gradients, seconds, sizes, score=lambda times: times[-1][1] - times[-1][0])


def never_empties(gradients, seconds, sizes):
    """The bytes of what has been sent stay in the bucket, which from then on is full with each gradient."""

    def last_end(size):
        free, held = 0.0, 0
        for i, (ready, nbytes) in enumerate(gradients):
            held += nbytes
            if held >= size or i == len(gradients) - 1:
                free = max(free, ready) + seconds(held)
        return free

    return min(sizes, key=last_end)


def adds_ready(gradients, seconds, sizes):
    return chosen(gradients, seconds, sizes, begin=lambda free, bucket: free + bucket[-1][0])


def ignores_ready_at_the_end(gradients, seconds, sizes):
    def begin(free, bucket):
        return max(free, bucket[-1][0]) if bucket[-1] is not gradients[-1] else free

    return chosen(gradients, seconds, sizes, begin=begin)


def pays_for_the_size(gradients, seconds, sizes):
    def last_end(size):
        free = 0.0
        for bucket in plan(gradients, size):
            free = max(free, bucket[-1][0]) + seconds(size)
        return free

    return min(sizes, key=last_end)


def pays_for_nothing(gradients, seconds, sizes):
    """An empty bucket travels in the end, where the last gradient has just closed one."""

    def last_end(size):
        free = 0.0
        for bucket in plan(gradients, size):
            free = max(free, bucket[-1][0]) + seconds(sum(n for _, n in bucket))
        return free + (seconds(0) if sum(n for _, n in bucket) >= size else 0)

    return min(sizes, key=last_end)


def cuts_gradients(gradients, seconds, sizes):
    """What is above the size goes into the next bucket."""

    def last_end(size):
        free, held = 0.0, 0
        for ready, nbytes in gradients:
            whole, held = divmod(held + nbytes, size)
            free = max(free, ready) + whole * seconds(size) if whole else free
        return max(free, ready) + seconds(held) if held else free

    return min(sizes, key=last_end)


def the_first(gradients, seconds, sizes):
    return sizes[0]


def its_place(gradients, seconds, sizes):
    return sizes.index(chosen(gradients, seconds, sizes))


def empties_the_list(gradients, seconds, sizes):
    def last_end(size):
        free, held = 0.0, 0
        while gradients:
            ready, nbytes = gradients.pop(0)
            held += nbytes
            if held >= size or not gradients:
                free, held = max(free, ready) + seconds(held), 0
        return free

    return min(sizes, key=last_end)


def is_its_end(case: Case, seen: Observation, expected: Observation) -> bool:
    """Seconds where a size is asked for."""
    return isinstance(seen.value, float) and seen.value not in case.args[2]


def is_its_place(case: Case, seen: Observation, expected: Observation) -> bool:
    """Of a size that ends first."""
    sizes = case.args[2]
    return seen.error is None and seen.value == sizes.index(expected.value) and seen.value not in sizes


def changes_the_list(case: Case, seen: Observation, expected: Observation) -> bool:
    return changes_an_argument(case, seen, expected) is not None
