"""Exercise 05.8: the accuracy over all ranks, exact to the last image.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from lockstep.exercises.exercise import Case, Exercise, Mistake, on_ranks
from lockstep.exercises.judge import all_of, same_value
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab05.sending import sends_at_least
from lockstep.exercises.lab05.toys import in_words
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.symptoms import is_deadlock


def distributed_accuracy(comm, logits, labels):
    right = (logits.argmax(dim=1) == labels).sum()
    counted = (labels >= 0).sum()
    right, counted = comm.all_reduce(torch.stack([right, counted]))
    return (right / counted).item()


def accuracy_by_gathering(comm, logits, labels):
    real = labels != -1
    own = torch.tensor([[int((logits[real].argmax(1) == labels[real]).sum()), int(real.sum())]])
    table = comm.all_gather(own).tolist()
    return sum(right for right, _ in table) / sum(count for _, count in table)


def accuracy_with_weights(comm, logits, labels):
    keep = labels.ge(0)
    count = keep.sum().double()
    total = comm.all_reduce(count.clone())
    share = (logits[keep].max(dim=1).indices == labels[keep]).double().mean() if count else torch.zeros(()).double()
    return comm.all_reduce(share * count / total)


def distributed_accuracy_stub(comm, logits, labels):
    raise NotImplementedError("return the share of right answers over all ranks' images")


def means_of_means(comm, logits, labels):
    keep = labels >= 0
    right = (logits[keep].argmax(dim=1) == labels[keep]).double()
    own = right.mean() if len(right) else torch.zeros(()).double()
    return comm.all_reduce(own, op="mean").item()


def means_of_present_ranks(comm, logits, labels):
    keep = labels >= 0
    right = (logits[keep].argmax(dim=1) == labels[keep]).double()
    own = torch.stack(
        [right.mean() if len(right) else torch.zeros(()).double(), torch.tensor(float(len(right) > 0)).double()]
    )
    total, ranks = comm.all_reduce(own)
    return (total / ranks).item()


def means_of_nothing(comm, logits, labels):
    keep = labels >= 0
    own = (logits[keep].argmax(dim=1) == labels[keep]).double().mean()
    return comm.all_reduce(own, op="mean").item()


def counts_padding(comm, logits, labels):
    right = (logits.argmax(dim=1) == labels).sum()
    right, counted = comm.all_reduce(torch.stack([right, torch.tensor(len(labels))]))
    return (right / counted).item()


def is_local(comm, logits, labels):
    keep = labels >= 0
    right = (logits[keep].argmax(dim=1) == labels[keep]).sum()
    return right.item() / max(1, keep.sum().item())


def empty_ranks_leave(comm, logits, labels):
    if len(labels) == 0:
        return 0.0
    return distributed_accuracy(comm, logits, labels)


def only_rank_0_knows(comm, logits, labels):
    right = (logits.argmax(dim=1) == labels).sum()
    both = torch.stack([right, (labels >= 0).sum()])
    comm.reduce(both, dst=0)
    return (both[0] / both[1].clamp(min=1)).item()


def counts_right_ones(comm, logits, labels):
    right = (logits.argmax(dim=1) == labels).sum()
    return comm.all_reduce(right).item()


def divides_by_its_own(comm, logits, labels):
    right = comm.all_reduce((logits.argmax(dim=1) == labels).sum())
    return (right / max(1, int((labels >= 0).sum()))).item()


def takes_the_score_for_the_class(comm, logits, labels):
    right = (logits.max(dim=1).values.round() == labels).sum()
    right, counted = comm.all_reduce(torch.stack([right, (labels >= 0).sum()]))
    return (right / counted).item()


def cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = (((4,), 0), ((1, 4), 0), ((3, 3), 1), ((5, 0, 2), 0), ((4, 4, 4, 4), 3))
    for sizes, padding in drawn:
        each = [_answers(rng, n, padding if rank == len(sizes) - 1 else 0) for rank, n in enumerate(sizes)]
        words = f", {padding} of the last padding" if padding else ""
        yield on_ranks(len(sizes), each=each, name=f"{in_words(sizes)} images{words}")


def _answers(rng: np.random.Generator, n: int, padding: int) -> tuple[Tensor, Tensor]:
    """Logits and labels; the first image of each rank is answered rightly, the second wrongly, the others at random."""
    logits = torch.tensor(rng.normal(size=(n, 3)) * 2, dtype=torch.float32)
    labels = torch.tensor(rng.integers(0, 3, n))
    best = logits.argmax(dim=1) if n else labels
    labels[:1], labels[1:2] = best[:1], (best[1:2] + 1) % 3
    labels[n - padding :] = -1
    return logits, labels


def is_nan(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is None and any(isinstance(v, float) and v != v for v in seen.value)


def its_counts(case: Case, expected: Observation, rank: int) -> int:
    """Two numbers of a byte, where it has images that count; whoever has none may be silent."""
    return 2 * bool((case.each[rank][1] >= 0).any())


OBSERVE, JUDGE = Simulate(), all_of(same_value(rtol=1e-5), sends_at_least(its_counts))

ACCURACY = Exercise(
    id="05.8",
    title="Accuracy over all ranks",
    function="distributed_accuracy",
    points=1,
    core=False,
    asks=(
        "Return, on every rank, the share of images that are answered rightly, over the images of all ranks: the "
        "answer is the class with the largest logit. A label of -1 marks padding, an image that does not count. A rank "
        "may have no images; in all at least one counts."
    ),
    reference=distributed_accuracy,
    also_right=(accuracy_by_gathering, accuracy_with_weights),
    stub=distributed_accuracy_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "Rank 0 has 1 of 1 right, rank 1 has 1 of 4. How many of all five are right? Which two numbers has each rank "
        "to hand in?",
        "Add up the right answers and the images that count over all ranks, both in one all-reduce, and divide at the "
        "end. -1 is never the largest class, so padding is never right; it must not be counted as an image either.",
        "`comm.all_reduce(torch.stack([right, counted]))` gives both totals; `counted` is `(labels >= 0).sum()` here.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "stops on its local loss",
                is_local,
                "That is the accuracy on this rank's own images. When each rank goes by its own number, as in \"stop when "
                'it is good enough", they stop at different steps, and those that go on wait for the others for ever.',
            ),
            Mistake(
                "mean of means",
                means_of_means,
                "You average the ranks' accuracies. A rank with one image then counts as much as one with four. Add up "
                "counts, divide once.",
            ),
            Mistake(
                "mean of the means of those that have images",
                means_of_present_ranks,
                "Leaving out ranks without images does not help: the others still have different numbers of them. Add up "
                "counts, divide once.",
            ),
            Mistake(
                "mean over no images",
                means_of_nothing,
                "A rank without images has the mean of nothing, which is nan, and nan makes everybody's result nan. "
                "Counts of nothing are zeros; add up counts.",
                symptom=is_nan,
            ),
            Mistake(
                "padded test samples counted",
                counts_padding,
                "Padding counts among the images, so the accuracy comes out too low. Count the labels that are not -1.",
            ),
            Mistake(
                "ranks without images leave",
                empty_ranks_leave,
                "A rank without images returns before the collective, and the others wait for it. It has nothing to add, "
                "but it has to take part, and it needs the answer too.",
                symptom=is_deadlock,
            ),
            Mistake(
                "only rank 0 knows",
                only_rank_0_knows,
                "Only rank 0 has the totals; the others divide their own counts. Every rank has to return the same number.",
            ),
            Mistake(
                "counts instead of dividing",
                counts_right_ones,
                "That is how many are right. The share is asked for: divide by how many count.",
            ),
            Mistake(
                "divides by its own images",
                divides_by_its_own,
                "The right answers are those of all ranks, but you divide by this rank's own images. Add up both.",
            ),
            Mistake(
                "takes the logit for the class",
                takes_the_score_for_the_class,
                "You compare the largest logit with the label. The answer is *where* it is: `argmax`, not `max`.",
            ),
        ),
    ),
)
