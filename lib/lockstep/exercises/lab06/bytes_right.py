"""Exercise 06.6: right solutions, written independently, and the stub.

Floor 4, room `exercises`; the exercise is in `bytes.py`.
"""

from __future__ import annotations

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
