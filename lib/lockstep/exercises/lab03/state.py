"""03.3 `training_memory`: parameters, gradients, optimizer state and activations, in one precision or in two.

Floor 4, room `exercises`. Mixed precision as in Micikevicius et al. 2018, counted as in Rajbhandari et al. 2020.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding, all_of, same_value
from lockstep.exercises.lab03.words import by_wrong_number
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


def training_memory(parameters, activations, optimizer, precision):
    width = 2 if precision == "mixed" else 4
    kept = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    return {
        "parameters": width * parameters,
        "gradients": width * parameters,
        "master": 4 * parameters if precision == "mixed" else 0,
        "optimizer": 4 * kept * parameters,
        "activations": width * activations,
    }


def by_element_sizes(parameters, activations, optimizer, precision):
    narrow = (torch.float16 if precision == "mixed" else torch.float32).itemsize
    parts = dict.fromkeys(("parameters", "gradients"), parameters * narrow)
    parts["activations"] = activations * narrow
    parts["master"] = (narrow == 2) * parameters * torch.float32.itemsize
    parts["optimizer"] = 4 * parameters * ("momentum", "adam", "adam").count(optimizer)
    return parts


def case_by_case(parameters, activations, optimizer, precision):
    optimizer_bytes = 0
    if optimizer != "sgd":
        optimizer_bytes = 4 * parameters
        if optimizer == "adam":
            optimizer_bytes += 4 * parameters
    if precision == "fp32":
        sizes = (4 * parameters, 4 * parameters, 0, optimizer_bytes, 4 * activations)
    else:
        sizes = (2 * parameters, 2 * parameters, 4 * parameters, optimizer_bytes, 2 * activations)
    return dict(zip(("parameters", "gradients", "master", "optimizer", "activations"), sizes, strict=True))


def training_memory_stub(parameters, activations, optimizer, precision):
    raise NotImplementedError("bytes of each of the five parts")


def forgets_momentum(parameters, activations, optimizer, precision):
    right = training_memory(parameters, activations, optimizer, precision)
    return right | {"optimizer": right["optimizer"] if optimizer == "adam" else 0}


def no_state_at_all(parameters, activations, optimizer, precision):
    return training_memory(parameters, activations, "sgd", precision)


def adam_keeps_one(parameters, activations, optimizer, precision):
    return training_memory(parameters, activations, "momentum" if optimizer == "adam" else optimizer, precision)


def state_for_sgd_too(parameters, activations, optimizer, precision):
    return training_memory(parameters, activations, "momentum" if optimizer == "sgd" else optimizer, precision)


def narrow_state(parameters, activations, optimizer, precision):
    right = training_memory(parameters, activations, optimizer, precision)
    return right | {"optimizer": right["optimizer"] // (2 if precision == "mixed" else 1)}


def no_master_copy(parameters, activations, optimizer, precision):
    return training_memory(parameters, activations, optimizer, precision) | {"master": 0}


def narrow_master_copy(parameters, activations, optimizer, precision):
    right = training_memory(parameters, activations, optimizer, precision)
    return right | {"master": right["master"] // 2}


def master_copy_always(parameters, activations, optimizer, precision):
    return training_memory(parameters, activations, optimizer, precision) | {"master": 4 * parameters}


def no_key_in_fp32(parameters, activations, optimizer, precision):
    right = training_memory(parameters, activations, optimizer, precision)
    return {name: size for name, size in right.items() if name != "master" or precision == "mixed"}


def no_master_copy_for_sgd(parameters, activations, optimizer, precision):
    right = training_memory(parameters, activations, optimizer, precision)
    return right | {"master": 0 if optimizer == "sgd" else right["master"]}


def wide_gradients(parameters, activations, optimizer, precision):
    return training_memory(parameters, activations, optimizer, precision) | {"gradients": 4 * parameters}


def wide_parameters(parameters, activations, optimizer, precision):
    return training_memory(parameters, activations, optimizer, precision) | {"parameters": 4 * parameters}


def wide_activations(parameters, activations, optimizer, precision):
    return training_memory(parameters, activations, optimizer, precision) | {"activations": 4 * activations}


def mixed_is_half_of_everything(parameters, activations, optimizer, precision):
    parts = training_memory(parameters, activations, optimizer, "fp32")
    return {name: size // (2 if precision == "mixed" else 1) for name, size in parts.items()}


def no_gradients(parameters, activations, optimizer, precision):
    return training_memory(parameters, activations, optimizer, precision) | {"gradients": 0}


def gradients_of_activations(parameters, activations, optimizer, precision):
    right = training_memory(parameters, activations, optimizer, precision)
    return right | {"gradients": right["gradients"] + right["activations"]}


def counts_bits(parameters, activations, optimizer, precision):
    return {name: 8 * size for name, size in training_memory(parameters, activations, optimizer, precision).items()}


def counts_numbers(parameters, activations, optimizer, precision):
    parts = training_memory(parameters, activations, optimizer, "fp32")
    return {name: size // 4 for name, size in parts.items()}


def the_sum_alone(parameters, activations, optimizer, precision):
    return sum(training_memory(parameters, activations, optimizer, precision).values())


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for precision in ("fp32", "mixed"):
        for optimizer in ("sgd", "momentum", "adam"):
            parameters, activations = (int(n) for n in rng.integers(1000, 90_000_000, 2))
            name = f"{optimizer}, {precision}, {parameters:,} parameters, {activations:,} numbers kept"
            yield Case(name, (parameters, activations, optimizer, precision))


def has_the_keys(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Names the key that is missing, and one that nobody asked for."""
    if not isinstance(seen.value, dict):
        return None
    missing = [repr(key) for key in expected.value if key not in seen.value]
    more = [repr(key) for key in seen.value if key not in expected.value]
    if not missing and not more:
        return None
    said = [f"The key {key} is missing." for key in missing[:1]] + [
        f"The key {key} is not asked for." for key in more[:1]
    ]
    return Finding(
        " ".join(said), short(list(expected.value)), short(list(seen.value)), ("keys", sorted(missing), sorted(more))
    )


