"""Exercise 06.6: the bytes that a rank sends in one training step, for each way to split a layer.

Floor 4, room `exercises`. Legend: p ranks; numbers have 4 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, Mistake, Symptom
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short

SPLITS = ("data", "layers", "column", "row", "pair")


def bytes_per_step(split, inputs, outputs, parameters, batch, ranks):
    gather = 4 * (ranks - 1) / ranks
    if split == "data":
        return 2 * gather * parameters
    if split == "layers":
        return 4 * batch * (inputs + outputs)
    if split == "column":
        return gather * batch * (outputs + 2 * inputs)
    if split == "row":
        return gather * batch * (2 * outputs + inputs)
    return 2 * gather * batch * (inputs + outputs)


def by_a_table(split, inputs, outputs, parameters, batch, ranks):
    own = 1 / ranks
    all_gather, all_reduce = 1 - own, 2 - 2 * own
    numbers = {
        "data": all_reduce * parameters,
        "layers": batch * inputs + batch * outputs,
        "column": all_gather * batch * outputs + all_reduce * batch * inputs,
        "row": all_reduce * batch * outputs + all_gather * batch * inputs,
        "pair": all_reduce * batch * outputs + all_reduce * batch * inputs,
    }
    return 4 * numbers[split]


def by_steps_of_a_ring(split, inputs, outputs, parameters, batch, ranks):
    def around(n):
        return sum(4 * n / ranks for _ in range(ranks - 1))

    match split:
        case "data":
            return around(parameters) + around(parameters)
        case "layers":
            return 4 * (batch * outputs) + 4 * (batch * inputs)
        case "column":
            return around(batch * outputs) + 2 * around(batch * inputs)
        case "row":
            return 2 * around(batch * outputs) + around(batch * inputs)
    return 2 * (around(batch * inputs) + around(batch * outputs))


def bytes_per_step_stub(split, inputs, outputs, parameters, batch, ranks):
    if split == "data":
        ...
    raise NotImplementedError("return the bytes that a rank sends, forward and backward")


def changed(**formulas: Callable[..., float]) -> Callable[..., float]:
    """The reference with other formulas for some splits."""

    def function(split, inputs, outputs, parameters, batch, ranks):
        formula = formulas.get(split, bytes_per_step)
        return formula(split, inputs, outputs, parameters, batch, ranks)

    return function


def numbers_for_bytes(split, inputs, outputs, parameters, batch, ranks):
    return bytes_per_step(split, inputs, outputs, parameters, batch, ranks) / 4


def without_the_share(split, inputs, outputs, parameters, batch, ranks):
    if split == "layers":
        return bytes_per_step(split, inputs, outputs, parameters, batch, ranks)
    return bytes_per_step(split, inputs, outputs, parameters, batch, ranks) * ranks / (ranks - 1)


def of_all_ranks_together(split, inputs, outputs, parameters, batch, ranks):
    return ranks * bytes_per_step(split, inputs, outputs, parameters, batch, ranks)


def of_one_image(split, inputs, outputs, parameters, batch, ranks):
    return bytes_per_step(split, inputs, outputs, parameters, 1, ranks)


def gradients_of_a_batch(split, inputs, outputs, parameters, batch, ranks):
    return bytes_per_step("data", inputs, outputs, parameters, batch, ranks) * batch


def half_an_all_reduce(split, inputs, outputs, parameters, batch, ranks):
    return bytes_per_step(split, inputs, outputs, parameters, batch, ranks) / 2


def forward_only(split, inputs, outputs, parameters, batch, ranks):
    share = 4 * batch * (ranks - 1) / ranks
    if split == "layers":
        return 4 * batch * outputs
    return {"column": share * outputs, "row": 2 * share * outputs, "pair": 2 * share * outputs}[split]


def activation_both_ways(split, inputs, outputs, parameters, batch, ranks):
    return 2 * 4 * batch * outputs


def divided_among_ranks(split, inputs, outputs, parameters, batch, ranks):
    return 4 * batch * (inputs + outputs) * (ranks - 1) / ranks


def swapped(split, inputs, outputs, parameters, batch, ranks):
    return bytes_per_step({"column": "row", "row": "column"}[split], inputs, outputs, parameters, batch, ranks)


def column_without_its_gather(split, inputs, outputs, parameters, batch, ranks):
    return 8 * (ranks - 1) / ranks * batch * inputs


def row_without_its_gather(split, inputs, outputs, parameters, batch, ranks):
    return 8 * (ranks - 1) / ranks * batch * outputs


def two_layers_by_themselves(split, inputs, outputs, parameters, batch, ranks):
    return sum(bytes_per_step(one, inputs, outputs, parameters, batch, ranks) for one in ("column", "row"))


def right_bytes(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The same bytes; the evidence is by what factor they are wrong."""
    if differs(seen.value, expected.value, rtol=1e-6, atol=0.5) is None:
        return None
    if isinstance(seen.value, bool) or not isinstance(seen.value, (int, float)):
        words = (
            "It returns None: is there a `return` for this split?" if seen.value is None else "It should be a number."
        )
        return Finding(words, short(expected.value), short(seen.value), "no number")
    words = f"It should be {expected.value:,.0f} bytes, and comes out as {seen.value:,.0f}."
    return Finding(words, f"{expected.value:,.0f}", f"{seen.value:,.0f}", ("factor", seen.value / expected.value))


