"""Lab 02: right answers in other clothes pass, and what students get wrong is named."""

import numpy as np
import pytest
import torch
from newcomer_02 import FOUND
from proof import verdict_on
from torch.nn import functional as theirs

from lockstep.exercises import find
from lockstep.exercises.lab02 import EXERCISES, QUESTIONS

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def verdict(exercise_id, fn):
    """Status, known mistake and what was seen: as `check`, without a child process for each function."""
    outcome = verdict_on(find(exercise_id), fn)
    return outcome.status, outcome.mistake, outcome.seen


def test_the_cores_are_those_of_the_plan_and_right_answers_stand_in_different_places():
    assert [one.id for one in EXERCISES if one.core] == ["02.1", "02.2", "02.3", "02.6"]
    assert all(find(one.id) is one for one in EXERCISES)
    right = [next(letter for letter, o in q.letters.items() if o.right) for q in QUESTIONS]
    assert len(QUESTIONS) >= 3 and len(set(right)) >= 3


def test_the_references_are_torchs_on_every_case_and_pass_gradcheck():
    """What `check` compares with is PyTorch's own, over groups and dilation too, and so are finite differences."""
    forward, backward = find("02.2").reference, find("02.3").reference
    for case in find("02.2").draw(5):
        torch.testing.assert_close(forward(*case.args), theirs.conv2d(*case.args), **CLOSE)
    for case in find("02.3").draw(5):
        grad, x, weight, *how = case.args
        given = [x.requires_grad_(), weight.requires_grad_(), torch.zeros(len(weight)).double().requires_grad_()]
        want = torch.autograd.grad(theirs.conv2d(*given, *how), given, grad)
        torch.testing.assert_close(backward(grad, x.detach(), weight.detach(), *how), want, **CLOSE)

    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            return forward(x, weight, bias, 2, 1, 2, 2)

        @staticmethod
        def backward(ctx, grad):
            return backward(grad, *ctx.saved_tensors, 2, 1, 2, 2)

    torch.manual_seed(0)
    shapes = ((1, 4, 5, 4), (4, 2, 2, 3), (4,))
    assert torch.autograd.gradcheck(ByHand.apply, [torch.randn(one).double().requires_grad_() for one in shapes])


def test_pooling_batch_norm_and_the_loss_are_torchs():
    for case in find("02.4").draw(5):
        grad, x, kernel, stride = case.args
        want = torch.autograd.grad(theirs.max_pool2d(x.requires_grad_(), kernel, stride), x, grad)[0]
        torch.testing.assert_close(find("02.4").reference(grad, x.detach(), kernel, stride), want, **CLOSE)
    for case in find("02.5").draw(5):
        grad, x, weight, eps = case.args
        given = [x.requires_grad_(), weight.requires_grad_(), torch.zeros_like(weight).requires_grad_()]
        y = theirs.batch_norm(given[0], None, None, *given[1:], training=True, eps=eps)
        want = torch.autograd.grad(y, given, grad)
        torch.testing.assert_close(find("02.5").reference(grad, x.detach(), weight.detach(), eps), want, **CLOSE)
    for case in find("02.6").draw(5):
        logits, labels = case.args
        want = theirs.cross_entropy(logits.requires_grad_(), labels)
        gradient = torch.autograd.grad(want, logits)[0]
        torch.testing.assert_close(find("02.6").reference(logits.detach(), labels), (want.detach(), gradient), **CLOSE)


# Right answers in other clothes.


