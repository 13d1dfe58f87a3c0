"""The questions of lab 08.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "08.q1",
        'Eight ranks are a mesh {"data": 2, "pipeline": 2, "tensor": 2}, the last axis varying fastest. Whom does rank 5 average its '
        "gradients with?",
        (
            Option("Rank 4.", "They differ in tensor alone: they have different parts of the same layers."),
            Option(
                "Rank 1.", "5 is (1, 0, 1) and 1 is (0, 0, 1): the same stage, the same part, other images.", right=True
            ),
            Option("Rank 7.", "5 and 7 differ in pipeline alone: they have different layers."),
            Option(
                "All seven others.",
                "Six of them have other layers or other parts of a layer. Their gradients have other meanings.",
            ),
        ),
    ),
    Question(
        "08.q2",
        "Two nodes of eight GPUs. What makes a hierarchical all-reduce faster than one ring through all sixteen, in the order of "
        "their ranks?",
        (
            Option(
                "Far fewer bytes cross between the nodes.",
                "Hardly: the ring crosses on two links only, 3.75 n in all, and the hierarchical one sends 2 n.",
            ),
            Option(
                "It needs no reduction inside the nodes.",
                "It begins with one: each node adds up before anything crosses.",
            ),
            Option(
                "What crosses is shared by all eight links instead of one.",
                "In the ring one GPU of a node sends 1.875 n across, while seven links between the nodes are idle.",
                right=True,
            ),
        ),
    ),
    Question(
        "08.q3",
        "AlexNet, 8 GPUs, 128 images each. Why are its convolutions data parallel and its linear layers shared out?",
        (
            Option(
                "Convolutions cannot be shared out by channel.",
                "They can: lab 06 did it. It sends large activations.",
            ),
            Option(
                "Linear layers need more time, so they are divided.",
                "They take 8 % of the multiply-adds. Both ways divide the work evenly among 8.",
            ),
            Option(
                "So that all GPUs get the same amount of memory.",
                "Memory does fall, but pure data parallel is even as well. What differs is what travels.",
            ),
            Option(
                "In a convolution weights are few, in a linear layer activations are.",
                "What is few should travel: 2.5 million weights of convolutions, 17 thousand activations of each image.",
                right=True,
            ),
        ),
    ),
    Question(
        "08.q4",
        "A plan has tensor 8, pipeline 4, data 16 on nodes of eight GPUs with fast links. Somebody numbers the ranks so that "
        "*data* varies fastest. What happens?",
        (
            Option(
                "The numbers come out wrong.",
                "The groups are the same ones with other members; each still averages or adds up what belongs together.",
            ),
            Option(
                "The same training, but slower: every tensor group now talks across nodes.",
                "The all-reduces in the middle of forward and backward, which nothing hides, take the slow links.",
                right=True,
            ),
            Option(
                "Nothing, since the total of bytes is the same.",
                "The total is, but other bytes take the slow links: those of the tensor axis, and most of all.",
            ),
        ),
    ),
)
