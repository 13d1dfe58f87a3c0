"""Exercise 05.3: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `bucketing.py`, wrong solutions are in `bucketing_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab05 import bucketing_wrong as wrong
from lockstep.exercises.observe import Observation


def was_emptied(case: Case, seen: Observation, expected: Observation) -> bool:
    """Empty buckets, where those that were filled before should be."""
    got = seen.value if seen.error is None else None
    return isinstance(got, list) and len(got) > 1 and sum(bucket == [] for bucket in got) >= len(got) - 1


MISTAKES = (
    Mistake(
        "in forward order",
        wrong.in_forward_order,
        "Your buckets begin with the first layer, whose gradient is ready last. The first bucket would be full "
        "only at the end of backward, with nothing left to hide its journey behind. Go from the last parameter "
        "to the first.",
    ),
    Mistake(
        "counts indices from the end",
        wrong.counts_from_the_end,
        "The order is right, but your indices count in a reversed copy: index 0 has to be `parameters[0]`. "
        "`enumerate` numbers what it is given.",
    ),
    Mistake(
        "counts in a copy without the frozen ones",
        wrong.counts_in_a_copy,
        "Your indices count in a copy that lacks the frozen parameters. They have to count in `parameters`, "
        "frozen ones included: 2 is `parameters[2]`.",
    ),
    Mistake(
        "clears the list that it handed over",
        wrong.clears_what_it_handed_over,
        "`clear()` empties the list that is already in your result: both names mean one list. Begin a new bucket "
        "with a new list.",
        symptom=was_emptied,
    ),
    Mistake(
        "never exceeds the cap",
        wrong.never_exceeds_the_cap,
        "You close a bucket before it would exceed the cap. Here it closes as soon as it has *reached* the cap, "
        "so the parameter that reaches it still belongs to it. PyTorch fills its buckets in that way too.",
    ),
    Mistake(
        "closes only beyond the cap",
        wrong.closes_only_beyond_the_cap,
        "A bucket that holds exactly `bucket_bytes` is full. Yours takes in one more: `>` where `>=` is needed.",
    ),
    Mistake(
        "counts elements",
        wrong.counts_elements,
        "The cap is in bytes, and you count elements. A float32 has 4 bytes; `parameter.nbytes` counts them.",
    ),
    Mistake(
        "counts four bytes for each element",
        wrong.counts_four_bytes_an_element,
        "Not every element has 4 bytes: a float16 has 2, a float64 has 8. `parameter.nbytes` knows.",
    ),
    Mistake(
        "closes at a frozen dtype",
        wrong.closes_at_a_frozen_dtype,
        "A frozen parameter of another dtype closes your bucket. It is in no bucket, so its dtype does not matter: "
        "pass it over before you look at the dtype.",
    ),
    Mistake(
        "mixes dtypes",
        wrong.mixes_dtypes,
        "A bucket becomes one flat tensor, and a tensor has one dtype. Begin a new bucket when the dtype changes.",
    ),
    Mistake(
        "takes frozen parameters too",
        wrong.takes_frozen_ones_too,
        "A frozen parameter never gets a gradient. A bucket that waits for one is never full. Leave out "
        "parameters whose `requires_grad` is False.",
    ),
    Mistake(
        "loses the last bucket",
        wrong.loses_the_last_bucket,
        "The bucket that is still open at the end is lost, and with it the gradients of the first layers. Nobody "
        "would notice, but these layers would drift apart between the ranks.",
    ),
    Mistake(
        "never starts counting anew",
        wrong.never_starts_counting_anew,
        "After the first bucket has closed, every parameter gets a bucket of its own: the bytes counted so far "
        "still include those of the closed one.",
    ),
    Mistake(
        "one bucket for each parameter",
        wrong.one_for_each,
        "Every parameter travels alone, whatever the cap. Each message pays the latency again; small gradients "
        "should share one.",
    ),
    Mistake(
        "one bucket for all",
        wrong.one_for_all,
        "Everything of a dtype is in one bucket. It is full only when backward has ended, so nothing overlaps. "
        "Close a bucket when it has reached the cap.",
    ),
)
