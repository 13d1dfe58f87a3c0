"""What goes wrong in exercise 11.2, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `bucket.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
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


def after_backward(gradients, seconds, sizes):
    return chosen(gradients, seconds, sizes, begin=lambda free, bucket: max(free, gradients[-1][0]))


def most_hidden(gradients, seconds, sizes):
    last = gradients[-1][0]

    def exposed_share(times):
        return sum(max(0, e - max(s, last)) for s, e in times) / sum(e - s for s, e in times)

    return chosen(gradients, seconds, sizes, score=exposed_share)


def least_time_on_the_link(gradients, seconds, sizes):
    return chosen(gradients, seconds, sizes, score=lambda times: sum(e - s for s, e in times))


def smallest(gradients, seconds, sizes):
    return min(sizes)


def largest(gradients, seconds, sizes):
    return max(sizes)


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


def pays_for_each(gradients, seconds, sizes):
    return chosen(gradients, seconds, sizes, cost=lambda bucket: sum(seconds(n) for _, n in bucket))


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


def is_its_end(case: Case, seen: Observation, expected: Observation) -> bool:
    """Seconds where a size is asked for."""
    return isinstance(seen.value, float) and seen.value not in case.args[2]


MISTAKES = (
    Mistake(
        "several reductions at once",
        several_at_once,
        "Your reductions do not wait for each other. They share one link: a bucket begins when it is full *and* the one "
        "before it has ended.",
    ),
    Mistake(
        "all of them after backward",
        after_backward,
        "Your reductions begin when backward is over. Then the largest size always wins; but a bucket begins as soon as "
        "its own last gradient is ready.",
    ),
    Mistake(
        "the largest hidden share",
        most_hidden,
        "You take the size that hides the largest share. Small buckets hide well, since there is more to hide: each pays "
        "a latency. What counts is when the last one ends.",
    ),
    Mistake(
        "the least time on the link",
        least_time_on_the_link,
        "You add up the seconds of the reductions. The fewest buckets always win that; but what is hidden costs nothing. "
        "What counts is when the last one ends.",
    ),
    Mistake(
        "the smallest",
        smallest,
        "More buckets are not always better: every reduction pays its latencies, and the link may never catch up. Work "
        "out when the last one ends.",
    ),
    Mistake(
        "the largest",
        largest,
        "The largest bucket is full last, and then nothing is left that could hide it. Work out when the last one ends.",
    ),
    Mistake(
        "without the last bucket",
        without_the_last,
        "The last bucket hardly ever reaches its size. It travels all the same, when the last gradient is ready.",
    ),
    Mistake(
        "never above the size",
        never_above,
        "You close a bucket before it gets too large. As in lab 05 it closes when it holds `size` or more, with the "
        "gradient that made it so.",
    ),
    Mistake(
        "closes above the size",
        closes_above,
        "A bucket that holds exactly `size` is full. Yours goes on until it holds more.",
    ),
    Mistake(
        "begins with its first gradient",
        at_the_first_gradient,
        "Your bucket begins when its first gradient is ready. The others have to be there, too: it waits for its last.",
    ),
    Mistake(
        "the other way round",
        starts_with_the_last_layer,
        "You go through the gradients from the last to the first. They stand in the order in which backward makes them "
        "ready: take them as they are.",
    ),
    Mistake(
        "each gradient pays by itself",
        pays_for_each,
        "You add up the seconds of each gradient in a bucket. They travel as one: `seconds` of all the bucket's bytes, and "
        "the latencies are paid once.",
    ),
    Mistake(
        "the slowest",
        the_slowest,
        "That is the size whose last reduction ends latest. Take the least.",
    ),
    Mistake(
        "when it ends",
        its_end,
        "That is when the last reduction ends with the best size. Return the size itself.",
        symptom=is_its_end,
    ),
    Mistake(
        "how many buckets",
        how_many,
        "That is how many buckets there are. Return the size, one of `sizes`.",
    ),
    Mistake(
        "the shortest last bucket",
        the_last_one_alone,
        "You look at the last bucket alone. It may be short and still begin late, when those before it keep the link busy.",
    ),
)
