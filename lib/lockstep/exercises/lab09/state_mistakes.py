"""The sentence that each fault of exercise 09.1 gets.

Floor 4, room `exercises`; the exercise is in `state.py`, the wrong functions in `state_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab09 import state_wrong as wrong

MISTAKES = (
    Mistake(
        "floor for ceil",
        wrong.floors,
        "You round the shard down. Then the shards together have fewer numbers than there are parameters, and the "
        "last ones belong to nobody: round up, and pad the last shard.",
    ),
    Mistake(
        "divides without padding",
        wrong.divides_the_bytes,
        "You divide the bytes by the ranks. Every rank's shard has equally many whole numbers, so the flat tensor is "
        "padded first: round the number of elements up, then multiply.",
    ),
    Mistake(
        "momentum keeps two",
        wrong.momentum_like_adam,
        "Momentum keeps one number of 4 bytes for each parameter, a mean of its gradient. It is Adam that keeps two.",
    ),
    Mistake(
        "means in 2 bytes",
        wrong.narrow_means,
        "In mixed precision what the optimizer keeps stays in 4 bytes each: the means, beside the master copy.",
    ),
    Mistake(
        "gradients with the parameters",
        wrong.gradients_with_the_parameters,
        "Your gradients stay whole until stage 3. They are sharded from stage 2 on; only the parameters wait for 3.",
    ),
    Mistake(
        "parameters before gradients",
        wrong.parameters_before_gradients,
        "You shard the parameters in stage 2 and the gradients in stage 3. It is the other way round: gradients first.",
    ),
    Mistake(
        "pads what is whole",
        wrong.pads_what_is_whole,
        "You count padding where nothing is sharded. What is whole has `parameters` numbers; only shards are padded.",
    ),
    Mistake(
        "a number more where it divides",
        wrong.one_number_more,
        "Where the ranks divide the parameters, nothing is padded, and your shard has one number too many: "
        "`parameters // ranks + 1` is not rounding up, `-(-parameters // ranks)` is.",
    ),
    Mistake(
        "shards everything from stage 1 on",
        wrong.shards_all_three_at_once,
        "You shard all parts in every stage. Stage 1 shards what the optimizer keeps, stage 2 the gradients as well, "
        "and only stage 3 the parameters.",
    ),
    Mistake(
        "one stage ahead",
        wrong.one_stage_ahead,
        "You are one stage ahead: stage 0 is plain data parallel and shards nothing, stage 1 the optimizer's part "
        "alone.",
    ),
    Mistake(
        "one stage behind",
        wrong.one_stage_behind,
        "You are one stage behind: the optimizer's part is sharded from stage 1 on, not from stage 2.",
    ),
    Mistake(
        "parameters first",
        wrong.parameters_first,
        "You shard the parameters first. The order is the other way round: what is needed most rarely goes first, "
        "which is the optimizer's part, then gradients, then parameters.",
    ),
    Mistake(
        "each stage its own part alone",
        wrong.only_the_stages_own_part,
        "Stages add up: stage 2 shards the gradients *and* what stage 1 shards, stage 3 all three.",
    ),
    Mistake(
        "master copy not sharded",
        wrong.master_copy_stays_whole,
        "Your master copy stays whole. Nobody but the optimizer reads it, so it is sharded with the optimizer's "
        "state, from stage 1 on.",
    ),
    Mistake(
        "no master copy",
        wrong.no_master_copy,
        "In mixed precision the optimizer works on a master copy in 4 bytes; it counts here with the optimizer's part.",
    ),
    Mistake(
        "always a master copy",
        wrong.master_copy_always,
        "In fp32 the parameters are exact enough themselves: there is no master copy.",
    ),
    Mistake(
        "the optimizer's part in 2 bytes",
        wrong.narrow_state,
        "The optimizer's part stays in 4 bytes in mixed precision, master copy and state alike.",
    ),
    Mistake(
        "Adam keeps one number",
        wrong.adam_keeps_one,
        "Adam keeps two numbers for each parameter: a mean of its gradient, and one of its gradient's square.",
    ),
    Mistake(
        "gradients in 4 bytes in mixed precision",
        wrong.wide_gradients,
        "In mixed precision backward gives the gradients in 2 bytes, the type of the parameters.",
    ),
    Mistake(
        "parameters whole in stage 3",
        wrong.gathers_in_stage_3,
        "Stage 3 does gather parameters, but a few at a time, while they compute. What a rank *holds* is its shard.",
    ),
    Mistake(
        "adds up the ranks",
        wrong.counts_all_ranks,
        "You count all ranks together. Asked is what one rank holds, since that has to fit into its memory.",
    ),
)