def sizes(x, weight, stride, padding, dilation):
    return [(x.shape[a] + 2 * padding - dilation * (weight.shape[a] - 1) - 1) // stride + 1 for a in (2, 3)]


def one_product_for_all_images(x, weight, bias, stride, padding, dilation, groups):
    n, (o, i, r, s), (p, q) = len(x), weight.shape, sizes(x, weight, stride, padding, dilation)
    x = theirs.pad(x, (padding, padding, padding, padding))
    out = []
    for g in range(groups):
        columns = x.new_empty(i, r, s, n, p, q)
        for a, b in np.ndindex(r, s):
            part = x[:, g * i : (g + 1) * i, a * dilation :: stride, b * dilation :: stride][:, :, :p, :q]
            columns[:, a, b] = part.transpose(0, 1)
        kernels = weight[g * o // groups : (g + 1) * o // groups].reshape(o // groups, -1)
        out.append((kernels @ columns.view(i * r * s, -1)).view(-1, n, p, q))
    return torch.cat(out).transpose(0, 1) + bias.view(1, o, 1, 1)


def backward_as_two_convolutions(grad, x, weight, stride, padding, dilation, groups):
    """dx is a convolution of the spread gradient with turned kernels; dweight one of the images with the gradient."""
    (n, c, h, w), (o, i, r, s), (p, q) = x.shape, weight.shape, grad.shape[2:]
    spread = grad.new_zeros(n, o, (p - 1) * stride + 1, (q - 1) * stride + 1)
    spread[:, :, ::stride, ::stride] = grad
    down, across = dilation * (r - 1), dilation * (s - 1)
    right, below = w + 2 * padding - spread.shape[3] - across, h + 2 * padding - spread.shape[2] - down
    framed = theirs.pad(spread, (across, across + right, down, down + below))
    turned = weight.flip(2, 3).view(groups, o // groups, i, r, s).transpose(1, 2).reshape(c, o // groups, r, s)
    forward, no_bias = find("02.2").reference, grad.new_zeros
    dx = forward(framed, turned, no_bias(c), 1, 0, dilation, groups)
    dx = dx[:, :, padding : padding + h, padding : padding + w]
    padded, dweight = theirs.pad(x, [padding] * 4), torch.zeros_like(weight)
    for image, told in zip(padded, spread, strict=True):
        for out in range(o):
            first = out // (o // groups) * i
            read = image[first : first + i, None]
            dweight[out] += forward(read, told[out][None, None], no_bias(1), 1, 0, 1, 1)[
                :, 0, : dilation * (r - 1) + 1 : dilation, : dilation * (s - 1) + 1 : dilation
            ]
    return [dx, dweight, grad.sum((2, 3)).sum(0)]


def loss_by_hand(logits, labels):
    """Its loss is a number, no tensor."""
    gradient, total = torch.zeros_like(logits), 0.0
    for n, (row, label) in enumerate(zip(logits.tolist(), labels.tolist(), strict=True)):
        top = max(row)
        parts = [np.exp(one - top) for one in row]
        total += np.log(sum(parts)) + top - row[label]
        gradient[n] = torch.tensor([one / sum(parts) - (k == label) for k, one in enumerate(parts)])
    return total / len(labels), gradient / len(labels)


@pytest.mark.parametrize(
    "exercise_id, fn",
    [
        ("02.1", lambda size, kernel, stride, padding, dilation: len(range(2 * padding + size)[dilation * (kernel - 1) :: stride])),
        ("02.2", one_product_for_all_images),
        ("02.3", backward_as_two_convolutions),
        ("02.6", loss_by_hand),
    ],
)  # fmt: skip
def test_other_right_answers_pass(exercise_id, fn):
    outcome = verdict_on(find(exercise_id), fn)
    assert outcome.passed, outcome.text


# What newcomers write.


@pytest.mark.parametrize("exercise_id, fn, words", FOUND, ids=[f"{id}-{fn.__name__}-{w[0]}" for id, fn, w in FOUND])
def test_what_the_newcomer_wrote_gets_its_cause(exercise_id, fn, words):
    # Some of these passed, and the notebook broke much later; the others got no cause.
    outcome = verdict_on(find(exercise_id), fn)
    assert not outcome.passed
    for word in words:
        assert word in outcome.cause + outcome.seen, outcome.text


def stacks_places_outside(x, weight, bias, stride, padding, dilation, groups):
    n, (o, i, r, s), (p, q) = len(x), weight.shape, sizes(x, weight, stride, padding, dilation)
    x = theirs.pad(x, [padding] * 4)
    rows = [x[:, :, a * dilation :: stride, b * dilation :: stride][:, :, :p, :q] for a in range(r) for b in range(s)]
    columns = torch.stack(rows, 1).reshape(n, groups, i * r * s, p * q)
    return (weight.view(groups, o // groups, -1) @ columns).view(n, o, p, q) + bias.view(o, 1, 1)


def pads_with_two_numbers(x, weight, bias, stride, padding, dilation, groups):
    n, (o, i, r, s), (p, q) = len(x), weight.shape, sizes(x, weight, stride, padding, dilation)
    x = theirs.pad(x, (padding, padding))
    rows = [x[:, :, a * dilation :: stride, b * dilation :: stride][:, :, :p, :q] for a in range(r) for b in range(s)]
    columns = torch.stack(rows, 2).reshape(n, groups, i * r * s, p * q)
    return (weight.view(groups, o // groups, -1) @ columns).view(n, o, p, q) + bias.view(o, 1, 1)


def into_a_float32(x, weight, bias, stride, padding, dilation, groups):
    n, o, (p, q) = len(x), len(weight), sizes(x, weight, stride, padding, dilation)
    y = torch.zeros(n, o, p, q)
    y[:] = find("02.2").reference(x, weight, bias, stride, padding, dilation, groups)
    return y


def without_groups(x, weight, bias, stride, padding, dilation, groups):
    n, (o, _, r, s), (p, q) = len(x), weight.shape, sizes(x, weight, stride, padding, dilation)
    x = theirs.pad(x, [padding] * 4)
    rows = [x[:, :, a * dilation :: stride, b * dilation :: stride][:, :, :p, :q] for a in range(r) for b in range(s)]
    columns = torch.stack(rows, 2).reshape(n, -1, p * q)
    return (weight.view(o, -1) @ columns).view(n, o, p, q) + bias.view(o, 1, 1)


def mean_and_turned(grad, x, weight, stride, padding, dilation, groups):
    """Two mistakes at once: the first that shows is named."""
    dx, dweight, dbias = find("02.3").reference(grad, x, weight.flip(2, 3), stride, padding, dilation, groups)
    return dx, dweight / len(x), dbias / len(x)


def minus_zero(grad, x, weight, stride, padding, dilation, groups):
    framed = theirs.pad(x, [padding] * 4)
    dx, dweight, dbias = find("02.3").reference(grad, framed, weight, stride, 0, dilation, groups)
    return dx[..., padding:-padding, padding:-padding], dweight, dbias


def log_of_clamped(logits, labels):
    shifted = (logits - logits.amax(1, keepdim=True)).exp()
    softmax = shifted / shifted.sum(1, keepdim=True)
    loss = -(softmax.gather(1, labels[:, None]) + 1e-12).log().mean()
    return loss, find("02.6").reference(logits, labels)[1]


def sums_and_overflows(logits, labels):
    softmax = logits.exp() / logits.exp().sum(1, keepdim=True)
    gradient = softmax.clone()
    gradient[range(len(labels)), labels] -= 1
    return -softmax[range(len(labels)), labels].log().sum(), gradient


@pytest.mark.parametrize(
    "exercise_id, fn, words",
    [
        ("02.1", lambda size, kernel, stride, padding, dilation: (size - kernel + 2 * padding) / stride + 1, "no half window"),
        ("02.1", lambda size, kernel, stride, padding, dilation: (size + 2 * padding - kernel) // stride + 1, "gaps"),
        ("02.2", stacks_places_outside, "in one order"),
        ("02.2", pads_with_two_numbers, "counts from the last axis"),
        ("02.2", into_a_float32, "float32 unless"),
        ("02.2", without_groups, "its own group"),
        ("02.3", mean_and_turned, "turned round"),
        ("02.3", minus_zero, "-0 is 0"),
        ("02.6", log_of_clamped, "27.6"),
        ("02.6", sums_and_overflows, "sum over the images"),
    ],
)  # fmt: skip
def test_what_a_newcomer_wrote_gets_its_cause(exercise_id, fn, words):
    outcome = verdict_on(find(exercise_id), fn)
    assert not outcome.passed and words in outcome.cause, outcome.text


def test_a_wrong_gradient_is_told_as_a_change_of_the_output():
    status, mistake, seen = verdict(
        "02.3", lambda grad, x, *how: (find("02.3").reference(grad, x, *how)[0] * 2, None, None)
    )
    assert status == "wrong" and not mistake
    assert seen.startswith("Add 1 to x[") and "sum(grad * y) changes by" in seen


def test_values_that_are_missing_are_counted():
    status, _, seen = verdict("02.3", lambda grad, x, *how: find("02.3").reference(grad, x, *how)[:2])
    assert status == "wrong" and "must return 3 values, dx, dweight, dbias; it returns a tuple of 2" in seen
    assert "return" in verdict("02.5", lambda grad, x, weight, eps: None)[2]


def test_autograd_and_torchs_own_convolution_may_not_be_called():
    def by_autograd(logits, labels):
        logits = logits.requires_grad_()
        loss = theirs.cross_entropy(logits, labels)
        return loss, torch.autograd.grad(loss, logits)[0]

    assert verdict("02.6", by_autograd)[0] == "forbidden"
    assert verdict("02.2", lambda x, weight, bias, *how: theirs.conv2d(x, weight, bias, *how))[0] == "forbidden"
    assert verdict("02.2", lambda x, weight, bias, *how: torch.conv2d(x, weight, bias, *how))[0] == "forbidden"
