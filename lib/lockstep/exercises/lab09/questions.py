"""The questions of lab 09.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "09.q1",
        "A model trains with Adam in mixed precision on 64 ranks with stage 1. It still does not fit by a few gigabytes. "
        "Stage 2 would. What does going there cost in bytes sent?",
        (
            Option(
                "Nothing: stages 1 and 2 send the same.",
                "Both send a reduce-scatter of the gradients and an all-gather of the parameters, together one all-reduce. What "
                "changes is when gradients are let go.",
                right=True,
            ),
            Option(
                "Half as much again.",
                "That is stage 3, which gathers the parameters a second time, for backward.",
            ),
            Option(
                "64 times as much, since every rank needs all gradients.",
                "No rank needs them all: only the means of its own shard.",
            ),
            Option(
                "It depends on the optimizer.",
                "The optimizer's state never travels, in any stage.",
            ),
        ),
    ),
    Question(
        "09.q2",
        "A network runs out of memory on one GPU with a batch of 256: 2 GB are parameters, gradients and Adam's state, 40 GB "
        "are activations. What helps most?",
        (
            Option(
                "Stage 1, since Adam's state is half of the 2 GB.",
                "That saves less than 1 GB of 42.",
            ),
            Option(
                "Stage 3: everything is sharded there.",
                "Everything but the activations. At best it saves 2 GB of 42.",
            ),
            Option(
                "Fewer images on each rank, or activation checkpointing.",
                "Activations grow with the images of a rank, and no stage touches them. Data parallel ranks with 64 images each "
                "would hold 10 GB of them.",
                right=True,
            ),
            Option(
                "Offload of the optimizer's state to the CPU.",
                "That is about 1 GB. It helps where the model is large, not where the batch is.",
            ),
        ),
    ),
    Question(
        "09.q3",
        "fp16 training on 8 ranks, stage 2. One rank looks for infinite numbers in its shard, finds one, and leaves the step "
        "out. The others found none. What happens?",
        (
            Option(
                "Nothing bad: the next step catches up.",
                "The next step begins from parameters of which one eighth is a step behind, and so do all later ones.",
            ),
            Option(
                "One eighth of the parameters stays as it was, and seven eighths move.",
                "After a reduce-scatter only one rank can see the overflow. So all have to agree first, by one number.",
                right=True,
            ),
            Option(
                "All ranks leave the step out.",
                "They would have to know. Each sees its own shard alone.",
            ),
            Option(
                "The parameters become NaN on all ranks.",
                "So it would be if nobody looked. Here seven shards had healthy gradients.",
            ),
        ),
    ),
    Question(
        "09.q4",
        "Stage 3 on slow links: every layer's all-gather takes longer than the layer computes. Which change helps without more "
        "links?",
        (
            Option(
                "A larger batch on each rank.",
                "The bytes of a step stay the same and the computation grows, so more of each gather can hide behind it.",
                right=True,
            ),
            Option(
                "Smaller units, gathered more often.",
                "The bytes stay the same, and there are more latencies.",
            ),
            Option(
                "More ranks.",
                "Each rank then sends (N-1)/N of the same volume, which is more, not less.",
            ),
            Option(
                "Adam in place of SGD.",
                "That changes what a rank keeps. Optimizer state never travels.",
            ),
        ),
    ),
)
