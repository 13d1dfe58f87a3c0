"""Exercise 11.2's reference, other right functions, and the stub.

Floor 4, room `exercises`; the exercise is in `bucket.py`.
"""

from __future__ import annotations


def best_bucket(gradients, seconds, sizes):
    def last_end(size):
        free, held = 0.0, 0
        for i, (ready, nbytes) in enumerate(gradients):
            held += nbytes
            if held >= size or i == len(gradients) - 1:
                free = max(free, ready) + seconds(held)
                held = 0
        return free

    return min(sizes, key=last_end)


def by_plans(gradients, seconds, sizes):
    """First the buckets of each size, then their times; of equal ones the largest size."""
    best = None
    for size in sorted(sizes, reverse=True):
        plan = [[]]
        for gradient in gradients:
            if plan[-1] and sum(nbytes for _, nbytes in plan[-1]) >= size:
                plan.append([])
            plan[-1].append(gradient)
        end = 0
        for bucket in plan:
            begin = max(end, bucket[-1][0])
            end = begin + seconds(sum(nbytes for _, nbytes in bucket))
        if best is None or end < best[0]:
            best = end, size
    return best[1]


def recursively(gradients, seconds, sizes):
    """The end of what is left, given when the link is free."""

    def end(rest, size, free):
        if not rest:
            return free
        many, held = 1, rest[0][1]
        while held < size and many < len(rest):
            held += rest[many][1]
            many += 1
        return end(rest[many:], size, max(free, rest[many - 1][0]) + seconds(held))

    ends = {size: end(list(gradients), size, 0.0) for size in sizes}
    return [size for size, value in ends.items() if value == min(ends.values())][-1]


def best_bucket_stub(gradients, seconds, sizes):
    raise NotImplementedError("return the size whose last reduction ends first")
