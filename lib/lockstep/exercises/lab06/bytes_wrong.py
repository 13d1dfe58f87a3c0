"""Exercise 06.6: wrong formulas that students write; their sentences are in `bytes_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.exercises.lab06.bytes_right import bytes_per_step


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
    return bytes_per_step(split, inputs, outputs, parameters, batch, max(ranks, 2)) * ranks / max(ranks - 1, 1)


def of_all_ranks_together(split, inputs, outputs, parameters, batch, ranks):
    return ranks * bytes_per_step(split, inputs, outputs, parameters, batch, ranks)


def of_one_image(split, inputs, outputs, parameters, batch, ranks):
    return bytes_per_step(split, inputs, outputs, parameters, 1, ranks)


def gradients_of_a_batch(split, inputs, outputs, parameters, batch, ranks):
    return bytes_per_step("data", inputs, outputs, parameters, batch, ranks) * batch


def half_an_all_reduce(split, inputs, outputs, parameters, batch, ranks):
    if split in ("column", "row"):
        return 4 * (ranks - 1) / ranks * batch * (inputs + outputs)
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


def with_share(share: Callable[[int], float]) -> Callable[..., float]:
    """The reference, with `share(ranks)` of a tensor for (p - 1)/p of it."""

    def formula(split, inputs, outputs, parameters, batch, ranks):
        right = bytes_per_step(split, inputs, outputs, parameters, batch, ranks)
        return right / (ranks - 1) * ranks * share(ranks) if ranks > 1 else right

    return formula


def times(factor: float) -> Callable[..., float]:
    """So many times the reference."""
    return lambda *args: factor * bytes_per_step(*args)


def weights_of_a_linear_layer(split, inputs, outputs, parameters, batch, ranks):
    return bytes_per_step(split, inputs, outputs, inputs * outputs + outputs, batch, ranks)


def weights_without_biases(split, inputs, outputs, parameters, batch, ranks):
    return bytes_per_step(split, inputs, outputs, inputs * outputs, batch, ranks)


def own_outputs(split, inputs, outputs, parameters, batch, ranks):
    return bytes_per_step(split, inputs, outputs / ranks, parameters, batch, ranks)


def inputs_both_ways(split, inputs, outputs, parameters, batch, ranks):
    return 2 * 4 * batch * inputs


def outputs_of_the_pair_both_ways(split, inputs, outputs, parameters, batch, ranks):
    return 16 * (ranks - 1) / ranks * batch * outputs
