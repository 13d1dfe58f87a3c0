"""Exercise 06.6: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `bytes.py`, the wrong formulas are in `bytes_wrong.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.lab06.bytes_right import SPLITS
from lockstep.exercises.lab06.bytes_wrong import (
    activation_both_ways,
    changed,
    column_without_its_gather,
    divided_among_ranks,
    forward_only,
    gradients_of_a_batch,
    half_an_all_reduce,
    inputs_both_ways,
    numbers_for_bytes,
    of_all_ranks_together,
    of_one_image,
    outputs_of_the_pair_both_ways,
    own_outputs,
    row_without_its_gather,
    swapped,
    times,
    two_layers_by_themselves,
    weights_of_a_linear_layer,
    weights_without_biases,
    with_share,
    without_the_share,
)
from lockstep.exercises.observe import Observation


def gives(formula: Callable[..., float], *splits: str) -> Symptom:
    """The bytes of `formula` on the failing case, if that is of one of `splits`."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None or case.args[0] not in splits or not isinstance(seen.value, (int, float)):
            return False
        return differs(seen.value, formula(*case.args), rtol=1e-6, atol=4) is None

    return symptom


def _mistake(name: str, sentence: str, formula: Callable[..., float], *splits: str) -> Mistake:
    return Mistake(name, changed(**dict.fromkeys(splits, formula)), sentence, symptom=gives(formula, *splits))


MOVING = ("column", "row", "pair")


MISTAKES = (
    _mistake("numbers for bytes", "You count numbers. Each has 4 bytes.", numbers_for_bytes, *SPLITS),
    _mistake(
        "half an all-reduce",
        "You count an all-reduce as one trip round the ring. It is two: a reduce-scatter, then an all-gather, each of "
        "(p - 1)/p of the tensor.",
        half_an_all_reduce, "data", *MOVING,
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
    _mistake(
        "one rank's chunk",
        "You send 1/p of the tensor, which is one chunk. Round a ring go p - 1 of them: (p - 1)/p.",
        with_share(lambda ranks: 1 / ranks), "data", *MOVING,
    ),
    _mistake(
        "always 4 ranks",
        "Your share of the tensor is 3/4 whatever `ranks` is. It is (p - 1)/p, with p = `ranks`.",
        with_share(lambda ranks: 3 / 4), "data", *MOVING,
    ),
    _mistake(
        "always 2 ranks",
        "Your share of the tensor is 1/2 whatever `ranks` is. It is (p - 1)/p, with p = `ranks`.",
        with_share(lambda ranks: 1 / 2), "data", *MOVING,
    ),
    _mistake("bits for bytes", "You count bits. Asked are bytes, of which a number takes 4.", times(8), *SPLITS),
    _mistake(
        "twice too many",
        "It is twice as many as it should be: numbers of 8 bytes, perhaps, or an all-reduce counted as two trips and each "
        "as two more.",
        times(2), *SPLITS,
    ),
    _mistake(
        "weights of a linear layer",
        "You work the parameters out as inputs times outputs and a bias each. That is a linear layer; this is a convolution, "
        "which has far fewer. Take `parameters`.",
        weights_of_a_linear_layer, "data",
    ),
    _mistake(
        "weights without biases",
        "You work the parameters out as inputs times outputs. A convolution has far fewer, and biases come on top: take "
        "`parameters`.",
        weights_without_biases, "data",
    ),
    _mistake(
        "outputs of this rank only",
        "You divide the outputs by the number of ranks. `outputs` are those of the whole layer, and so is the n of the rules "
        "for collectives: the whole tensor, as it is after the gather.",
        own_outputs, "layers", *MOVING,
    ),
    _mistake(
        "inputs both ways",
        "What this rank sends forward is its *outputs*. Only the gradient that goes back has the size of the inputs.",
        inputs_both_ways, "layers",
    ),
    _mistake(
        "outputs of the pair both ways",
        "Forward the pair adds up the second layer's outputs. What it adds up backward is the gradient of the first one's "
        "*inputs*.",
        outputs_of_the_pair_both_ways, "pair",
    ),
)  # fmt: skip
