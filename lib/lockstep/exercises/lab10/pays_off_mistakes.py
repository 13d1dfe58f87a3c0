"""What goes wrong in exercise 10.7, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `pays_off.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab03.words import by_wrong_number
from lockstep.exercises.lab10 import pays_off_wrong as wrong
from lockstep.exercises.symptoms import raises

MISTAKES = (
    *by_wrong_number(
        (
            Mistake(
                "equal bytes pay",
                wrong.equal_bytes_pay,
                "Where the compressor sends as many bytes as the ring and takes no time, it is never faster, only as fast: 0. You "
                "return infinity. First ask whether any bytes are saved, then whether compressing takes time.",
            ),
            Mistake(
                "0 at this bandwidth",
                wrong.at_this_bandwidth,
                "You return 0 where the compressor is not faster at *this* bandwidth. The break-even does not depend on it: on a "
                "slower link the same compressor may pay.",
            ),
            Mistake(
                "random-k counted as top-k",
                wrong.always_top_k,
                "You count random-k as top-k: gathered, with indices. All ranks know its places, so no index is sent, and a ring adds "
                "up the values.",
            ),
            Mistake(
                "top-k counted as random-k",
                wrong.never_top_k,
                'You count (N-1)/N payloads of top-k, as many bytes as random-k sends. Is the method spelled "top-k" where you ask '
                "for it? Every rank has a payload of its own, values with indices, and `N-1` of them pass through each rank.",
            ),
            Mistake(
                "dense sent once",
                wrong.dense_sent_once,
                "You count 4n bytes for the dense ring, whatever the ranks. A ring all-reduce sends each number 2(N-1)/N times: a "
                "reduce-scatter, and an all-gather after it.",
            ),
            Mistake(
                "dense sent twice",
                wrong.dense_sent_twice,
                "You count 8n bytes for the dense ring, whatever the ranks. A ring sends each number 2(N-1)/N times, once in all "
                "between two ranks.",
            ),
            Mistake(
                "dense gathered",
                wrong.dense_gathered,
                "You let each rank gather all others' dense gradients. A ring all-reduce adds them up on the way: 2(N-1)/N of the "
                "bytes, not N-1 times.",
            ),
            Mistake(
                "seconds of each rank",
                wrong.each_ranks_seconds,
                "You take the seconds of compressing once for each rank. All ranks compress at the same time: `seconds` are what it "
                "takes.",
            ),
            Mistake(
                "counts values but not indices",
                wrong.values_without_indices,
                "You count top-k's values alone. Every rank chooses other places, so each value travels with its index: 8 "
                "bytes, not 4.",
            ),
            Mistake(
                "indices of 8 bytes",
                wrong.wide_indices,
                "You count 8 bytes for an index. 4 are enough for four thousand million places, and 4 are what is asked.",
            ),
            Mistake(
                "random-k with indices",
                wrong.indices_of_random_k,
                "You count indices for random-k. All ranks draw the places from one seed, so nobody sends them.",
            ),
            Mistake(
                "a ring adds up top-k",
                wrong.ring_for_top_k,
                "You let a ring add up top-k's payloads. Ranks choose different places, so there is nothing to add on the "
                "way: each rank gets the payloads of all others, `N-1` of them.",
            ),
            Mistake(
                "random-k gathered",
                wrong.gathers_random_k,
                "You gather random-k's values. At places that all ranks share values add up, so a ring reduces them: "
                "2(N-1)/N of the payload, however many ranks there are.",
            ),
            Mistake(
                "one payload, however many ranks",
                wrong.gathers_one_payload,
                "You count one payload of top-k. In an all-gather a rank passes on those of the others, too: `N-1` of them.",
            ),
            Mistake(
                "a payload too many",
                wrong.gathers_own_too,
                "You count `N` payloads of top-k. A rank's own needs to reach `N-1` others, and the last of the ring passes "
                "nothing on: each rank sends `N-1`.",
            ),
            Mistake(
                "adds up the ranks",
                wrong.counts_all_ranks,
                "You count the bytes of all ranks together. Their links work at the same time: take what one rank sends.",
            ),
            Mistake(
                "half a ring",
                wrong.half_a_ring,
                "You count (N-1)/N for the ring. That is a reduce-scatter alone; an all-reduce has an all-gather after it.",
            ),
            Mistake(
                "a ring without end",
                wrong.ring_of_many,
                "You count each number twice, whatever the ranks. A ring sends it 2(N-1)/N times, once in all between two "
                "ranks.",
            ),
            Mistake(
                "everything in each step of the ring",
                wrong.everything_each_step,
                "You send all numbers in each of the ring's 2(N-1) steps. A step moves one N-th of them.",
            ),
            Mistake(
                "compressing is free",
                wrong.compressing_is_free,
                "You leave out the seconds that compressing takes. They are what makes it a loss on a fast link.",
            ),
            Mistake(
                "bits for bytes",
                wrong.bits_a_second,
                "You count bits, or a bandwidth of bits a second. Both are in bytes here.",
            ),
            Mistake(
                "a bandwidth below zero",
                wrong.below_zero,
                "Where the compressor sends more than the ring it can never be faster, and your bandwidth is below zero: "
                "return 0 there.",
            ),
            Mistake(
                "infinity where it never pays",
                wrong.always_where_never,
                "You return infinity where the compressor sends as much as the ring, or more. It is faster below no bandwidth: 0.",
            ),
            Mistake(
                "zero where it always pays",
                wrong.never_where_always,
                "You return 0 where compressing takes no time. It sends less and costs nothing, so it is faster on every link: "
                "`math.inf`.",
            ),
            Mistake(
                "seconds a byte",
                wrong.upside_down,
                "Your break-even is upside down: saved bytes over seconds are bytes a second; you have seconds a byte.",
            ),
            Mistake(
                "all of the dense bytes saved",
                wrong.saves_all_of_dense,
                "Your break-even counts all bytes of the dense ring as saved. The compressor sends some as well: what it saves "
                "is the difference.",
            ),
        )
    ),
    Mistake(
        "divides by zero",
        wrong.divides_by_zero,
        "Where compressing takes no time you divide by zero. If it sends less and costs nothing it always pays: return "
        "`math.inf`.",
        symptom=raises("ZeroDivisionError"),
    ),
)