def gives(formula: Callable[..., float], *splits: str) -> Symptom:
    """The bytes of `formula` on the failing case, if that is of one of `splits`."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None or case.args[0] not in splits or not isinstance(seen.value, (int, float)):
            return False
        return differs(seen.value, formula(*case.args), rtol=1e-6, atol=0.5) is None

    return symptom


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks in (2, 3, 4, 8):
        inputs, outputs, batch = (int(rng.integers(low, 5 * low)) for low in (50, 400, 5))
        for split in SPLITS:
            args = (split, inputs, outputs, inputs * outputs + outputs, batch, ranks)
            yield Case(
                f"{split}, {inputs} inputs, {outputs} outputs, {args[3]:,} parameters, batch {batch}, {ranks} ranks",
                args,
            )


def _mistake(name: str, sentence: str, formula: Callable[..., float], *splits: str) -> Mistake:
    return Mistake(name, changed(**dict.fromkeys(splits, formula)), sentence, symptom=gives(formula, *splits))


MOVING = ("column", "row", "pair")
OBSERVE, JUDGE = Call(), right_bytes

BYTES_PER_STEP = Exercise(
    id="06.6",
    title="Which split talks least",
    function="bytes_per_step",
    points=2,
    core=False,
    asks=(
        "Return the bytes that a rank sends in one step, forward and backward, for a layer with `inputs` and `outputs` "
        'numbers per image and `parameters`; numbers have 4 bytes. `split` is "data" (gradients all-reduced), "layers" '
        '(the rank has this layer whole, between two others), "column" or "row" (alone, whole inputs to whole outputs on '
        'every rank), or "pair" (column, then row, with `inputs` of the first and `outputs` of the second).'
    ),
    reference=bytes_per_step,
    also_right=(by_a_table, by_steps_of_a_ring),
    stub=bytes_per_step_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "For each split write down which collectives run forward and which backward, and of what tensor. The table in "
            "front of the exercise has them."
        ),
        (
            "An all-gather of n bytes sends (p - 1)/p n from each rank, an all-reduce twice that. An activation of the "
            "whole batch has `batch` times `outputs` numbers; gradients of parameters do not depend on the batch."
        ),
        "Column alone: an all-gather of the outputs forward, an all-reduce of the inputs' gradient backward.",
        "So `column` is `gather * batch * (outputs + 2 * inputs)`, with `gather = 4 * (ranks - 1) / ranks`.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            _mistake("numbers for bytes", "You count numbers. Each has 4 bytes.", numbers_for_bytes, *SPLITS),
            _mistake(
                "half an all-reduce",
                "You count an all-reduce as one trip round the ring. It is two: a reduce-scatter, then an all-gather, each of "
                "(p - 1)/p of the tensor.",
                half_an_all_reduce, "data", "pair",
            ),
            _mistake(
                "leaves out what a rank keeps",
                "A rank does not send its own chunk to itself: (p - 1)/p of the tensor travels, not all of it.",
                without_the_share, "data", *MOVING,
            ),
            _mistake(
                "all ranks together",
                "That is what all ranks send together. Asked is one rank.",
                of_all_ranks_together, *SPLITS,
            ),
            _mistake(
                "gradients times the batch",
                "Gradients of parameters have the size of the parameters, however many images they are of: a mean over the "
                "batch is taken before anything is sent.",
                gradients_of_a_batch, "data",
            ),
            _mistake(
                "one image only",
                "Activations are those of the whole batch: every image has its own.",
                of_one_image, "layers", *MOVING,
            ),
            _mistake(
                "forward only",
                "You count the forward pass. What travels forward has a gradient that travels back, or a sum over ranks that "
                "becomes due in backward.",
                forward_only, "layers", *MOVING,
            ),
            _mistake(
                "the activation both ways",
                "You send the gradient of your own output back. The rank sends back the gradient of what it *received*, which "
                "has the size of the inputs.",
                activation_both_ways, "layers",
            ),
            _mistake(
                "divides the layer among ranks",
                "Split by layers, a layer is whole on its rank, and so are its inputs and outputs: nothing is divided by the "
                "number of ranks.",
                divided_among_ranks, "layers",
            ),
            _mistake(
                "column and row swapped",
                "You have them the other way round. Column shares out the outputs: gather those forward, add up the gradient "
                "of the inputs backward. Row is its mirror image.",
                swapped, "column", "row",
            ),
            _mistake(
                "column without its gather",
                "Alone, a column-parallel layer has to put its outputs together again, so that every rank has them all: an "
                "all-gather forward.",
                column_without_its_gather, "column",
            ),
            _mistake(
                "row without its gather",
                "Alone, a row-parallel layer takes its part of whole inputs, so in backward every rank needs the other parts "
                "of their gradient: an all-gather.",
                row_without_its_gather, "row",
            ),
            _mistake(
                "two layers by themselves",
                "You add up a column and a row layer that stand alone. In a pair the gather behind the first and that in "
                "front of the second fall away: one all-reduce each way is left.",
                two_layers_by_themselves, "pair",
            ),
        ),
    ),
)  # fmt: skip
