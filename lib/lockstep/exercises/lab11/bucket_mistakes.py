"""The sentence that each fault of exercise 11.2 gets.

Floor 4, room `exercises`; the exercise is in `bucket.py`, the wrong functions in `bucket_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab11 import bucket_wrong as wrong

MISTAKES = (
    Mistake(
        "several reductions at once",
        wrong.several_at_once,
        "Your reductions do not wait for each other. They share one link: a bucket begins when it is full *and* the one "
        "before it has ended.",
    ),
    Mistake(
        "the largest hidden share",
        wrong.most_hidden,
        "You take the size that hides the largest share. Small buckets hide well, since there is more to hide: each pays "
        "a latency. What counts is when the last one ends.",
    ),
    Mistake(
        "the fewest buckets",
        wrong.least_time_on_the_link,
        "You always take the fewest buckets: as if all reductions began when backward is over, or as if their seconds were "
        "only added up. What is hidden costs nothing. A bucket begins as soon as its own last gradient is ready and the "
        "link is free; what counts is when the last one ends.",
    ),
    Mistake(
        "the smallest",
        wrong.smallest,
        "You always take the most buckets. Every reduction pays its latencies, and the link may never catch up. A bucket "
        "travels as one, and pays them once: `seconds` of all its bytes, not the `seconds` of each gradient added up.",
    ),
    Mistake(
        "without the last bucket",
        wrong.without_the_last,
        "The last bucket hardly ever reaches its size. It travels all the same, when the last gradient is ready.",
    ),
    Mistake(
        "never above the size",
        wrong.never_above,
        "You close a bucket before it gets too large. As in lab 05 it closes when it holds `size` or more, with the "
        "gradient that made it so.",
    ),
    Mistake(
        "closes above the size",
        wrong.closes_above,
        "A bucket that holds exactly `size` is full. Yours goes on until it holds more.",
    ),
    Mistake(
        "begins with its first gradient",
        wrong.at_the_first_gradient,
        "Your bucket begins when its first gradient is ready. The others have to be there, too: it waits for its last.",
    ),
    Mistake(
        "the other way round",
        wrong.starts_with_the_last_layer,
        "You go through the gradients from the last to the first. They stand in the order in which backward makes them "
        "ready: take them as they are.",
    ),
    Mistake(
        "the slowest",
        wrong.the_slowest,
        "That is the size whose last reduction ends latest. Take the least.",
    ),
    Mistake(
        "when it ends",
        wrong.its_end,
        "That is when the last reduction ends with the best size. Return the size itself.",
        symptom=wrong.is_its_end,
    ),
    Mistake(
        "how many buckets",
        wrong.how_many,
        "That is how many buckets there are. Return the size, one of `sizes`.",
    ),
    Mistake(
        "the shortest last bucket",
        wrong.the_last_one_alone,
        "You look at the last bucket alone. It may be short, or full early, and still begin late, when those before it keep "
        "the link busy: its reduction begins at the later of `ready` and the end of the one before.",
    ),
    Mistake(
        "never empties the bucket",
        wrong.never_empties,
        "Your bucket keeps the bytes that it has sent already. After each reduction the next one begins empty.",
    ),
    Mistake(
        "adds the time of being ready",
        wrong.adds_ready,
        "You add `ready` to the time at which the link is free. `ready` is a time since the step began: the reduction "
        "begins at the later of the two.",
    ),
    Mistake(
        "the last bucket before it is ready",
        wrong.ignores_ready_at_the_end,
        "Your last bucket begins as soon as the link is free. It has to wait for its last gradient, as every bucket.",
    ),
    Mistake(
        "pays for the size",
        wrong.pays_for_the_size,
        "You take `seconds(size)`. A bucket holds `size` bytes or more, and the last one fewer: `seconds` of the bytes that "
        "are in it.",
    ),
    Mistake(
        "an empty bucket in the end",
        wrong.pays_for_nothing,
        "Where the last gradient fills a bucket, you send an empty one after it, and pay its latencies. The last bucket "
        "travels only if something is in it.",
    ),
    Mistake(
        "cuts gradients",
        wrong.cuts_gradients,
        "You close a bucket at exactly `size` bytes and take what is above into the next. A gradient travels whole: the "
        "bucket holds `size` bytes *or more*, and the next one begins empty.",
    ),
    Mistake(
        "the first size",
        wrong.the_first,
        "You take the first of `sizes`, whatever the gradients are. For each size, work out when the last reduction ends.",
    ),
    Mistake(
        "its place",
        wrong.its_place,
        "That is the place of the size in the list. Return the size itself, `sizes[...]`.",
        symptom=wrong.is_its_place,
    ),
    Mistake(
        "empties the list of gradients",
        wrong.empties_the_list,
        "You take the gradients out of the list, and for the second size there are none left. Go through it and leave it "
        "as it is.",
        symptom=wrong.changes_the_list,
    ),
)
