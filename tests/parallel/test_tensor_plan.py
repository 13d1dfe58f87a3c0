"""Which layers are shared out, what is said of the others, and that the whole model computes what it did."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lockstep.nn.models import alexnet, lenet, resnet18
from lockstep.parallel import TensorParallel, plan_tensor
from lockstep.parallel.pipeline.split_backward import layers_that_split
from lockstep.world import RankError, simulate


def test_networks_are_shared_out_in_pairs():
    assert plan_tensor(lenet(), 2).shared == {
        "features.0": "channels",
        "features.3": "inputs",
        "classifier.1": "column",
        "classifier.3": "row",
        "classifier.5": "alone",
    }
    alex, res = plan_tensor(alexnet(10, 32), 2), plan_tensor(resnet18(10, 32), 4)
    # Dropout before the first linear layer is on a whole tensor; the one inside the pair drops each rank's own.
    assert [name for name, how in alex.shared.items() if how == "alike"] == ["classifier.0"]
    assert alex.shared["features.10"] == "lone channels" and not alex.whole
    block = {name[9:]: how for name, how in res.shared.items() if name.startswith("layer2.0")}
    assert block == {"conv1": "channels", "bn1": "own channels", "conv2": "inputs", "downsample.0": "lone channels"}
    assert res.whole["layer2.0.bn2"] == "as it is not between two convolutions that are a pair"


class Counting(nn.Module):
    """What to do depends on the numbers."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        return self.fc(x) if x.sum() > 0 else x


class Remembering(nn.Module):
    """Counts what it did, in two ways."""

    def __init__(self):
        super().__init__()
        self.fc, self.calls = nn.Linear(6, 6), 0
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.steps += 1
        return self.fc(x)


class ByHand(nn.Module):
    """One layer by its weight, one not at all, one by calling it twice."""

    def __init__(self):
        super().__init__()
        self.raw, self.unused, self.twice = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return self.twice(self.twice(x @ self.raw.weight).relu())


class Noisy(nn.Module):
    """Dropout inside a module without layers to share out."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x) * 2


def medley():
    """Something of everything; (N, 6) to (N, 6)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 6), Counting(), ByHand(), nn.Linear(6, 9), nn.Linear(9, 6))
    model.append(nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 6)))
    model[4].requires_grad_(False)
    model[6][3].weight = model[6][0].weight
    hooked = nn.Linear(6, 6)
    hooked.register_forward_hook(lambda *_: None)
    return model.append(hooked).append(nn.Linear(6, 6)).double()


def test_what_stays_whole_is_said_with_the_reason():
    plan = plan_tensor(medley(), 3)
    assert plan.shared == {"1": "alone", "3.twice": "alone", "4": "column", "5": "row", "8": "alone"}
    assert plan.whole == {
        "0": "as its 2 outputs are fewer than 3 ranks",
        "2.fc": "as the forward of Counting cannot be followed: symbolically traced variables cannot be used as inputs "
        "to control flow",
        "3.raw": "as forward does not call it, or uses its parameters directly",
        "3.unused": "as forward does not call it, or uses its parameters directly",
        "6.0": "as it shares a parameter with 6.3",
        "6.2": "as a LayerNorm is not shared out",
        "6.3": "as it shares a parameter with 6.0",
        "7": "as it has hooks, which its parts would not have",
    }
    assert "4: column\n5: row\n" in str(plan)
    assert "0: whole on every rank, as its 2 outputs are fewer than 3 ranks" in str(plan)
    assert plan_tensor(nn.Conv2d(4, 6, 1, groups=2), 3).whole == {
        "": "as its 2 groups cannot be shared out to 3 ranks evenly"
    }
    assert plan_tensor(nn.Linear(4, 4), 2).shared == {"": "alone"}
    assert str(plan_tensor(nn.ReLU(), 2)) == "no layer has parameters"


def both(comm, networks):
    """(outputs, gradients by name, whole state, the frozen, layers with two halves of backward) of networks on ranks that began differently."""
    found = []
    for model, x in networks:
        given = [p.clone() for p in model.parameters()]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += comm.rank
        parallel = TensorParallel(model, comm)
        assert all(torch.equal(p, was + comm.rank) for p, was in zip(model.parameters(), given, strict=True))
        y = parallel(x)
        y.square().sum().backward()
        named = dict(parallel.module.named_parameters())
        gradients = {name: p.grad for name, p in named.items() if name not in parallel.split}
        frozen = {name for name, p in named.items() if not p.requires_grad}
        found.append((y.detach(), gradients, parallel.full_state_dict(), frozen, len(layers_that_split(parallel))))
    return found


def test_a_shared_out_model_computes_what_it_did():
    networks = [(medley(), torch.randn(5, 6).double()), (lenet(10, 12).double(), torch.randn(2, 1, 12, 12).double())]
    for at, (model, x) in enumerate(networks):
        y = model(x)
        y.square().sum().backward()
        for value in simulate(both, 3, networks, timeout=60).values:
            own_y, gradients, state, frozen, halves = value[at]
            assert halves == sum(type(layer) in (nn.Linear, nn.Conv2d) for layer in model.modules())  # for zero bubble
            torch.testing.assert_close(own_y, y.detach())
            assert frozen == {name for name, p in model.named_parameters() if not p.requires_grad}
            assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
            for name, parameter in model.named_parameters():  # of those that are whole, every rank has all of it
                if gradients.get(name) is not None:
                    torch.testing.assert_close(gradients[name], parameter.grad, msg=name)
                elif name in gradients:
                    assert parameter.grad is None


def test_what_forward_does_beside_computing():
    def program(comm):
        parallel = TensorParallel(nn.Sequential(nn.Linear(4, 4), Noisy()), comm)
        training = [parallel(torch.ones(1, 4)) for _ in range(9)]
        return torch.cat(training).detach(), parallel.eval()(torch.ones(1, 4)).detach()

    (drawn, calm), (other, other_calm) = simulate(program, 2).values
    assert torch.equal(drawn, other) and len(drawn.unique(dim=0)) > 1 and torch.equal(calm, other_calm)

    class ByFunction(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return F.dropout(self.fc(x), 0.5, self.training)

    model = Remembering()
    assert plan_tensor(model, 2).shared == {"fc": "alone"} and (model.calls, model.steps) == (0, 0)
    with pytest.raises(ValueError, match=r"forward calls dropout, .*: use a layer such as nn.Dropout"):
        plan_tensor(ByFunction(), 2)


def test_other_models_on_other_ranks_and_none_are_answered_with_a_sentence():
    with pytest.raises(RankError, match="The ranks' models differ"):
        simulate(lambda comm: TensorParallel(nn.Linear(4, 4 + comm.rank), comm) and None, 2)
    with pytest.raises(RankError, match="model is 3: give a torch.nn.Module"):
        simulate(lambda comm: TensorParallel(3, comm) and None, 2)
