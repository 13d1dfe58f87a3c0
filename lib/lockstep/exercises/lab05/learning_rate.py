"""Exercise 05.5: the learning rate of a large batch.

Floor 4, room `exercises`. Goyal et al. 2017, sections 2.1 and 2.2.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import same_value
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation


def scaled_lr(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    full_lr = base_lr * batch / base_batch
    warmup_steps = warmup_epochs * steps_per_epoch
    if step >= warmup_steps:
        return full_lr
    return base_lr + (full_lr - base_lr) * step / warmup_steps


def scaled_lr_by_interpolation(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    ends = [0, max(warmup_epochs * steps_per_epoch, 1e-9)]
    return np.interp(step if warmup_epochs else 1, ends, [base_lr, base_lr / base_batch * batch])


def scaled_lr_by_increments(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    times = batch / base_batch
    last = warmup_epochs * steps_per_epoch
    done = min(step, last) / last if last else 1.0
    return base_lr * (1 - done) + times * base_lr * done


def scaled_lr_stub(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    raise NotImplementedError("return the learning rate of this step")


def does_not_scale(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    return base_lr


def scales_by_the_root(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    return scaled_lr(step, steps_per_epoch, base_lr, 1, (batch / base_batch) ** 0.5, warmup_epochs)


def scales_the_wrong_way(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    return scaled_lr(step, steps_per_epoch, base_lr, batch, base_batch, warmup_epochs)


def warms_up_by_epochs(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    whole = step // steps_per_epoch * steps_per_epoch
    return scaled_lr(whole, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs)


def takes_epochs_for_steps(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    return scaled_lr(step, 1, base_lr, base_batch, batch, warmup_epochs)


def begins_at_zero(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    full_lr = base_lr * batch / base_batch
    warmup_steps = warmup_epochs * steps_per_epoch
    return full_lr if step >= warmup_steps else full_lr * step / warmup_steps


def never_ends(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    full_lr = base_lr * batch / base_batch
    warmup_steps = warmup_epochs * steps_per_epoch
    return base_lr + (full_lr - base_lr) * step / warmup_steps if warmup_steps else full_lr


def is_a_step_early(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    return scaled_lr(step + 1, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs)


def keeps_low_then_jumps(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    return base_lr if step < warmup_epochs * steps_per_epoch else base_lr * batch / base_batch


def needs_a_warm_up(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    full_lr = base_lr * batch / base_batch
    done = min(1, step / (warmup_epochs * steps_per_epoch))
    return base_lr + (full_lr - base_lr) * done


def starts_low_without_a_warm_up(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    done = min(1, step / max(warmup_epochs * steps_per_epoch, 1))
    return base_lr + (base_lr * batch / base_batch - base_lr) * done


def scales_by_whole_numbers(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    return scaled_lr(step, steps_per_epoch, base_lr, 1, batch // base_batch, warmup_epochs)


def rises_too_far(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    times, warmup_steps = batch / base_batch, warmup_epochs * steps_per_epoch
    return base_lr * (1 + times * step / warmup_steps) if step < warmup_steps else base_lr * times


def skips_the_warm_up(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    return base_lr * batch / base_batch


def cases(rng: np.random.Generator) -> Iterator[Case]:
    steps = int(rng.integers(20, 60))
    drawn = (
        (7, 10, 0.1, 32, 256, 2),
        (0, 10, 0.1, 32, 256, 2),
        (19, 10, 0.1, 32, 256, 2),
        (20, 10, 0.1, 32, 256, 2),
        (95, 10, 0.1, 32, 256, 2),
        (3, 10, 0.1, 32, 32, 2),
        (0, 10, 0.1, 32, 128, 0),
        (5, 10, 0.1, 32, 128, 0),
        (25, 10, 0.1, 32, 48, 2),
        (int(rng.integers(1, 5 * steps)), steps, 0.02, 48, 48 * int(rng.integers(2, 20)), 5),
    )
    for step, per_epoch, base_lr, base_batch, batch, epochs in drawn:
        words = f"step {step}, {per_epoch} steps an epoch, {base_lr} at {base_batch}, batch {batch}, warm-up {epochs} epochs"
        yield Case(words, (step, per_epoch, base_lr, base_batch, batch, epochs))


def divides_by_zero(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is not None and seen.error.type == "ZeroDivisionError"


OBSERVE, JUDGE = Call(), same_value(rtol=1e-5)

SCALED = Exercise(
    id="05.5",
    title="The learning rate of a large batch",
    function="scaled_lr",
    points=1,
    core=False,
    asks=(
        "Return the learning rate of step `step` (from 0). The full rate is `base_lr` times `batch / base_batch`. Over "
        "the first `warmup_epochs` epochs of `steps_per_epoch` steps it rises evenly from `base_lr`, at step 0, to the "
        "full rate, which the first step after the warm-up has; then it stays."
    ),
    reference=scaled_lr,
    also_right=(scaled_lr_by_interpolation, scaled_lr_by_increments),
    stub=scaled_lr_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "Two questions. How large is the rate when the warm-up is over? And how much of the warm-up has passed at "
        "step `step`, as a number from 0 to 1?",
        "The warm-up lasts `warmup_epochs * steps_per_epoch` steps, which may be none. During it the rate is "
        "`base_lr` plus that share of the difference between the full rate and `base_lr`.",
        "`base_lr + (full_lr - base_lr) * step / warmup_steps`, while `step` is less than `warmup_steps`.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "warm-up per epoch instead of per step",
                warms_up_by_epochs,
                "Your rate rises once an epoch, in jumps. It has to rise a little at every step: the jumps are what the "
                "warm-up is there to avoid.",
            ),
            Mistake(
                "takes epochs for steps",
                takes_epochs_for_steps,
                "Your warm-up is over after `warmup_epochs` steps. It lasts that many epochs, each of `steps_per_epoch` "
                "steps.",
            ),
            Mistake(
                "starts low without a warm-up",
                starts_low_without_a_warm_up,
                "Without a warm-up step 0 already has the full rate: there is nothing to rise over.",
            ),
            Mistake(
                "scales by whole numbers",
                scales_by_whole_numbers,
                "A batch of 48 is 1.5 times one of 32, and `//` throws the half away. Divide with `/`.",
            ),
            Mistake(
                "does not scale",
                does_not_scale,
                "The rate does not depend on the batch. A batch 8 times as large makes an eighth of the steps, so each has "
                "to be 8 times as long.",
            ),
            Mistake(
                "scales by the square root",
                scales_by_the_root,
                "That is square-root scaling: it keeps the noise of a step the same. The *linear* rule is asked for: "
                "twice the batch, twice the rate.",
            ),
            Mistake(
                "scales the wrong way",
                scales_the_wrong_way,
                "Your rate falls when the batch grows. A larger batch makes fewer steps, so each has to be longer.",
            ),
            Mistake(
                "begins at zero",
                begins_at_zero,
                "Your warm-up begins at 0, so the first step changes nothing. It begins at `base_lr`, which is known to be "
                "safe.",
            ),
            Mistake(
                "warm-up never ends",
                never_ends,
                "The rate keeps rising after the warm-up. From its end on it stays at the full rate.",
            ),
            Mistake(
                "one step early",
                is_a_step_early,
                "Your rate is one step ahead: step 0 has `base_lr` itself, and the full rate comes with the first step "
                "after the warm-up.",
            ),
            Mistake(
                "low, then a jump",
                keeps_low_then_jumps,
                "Your rate stays at `base_lr` and then jumps. Goyal et al. tried that and the loss jumped too; the rate "
                "has to rise gradually.",
            ),
            Mistake(
                "rises too far",
                rises_too_far,
                "Your warm-up goes beyond the full rate and then drops. It rises by the *difference* between the full rate "
                "and `base_lr`, not by the whole of the full rate.",
            ),
            Mistake(
                "no warm-up at all",
                skips_the_warm_up,
                "The full rate is used from step 0 on. At the start the loss changes fast, and long steps overshoot: begin "
                "at `base_lr`.",
            ),
            Mistake(
                "divides by a warm-up of no steps",
                needs_a_warm_up,
                "A warm-up of 0 epochs has 0 steps, and you divide by them. Without a warm-up every step has the full rate.",
                symptom=divides_by_zero,
            ),
        ),
    ),
)
