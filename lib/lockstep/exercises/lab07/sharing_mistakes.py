"""Exercise 07.8: the sentences that students get for what is in `sharing_wrong.py`, and how it is recognised.

Floor 4, room `exercises`; the exercise is in `sharing.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab07 import sharing_wrong as wrong
from lockstep.exercises.observe import Observation


def forwards(seen: Observation) -> list[int]:
    """The samples of each forward; [] where the function failed."""
    return seen.value["sizes"] if seen.error is None else []


def leaves_samples_out(case: Case, seen: Observation, expected: Observation) -> bool:
    """Fewer samples went through the model than there are."""
    return 0 < sum(forwards(seen)) < len(case.args[1])


def nothing_arrives(case: Case, seen: Observation, expected: Observation) -> bool:
    """The gradients are what they were."""
    return seen.error is None and all(g is not None and not g.any() for g in seen.value["gradients"])


def too_many_forwards(case: Case, seen: Observation, expected: Observation) -> bool:
    """More forwards than micro-batches."""
    return len(forwards(seen)) > case.args[-1]


def too_few_forwards(case: Case, seen: Observation, expected: Observation) -> bool:
    """Too many samples at once, in two forwards or more, but not as many as micro-batches."""
    return 1 < len(forwards(seen)) < case.args[-1] and max(forwards(seen)) > -(-len(case.args[1]) // case.args[-1])


def largest_comes_last(case: Case, seen: Observation, expected: Observation) -> bool:
    """As many parts as there should be, the last of them too large."""
    sizes = forwards(seen)
    return len(sizes) == case.args[-1] > 1 and sizes[-1] > max(sizes[:-1])


MISTAKES = (
    Mistake(
        "un-scaled micro-batch loss",
        wrong.unscaled,
        "Each micro-batch's loss is a mean over its own samples, and `backward` adds up: the gradient is about m "
        "times too large. Scale each loss by its share of the batch.",
    ),
    Mistake(
        "divides by the number of micro-batches",
        wrong.divides_by_the_count,
        "Every micro-batch counts alike. When they are not of the same size, samples of a small one count more: "
        "the share is its samples out of all.",
    ),
    Mistake(
        "times the size",
        wrong.times_the_size,
        "The mean times the size is the sum over samples. It has to be divided by the samples of the whole batch.",
    ),
    Mistake(
        "divides by the micro-batch's size",
        wrong.divides_by_the_size,
        "The loss is a mean over the micro-batch already, and you divide by its size again.",
    ),
    Mistake(
        "clears the gradients in between",
        wrong.clears_in_between,
        "`zero_grad` between the micro-batches throws away what the earlier ones have added.",
    ),
    Mistake(
        "clears the gradients first",
        wrong.clears_first,
        "What was in `grad` before is lost: you clear it at the start, or put your own in its place at the end. It is to be "
        "added to, as `backward` does: whoever calls this clears it when it is time.",
    ),
    Mistake(
        "the whole batch at once",
        wrong.all_at_once,
        "The gradient is right, but the whole batch goes through the model at once: no stage could start before "
        "the one before it has done everything.",
    ),
    Mistake(
        "one backward at the end",
        wrong.one_backward_at_the_end,
        "The gradient is right, but all micro-batches are held until backward comes at the end: that saves no memory. Call "
        "`backward` for each before the next goes forward.",
    ),
    Mistake(
        "drops the rest",
        wrong.drops_the_rest,
        "The samples that are left over after dividing are never seen. `tensor_split` makes the first parts "
        "longer by one.",
        symptom=leaves_samples_out,
    ),
    Mistake(
        "micro-batches of m samples",
        wrong.sizes_of_chunks,
        "`split(m)` makes parts of m samples; m parts are what is asked for, which is `tensor_split(m)`.",
    ),
    Mistake(
        "no backward",
        wrong.no_backward,
        "Nothing arrives in the parameters' `grad`. `backward()` of each micro-batch's loss adds to it; what your function "
        "returns is not looked at.",
        symptom=nothing_arrives,
    ),
    Mistake(
        "scales what is there at the end",
        wrong.scales_all_at_the_end,
        "You scale all of `grad` at the end, and with it what was there before. Scale each loss, before its `backward`.",
    ),
    Mistake(
        "the first one's share for all",
        wrong.the_first_ones_share,
        "You give every micro-batch the share of the first. Where they are not of the same size, each has its own: its "
        "samples out of all.",
    ),
    Mistake(
        "a loss of its own",
        wrong.another_loss,
        "You do not use `loss`, but one that you know. It is an argument: any mean over samples.",
    ),
    Mistake(
        "one sample at a time",
        wrong.one_sample_at_a_time,
        "There are more forwards than micro-batches: `micro_batches` says how many parts there are, and each goes through the "
        "model once.",
        symptom=too_many_forwards,
    ),
    Mistake(
        "always two parts",
        wrong.two_parts,
        "`micro_batches` says how many parts there are, and so how many samples go through at once.",
        symptom=too_few_forwards,
    ),
    Mistake(
        "the rest in the last part",
        wrong.the_rest_in_the_last_part,
        "What is left over after dividing goes into your last part, which becomes too large. `tensor_split` gives one sample "
        "more to each of the first parts.",
        symptom=largest_comes_last,
    ),
    Mistake(
        "makes a step",
        wrong.makes_a_step,
        "You change the weights. Only the gradients are asked for: the step of the optimizer is for whoever calls this.",
    ),
    Mistake(
        "evaluation mode",
        wrong.in_evaluation_mode,
        "`model.eval()` changes what dropout and batch norm do, here and for whoever trains on. Leave the mode as it is.",
    ),
)
