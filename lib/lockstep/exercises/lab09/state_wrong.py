"""Wrong functions for exercise 09.1.

Floor 4, room `exercises`; the exercise is in `state.py`, what they are told in `state_mistakes.py`.
"""

from __future__ import annotations

from lockstep.exercises.lab09.state_right import state_bytes

FROM_STAGE = {"parameters": 3, "gradients": 2, "optimizer": 1}


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
