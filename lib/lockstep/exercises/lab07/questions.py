"""The questions of lab 07.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "07.q1",
        "Four stages, eight micro-batches. You go from GPipe to 1F1B. What changes?",
        (
            Option(
                "The step gets shorter, since backward begins earlier.",
                "It begins earlier and ends at the same time: first and last micro-batch still need the way through all "
                "stages. Both take 3(m + p - 1) units.",
            ),
            Option(
                "The bubble becomes smaller on the first rank only.",
                "Every rank does the same work in the same time as before, so it is idle as long as before.",
            ),
            Option(
                "The time stays, and rank 0 holds four micro-batches in place of eight.",
                "Rank r holds at most p - r. Since memory no longer grows with m, you can afford more micro-batches, and "
                "that shortens the bubble.",
                right=True,
            ),
            Option(
                "More messages are sent.",
                "The same activations and gradients cross the same cuts, in another order.",
            ),
        ),
    ),
    Question(
        "07.q2",
        "A pipeline with four stages has a bubble of 3/7 with four micro-batches. What brings it below a tenth?",
        (
            Option(
                "28 micro-batches and more, of the same size or smaller.",
                "(p - 1)/(m + p - 1) = 3/31 at 28. If the batch stays as it is, each micro-batch gets small, and its "
                "layers run less efficiently.",
                right=True,
            ),
            Option(
                "Eight stages.",
                "More stages make it larger: the way through the pipeline is longer. With four micro-batches it would "
                "be 7/11.",
            ),
            Option(
                "Twice as fast GPUs.",
                "Work and waiting shrink alike, so the share stays.",
            ),
            Option(
                "A faster network.",
                "This bubble is there even when messages take no time at all: it comes from waiting for work.",
            ),
        ),
    ),
    Question(
        "07.q3",
        "PipeDream keeps several versions of a stage's weights. What would happen without?",
        (
            Option(
                "Nothing: a few updates more or less do no harm.",
                "An old gradient is one thing. This one would be worse: backward through other weights than forward is "
                "the gradient of no function.",
            ),
            Option(
                "Backward would use weights that have changed since the forward of the same micro-batch.",
                "So the stage keeps the version of every micro-batch that is under way: p - r of them on rank r.",
                right=True,
            ),
            Option(
                "All stages would have to wait for each other.",
                "They would not wait, and that is the trouble: updates happen while micro-batches are under way.",
            ),
            Option(
                "The stages would use versions of different age.",
                "They do so with stashing, too. That is what vertical sync changes.",
            ),
        ),
    ),
    Question(
        "07.q4",
        "A batch of 10 samples goes through in 3 micro-batches of 4, 3 and 3. Each loss is a mean. By what is each scaled?",
        (
            Option(
                "By 1/3, since there are three.",
                "Then a sample of the first counts 1/12 and one of the others 1/9.",
            ),
            Option(
                "By 4/10, 3/10 and 3/10.",
                "Every sample counts 1/10, as in the whole batch.",
                right=True,
            ),
            Option(
                "Not at all: `backward` adds up, which is what a sum over micro-batches needs.",
                "It adds up three means: the gradient is about three times too large, and with it the step.",
            ),
            Option(
                "By 1/4, 1/3 and 1/3.",
                "The loss has been divided by that already: it is a mean.",
            ),
        ),
    ),
    Question(
        "07.q5",
        "Why can a zero-bubble schedule be shorter than 1F1B at the same memory?",
        (
            Option(
                "It leaves some weight gradients out.",
                "All are there. It only chooses when.",
            ),
            Option(
                "The rank before needs only the input gradient; weight gradients fill what would be idle time.",
                "On the way back each stage costs I, not I + W. The rest of the work is moved to where there is a gap.",
                right=True,
            ),
            Option(
                "It splits the model finer.",
                "That is interleaving. Here each rank still has one stage.",
            ),
            Option(
                "It overlaps forward and backward on one GPU.",
                "A rank does one action after the other, as before.",
            ),
        ),
    ),
)
