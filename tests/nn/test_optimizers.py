"""LARS against the formula of its paper, written again in a few lines; SGD and Adam against torch's."""

import pytest
import torch

from lockstep.nn import LARS, SGD, Adam


def by_the_paper(w, gradients, gamma, m, beta, eta):
    """Algorithm 1 of You, Gitman and Ginsburg 2017 on one tensor."""
    v = 0
    for g in gradients:
        rate = eta * w.pow(2).sum().sqrt() / (g.pow(2).sum().sqrt() + beta * w.pow(2).sum().sqrt())
        v = m * v + gamma * rate * (g + beta * w)
        w = w - v
    return w


def test_it_does_what_the_paper_says_and_leaves_chosen_tensors_to_plain_sgd():
    torch.manual_seed(0)
    w, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (4,)))
    w0, b0 = w.detach().clone(), b.detach().clone().requires_grad_()
    gradients = [(torch.randn(4, 3, dtype=torch.float64) * 100, torch.randn(4, dtype=torch.float64)) for _ in range(5)]
    lars = LARS([{"params": [w]}, {"params": [b], "trust": None}], lr=0.5, weight_decay=0.01)
    sgd = torch.optim.SGD([b0], lr=0.5, momentum=0.9, weight_decay=0.01)
    for gw, gb in gradients:
        w.grad, b.grad, b0.grad = gw, gb.clone(), gb.clone()
        lars.step()
        sgd.step()
    torch.testing.assert_close(w.detach(), by_the_paper(w0, [gw for gw, _ in gradients], 0.5, 0.9, 0.01, 0.001))
    torch.testing.assert_close(b, b0)


def test_a_step_does_not_depend_on_the_size_of_the_gradient_and_zeros_do_not_divide():
    def step(w, g):
        w.requires_grad_()
        w.grad = g
        LARS([w], lr=1.0, trust=0.01).step()
        return w.detach()

    assert torch.allclose(step(torch.ones(4), torch.ones(4)), step(torch.ones(4), 1e6 * torch.ones(4)))
    assert torch.allclose(step(torch.ones(4), torch.ones(4)), torch.full((4,), 0.99))
    assert torch.equal(step(torch.zeros(4), torch.ones(4)), -torch.ones(4))
    assert torch.equal(step(torch.ones(4), torch.zeros(4)), torch.ones(4))


def test_a_closure_a_parameter_without_a_gradient_and_a_state_that_is_loaded():
    w, unused = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    lars = LARS([w, unused], lr=0.1)

    def closure():
        lars.zero_grad()
        loss = w.square().sum()
        loss.backward()
        return loss.item()

    assert lars.step(closure) == 2.0 and torch.equal(unused, torch.ones(2))
    again = LARS([w, unused], lr=7.0)
    again.load_state_dict(lars.state_dict())
    assert again.param_groups[0]["lr"] == 0.1 and torch.equal(again.state[w]["velocity"], lars.state[w]["velocity"])


@pytest.mark.parametrize(
    "arguments", [{"lr": -1}, {"lr": 1, "momentum": float("nan")}, {"lr": 1, "trust": -0.1}, {"lr": "1"}]
)
def test_numbers_that_make_no_sense_are_refused(arguments):
    with pytest.raises(ValueError, match="must be a number of at least 0, not"):
        LARS([torch.ones(1, requires_grad=True)], **arguments)


@pytest.mark.parametrize(
    "ours, theirs, settings",
    [
        (SGD, torch.optim.SGD, {"lr": 0.1}),
        (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        (Adam, torch.optim.Adam, {"lr": 0.01}),
        (Adam, torch.optim.Adam, {"lr": 0.01, "betas": (0.5, 0.99), "eps": 1e-3}),
    ],
)
def test_sgd_and_adam_are_torchs_to_rounding(ours, theirs, settings):
    torch.manual_seed(0)
    first = [torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.randn(5, dtype=torch.float64)]
    first[1].requires_grad_()
    second = [w.detach().clone().requires_grad_() for w in first]
    steppers = ours(first, **settings), theirs(second, **settings)
    for step in range(20):
        grads = [torch.randn_like(w) * 10.0 ** (step % 3 - 1) for w in first]
        for weights, stepper in zip((first, second), steppers, strict=True):
            for w, g in zip(weights, grads, strict=True):
                w.grad = g.clone() if step != 3 else None  # one step without gradients
            stepper.step()
        assert all(w.grad is None or torch.equal(w.grad, g) for w, g in zip(first, grads, strict=True))
    for w, other in zip(first, second, strict=True):
        torch.testing.assert_close(w, other, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "make", [lambda w: SGD([w], lr=-1), lambda w: Adam([w], betas=(0.9, 1.0)), lambda w: Adam([w], eps="0")]
)
def test_settings_that_make_no_sense_are_refused(make):
    with pytest.raises(ValueError, match="must be"):
        make(torch.ones(1, requires_grad=True))
