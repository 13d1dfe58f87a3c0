"""The questions of lab 06.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "06.q1",
        "A network is split by layers over four equal GPUs, perfectly balanced; one batch goes through at a time. How much "
        "of the time is a GPU idle, on average?",
        (
            Option(
                "Hardly at all: the parts take equally long.",
                "They do, but one after the other. While one GPU computes, the other three wait for it.",
            ),
            Option(
                "A quarter of the time.",
                "A quarter is how long each of them *works*.",
            ),
            Option(
                "Three quarters of the time.",
                "One works, three wait, whatever the balance. Lab 07 fills the gaps with other images.",
                right=True,
            ),
            Option(
                "It depends on how good the balance is.",
                "Each GPU's own share does. Their mean does not: at every moment one of four is at work.",
            ),
        ),
    ),
    Question(
        "06.q2",
        "Two linear layers with a ReLU between them run on 8 ranks, the first column-parallel, the second row-parallel. How "
        "many collectives does a training step need?",
        (
            Option(
                "Two: one all-reduce forward, one backward.",
                "Forward adds up the outputs of the second layer, backward the gradient of the first one's inputs. What lies "
                "between stays where it is.",
                right=True,
            ),
            Option(
                "Four: one for each layer and direction.",
                "So it would be for two layers that stand alone. The pair saves the gather between them, both ways.",
            ),
            Option(
                "None: every rank has all it needs.",
                "Each rank's second layer has the sum over its own neurons only. Somebody has to add up.",
            ),
            Option(
                "One: forward only, since gradients are local.",
                "Those of the weights are. The gradient of the pair's input comes through all ranks' neurons.",
            ),
        ),
    ),
    Question(
        "06.q3",
        "In the second layer of such a pair somebody adds the bias before the all-reduce, on all 4 ranks. What comes out?",
        (
            Option(
                "The right output: the bias is the same everywhere.",
                "The same number is then added up four times.",
            ),
            Option(
                "An error, since the shapes do not fit.",
                "The shapes fit. That is why it is easy to miss.",
            ),
            Option(
                "A quarter of the bias is missing.",
                "It would be the other way round: there is too much of it.",
            ),
            Option(
                "The bias counts four times.",
                "It trains all the same, towards a bias a quarter as large, and the model is wrong as soon as it is loaded on "
                "another number of ranks.",
                right=True,
            ),
        ),
    ),
    Question(
        "06.q4",
        "The first convolutions of a network on 224x224 images have few weights and large activations. Which way to split "
        "them sends least, with 32 images on each of 8 GPUs?",
        (
            Option(
                "By channel, since the weights are divided.",
                "The weights never travel then, but the activations do, twice. They are the large part here.",
            ),
            Option(
                "By data: only the gradients of the few weights travel.",
                "A few hundred kilobytes against hundreds of megabytes of activations. In the fully connected layers at the "
                "end it is the other way round.",
                right=True,
            ),
            Option(
                "By layers, since only one activation travels.",
                "One activation of 32 images is 411 MB behind VGG-16's first layer. The gradients of its weights are 7 kB.",
            ),
        ),
    ),
)
