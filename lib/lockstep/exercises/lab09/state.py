"""09.1 `state_bytes`: bytes of a rank by part, for each stage.

Floor 4, room `exercises`. The count is that of Rajbhandari et al. 2020, section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import all_of, same_value
from lockstep.exercises.lab03.state import has_the_keys
from lockstep.exercises.lab03.words import by_wrong_number
from lockstep.exercises.observe import Call


def state_bytes(parameters, ranks, stage, optimizer, precision):
    width = 2 if precision == "mixed" else 4
    kept = {"sgd": 0, "momentum": 4, "adam": 8}[optimizer] + (4 if precision == "mixed" else 0)
    shard = -(-parameters // ranks)
    return {
        "parameters": width * (shard if stage >= 3 else parameters),
        "gradients": width * (shard if stage >= 2 else parameters),
        "optimizer": kept * (shard if stage >= 1 else parameters),
    }


def part_by_part(parameters, ranks, stage, optimizer, precision):
    sizes = {"parameters": 4, "gradients": 4, "optimizer": 4 * ["sgd", "momentum", "adam"].index(optimizer)}
    if precision == "mixed":
        sizes = {"parameters": 2, "gradients": 2, "optimizer": sizes["optimizer"] + 4}
    for first, part in ((1, "optimizer"), (2, "gradients"), (3, "parameters")):
        sizes[part] *= math.ceil(parameters / ranks) if stage >= first else parameters
    return sizes


def by_a_table(parameters, ranks, stage, optimizer, precision):
    whole, shard = parameters, (parameters + ranks - 1) // ranks
    p, g, o = {
        0: (whole, whole, whole),
        1: (whole, whole, shard),
        2: (whole, shard, shard),
        3: (shard, shard, shard),
    }[stage]
    numbers = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    if precision == "fp32":
        return {"parameters": 4 * p, "gradients": 4 * g, "optimizer": 4 * numbers * o}
    return {"parameters": 2 * p, "gradients": 2 * g, "optimizer": 4 * (numbers + 1) * o}


FROM_STAGE = {"parameters": 3, "gradients": 2, "optimizer": 1}


def state_bytes_stub(parameters, ranks, stage, optimizer, precision):
    raise NotImplementedError("bytes of parameters, gradients and optimizer on one rank")


def shards_all_three_at_once(parameters, ranks, stage, optimizer, precision):
    return state_bytes(parameters, ranks, 3 if stage else 0, optimizer, precision)


def one_stage_ahead(parameters, ranks, stage, optimizer, precision):
    return state_bytes(parameters, ranks, stage + 1, optimizer, precision)


def one_stage_behind(parameters, ranks, stage, optimizer, precision):
    return state_bytes(parameters, ranks, stage - 1, optimizer, precision)


def parameters_first(parameters, ranks, stage, optimizer, precision):
    right = [state_bytes(parameters, ranks, s, optimizer, precision) for s in range(4)]
    return {
        "parameters": right[3 if stage >= 1 else 0]["parameters"],
        "gradients": right[2 if stage >= 2 else 0]["gradients"],
        "optimizer": right[1 if stage >= 3 else 0]["optimizer"],
    }


def only_the_stages_own_part(parameters, ranks, stage, optimizer, precision):
    right = state_bytes(parameters, ranks, 0, optimizer, precision)
    if stage:
        part = ("optimizer", "gradients", "parameters")[stage - 1]
        right[part] = state_bytes(parameters, ranks, 3, optimizer, precision)[part]
    return right


def floors(parameters, ranks, stage, optimizer, precision):
    return state_bytes(parameters // ranks * ranks, ranks, 3, optimizer, precision) | {
        part: size
        for first, part in ((1, "optimizer"), (2, "gradients"), (3, "parameters"))
        if stage < first
        for size in [state_bytes(parameters, ranks, 0, optimizer, precision)[part]]
    }


def divides_the_bytes(parameters, ranks, stage, optimizer, precision):
    whole = state_bytes(parameters, ranks, 0, optimizer, precision)
    first = {"optimizer": 1, "gradients": 2, "parameters": 3}
    return {part: size / ranks if stage >= first[part] else size for part, size in whole.items()}


def no_master_copy(parameters, ranks, stage, optimizer, precision):
    right = state_bytes(parameters, ranks, stage, optimizer, precision)
    return right | {"optimizer": state_bytes(parameters, ranks, stage, optimizer, "fp32")["optimizer"]}


def master_copy_always(parameters, ranks, stage, optimizer, precision):
    right = state_bytes(parameters, ranks, stage, optimizer, precision)
    return right | {"optimizer": state_bytes(parameters, ranks, stage, optimizer, "mixed")["optimizer"]}


def master_copy_stays_whole(parameters, ranks, stage, optimizer, precision):
    right = state_bytes(parameters, ranks, stage, optimizer, precision)
    master = 4 * parameters if precision == "mixed" else 0
    return right | {"optimizer": master + state_bytes(parameters, ranks, stage, optimizer, "fp32")["optimizer"]}


def adam_keeps_one(parameters, ranks, stage, optimizer, precision):
    return state_bytes(parameters, ranks, stage, "momentum" if optimizer == "adam" else optimizer, precision)


def narrow_state(parameters, ranks, stage, optimizer, precision):
    right = state_bytes(parameters, ranks, stage, optimizer, precision)
    return right | {"optimizer": right["optimizer"] // (2 if precision == "mixed" else 1)}


def wide_gradients(parameters, ranks, stage, optimizer, precision):
    right = state_bytes(parameters, ranks, stage, optimizer, precision)
    return right | {"gradients": state_bytes(parameters, ranks, stage, optimizer, "fp32")["gradients"]}


def gathers_in_stage_3(parameters, ranks, stage, optimizer, precision):
    right = state_bytes(parameters, ranks, stage, optimizer, precision)
    return right | {"parameters": state_bytes(parameters, ranks, 0, optimizer, precision)["parameters"]}


def momentum_like_adam(parameters, ranks, stage, optimizer, precision):
    return state_bytes(parameters, ranks, stage, "adam" if optimizer == "momentum" else optimizer, precision)


def narrow_means(parameters, ranks, stage, optimizer, precision):
    right = state_bytes(parameters, ranks, stage, optimizer, precision)
    if precision == "fp32":
        return right
    master = state_bytes(parameters, ranks, stage, "sgd", precision)["optimizer"]
    return right | {"optimizer": master + (right["optimizer"] - master) // 2}


def gradients_with_the_parameters(parameters, ranks, stage, optimizer, precision):
    right = state_bytes(parameters, ranks, stage, optimizer, precision)
    return right | {"gradients": right["parameters"]}


def parameters_before_gradients(parameters, ranks, stage, optimizer, precision):
    right = state_bytes(parameters, ranks, stage, optimizer, precision)
    return right | {"parameters": right["gradients"], "gradients": right["parameters"]}


def pads_what_is_whole(parameters, ranks, stage, optimizer, precision):
    return state_bytes(-(-parameters // ranks) * ranks, ranks, stage, optimizer, precision)


def one_number_more(parameters, ranks, stage, optimizer, precision):
    padded = (parameters // ranks + 1) * ranks
    whole, shard = (state_bytes(n, ranks, stage, optimizer, precision) for n in (parameters, padded))
    return {part: shard[part] if stage >= at else whole[part] for part, at in FROM_STAGE.items()}


def counts_all_ranks(parameters, ranks, stage, optimizer, precision):
    return {part: ranks * size for part, size in state_bytes(parameters, ranks, stage, optimizer, precision).items()}


def as_a_plain_dict(fn: Callable[..., Any], *args: Any) -> Any:
    """What it returns; a `defaultdict` or another kind of dictionary is as good."""
    value = fn(*args)
    return dict(value) if isinstance(value, dict) else value


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, stage, optimizer, precision, over in (
        (2, 0, "adam", "fp32", 1), (2, 1, "adam", "fp32", 1), (4, 2, "momentum", "fp32", 1), (3, 3, "adam", "fp32", 1),
        (4, 0, "sgd", "mixed", 1), (8, 1, "adam", "mixed", 1), (16, 2, "adam", "mixed", 1),
        (64, 3, "momentum", "mixed", 1), (5, 1, "momentum", "mixed", 1),
        (4, 3, "adam", "mixed", 0), (1, 3, "adam", "mixed", 0), (8, 3, "adam", "fp32", -3),
    ):  # fmt: skip
        parameters = ranks + over if over < 0 else ranks * int(rng.integers(3, 40)) + over
        name = f"stage {stage}, {ranks} ranks, {parameters:,} parameters, {optimizer}, {precision}"
        yield Case(name, (parameters, ranks, stage, optimizer, precision))


STATE_BYTES = Exercise(
    id="09.1",
    title="What a rank holds",
    function="state_bytes",
    points=2,
    asks=(
        'Return a dictionary of the bytes that one rank holds: "parameters", "gradients" and "optimizer", where a master '
        "copy counts with the optimizer. Stage 0 is plain data parallel; stage 1 shards the optimizer's part, stage 2 the "
        'gradients too, stage 3 the parameters too. A shard has as many numbers on every rank, the last one padded. '
        '`optimizer` is "sgd", "momentum" or "adam", `precision` "fp32" or "mixed", as in lab 03.'
    ),
    reference=state_bytes,
    also_right=(part_by_part, by_a_table),
    stub=state_bytes_stub,
    cases=cases,
    observe=Call(as_a_plain_dict),
    judge=all_of(has_the_keys, same_value(rtol=1e-12)),
    hints=(
        "First write down what each part takes without sharding: how many bytes for one parameter, in each precision? "
        "Then ask for each part from which stage on only a shard of it is held.",
        "A shard has `parameters / ranks` numbers, rounded *up*: the flat tensor is padded until it divides. Optimizer "
        "from stage 1 on, gradients from stage 2, parameters from stage 3.",
        "In mixed precision parameters and gradients take 2 bytes each. The optimizer's part is a master copy of 4 bytes "
        "and 4 for each number that it keeps: 12 for Adam, which is the paper's K.",
    ),
    mistakes=by_wrong_number(
        (
            Mistake(
                "floor for ceil",
                floors,
                "You round the shard down. Then the shards together have fewer numbers than there are parameters, and the "
                "last ones belong to nobody: round up, and pad the last shard.",
            ),
            Mistake(
                "divides without padding",
                divides_the_bytes,
                "You divide the bytes by the ranks. Every rank's shard has equally many whole numbers, so the flat tensor is "
                "padded first: round the number of elements up, then multiply.",
            ),
            Mistake(
                "momentum keeps two",
                momentum_like_adam,
                "Momentum keeps one number of 4 bytes for each parameter, a mean of its gradient. It is Adam that keeps two.",
            ),
            Mistake(
                "means in 2 bytes",
                narrow_means,
                "In mixed precision what the optimizer keeps stays in 4 bytes each: the means, beside the master copy.",
            ),
            Mistake(
                "gradients with the parameters",
                gradients_with_the_parameters,
                "Your gradients stay whole until stage 3. They are sharded from stage 2 on; only the parameters wait for 3.",
            ),
            Mistake(
                "parameters before gradients",
                parameters_before_gradients,
                "You shard the parameters in stage 2 and the gradients in stage 3. It is the other way round: gradients first.",
            ),
            Mistake(
                "pads what is whole",
                pads_what_is_whole,
                "You count padding where nothing is sharded. What is whole has `parameters` numbers; only shards are padded.",
            ),
            Mistake(
                "a number more where it divides",
                one_number_more,
                "Where the ranks divide the parameters, nothing is padded, and your shard has one number too many: "
                "`parameters // ranks + 1` is not rounding up, `-(-parameters // ranks)` is.",
            ),
            Mistake(
                "shards everything from stage 1 on",
                shards_all_three_at_once,
                "You shard all parts in every stage. Stage 1 shards what the optimizer keeps, stage 2 the gradients as well, "
                "and only stage 3 the parameters.",
            ),
            Mistake(
                "one stage ahead",
                one_stage_ahead,
                "You are one stage ahead: stage 0 is plain data parallel and shards nothing, stage 1 the optimizer's part "
                "alone.",
            ),
            Mistake(
                "one stage behind",
                one_stage_behind,
                "You are one stage behind: the optimizer's part is sharded from stage 1 on, not from stage 2.",
            ),
            Mistake(
                "parameters first",
                parameters_first,
                "You shard the parameters first. The order is the other way round: what is needed most rarely goes first, "
                "which is the optimizer's part, then gradients, then parameters.",
            ),
            Mistake(
                "each stage its own part alone",
                only_the_stages_own_part,
                "Stages add up: stage 2 shards the gradients *and* what stage 1 shards, stage 3 all three.",
            ),
            Mistake(
                "master copy not sharded",
                master_copy_stays_whole,
                "Your master copy stays whole. Nobody but the optimizer reads it, so it is sharded with the optimizer's "
                "state, from stage 1 on.",
            ),
            Mistake(
                "no master copy",
                no_master_copy,
                "In mixed precision the optimizer works on a master copy in 4 bytes; it counts here with the optimizer's "
                "part.",
            ),
            Mistake(
                "always a master copy",
                master_copy_always,
                "In fp32 the parameters are exact enough themselves: there is no master copy.",
            ),
            Mistake(
                "the optimizer's part in 2 bytes",
                narrow_state,
                "The optimizer's part stays in 4 bytes in mixed precision, master copy and state alike.",
            ),
            Mistake(
                "Adam keeps one number",
                adam_keeps_one,
                "Adam keeps two numbers for each parameter: a mean of its gradient, and one of its gradient's square.",
            ),
            Mistake(
                "gradients in 4 bytes in mixed precision",
                wide_gradients,
                "In mixed precision backward gives the gradients in 2 bytes, the type of the parameters.",
            ),
            Mistake(
                "parameters whole in stage 3",
                gathers_in_stage_3,
                "Stage 3 does gather parameters, but a few at a time, while they compute. What a rank *holds* is its shard.",
            ),
            Mistake(
                "adds up the ranks",
                counts_all_ranks,
                "You count all ranks together. Asked is what one rank holds, since that has to fit into its memory.",
            ),
        )
    ),
)  # fmt: skip
