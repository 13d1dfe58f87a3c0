"""The sentence that each fault of exercise 11.4 gets.

Floor 4, room `exercises`; the exercise is in `buffers.py`, the wrong functions in `buffers_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab11 import buffers_wrong as wrong
from lockstep.exercises.symptoms import is_deadlock, says

MISTAKES = (
    Mistake(
        "waits right after launching a send",
        wrong.waits_right_after_sending,
        "Rank 0 waits for each send before it makes the next block, right after launching or right before `work`. A handle is "
        "there to be waited for later: the next block goes into the other buffer, which is free.",
    ),
    Mistake(
        "waits right after launching a receive",
        wrong.waits_right_after_receiving,
        "Rank 1 asks for a block when it has used the one before, and waits. Launch the receive of the next block *before* "
        "you use this one: it travels meanwhile, into the other buffer.",
    ),
    Mistake(
        "blocking calls",
        wrong.in_blocking_calls,
        "`send` and `recv` return when the block is there, so nobody does anything else meanwhile. Launch with `isend` and "
        "`irecv`, and wait when you have to.",
    ),
    Mistake(
        "sends before it makes",
        wrong.sends_before_it_makes,
        "Rank 0 launches the send before `work` has filled the buffer: what goes out is old. First make the block, then send.",
        symptom=wrong.changes_what_it_just_sent,
    ),
    Mistake(
        "buffer filled again too early",
        wrong.fills_too_early,
        "Rank 0 makes a block in a buffer that is still on its way. Before block i goes into its buffer, the send of block "
        "i - 2, which used it, has to be waited for.",
        symptom=says("buffer of isend", "changed before wait()"),
    ),
    Mistake(
        "buffer received into too early",
        wrong.receives_too_early,
        "Rank 1 has launched a receive into the buffer that it is still using. On a GPU the new block may arrive in the middle "
        "of the computation. Use it first, then give the buffer away.",
        symptom=wrong.lent_on_rank_1,
    ),
    Mistake(
        "one buffer to receive into",
        wrong.receives_into_one,
        "Rank 1 receives into one buffer, and uses the other never. While block i is used in one, block i + 1 arrives in the "
        "other: `buffers[i % 2]`.",
    ),
    Mistake(
        "leaves the last sends",
        wrong.leaves_the_last,
        "Rank 0 returns while its last blocks are on their way. Wait for them after the loop.",
        symptom=says("returned without waiting for isend"),
    ),
    Mistake(
        "one buffer to send from",
        wrong.one_buffer_to_send,
        "Rank 0 uses one buffer, and has to wait until it has been sent before the next block goes in. Take turns: "
        "`buffers[i % 2]`.",
        symptom=wrong.in_one_buffer(0),
    ),
    Mistake(
        "takes the other buffer",
        wrong.sends_the_other,
        "One of the ranks works in one buffer and sends, or receives into, the other. Block i is made in, sent from, received "
        "into and used in `buffers[i % 2]`.",
    ),
    Mistake(
        "waits for the next block too",
        wrong.waits_for_the_next,
        "Rank 1 waits for block i + 1 before it uses block i. What is on its way for later need not be there yet.",
    ),
    Mistake(
        "one receive too many",
        wrong.one_receive_too_many,
        "Rank 1 launches a receive for a block that never comes. There is a next block only while `i + 1 < count`.",
        symptom=is_deadlock,
    ),
    Mistake(
        "uses a block before it is there",
        wrong.uses_before_it_waits,
        "Rank 1 uses a buffer whose receive has not been waited for: what is in it is old. First `wait()`, then use.",
    ),
    Mistake(
        "memory of its own",
        wrong.in_memory_of_its_own,
        "You work in memory of your own: a buffer for each block, or a copy. Then nobody has to wait for a buffer, and more "
        "memory is needed. The two of `buffers` are enough: a buffer is given away when its block has been used.",
        symptom=wrong.has("own"),
    ),
    Mistake(
        "sends copies",
        wrong.through_a_copy,
        "You send copies, or receive into other memory. That takes memory for every block that is on its way, and time to "
        "copy: send from the two `buffers`, and receive into them.",
        symptom=wrong.has("strange"),
    ),
    Mistake(
        "a receive is missing",
        wrong.only_rank_0,
        "Rank 1 returns without having received every block, and rank 0 waits for ever. Every rank runs the function, and each "
        "block needs a receive of its own: that of block 0 is launched before the loop, each of the others in it.",
    ),
    Mistake(
        "one buffer to use from",
        wrong.one_buffer_each,
        "Rank 1 uses one buffer, so nothing can arrive while it is in use. Launch the receive of block i + 1 into the other "
        "buffer before you use block i.",
        symptom=wrong.in_one_buffer(1),
    ),
    Mistake(
        "waits for both sends",
        wrong.waits_for_both,
        "Rank 0 waits for both of its sends at once. Wait only for the one whose buffer is needed now; the other may still be "
        "on its way.",
    ),
    Mistake(
        "two blocks at a time",
        wrong.in_pairs,
        "You work through the blocks two by two, and wait for both before you go on. Each buffer can be filled again as soon "
        "as its own block has left or has been used.",
    ),
    Mistake(
        "gives the buffer away before it is used",
        wrong.gives_away_before_use,
        "Rank 1 launches a receive into the buffer whose block it is about to use. First `work`, then the receive of block "
        "i + 2 into that buffer; or receive block i + 1 into the other one.",
    ),
    Mistake(
        "uses a copy",
        wrong.uses_a_copy,
        "Rank 1 copies each block and uses the copy, so there are three buffers. Use the block where it is, and give the buffer "
        "away after that.",
    ),
    Mistake(
        "one variable for two handles",
        wrong.one_variable,
        "Rank 1 puts the next handle where the handle of this block was, and waits for the next block. Keep both: `handles[i % 2]` "
        "is that of block i.",
        symptom=says("returned without waiting for irecv"),
    ),
    Mistake(
        "waits where there is no handle",
        wrong.waits_for_no_call,
        "The first time round no call has the buffer, and there is no handle to wait for. Ask first: `is not None`.",
        symptom=says("'NoneType'", "'wait'"),
    ),
    Mistake(
        "the ranks the other way round",
        wrong.the_other_way_round,
        "The ranks have changed parts: rank 0 makes and sends, rank 1 receives and uses.",
        symptom=says("has itself as"),
    ),
    Mistake(
        "sends nothing",
        wrong.only_works,
        "Nothing is sent. Rank 0 launches an `isend` of each block that it has made, and rank 1 an `irecv` for each before it "
        "uses it.",
        symptom=wrong.never_sends,
    ),
    Mistake(
        "does not use the last block",
        wrong.one_block_behind,
        "Rank 1 receives every block and uses one fewer. After the loop, or in its last turn, the last block is used, too.",
    ),
)
