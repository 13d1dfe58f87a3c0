"""What goes wrong in 01.6, `reduce_sum`, with the sentences that students get.

Floor 4, room `exercises`, under `reducing`; the kernels are in `reducing_wrong` and
`reducing_races`.
"""

from __future__ import annotations

import re

import numpy as np

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab01 import reducing_races as races
from lockstep.exercises.lab01 import reducing_wrong as wrong
from lockstep.exercises.lab01.launching import ATOMICS, IDLE, exceeds, leaves_like, outside, touched
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches, raises

DIVERGENT, WAYS = "divergent branches", "ways of the worst bank conflict"
READS, ISSUED, BARRIERS = "reads of global memory a thread", "instructions issued", "barriers a block"


def before_any_level(case: Case, seen: Observation, expected: Observation) -> bool:
    """A race between two lines, before the first barrier: one line loads, the other one adds."""
    pattern = r"(before the barrier|no barrier between them).* line (\d+) (reads|writes) it, line (?!\2 )\d+ "
    return raises("RaceError", "one writes")(case, seen, expected) and matches(pattern)(case, seen, expected)


def beyond_the_first_half(case: Case, seen: Observation, expected: Observation) -> bool:
    """Thread t reads cell t + stride, and thread t + stride writes it: the stride is right, and too many add."""
    pattern = r"threads (\d+) and (\d+) of block \d+ touch \w+\[\2\] between.*, and one writes"
    found = re.match(pattern, seen.error.message) if raises("RaceError")(case, seen, expected) else None
    return found is not None and int(found[2]) - int(found[1]) > 1


