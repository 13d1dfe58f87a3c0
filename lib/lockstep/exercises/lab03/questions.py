"""The questions of lab 03.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "03.q1",
        "A ResNet-50 does not fit on the GPU with Adam in fp32 and a batch of 32. Which single change frees the most?",
        (
            Option(
                "Plain SGD instead of Adam.",
                "That saves 8 bytes for each of 25.6 million parameters, 0.2 GB. The activations of 32 images take 2.7 GB "
                "(`cost.training_memory`: the first figure of this lab shows them).",
            ),
            Option(
                "Half the batch, and two steps of gradient accumulation.",
                "It halves the activations, which are most of the memory here, and the update stays the same (but for "
                "batch norm, which sees half as many images).",
                right=True,
            ),
            Option(
                "In-place ReLUs.",
                "An in-place ReLU keeps its output like any other, so nothing that is kept for backward goes away.",
            ),
            Option(
                "Freeing the gradients before each forward pass.",
                "That saves 4 bytes a parameter, 0.1 GB, and PyTorch does it already.",
            ),
        ),
    ),
    Question(
        "03.q2",
        "Mixed precision with Adam: what happens to the memory of parameters, gradients and optimizer state together?",
        (
            Option(
                "It halves, since 16 bits are half of 32.",
                "Parameters and gradients halve. But a master copy in 32 bits is added, and Adam's state stays in 32 bits.",
            ),
            Option(
                "It stays at 16 bytes a parameter.",
                "2 + 2 + 4 + 8 instead of 4 + 4 + 8. What shrinks is the activations; what grows is the speed.",
                right=True,
            ),
            Option(
                "It grows by half.",
                "It would if parameters and gradients stayed in 32 bits; they take 2 bytes each now.",
            ),
        ),
    ),
    Question(
        "03.q3",
        "A chain of 100 equal layers is checkpointed in segments of 10. What does a step cost, compared with before?",
        (
            Option(
                "About a third more computation, and about a fifth of the activations.",
                "One more forward pass, which is one of three equal parts, and 10 + 10 pieces instead of 100.",
                right=True,
            ),
            Option(
                "Ten times the computation, since every segment is computed again for each of its layers.",
                "A segment is computed again once, with everything in it kept until its backward pass is over.",
            ),
            Option(
                "Twice the computation, and a tenth of the activations.",
                "Backward is two thirds of a step and is not repeated; and both the inputs of the segments and the inside "
                "of one are kept.",
            ),
            Option(
                "Nothing: the layers are computed while the GPU waits for memory.",
                "The GPU does not know that. The layers run once more, and that takes its time.",
            ),
        ),
    ),
    Question(
        "03.q4",
        "Eight GPUs share out the batch and add up their gradients. You double the batch on each. What happens to the "
        "network's share of a step?",
        (
            Option(
                "It doubles, since there are twice as many gradients to add up.",
                "A gradient is as large as its parameter, however many images it comes from.",
            ),
            Option(
                "It stays: everything doubles.",
                "Computation and memory traffic double. The gradients do not grow with the batch.",
            ),
            Option(
                "It nearly halves: twice the computation, the same bytes on the network.",
                "That is why large batches scale well, and why labs 05 and 10 ask what they do to learning and how to send "
                "less.",
                right=True,
            ),
        ),
    ),
)
