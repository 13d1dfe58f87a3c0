"""A model split by layers: the oracle is the same layers in one process, float64."""

import pytest
import torch
from torch import nn

from lockstep.nn.models.resnet import BasicBlock, ResNet
from lockstep.parallel import DeviceSplit, LayerSplit, receive_forward, send_forward
from lockstep.world import RankError, launch, simulate


class Fork(nn.Module):
    """Gives what the next layers need besides the activation: a mask, a count, something that nobody uses."""

    def forward(self, x):
        return {"x": x * 2, "kept": (x, x.detach() > 0, torch.tensor(3)), "unused": x.sum()}


class Join(nn.Module):
    def forward(self, parts):
        x, mask, count = parts["kept"]
        return torch.where(mask, parts["x"], x) * count


def layers(seed=0):
    torch.manual_seed(seed)
    # A part may begin with a layer that changes its input in place.
    return [nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Linear(6, 4), nn.Tanh(), Fork(), Join(), nn.Linear(4, 3)]


def gradients(module):
    return [p.grad for p in module.parameters()]


@pytest.mark.parametrize(
    ("world", "cuts"),
    [(simulate, []), (simulate, [1]), (simulate, [1, 5]), (simulate, [1, 4, 5]), (launch, [5]), (launch, [1, 5])],
)
def test_structures_of_tensors_cross_forward_and_gradients_back(world, cuts):
    x, target = torch.randn(8, 5, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64)

    def program(comm):
        own = [layer.double() for layer in layers(comm.rank)]  # every rank builds another one; rank 0's counts
        split = LayerSplit(own, cuts, comm)
        for _ in range(2):  # gradients of two steps add up
            out = split(x if split.first else None)
            loss = nn.functional.mse_loss(out, target) if split.last else out
            loss.backward()
        return loss.detach(), gradients(split)

    whole = nn.Sequential(*layers()).double()
    loss = nn.functional.mse_loss(whole(x), target)
    (2 * loss).backward()
    done = world(program, len(cuts) + 1).values
    assert torch.equal(done[-1][0], loss.detach()) and all(value == 0 for value, _ in done[:-1])
    found = [gradient for _, own in done for gradient in own]
    for mine, expected in zip(found, gradients(whole), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-14)


def test_a_resnet_over_three_ranks_equals_one_process():
    def model():
        torch.manual_seed(1)
        return ResNet(BasicBlock, (2, 2, 0, 0), 10, 16).double()

    images, labels = torch.randn(2, 3, 16, 16, dtype=torch.float64), torch.tensor([3, 1])

    def program(comm):
        split = LayerSplit(model().stages(), [2, 4], comm)
        out = split(images)
        (nn.functional.cross_entropy(out, labels) if split.last else out).backward()
        return gradients(split), {name: b for name, b in split.named_buffers()}

    whole = model()
    nn.functional.cross_entropy(whole(images), labels).backward()
    done = simulate(program, 3).values
    found = [gradient for own, _ in done for gradient in own]
    for mine, expected in zip(found, gradients(whole), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-12)
    buffers = [buffer for _, own in done for buffer in own.values()]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(buffers, whole.buffers(), strict=True))


def test_nothing_learns_before_a_frozen_part():
    def program(comm):
        x = torch.ones(3)
        if comm.rank == 0:
            return send_forward((x, torch.tensor([True])), comm, 1).requires_grad
        received, flag = receive_forward(comm, 0)
        weight = torch.ones(3, requires_grad=True)
        (received * weight).sum().backward()
        return received.requires_grad, flag.dtype, weight.grad.tolist()

    assert simulate(program, 2).values == [False, (False, torch.bool, [1.0, 1.0, 1.0])]


def test_devices_of_one_process():
    whole = nn.Sequential(*layers()).double()
    split = DeviceSplit([layer.double() for layer in layers()], [2, 5], ["cpu", "cpu", "cpu"])
    x = torch.randn(4, 5, dtype=torch.float64)
    assert torch.equal(split(x), whole(x))
    split(x).sum().backward()
    whole(x).sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(gradients(split), gradients(whole), strict=True))


@pytest.mark.parametrize("cuts", [[], [0], [7], [2, 1], [3, 3], [1, 2, 3]])
def test_cuts_that_make_no_parts_are_a_sentence(cuts):
    with pytest.raises(
        ValueError, match=r"7 layers in 2 parts need 1 rising indices between 1 and 6|in 3 parts need 2"
    ):
        DeviceSplit(layers(), cuts, ["cpu"] * (3 if len(cuts) == 2 else 2))
    with pytest.raises(RankError, match="rising indices"):
        simulate(lambda comm: LayerSplit(layers(), cuts, comm) and None, 3 if len(cuts) == 2 else 2)
