"""The sentence that each fault of exercise 09.6 gets.

Floor 4, room `exercises`; the exercise is in `reshard.py`, the wrong functions in `reshard_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab09 import reshard_wrong as wrong
from lockstep.exercises.symptoms import says

MISTAKES = (
    Mistake(
        "loads only at the same rank count",
        wrong.its_own_old_shard,
        "Each rank takes the old shard of its own number. That works at the old number of ranks and at no other: a "
        "new shard is made of parts of old ones.",
    ),
    Mistake(
        "old padding stays",
        wrong.old_padding_stays,
        "The old shards' padding is still there when you cut anew, and may end up in the middle. Cut it off first: "
        "the checkpoint has `elements` numbers, and the rest is zeros that belonged to the old cut.",
    ),
    Mistake(
        "reads everything",
        wrong.reads_everything,
        "Every rank reads the whole checkpoint to keep a part of it. With a model that needs sharding, the whole does "
        "not fit into one rank's memory: read what you keep.",
    ),
    Mistake(
        "reads whole shards",
        wrong.reads_whole_shards,
        "You read old shards whole and keep a part of each. `read` takes a start and a stop, so that nothing else has "
        "to come.",
        symptom=wrong.reads_too_much,
    ),
    Mistake(
        "no new padding",
        wrong.no_new_padding,
        "The last shard is too short. All ranks' shards have equal length, with zeros behind the last number.",
    ),
    Mistake(
        "splits unevenly",
        wrong.splits_unevenly,
        "`tensor_split` makes shards of unequal length. All have `elements / size` numbers, rounded up, and the last "
        "ones are padded.",
    ),
    Mistake(
        "floor for ceil",
        wrong.floors,
        "You round the new shard's length down; the last numbers get lost. Round up and pad.",
    ),
    Mistake(
        "from one old shard",
        wrong.from_one_old_shard,
        "You read beyond the end of an old shard. Where a new shard reaches over it, go on in the next one, as often "
        "as it takes.",
        symptom=says("of a shard that has"),
    ),
    Mistake(
        "boundary off by one",
        wrong.boundary_off_by_one,
        "Where a new shard begins inside an old one, you read one number too early. Number i of the flat tensor is "
        "number `i % old` of its shard.",
    ),
    Mistake(
        "old shards rounded down",
        wrong.old_shards_rounded_down,
        "You round the old shards' length down. They were cut as in 09.2: rounded up, and padded at the end.",
    ),
    Mistake(
        "takes the stop along",
        wrong.leaves_out_the_last,
        "Your pieces are a number too short. As with a slice, `stop` itself is not read: give it as one behind the last.",
        symptom=wrong.a_number_short,
    ),
    Mistake(
        "reads past the end",
        wrong.reads_past_the_end,
        "You read on where there are no numbers left: the new shards together are longer than `elements`. Stop there, "
        "and leave zeros.",
        symptom=says("there is no shard"),
    ),
    Mistake(
        "swaps the two numbers of ranks",
        wrong.swaps_old_and_new,
        "You take `size` for the number of ranks that saved and `old_size` for those that load. It is the other way round.",
    ),
)
