"""The questions of lab 11.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "11.q1",
        "A kernel that is not on the critical path of a step takes 5 ms and has 3 ms of slack. You make it twice as fast. "
        "How much shorter does the step get?",
        (
            Option(
                "2.5 ms.",
                "Only what is on the critical path makes the step as long as it is.",
            ),
            Option(
                "Not at all.",
                "It could even have ended 3 ms later, and the step as soon. Look for what is on the critical path.",
                right=True,
            ),
            Option(
                "0.5 ms, what is above its slack.",
                "Slack says how much *later* it could end. It ends sooner here, and nobody waits for it.",
            ),
            Option(
                "It depends on the link.",
                "The link may be the critical path, but this kernel is not on it, before or after.",
            ),
        ),
    ),
    Question(
        "11.q2",
        "With 25 MB buckets 70 % of the communication is hidden, with 1 MB buckets 85 %. Which trains faster?",
        (
            Option(
                "1 MB: more is hidden.",
                "A share says nothing about of how much. Small buckets pay more latencies, so there is more to hide.",
            ),
            Option(
                "25 MB: fewer latencies.",
                "Fewer, but the last bucket is also the largest piece that nothing hides.",
            ),
            Option(
                "It cannot be told from the shares: compare when the last reduction ends.",
                "30 % of 20 ms are 6 ms, and 15 % of 60 ms are 9 ms. The step ends when the last bucket does.",
                right=True,
            ),
            Option(
                "Both the same: the bytes are equal.",
                "The bytes are, the latencies and the last bucket are not.",
            ),
        ),
    ),
    Question(
        "11.q3",
        "A loader takes 8 ms for a batch, the GPU 20 ms. You use two buffers, and a step takes 20 ms. What do three buffers "
        "bring?",
        (
            Option(
                "Nothing, as long as the times do not vary.",
                "With two the GPU never waits any more. A third one helps when a batch now and then takes longer than 20 ms.",
                right=True,
            ),
            Option(
                "A step of 8 ms.",
                "The GPU still computes 20 ms for each batch, and that is the slowest part.",
            ),
            Option(
                "A step of 13.3 ms, two thirds.",
                "Buffers do not compute. They only let the slowest part go on without a break.",
            ),
            Option(
                "A step of 28 ms, since more memory has to be filled.",
                "Filling goes on beside the computation, as before.",
            ),
        ),
    ),
    Question(
        "11.q4",
        "A step computes for 30 ms, of which backward takes 20, and reduces gradients for 45 ms; it is over when all have "
        "arrived. How short can it become by hiding alone?",
        (
            Option(
                "30 ms: everything hides behind the computation.",
                "45 ms do not fit behind 30, and forward comes before the first gradient.",
            ),
            Option(
                "45 ms: the longer of the two.",
                "That would need a link that is busy from the first moment on. The first gradient is there only after forward.",
            ),
            Option(
                "75 ms: hiding makes nothing shorter.",
                "That is what it takes without hiding, one after the other.",
            ),
            Option(
                "At best a little above 55 ms: forward, and then the link without a break.",
                "10 ms of forward, then 45 ms of reductions that begin with the first gradient. Beyond that, send less "
                "(lab 10), or let the next forward begin before all has arrived (section 3): then this step is not over yet.",
                right=True,
            ),
        ),
    ),
)
