"""Exercise 07.4: the sentences that students get for what is in `held_wrong.py`, and how it is recognised.

Floor 4, room `exercises`; the exercise is in `held.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab07 import held_wrong as wrong
from lockstep.exercises.symptoms import says

MISTAKES = (
    Mistake(
        "frees activations too early",
        wrong.frees_at_the_input_gradient,
        "You let go of a micro-batch at I. The weight gradient still needs the layer's input: it is held until W.",
    ),
    Mistake(
        "frees a micro-batch when it is sent on",
        wrong.frees_when_sent,
        "You let go of a micro-batch when the next rank has it. Backward needs the activations of this stage: "
        "they stay here until its B.",
    ),
    Mistake(
        "never frees after a split backward",
        wrong.only_whole_backward,
        "Micro-batches whose backward is split stay for ever. W ends what F began, as B does.",
    ),
    Mistake(
        "frees twice",
        wrong.frees_twice,
        "Everything but F makes your counter smaller, so I and W of one micro-batch take two away. Only one of "
        "them frees it.",
    ),
    Mistake(
        "counts micro-batches, not chunks",
        wrong.counts_micro_batches_not_chunks,
        "A rank with two chunks may hold the activations of one micro-batch twice, once for each chunk. Both take "
        "memory: count pairs of chunk and micro-batch.",
    ),
    Mistake("one number", wrong.one_number, "That is one number. Each rank has a peak of its own: return a list."),
    Mistake(
        "adds up the ranks",
        wrong.added_up,
        "That is the sum over ranks. Each has its own memory, and its own peak: return a list.",
    ),
    Mistake(
        "what is left at the end",
        wrong.at_the_end,
        "At the end nothing is left: that is the counter's last value. Keep the largest that it ever had.",
    ),
    Mistake(
        "counts all forwards",
        wrong.all_forwards,
        "You count the forwards of a rank. That is right for GPipe alone, where nothing goes back before all "
        "have come: elsewhere backwards in between make room.",
    ),
    Mistake(
        "the formula of 1F1B",
        wrong.formula_of_1f1b,
        "min(m, p - r) holds for 1F1B. Here any schedule may come: count.",
    ),
    Mistake(
        "counts up to the first backward",
        wrong.up_to_the_first_backward,
        "You stop at the first backward. The counter may grow further later on, if two forwards follow one another.",
    ),
    Mistake(
        "looks after backwards only",
        wrong.after_backwards_only,
        "You look at the counter after a backward, when it has just become smaller. It is largest after a forward.",
    ),
    Mistake(
        "the longest run of forwards",
        wrong.the_longest_run,
        "You look for the most forwards in a row. Those that came before and are not back yet are held as well: the counter "
        "goes on where it was.",
    ),
    Mistake(
        "never begins again",
        wrong.never_begins_again,
        "Your largest value goes on from one rank to the next. Each rank has a peak of its own: begin at 0 for every rank.",
    ),
    Mistake(
        "ranks the other way round",
        wrong.from_the_last_rank,
        "The numbers are right, but the last rank's comes first: `actions[r]` is rank r's list, and so is its place in what "
        "you return.",
    ),
    Mistake("two ranks", wrong.two_ranks, "There may be any number of ranks: one number for each list in `actions`."),
    Mistake(
        "one way for each rank",
        wrong.one_way_for_each_rank,
        "A rank may take one micro-batch back whole and split another. Each is held until its own gradients are done: until "
        "its B, or its W.",
    ),
    Mistake(
        "each chunk by itself",
        wrong.each_chunk_by_itself,
        "You take the chunk that holds most. A rank holds the inputs of all its chunks at the same time: count them together.",
    ),
    Mistake(
        "adds up the chunks' peaks",
        wrong.peaks_of_chunks_added,
        "You add up what each chunk holds at most. The chunks have their peaks at different times: count them together.",
    ),
    Mistake(
        "half at each half",
        wrong.half_at_each_half,
        "You let go of half at I. The layer's input is needed whole until W.",
    ),
    Mistake(
        "as a share",
        wrong.as_a_share,
        "That is a share of all micro-batches. The number of them is asked for.",
    ),
    Mistake(
        "takes actions for texts",
        wrong.takes_actions_for_texts,
        "An action is no text: it has the fields `kind`, `chunk` and `micro_batch`.",
        symptom=says("'Action'"),
    ),
)