def within_a_warp(case: Case, seen: Observation, expected: Observation) -> bool:
    """A race between two lanes of one warp, at least a barrier after loading."""
    threads = matches("threads \\d+ and \\d+ of block.* after the barrier .*one writes")(case, seen, expected)
    numbers = re.findall("\\d+", seen.error.message)[:2] if threads else ()
    return len({int(number) // 32 for number in numbers}) == 1


def in_a_loop(case: Case, seen: Observation, expected: Observation) -> bool:
    """A barrier that some threads miss since their `while` has ended."""
    error = seen.error
    around = matches("the branch or loop at line \\d+")(case, seen, expected) and raises("BarrierError")(
        case, seen, expected
    )
    line = int(re.search("the branch or loop at line (\\d+)", error.message)[1]) if around else 0
    return dict(getattr(error, "quoted", ())).get(line, "").startswith(("for ", "while "))


def on_top_of_the_old(case: Case, seen: Observation, expected: Observation) -> bool:
    """The right sums, added to what `out` held before."""
    if seen.error is not None:
        return False
    before, got, want = case.args[-1], seen.arguments[-1], expected.arguments[-1]
    return got.shape == want.shape and np.array_equal(got - before, want)


def past_the_end(first: bool):
    """A cell past the end of shared memory, touched by thread 0 (`first`) or by another thread."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        found = touched(seen)
        if found is None or found.array in ("source", "out") or min(found.index) < 0:
            return False
        return (re.match("thread 0 of", seen.error.message) is not None) is first

    return symptom


REDUCING_MISTAKES = (
    Mistake(
        "stride doubling that diverges",
        wrong.doubles_the_stride,
        "At the first level every second thread works, so all warps run with half of their lanes, then a quarter, and "
        "so on. Let the first threads work instead: halve the stride, from 64 down to 1.",
        symptom=exceeds(DIVERGENT, 2.0),
    ),
    Mistake(
        "cells that share a bank",
        wrong.strided_cells,
        "The first threads work, which is good, but their cells lie 2, 4, 8, ... words apart and fall into the same "
        "banks. Let thread t add cell t + stride, with the stride going down.",
        symptom=exceeds(WAYS, 1.0),
    ),
    Mistake(
        "no barrier after loading",
        races.no_barrier_after_loading,
        "The first level adds what other threads have loaded, and nothing makes it wait for them. Between loading and the "
        "first level belongs a barrier, cuda.syncthreads().",
        symptom=before_any_level,
    ),
    Mistake(
        "last warp without waiting",
        races.last_warp_without_waiting,
        "The lanes of one warp race as well: no promise says which of them reads or writes first. Where only one warp is "
        "left, cuda.syncwarp() between reading and writing orders its lanes and costs less than a barrier; the plain way is "
        "cuda.syncthreads() at every level.",
        symptom=within_a_warp,
    ),
    Mistake(
        "missing barrier",
        races.no_barrier_in_the_loop,
        "A level begins before the one above it has ended: a thread adds a partial sum that another one is still "
        "writing. Every level needs a barrier, cuda.syncthreads().",
        symptom=matches("((before|after) the barrier at line \\d+|no barrier between them), and one writes"),
    ),
    Mistake(
        "leaves before the barrier",
        races.leaves_before_the_barrier,
        "Threads of the last block that have no number return, and the others wait for them at the barrier. Let them "
        "stay, and load a 0.",
        symptom=raises("BarrierError", "return"),
    ),
    Mistake(
        "barrier inside a loop of some",
        races.barrier_in_the_loop_of_some,
        "The loop ends earlier for some threads, and the others wait for them at its barrier. All threads go through every "
        "level, `while stride > 0`; which of them add is asked inside, in an `if`, and the barrier stands after it.",
        symptom=in_a_loop,
    ),
    Mistake(
        "barrier inside a branch",
        races.barrier_in_the_branch,
        "Only the threads that add reach the barrier, and they wait for the others. Move it out of the `if`: every "
        "thread of the block has to pass every barrier.",
        symptom=raises("BarrierError"),
    ),
    Mistake(
        "no guard",
        wrong.no_guard,
        "The last block has fewer than 128 numbers, and its threads read past the end. Load a 0 where there is none.",
        symptom=outside("source"),
    ),
    Mistake(
        "begins at the whole block",
        wrong.begins_at_the_whole_block,
        "Your first stride is 128, and cell t + 128 does not exist. The first level adds the upper half of the cells to the "
        "lower one: stride 64.",
        symptom=past_the_end(first=True),
    ),
    Mistake(
        "adds without an if",
        wrong.all_add_without_an_if,
        "At each level all threads add, and the upper ones reach past the 128 cells. Only threads below `stride` add.",
        symptom=past_the_end(first=False),
    ),
    Mistake(
        "leaves cells empty",
        wrong.leaves_cells_empty,
        "The last block has fewer than 128 numbers, and the cells of its other threads stay empty; the tree adds them "
        "all the same. Put a 0 there.",
        symptom=raises("UninitializedRead"),
    ),
    Mistake(
        "stops one level early",
        wrong.stops_one_level_early,
        "Two partial sums are left, and you write one of them: the last level has stride 1.",
    ),
    Mistake(
        "all threads add",
        races.all_threads_add,
        "At each level threads beyond the first half add as well, and write cells that others read at the same time. "
        "Only threads below `stride` may add.",
        symptom=beyond_the_first_half,
    ),
    Mistake(
        "takes a cell that is being written",
        races.neighbours_in_place,
        "A thread takes a cell into which another one writes at the same level. Thread t may write cell t alone, and what it "
        "adds to it has to lie beyond all cells that are written: t + stride, for threads below `stride` and no others.",
        symptom=matches("between (two passes|the barriers).*, and one writes"),
    ),
    Mistake(
        "never halves",
        races.never_halves,
        "Your loop has no end: the stride has to become half of what it was in every round, `stride //= 2`, until it is 0.",
        symptom=raises("EndlessLoop"),
    ),
    Mistake(
        "guards by the output",
        wrong.guards_by_the_output,
        "You compare with the size of `out`, which has one cell for a whole block. What may be read is `source`: "
        "source.size.",
        symptom=leaves_like(wrong.guards_by_the_output),
    ),
    Mistake(
        "forgets the block",
        wrong.forgets_the_block,
        "Every block adds up the first 128 numbers. threadIdx counts within the block: its numbers begin at blockIdx.x * "
        "128, as cuda.grid(1) does.",
        symptom=leaves_like(wrong.forgets_the_block),
    ),
    Mistake(
        "numbers of all blocks mixed",
        wrong.strided_blocks,
        "You deal the numbers out to the blocks in turns. Block b has 128 numbers that lie side by side, from 128 b on; then "
        "neighbouring lanes read neighbouring numbers, too.",
        symptom=leaves_like(wrong.strided_blocks),
    ),
    Mistake(
        "adds to what was there",
        wrong.adds_to_what_was_there,
        "You add to `out`, which nobody has set to 0: memory of a GPU holds whatever was there before. Let one thread of the "
        "block write the finished sum.",
        symptom=on_top_of_the_old,
    ),
    Mistake(
        "every thread reads all",
        wrong.every_thread_reads_all,
        "All 128 threads read all 128 numbers from global memory and add them up, each for itself. Let each of them fetch "
        "one number into shared memory, and add in a tree.",
        symptom=exceeds(READS, 2.0),
    ),
    Mistake(
        "waits again and again",
        races.waits_again_and_again,
        "The block waits far more often than there are levels. Seven levels need a barrier each, and one more after loading.",
        symptom=exceeds(BARRIERS, 2.5),
    ),
    Mistake(
        "every thread adds all",
        wrong.every_thread_adds_all,
        "All 128 threads add up all 128 numbers, and one result is kept: 128 times the work of a row of additions. In a tree "
        "64 threads add one number each, then 32, and so on: 7 levels.",
        symptom=exceeds(ISSUED, 4.0),
    ),
    Mistake(
        "one thread adds",
        wrong.one_thread_adds,
        "One thread adds 128 numbers one after another while 127 wait. A tree needs 7 levels.",
        symptom=exceeds(IDLE, 1.0, 0.25),
    ),
    Mistake(
        "atomics on one cell",
        wrong.atomics_on_one_cell,
        "All 128 threads add to one cell, and the hardware lets them in one by one: that takes as long as adding in a "
        "row. Build a tree.",
        symptom=exceeds(ATOMICS, 1.0),
    ),
    Mistake(
        "every block writes the first cell",
        races.every_block_writes_the_first,
        "All blocks write the same cell of `out`. Block b has a cell of its own, out[cuda.blockIdx.x].",
        symptom=matches("^thread .* of block .* and thread .* of block .* both write"),
    ),
    Mistake(
        "every thread writes the result",
        races.every_thread_writes,
        "All threads of the block write `out[b]`. It is the same number, but nobody promises that: let one of them "
        "write.",
        symptom=raises("RaceError", "both write"),
    ),
)
