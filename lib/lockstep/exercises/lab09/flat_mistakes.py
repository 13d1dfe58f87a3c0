"""The sentence that each fault of exercise 09.2 gets.

Floor 4, room `exercises`; the exercise is in `flat.py`, the wrong functions in `flat_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab09 import flat_wrong as wrong
from lockstep.exercises.symptoms import says

MISTAKES = (
    Mistake(
        "padding leaks into the norm",
        wrong.pads_with_what_is_there,
        "The padding is not zero. It would count in every norm, and the optimizer would train it: pad with zeros, "
        "which add nothing and stay what they are.",
        symptom=wrong.padding_is_not_zero,
    ),
    Mistake(
        "pads in front",
        wrong.pads_in_front,
        "You put the zeros in front, so all numbers move. Padding goes to the end, where the last shard is.",
    ),
    Mistake(
        "a shard's worth of padding too many",
        wrong.pads_a_shard_too_many,
        "Where the length divides already, you still add `size` zeros. `n % size` is 0 there, and `size - 0` is not "
        "nothing: `-n % size` is.",
    ),
    Mistake(
        "no padding",
        wrong.no_padding,
        "Your shards have unequal lengths. A reduce-scatter and an all-gather want equal ones; pad until the length "
        "divides.",
        symptom=wrong.without_padding,
    ),
    Mistake(
        "floor for ceil",
        wrong.floors,
        "You round the shard's length down, and the last numbers belong to no rank: nobody would ever train them. "
        "Round up and pad.",
    ),
    Mistake(
        "shard boundaries by tensor",
        wrong.shards_each_tensor,
        "You cut each tensor by itself. Then there is padding in every one of them, and a shard is many small "
        "pieces. Join first, cut once: a boundary may well go through the middle of a parameter.",
    ),
    Mistake(
        "optimizer state per parameter instead of shard",
        wrong.whole_tensors,
        "You give whole tensors to ranks. The rank with the largest layer then holds most: in VGG-16 one layer has "
        "three quarters of all parameters. Cut the flat tensor, through parameters where it has to be.",
    ),
    Mistake(
        "every size-th number",
        wrong.every_nth,
        "You deal the numbers out like cards. A collective gives and takes contiguous pieces: rank 0 has the first "
        "shard, rank 1 the next.",
    ),
    Mistake(
        "keeps the whole alive",
        wrong.keeps_a_view,
        "Your shard is a window into the whole flat tensor, and keeps all of it in memory: nothing has been saved. "
        "Give it memory of its own.",
    ),
    Mistake(
        "keeps the history",
        wrong.keeps_the_history,
        "The shard has a history: it was computed from parameters that require a gradient, and keeps all of that alive. "
        "The optimizer needs a tensor that begins anew: `.detach()` the tensors first.",
    ),
    Mistake(
        "changes the dtype",
        wrong.in_float32,
        "The shard has another dtype than the tensors. It has to be theirs; padding takes it over with `F.pad`, or "
        "with `new_zeros`.",
    ),
    Mistake(
        "pads the last rank alone",
        wrong.pads_the_last_rank_alone,
        "Only the last rank's shard is padded. With few numbers and many ranks, several ranks at the end lack numbers: "
        "pad the flat tensor, then cut.",
    ),
    Mistake(
        "pads more than needed",
        wrong.pads_more_than_needed,
        "You pad further than to the next multiple of `size`, and every rank's shard gets longer for it.",
    ),
    Mistake(
        "changes the tensors",
        wrong.changes_the_tensors,
        "You write into the tensors that you were given: they are the model. Copy what you need, and change the copy.",
        symptom=says(wrong.CHANGED),
    ),
    Mistake(
        "all shards at once",
        wrong.all_shards_at_once,
        "You return the shards of all ranks. Each rank calls the function for itself, and asks for its own.",
    ),
    Mistake(
        "the same shard everywhere",
        wrong.the_same_everywhere,
        "Every rank gets rank 0's shard. Where does `rank` come in?",
    ),
    Mistake(
        "expects equal shapes",
        wrong.stacks,
        "`torch.stack` wants equal shapes, and layers have different ones. Flatten each tensor, then join them with "
        "`torch.cat`.",
        symptom=says("stack expects each tensor to be equal size"),
    ),
)
