"""The questions at the end of lab 05.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "05.q1",
        "Two ranks have 10 and 30 images in a step. Each takes the mean loss over its own images, and an all-reduce "
        "averages the two gradients. What have they computed?",
        (
            Option(
                "The gradient of the mean loss over all 40 images.",
                "Only with equally many images on both ranks. Here an image of the first rank counts three times as "
                "much as one of the second.",
            ),
            Option(
                "A gradient in which each of the 10 images counts three times as much as each of the 30.",
                "Each rank's mean counts half, so one image counts 1/20 on the first rank and 1/60 on the second. "
                "Weights of 10/40 and 30/40 would make all count 1/40.",
                right=True,
            ),
            Option(
                "Half of the gradient over all 40 images.",
                "Halves would come from dividing twice. The mean of two means has the right size, but not the right "
                "direction.",
            ),
            Option(
                "Nothing useful: the shapes of the gradients differ.",
                "A gradient has its parameter's shape, however many images it was computed from.",
            ),
        ),
    ),
    Question(
        "05.q2",
        "A timeline shows the reductions of all buckets one after the other behind the end of backward, none beside "
        "it. What would hide them?",
        (
            Option(
                "Fewer, larger buckets.",
                "One bucket with everything is full only when backward ends: that hides nothing at all.",
            ),
            Option(
                "A link with more bandwidth.",
                "The reductions would take less time, and still all of it behind the backward pass.",
            ),
            Option(
                "Launching each bucket from the hook of its last gradient, without waiting for it there.",
                "Then the first bucket travels while the layers before it are still being computed; only the last one "
                "has nothing left to hide behind.",
                right=True,
            ),
            Option(
                "Filling the buckets in the order of the forward pass.",
                "Backward begins with the last layer. In forward order the first bucket would be the last to be full.",
            ),
        ),
    ),
    Question(
        "05.q3",
        "Every rank measures the loss on its own validation images, and leaves the training loop as soon as that is "
        "below 0.1. What happens?",
        (
            Option(
                "One rank leaves first, and the others wait in the next all-reduce for ever.",
                "The ranks see different images, so they leave at different steps. The decision needs a number that "
                "is the same everywhere: reduce counts first, then compare.",
                right=True,
            ),
            Option(
                "All leave at the same step, since their parameters are equal.",
                "Their parameters are, their validation images are not, and neither are their losses.",
            ),
            Option(
                "The rank that leaves first saves time; the others go on with fewer images.",
                "A collective waits for every rank of its group, also for one that has finished.",
            ),
            Option(
                "Nothing bad, if the images were shuffled.",
                "Shuffling makes the losses alike, not equal. One step of difference is enough.",
            ),
        ),
    ),
    Question(
        "05.q4",
        "Eight equally fast workers train asynchronously with a parameter server. How stale is a gradient on average "
        "when it is applied?",
        (
            Option(
                "Not at all, since all are equally fast.",
                "They finish one after the other. When the eighth hands in its gradient, seven updates have been made "
                "since it took its parameters.",
            ),
            Option(
                "1 update.",
                "That is right for two workers: between two updates of one lies one of the other.",
            ),
            Option(
                "8 updates.",
                "Its own update does not count: there are seven others.",
            ),
            Option(
                "7 updates.",
                "Between two updates of one worker lies one of each of the others. More workers make gradients staler, "
                "not only faster.",
                right=True,
            ),
        ),
    ),
)