JUDGE = all_of(has_the_keys, same_value(rtol=1e-9))

MEMORY = Exercise(
    id="03.3",
    title="The memory of training, by part",
    function="training_memory",
    points=2,
    asks=(
        'Return a dictionary of bytes: "parameters", "gradients", "master", "optimizer" and "activations". `parameters` '
        'and `activations` count numbers, `optimizer` is "sgd", "momentum" or "adam", `precision` "fp32" or "mixed".'
    ),
    reference=training_memory,
    also_right=(by_element_sizes, case_by_case),
    stub=training_memory_stub,
    cases=cases,
    observe=Call(),
    judge=JUDGE,
    hints=(
        "Make a table of the five parts and two precisions, and write into each field how many bytes one number takes. "
        "Which field does not depend on the precision?",
        "How many numbers does each optimizer keep for a parameter? Plain SGD none, momentum its velocity, Adam a mean of "
        "the gradient and a mean of its square; all of them in 4 bytes.",
        "In mixed precision parameters, gradients and activations take 2 bytes a number. The master copy takes 4, and in "
        "fp32 there is none.",
    ),
    mistakes=by_wrong_number(
        (
            Mistake(
                "forgets momentum",
                forgets_momentum,
                "Momentum keeps a velocity for each parameter, as large as the parameters themselves.",
            ),
            Mistake(
                "forgets the optimizer's state",
                no_state_at_all,
                "Your optimizers keep nothing. Momentum keeps one number for each parameter and Adam two: often more than "
                "the parameters.",
            ),
            Mistake(
                "Adam keeps one number",
                adam_keeps_one,
                "Adam keeps two numbers for each parameter: a mean of its gradient, and one of its gradient's square.",
            ),
            Mistake(
                "a state for plain SGD",
                state_for_sgd_too,
                "Plain SGD keeps nothing from one step to the next: it needs the gradient and no more.",
            ),
            Mistake(
                "no master copy for plain SGD",
                no_master_copy_for_sgd,
                "You leave the master copy out for plain SGD. It belongs to mixed precision, whatever the optimizer: there is "
                "always an update that would vanish in 2 bytes.",
            ),
            Mistake(
                "no key for the master copy in fp32",
                no_key_in_fp32,
                "In fp32 the part is there too: a master copy of 0 bytes, so that all dictionaries have the same keys.",
            ),
            Mistake(
                "mixed precision halves every part",
                mixed_is_half_of_everything,
                "You halve every part. Mixed precision is *mixed*: the optimizer works on a master copy in 4 bytes, with "
                "its state in 4 bytes too. Small updates would vanish in 2.",
            ),
            Mistake(
                "the optimizer's state in 2 bytes",
                narrow_state,
                "The optimizer's state stays in 4 bytes in mixed precision: it belongs to the master copy.",
            ),
            Mistake(
                "no master copy",
                no_master_copy,
                "In mixed precision a master copy of the parameters is kept in 4 bytes, to which the updates are added. "
                "It is a part of its own.",
            ),
            Mistake(
                "a master copy in 2 bytes",
                narrow_master_copy,
                "The master copy takes 4 bytes a parameter: that it is more exact than the parameters is what it is for.",
            ),
            Mistake(
                "always a master copy",
                master_copy_always,
                "In fp32 the parameters are exact enough themselves; there is no master copy.",
            ),
            Mistake(
                "gradients in 4 bytes in mixed precision",
                wide_gradients,
                "In mixed precision backward gives the gradients in the type of the parameters, 2 bytes each.",
            ),
            Mistake(
                "parameters in 4 bytes in mixed precision",
                wide_parameters,
                "In mixed precision the parameters that forward and backward work with take 2 bytes; those in 4 are the "
                "master copy.",
            ),
            Mistake(
                "activations in 4 bytes in mixed precision",
                wide_activations,
                "In mixed precision the layers compute in 2 bytes, and so is what they keep.",
            ),
            Mistake(
                "leaves the gradients out",
                no_gradients,
                "Every parameter has a gradient, as large as the parameter.",
            ),
            Mistake(
                "counts the gradients of the activations too",
                gradients_of_activations,
                "Gradients of activations come and go on the way back, one layer at a time. The part that stays is those "
                "of the parameters.",
            ),
            Mistake(
                "counts bits instead of bytes",
                counts_bits,
                "Your numbers are bits. A byte is 8 of them: fp32 takes 4 bytes.",
            ),
            Mistake(
                "counts numbers instead of bytes",
                counts_numbers,
                "Your parts count numbers. Each takes 4 bytes, or 2 in mixed precision where it says so.",
            ),
            Mistake(
                "returns the sum of the parts alone",
                the_sum_alone,
                "You return one number. A dictionary with the five parts is asked for; the sum does not say what to "
                "attack.",
            ),
        )
    ),
)
