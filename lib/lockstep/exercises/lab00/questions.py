"""The questions of lab 00.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "00.q1",
        "Look again at the picture at the top of lab 00. Why is row 0 pale for the longest time?",
        (
            Option(
                "Rank 0 collects everybody's numbers, so it has the most to do.",
                "No rank is special in an all-reduce, and pale means that nothing moves. Give rank 0 the most to "
                "compute, and the longest pale part moves to another row.",
            ),
            Option(
                "Rank 0 has the least to compute, arrives first, and waits for the others.",
                "An all-reduce can begin only when the last rank has arrived. The row that is hardly pale at all shows "
                "whom the others wait for.",
                right=True,
            ),
            Option(
                "Rank 0 runs on a slower core.",
                "A slower core would stretch its computation, and that bar is the shortest of all.",
            ),
            Option(
                "Rank 0 hands in a larger tensor.",
                "Every rank hands in a tensor of the same shape, here a single number; and moving it is not waiting.",
            ),
        ),
    ),
    Question(
        "00.q2",
        "A run on four ranks ends with a deadlock report: rank 0 waits in all_reduce, ranks 1, 2 and 3 have finished. "
        "Which program was it?",
        (
            Option(
                "while comm.rank == 0: pass",
                "A loop computes, it does not wait. Such a run ends at its time limit, and the report shows the line "
                "of the loop.",
            ),
            Option(
                "if comm.rank > 0: comm.all_reduce(tensor)",
                "Here ranks 1, 2 and 3 call it and would be the ones that wait, with rank 0 finished.",
            ),
            Option(
                "if comm.rank == 0: comm.all_reduce(tensor)",
                "Only rank 0 makes the call, and the others are gone when it waits for them. Every rank has to make "
                "the same collectives.",
                right=True,
            ),
            Option(
                "if comm.rank == 0: raise ValueError",
                "An exception ends the run at once, and its report begins with that rank and its line.",
            ),
        ),
    ),
    Question(
        "00.q3",
        "A tenth of a job is serial, and it runs on 100 workers. Somebody offers you 1,000. What do you gain?",
        (
            Option(
                "It becomes ten times as fast.",
                "Only the shared part shrinks to a tenth, and with 100 workers that part is already the smaller one.",
            ),
            Option(
                "Nothing at all: it is at its limit already.",
                "Nearly. The limit is 10, and 100 workers reach 9.2; it is approached, never reached.",
            ),
            Option(
                "It becomes about twice as fast.",
                "That would be a speed-up of 18, and no number of workers gets past 1 / 0.1 = 10.",
            ),
            Option(
                "Less than a tenth: the speed-up goes from 9.2 to 9.9.",
                "The serial tenth of the work already takes most of the time with 100 workers. Whoever wants more has "
                "to shrink the serial part.",
                right=True,
            ),
        ),
    ),
)
