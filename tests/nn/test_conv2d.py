"""Convolution and pooling against torch.nn.functional, in float64, over random shapes."""

import numpy as np
import pytest
import torch
from torch.nn import functional as theirs

from lockstep.nn import functional as F

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def random_shapes(many, seed=0):
    """Convolutions of all kinds: (x, weight, bias, how), small, with unlike sides, strides, paddings and dilations."""
    rng = np.random.default_rng(seed)
    while many:
        groups = int(rng.choice([1, 1, 2, 3, 4]))
        n, i, o = rng.integers(1, 4), rng.integers(1, 4), groups * rng.integers(1, 4)
        kernel, stride, dilation = (tuple(map(int, rng.integers(1, most, 2))) for most in (5, 4, 4))
        padding, size = tuple(map(int, rng.integers(0, 4, 2))), rng.integers(1, 14, 2)
        if all(s + 2 * p >= d * (k - 1) + 1 for s, p, d, k in zip(size, padding, dilation, kernel, strict=True)):
            x = torch.from_numpy(rng.normal(size=(n, groups * i, *size)))
            weight, bias = torch.from_numpy(rng.normal(size=(o, i, *kernel))), torch.from_numpy(rng.normal(size=o))
            yield x, weight, bias, (stride, padding, dilation, groups)
            many -= 1


def test_conv2d_is_torchs_over_320_random_shapes_forward_and_backward():
    for x, weight, bias, how in random_shapes(320):
        given = [one.clone().requires_grad_() for one in (x, weight, bias)]
        want = theirs.conv2d(*given, *how)
        torch.testing.assert_close(F.conv2d(x, weight, bias, *how), want.detach(), **CLOSE)
        grad = torch.randn_like(want)
        for got, one in zip(
            F.conv2d_backward(grad, x, weight, *how), torch.autograd.grad(want, given, grad), strict=True
        ):
            torch.testing.assert_close(got, one, **CLOSE)


def test_the_loops_say_the_same_number_by_number():
    for x, weight, bias, how in random_shapes(25, seed=1):
        want = theirs.conv2d(x, weight, bias, *how)
        torch.testing.assert_close(F.conv2d_loops(x, weight, bias, *how), want, **CLOSE)
        grad = torch.randn_like(want)
        by_gemm = F.conv2d_backward(grad, x, weight, *how)
        for got, one in zip(F.conv2d_loops_backward(grad, x, weight, *how), by_gemm, strict=True):
            torch.testing.assert_close(got, one, **CLOSE)


def test_views_no_bias_no_images_and_numbers_for_pairs():
    torch.manual_seed(0)
    x, weight = torch.randn(3, 9, 8, 4).permute(0, 3, 1, 2), torch.randn(5, 3, 3, 4).transpose(1, 3)
    torch.testing.assert_close(F.conv2d(x, weight, None, 2, 1), theirs.conv2d(x, weight, None, 2, 1))
    grad = torch.randn(5).view(1, 5, 1, 1).expand(3, 5, 5, 4)  # what `sum().backward()` hands over has stride 0
    want = torch.nn.grad.conv2d_weight(x, weight.shape, grad, 2, 1)
    torch.testing.assert_close(F.conv2d_backward(grad, x, weight, 2, 1)[1], want, rtol=1e-4, atol=1e-4)
    assert F.conv2d(x[:0], weight).shape == (0, 5, 7, 6)
    dx, dw, db = F.conv2d_backward(torch.zeros(0, 5, 7, 6), x[:0], weight)
    assert dx.shape == (0, 4, 9, 8) and not dw.any() and not db.any()


def reaches_pixels(size, kernel, stride, padding, dilation):
    """There is a window, and each holds a pixel; where one holds none, torch makes up where it was."""
    starts = range(-padding, size + padding - dilation * (kernel - 1), stride)
    return bool(starts) and all(any(0 <= at + dilation * k < size for k in range(kernel)) for at in starts)


