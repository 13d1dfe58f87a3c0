"""The questions of lab 04.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "04.q1",
        "Eight ranks all-reduce a tensor of n bytes by a ring. You add 56 ranks. How many bytes does each rank send now?",
        (
            Option(
                "Eight times as many, since there are eight times as many ranks.",
                "Each of them has an eighth of the chunk to send at each step. Steps times chunk is what counts.",
            ),
            Option(
                "A little more: 1.97 n instead of 1.75 n.",
                "2(p - 1)/p is 1.75 for 8 and 1.97 for 64, and never reaches 2. What does grow eightfold is the number of "
                "messages, and with it the latency.",
                right=True,
            ),
            Option(
                "An eighth, since the chunks are smaller.",
                "A chunk is an eighth of what it was, but there are nine times as many steps.",
            ),
            Option(
                "Exactly as many: a ring does not depend on the number of ranks.",
                "Nearly. 2(p - 1)/p still grows, from 1.75 to 1.97.",
            ),
        ),
    ),
    Question(
        "04.q2",
        "A program calls `if dist.get_rank() == 0: dist.all_reduce(loss)`, to print the mean loss. What happens?",
        (
            Option(
                "Rank 0 gets the sum, the others keep their own loss.",
                "The sum needs everybody's number, and the others never hand theirs in.",
            ),
            Option(
                "An error at once: not every rank has called it.",
                "Nobody looks. Rank 0 cannot know whether the others are late or will never come.",
            ),
            Option(
                "Rank 0 waits: for the others' next collective, whatever it is, or for the time limit.",
                "That is why such a bug shows far from its line: if the shapes happen to fit, rank 0's loss is added to "
                "somebody's gradient. Every rank has to make every collective.",
                right=True,
            ),
            Option(
                "It works, only slower.",
                "It would be slow for half an hour: that is the usual time limit.",
            ),
        ),
    ),
    Question(
        "04.q3",
        "Sixteen ranks, 4 bytes, a network with a latency of 20 µs. Which all-reduce is the fastest?",
        (
            Option(
                "Recursive doubling, with 4 messages one after the other.",
                "Bytes do not count here, messages do: 4 of them against 30 for the ring and 8 for Rabenseifner's.",
                right=True,
            ),
            Option(
                "The ring: it moves the fewest bytes.",
                "It moves the fewest bytes in 30 messages, and each costs 20 µs. Four bytes cost nothing.",
            ),
            Option(
                "Rabenseifner's algorithm: as few bytes as the ring in fewer messages.",
                "It makes 8 messages, which is twice as many as recursive doubling.",
            ),
            Option(
                "All are equally fast, since 4 bytes are nothing.",
                "The bytes are nothing, the messages are not: each costs the latency.",
            ),
        ),
    ),
    Question(
        "04.q4",
        "A benchmark reports an all-reduce of 1 GB over 8 GPUs in 10 ms: 175 GB/s of bus bandwidth. What is that number?",
        (
            Option(
                "1 GB / 10 ms: how fast the tensor is reduced.",
                "That would be 100 GB/s, and is called the algorithm's bandwidth.",
            ),
            Option(
                "The bytes that all GPUs send together, per second.",
                "All together send 8 times 1.75 GB, which would be 1,400 GB/s.",
            ),
            Option(
                "What the link of one GPU must have carried: 1.75 GB sent by each, in 10 ms.",
                "1.75 is 2(p - 1)/p. So the number can be compared with what the link should be able to do, whatever the "
                "number of GPUs.",
                right=True,
            ),
        ),
    ),
)
