"""The questions of lab 01.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "01.q1",
        "Thread (x, y) of a 2-D launch reads `image[x, y]` of a float32 image, and the threads of a warp have neighbouring "
        "x. How many sectors of 32 bytes does a request touch?",
        (
            Option(
                "4: 32 numbers of 4 bytes are 128 bytes.",
                "That would be so if they lay side by side. Here x is the row: each lane is one row further than the one "
                "before it.",
            ),
            Option(
                "1: a warp makes one request.",
                "One request, yes; but memory delivers it in sectors, as many as there are different ones among the 32 "
                "addresses.",
            ),
            Option(
                "32: each lane is in another row, so in a sector of its own.",
                "Neighbouring lanes are a whole row apart. 32 sectors move for 128 bytes that are used, an eighth. Write "
                "`image[y, x]`.",
                right=True,
            ),
            Option(
                "It depends on the size of the grid.",
                "Only on the addresses of the 32 lanes of one warp.",
            ),
        ),
    ),
    Question(
        "01.q2",
        "A kernel loads a tile into shared memory and calls `cuda.syncthreads()` inside `if x < width:`, where the image "
        "is no multiple of the block. What happens on a GPU?",
        (
            Option(
                "It may hang, or go on with a tile that is half loaded: nothing is promised.",
                "Every thread of the block has to pass the barrier. CUDA leaves open what happens otherwise, and it may "
                "differ from one GPU to the next; the simulator refuses it.",
                right=True,
            ),
            Option(
                "The threads outside the `if` wait at the end of the kernel.",
                "They end, or run on. A barrier does not know of threads that stand at another place.",
            ),
            Option(
                "Nothing: threads past the edge have nothing to load.",
                "They are counted all the same, and in a tile with a halo they do have something to load.",
            ),
            Option(
                "A compiler error.",
                "The compiler does not know which threads will take the branch.",
            ),
        ),
    ),
    Question(
        "01.q3",
        "A tile of 32 x 32 float32 is read by columns, then the shape is changed to 32 x 33. What changes?",
        (
            Option(
                "Fewer bytes are read from global memory.",
                "Global memory does not notice. The same numbers go into the tile and come out of it.",
            ),
            Option(
                "The 32 words of a column move from one bank into 32 banks.",
                "A row of 33 words shifts each row by one bank. It costs 128 bytes of shared memory, and 32 passes become "
                "one.",
                right=True,
            ),
            Option(
                "The tile is aligned to a cache line.",
                "33 words are less aligned than 32. Here it is just that what helps.",
            ),
            Option(
                "Threads of different warps no longer meet.",
                "A conflict is within one request, so within one warp. Different warps come one after another anyway.",
            ),
        ),
    ),
    Question(
        "01.q4",
        "Your kernel has an occupancy of 50 %, limited by registers. Does it run twice as fast at 100 %?",
        (
            Option(
                "Yes: twice as many warps do twice the work.",
                "The SM issues as many instructions a cycle as before. More warps help only while it has to wait.",
            ),
            Option(
                "Only if too few warps are there to hide the waiting; a kernel can be fastest at half occupancy.",
                "Warps beyond those that cover the latency have nothing to add, and registers given up for them may cost "
                "more than they bring (Volkov 2010).",
                right=True,
            ),
            Option(
                "No, occupancy has nothing to do with speed.",
                "It does, up to a point: with very few warps the SM stands idle whenever they wait for memory.",
            ),
            Option(
                "It runs slower: registers are spilled.",
                "That depends on how you get there. A smaller block or less shared memory spills nothing.",
            ),
        ),
    ),
)
