"""The questions of lab 10.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "10.q1",
        "Top-k keeps 1 % of the numbers. With 8 ranks it halves the step's time. You go to 128 ranks on the same links. What "
        "happens to the bytes that a rank sends?",
        (
            Option(
                "They stay about the same, as for a ring all-reduce.",
                "A ring adds up on the way, so its messages do not grow. Payloads at different places cannot be added up.",
            ),
            Option(
                "They fall, since each rank has a smaller part.",
                "Each rank's payload is as large as before, and there are more of them.",
            ),
            Option(
                "They grow 18 times, and are more than a dense ring sends.",
                "N-1 payloads pass through every rank: 127 in place of 7. A pair of value and index takes 8 bytes, so 128 ranks "
                "send 128 * 1 % = 1.28 times what a dense ring does.",
                right=True,
            ),
            Option(
                "They double, since indices are sent as well.",
                "Indices are sent with 8 ranks, too. What grows is the number of payloads.",
            ),
        ),
    ),
    Question(
        "10.q2",
        "Two people train with top-k 1 % and the same seeds. One adds the residual to the next gradient, the other lets it go. A "
        "weight's gradient is small and has the same sign in every step. What becomes of that weight?",
        (
            Option(
                "With the residual it moves now and then, by many steps' worth; without it never moves.",
                "The residual grows until it is among the largest, and is sent at once. Without it, a number that is never among "
                "the largest is lost every time.",
                right=True,
            ),
            Option(
                "It moves in both, only later without the residual.",
                "Nothing collects without a residual: in each step the number is as small as in the one before.",
            ),
            Option(
                "It never moves in either, since it is never among the largest.",
                "What is compared is the gradient *and* the residual, which grows by as much in every step.",
            ),
            Option(
                "With the residual it moves too far, since old gradients are stale.",
                "They are late, which can cost some accuracy. But each is counted once: what is sent and what is left add up to the "
                "gradients.",
            ),
        ),
    ),
    Question(
        "10.q3",
        "On a link of 100 Gbit/s int8 makes the step slower than float32, although a quarter of the bytes is sent. What is the "
        "first thing to look at?",
        (
            Option(
                "The number of codes: 4 bits would be faster.",
                "Fewer bytes still; but the time was not spent on the wire.",
            ),
            Option(
                "The seconds that compressing takes, beside those that its bytes save.",
                "Below the break-even bandwidth the saved bytes take longer than compressing, above it less. A fast link lies "
                "above.",
                right=True,
            ),
            Option(
                "The rounding: nearest is better than random.",
                "That is about accuracy, and it would make training biased. It hardly changes the seconds.",
            ),
            Option(
                "The learning rate.",
                "It decides how many steps are needed, not how long one takes.",
            ),
        ),
    ),
    Question(
        "10.q4",
        "Which payloads can a ring all-reduce add up on the way, so that the bytes do not grow with the number of ranks?",
        (
            Option(
                "Those of int8, as they are all of one size.",
                "Codes count steps of different length on each rank, and their sums do not fit into a byte. Ranks can share out the "
                "adding, as the library's do; but nothing is added up on the way.",
            ),
            Option(
                "Those of top-k, if all ranks take the same k.",
                "Equally many, and at other places. Only where the *places* are the same do the values belong together.",
            ),
            Option(
                "Those of PowerSGD, random-k with a shared seed, and random sums.",
                "All three are linear in the gradient, given what every rank knows already: the basis, the places, the matrix. The sum "
                "of the payloads is the payload of the sum.",
                right=True,
            ),
            Option(
                "None: whatever is compressed has to be gathered.",
                "What is linear in the gradient adds up as gradients do.",
            ),
        ),
    ),
)