def test_pooling_is_torchs_over_random_shapes_with_ties():
    for x, weight, _, (stride, padding, dilation, _) in random_shapes(100, seed=2):
        kernel = tuple(weight.shape[2:])
        padding = tuple(min(p, k // 2) for p, k in zip(padding, kernel, strict=True))
        x = (2 * x).round().requires_grad_()  # whole numbers, so that many are equal
        for dilated in (dilation, (1, 1)):
            if not all(map(reaches_pixels, x.shape[2:], kernel, stride, padding, dilated)):
                continue
            want, places = theirs.max_pool2d(x, kernel, stride, padding, dilated, return_indices=True)
            got, where = F.max_pool2d(x.detach(), kernel, stride, padding, dilated)
            assert torch.equal(got, want) and torch.equal(where, places)
            grad = torch.randn_like(want)
            back = torch.autograd.grad(want, x, grad)[0]
            torch.testing.assert_close(F.max_pool2d_backward(grad, where, *x.shape[2:]), back, **CLOSE)
        if not all(map(reaches_pixels, x.shape[2:], kernel, stride, padding, (1, 1))):
            continue
        want = theirs.avg_pool2d(x, kernel, stride, padding)
        torch.testing.assert_close(F.avg_pool2d(x.detach(), kernel, stride, padding), want.detach(), **CLOSE)
        grad = torch.randn_like(want)
        back = torch.autograd.grad(want, x, grad)[0]
        got = F.avg_pool2d_backward(grad, *x.shape[2:], kernel, stride, padding)
        torch.testing.assert_close(got, back, **CLOSE)


def test_areas_of_the_adaptive_mean_are_torchs():
    torch.manual_seed(0)
    for h, w, p, q in [(7, 7, 1, 1), (7, 5, 3, 2), (2, 2, 2, 2), (1, 3, 4, 5), (13, 8, 6, 8)]:
        x = torch.randn(2, 3, h, w, dtype=torch.float64, requires_grad=True)
        want = theirs.adaptive_avg_pool2d(x, (p, q))
        torch.testing.assert_close(F.adaptive_avg_pool2d(x.detach(), (p, q)), want.detach(), **CLOSE)
        grad = torch.randn_like(want)
        back = torch.autograd.grad(want, x, grad)[0]
        torch.testing.assert_close(F.adaptive_avg_pool2d_backward(grad, h, w), back, **CLOSE)


def test_not_a_number_stays_one():
    x = torch.tensor([[[[1.0, float("nan")], [2.0, 0.0]]]])
    assert F.max_pool2d(x, 2)[0].isnan().all() and F.relu(x).isnan().sum() == 1
    low, where = F.max_pool2d(torch.full((1, 1, 2, 2), float("-inf")), 2, padding=1)
    assert low.isneginf().all() and where.flatten().tolist() == [0, 1, 2, 3]


X, W = (1, 4, 8, 8), (6, 4, 3, 3)
REFUSED = [
    (X, W, {"groups": 3}, "groups must divide the 4 input and the 6 output channels; it is 3"),
    (X, W, {"groups": 2}, r"takes 2 channels, but the weight of shape \[6, 4, 3, 3\] takes 4"),
    ((1, 3, 8, 8), W, {}, "takes 3 channels, but the weight"),
    ((1, 4, 2, 8), W, {}, "output would be empty: a kernel of 3 does not fit into 2 pixels with padding 0"),
    (X, W, {"dilation": 5, "padding": 1}, "kernel of 3 spread over 11 by dilation 5"),
    (X, W, {"stride": 0}, "stride must be a whole number of at least 1.*it is 0"),
    (X, W, {"padding": "same"}, "padding must be a whole number.*it is 'same'"),
    (X, W, {"dilation": (1, 2, 3)}, r"it is \(1, 2, 3\)"),
    (X[1:], W, {}, r"come as \(N, C, H, W\).*\[4, 8, 8\]"),
    (X, W, {"bias_O": torch.zeros(4)}, r"6 output channels, but the bias has the shape \[4\]"),
]


@pytest.mark.parametrize("x, weight, how, words", REFUSED)
def test_what_does_not_fit_is_a_sentence_with_its_numbers(x, weight, how, words):
    for conv in (F.conv2d, F.conv2d_loops):
        with pytest.raises(ValueError, match=words):
            conv(torch.zeros(x), torch.zeros(weight), **how)


def test_dtypes_gradients_and_windows_that_do_not_fit():
    with pytest.raises(ValueError, match="of one dtype; they are torch.float64 and torch.float32"):
        F.conv2d(torch.zeros(1, 1, 3, 3, dtype=torch.float64), torch.zeros(1, 1, 2, 2))
    with pytest.raises(ValueError, match=r"the shape \[1, 1, 2, 2\], its gradient \[1, 1, 3, 3\]"):
        F.conv2d_backward(torch.zeros(1, 1, 3, 3), torch.zeros(1, 1, 3, 3), torch.zeros(1, 1, 2, 2))
    with pytest.raises(ValueError, match="kernel of 4 does not fit into 3 pixels"):
        F.max_pool2d(torch.zeros(1, 1, 3, 3), 4)
    with pytest.raises(ValueError, match=r"padding \(2, 2\) is more than half of the kernel \(3, 3\)"):
        F.avg_pool2d(torch.zeros(1, 1, 8, 8), 3, padding=2)
    with pytest.raises(ValueError, match="nothing but padding"):
        F.max_pool2d(torch.zeros(1, 1, 1, 1), 2, padding=1, dilation=2)
    with pytest.raises(ValueError, match="must have one shape"):
        F.max_pool2d_backward(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 3, 3), 4, 4)
