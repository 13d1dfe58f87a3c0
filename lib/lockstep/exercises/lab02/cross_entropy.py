"""02.6 `softmax_cross_entropy`: the loss and its gradient, for logits of any size.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.lab02.parts import AUTOGRAD, by_first_part, counted, loses_the_dtype, real_numbers, same_parts
from lockstep.exercises.observe import Call, Observation


def softmax_cross_entropy(logits, labels):
    n = len(logits)
    shifted = logits - logits.max(dim=1, keepdim=True).values
    log_softmax = shifted - shifted.exp().sum(dim=1, keepdim=True).log()
    loss = -log_softmax[torch.arange(n), labels].mean()
    gradient = log_softmax.exp()
    gradient[torch.arange(n), labels] -= 1
    return loss, gradient / n


def with_a_one_hot_target(logits, labels):
    target = torch.zeros_like(logits).scatter_(1, labels.unsqueeze(1), 1.0)
    top = logits.amax(1, keepdim=True)
    log_sum = top + (logits - top).exp().sum(1, keepdim=True).log()
    loss = ((log_sum - logits) * target).sum() / logits.shape[0]
    return loss, ((logits - log_sum).exp() - target) / logits.shape[0]


def image_by_image(logits, labels):
    losses, rows = [], []
    for row, label in zip(logits, labels.tolist(), strict=True):
        relative = torch.exp(row - row.max())
        total = relative.sum()
        losses.append(total.log() + row.max() - row[label])
        row = relative / total
        row[label] = row[label] - 1
        rows.append(row)
    return torch.stack(losses).mean(), torch.stack(rows).div(len(rows))


def softmax_cross_entropy_stub(logits, labels):
    raise NotImplementedError("the mean loss, and its gradient for the logits")


def overflows(logits, labels):
    softmax = logits.exp() / logits.exp().sum(1, keepdim=True)
    loss = -softmax[torch.arange(len(logits)), labels].log().mean()
    softmax[torch.arange(len(logits)), labels] -= 1
    return loss, softmax / len(logits)


def takes_the_logarithm_of_zero(logits, labels):
    shifted = (logits - logits.max(1, keepdim=True).values).exp()
    softmax = shifted / shifted.sum(1, keepdim=True)
    loss = -softmax[torch.arange(len(logits)), labels].log().mean()
    return loss, softmax_cross_entropy(logits, labels)[1]


def adds_a_little(logits, labels):
    shifted = (logits - logits.max(1, keepdim=True).values).exp()
    softmax = shifted / shifted.sum(1, keepdim=True)
    loss = -(softmax[torch.arange(len(logits)), labels] + 1e-12).log().mean()
    return loss, softmax_cross_entropy(logits, labels)[1]


def one_largest_for_all(logits, labels):
    return overflows(logits - logits.max(), labels)


def adds_the_losses_up(logits, labels):
    loss, gradient = softmax_cross_entropy(logits, labels)
    return loss * len(logits), gradient * len(logits)


def does_not_divide_the_gradient(logits, labels):
    loss, gradient = softmax_cross_entropy(logits, labels)
    return loss, gradient * len(logits)


def divides_by_the_classes(logits, labels):
    loss, gradient = softmax_cross_entropy(logits, labels)
    return loss, gradient * len(logits) / logits.shape[1]


def forgets_the_label(logits, labels):
    loss, _ = softmax_cross_entropy(logits, labels)
    return loss, logits.softmax(1) / len(logits)


def has_the_wrong_sign(logits, labels):
    loss, gradient = softmax_cross_entropy(logits, labels)
    return loss, -gradient


def forgets_the_minus(logits, labels):
    loss, gradient = softmax_cross_entropy(logits, labels)
    return -loss, gradient


def softmax_over_the_images(logits, labels):
    shifted = logits - logits.max(dim=0, keepdim=True).values
    log_softmax = shifted - shifted.exp().sum(dim=0, keepdim=True).log()
    gradient = log_softmax.exp()
    gradient[torch.arange(len(logits)), labels] -= 1
    return -log_softmax[torch.arange(len(logits)), labels].mean(), gradient / len(logits)


def without_the_logarithm(logits, labels):
    loss = 1 - logits.softmax(1)[torch.arange(len(logits)), labels].mean()
    return loss, softmax_cross_entropy(logits, labels)[1]


def a_loss_for_each_image(logits, labels):
    losses = [softmax_cross_entropy(logits[i : i + 1], labels[i : i + 1])[0] for i in range(len(logits))]
    return torch.stack(losses), softmax_cross_entropy(logits, labels)[1]


def computes_in_float32(logits, labels):
    return tuple(one.float() for one in softmax_cross_entropy(logits, labels))


def shows_not_a_number(case: Case, seen: Observation, expected: Observation) -> bool:
    """NaN among what comes back."""
    parts = seen.value if isinstance(seen.value, (tuple, list)) else (seen.value,)
    return seen.error is None and any(isinstance(one, torch.Tensor) and bool(one.isnan().any()) for one in parts)


def shows_infinity(case: Case, seen: Observation, expected: Observation) -> bool:
    """An infinite loss, and no NaN."""
    loss = seen.value[0] if isinstance(seen.value, (tuple, list)) and seen.value else None
    return seen.error is None and isinstance(loss, torch.Tensor) and bool(loss.isinf().any())


def loss_cases(rng: np.random.Generator) -> Iterator[Case]:
    for n, k in ((1, 2), (1, 3), (3, 2), (5, 4)):
        labels = torch.from_numpy(rng.integers(0, k, n))
        yield Case(f"{counted(n, 'image')}, {k} classes", (real_numbers(rng, n, k), labels))
    far = torch.tensor([[1000.0, 0.0, 990.0]], dtype=torch.float64)
    yield Case("1 image, logits up to 1000", (far, torch.tensor([0])))
    yield Case("1 image, logits up to 1000, the label's is 0", (far, torch.tensor([1])))
    apart = torch.tensor([[1000.0, 999.0], [-1000.0, -1002.0]], dtype=torch.float64)
    yield Case("2 images, one with logits near 1000, one near -1000", (apart, torch.tensor([1, 0])))


# float32 is enough for a loss: nothing takes differences of it.
JUDGE = same_parts("loss", "gradient", given=("logits", "labels"), rtol=1e-7)

CROSS_ENTROPY = Exercise(
    id="02.6",
    title="Softmax and cross-entropy",
    function="softmax_cross_entropy",
    points=2,
    asks=(
        "Return a pair: the mean over the images of -log softmax(logits)[label], and its gradient for the `logits` "
        "(N, K). `labels` (N,) holds whole numbers. It must be right for logits of any size."
    ),
    reference=softmax_cross_entropy,
    also_right=(with_a_one_hot_target, image_by_image),
    stub=softmax_cross_entropy_stub,
    cases=loss_cases,
    observe=Call(),
    judge=JUDGE,
    forbidden=(
        "torch.nn.functional.cross_entropy",
        "torch.nn.functional.nll_loss",
        "torch.nn.functional.log_softmax",
        "torch.log_softmax",
        "torch.Tensor.log_softmax",
        "torch.logsumexp",
        "torch.Tensor.logsumexp",
        "torch.logaddexp",
        "lockstep.nn.functional.softmax_cross_entropy",
        *AUTOGRAD,
    ),
    hints=(
        (
            "exp(1000) is more than any float can hold. What happens to a softmax if you take the same number off all "
            "logits of an image? Which number would you choose?"
        ),
        (
            "Do not take the logarithm of a softmax: it may have become 0. log(exp(a) / sum) is a - log(sum), and with "
            "the largest logit taken off, the sum is at least 1."
        ),
        (
            "The gradient of one image's loss is its softmax, with 1 taken off at the label. The loss is a mean, so "
            "all of it is divided by the number of images."
        ),
    ),
    mistakes=by_first_part(
        JUDGE,
        (
            Mistake(
                "one largest for all images",
                one_largest_for_all,
                "You take the largest logit of the whole batch off. An image whose logits are all far below it is left "
                "with zeros, and 0 / 0 is not a number: each image needs its own largest.",
                symptom=lambda case, seen, expected: "-1000" in case.name and shows_not_a_number(case, seen, expected),
            ),
            Mistake(
                "overflows",
                overflows,
                "exp(1000) is infinite, and infinite by infinite is not a number. Take a number off all logits of an "
                "image first: the softmax stays as it is.",
                symptom=shows_not_a_number,
            ),
            Mistake(
                "takes the logarithm of zero",
                takes_the_logarithm_of_zero,
                "The softmax of this label is so small that it has become 0, and its logarithm is minus infinity. The "
                "true loss is 1000: compute log softmax without the softmax.",
                symptom=shows_infinity,
            ),
            Mistake(
                "adds a little",
                adds_a_little,
                "A small number inside the logarithm hides the zero and gives a wrong loss, here 27.6 in place of "
                "1000. Compute log softmax without the softmax.",
            ),
            Mistake(
                "adds the losses up",
                adds_the_losses_up,
                "Your loss is the sum over the images, and so is its gradient. The mean is asked for, which does not "
                "grow with the batch.",
            ),
            Mistake(
                "does not divide the gradient",
                does_not_divide_the_gradient,
                "The loss is a mean over the images, so its gradient has to be divided by their number too.",
            ),
            Mistake(
                "divides by the classes",
                divides_by_the_classes,
                "You divide the gradient by the number of classes. The mean is taken over the images.",
            ),
            Mistake(
                "forgets the label",
                forgets_the_label,
                "Your gradient is the softmax alone and pushes all logits down. The label's own has 1 taken off.",
            ),
            Mistake(
                "the gradient has the wrong sign",
                has_the_wrong_sign,
                "Your gradient points downhill. A gradient points to where the loss grows: positive for wrong classes, "
                "negative for the label. The optimizer turns it round.",
            ),
            Mistake(
                "the loss has the wrong sign",
                forgets_the_minus,
                "The logarithm of a probability is negative, and a loss is not: the minus sign is missing.",
            ),
            Mistake(
                "softmax over the images",
                softmax_over_the_images,
                "Your softmax adds up over the images. Each image has probabilities of its own, which add up to 1 over "
                "the classes: the other axis.",
            ),
            Mistake(
                "without the logarithm",
                without_the_logarithm,
                "Cross-entropy is minus the logarithm of the label's probability, not 1 minus the probability.",
            ),
            Mistake(
                "a loss for each image",
                a_loss_for_each_image,
                "Your loss has one number for each image. One number for the batch is asked for: their mean.",
            ),
            loses_the_dtype(computes_in_float32, "logits"),
        ),
    ),
)
