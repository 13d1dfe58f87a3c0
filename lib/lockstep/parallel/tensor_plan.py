"""Which layers of a model are shared out among a tensor group, and how: a value, made from the model's own forward.

Floor 2, room `parallel`. Read `tensor` and `channels` first: what a shared-out layer is. `torch.fx` follows the model
with stand-ins for tensors. Where one layer's output goes through nothing but functions of each element (for
convolutions also of each channel) into a second layer, the two are a *pair*: the first gives each rank some of its
outputs, the second takes them as some of its inputs. Any other layer gathers its outputs. What stands between pairs is
*whole*: every rank has all of it and computes all of it, so that gradients of its parameters need no sum.

| how          | the layer becomes                            | parameters are split along |
|--------------|----------------------------------------------|----------------------------|
| column       | `ColumnParallelLinear`                       | weight 0, bias 0           |
| row          | `RowParallelLinear`, behind a column         | weight 1                   |
| alone        | a column that gathers                        | weight 0, bias 0           |
| channels     | `ChannelParallelConv2d`                      | weight 0, bias 0           |
| own channels | batch norm between (`own_batch_norm`)        | all 0                      |
| inputs       | `InputChannelParallelConv2d`, behind both    | weight 1                   |
| lone channels | channels that are gathered                  | weight 0, bias 0           |
| alike        | dropout on whole tensors: all drop the same  |                            |
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from lockstep.comm import Communicator

ELEMENTWISE = (
    nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh,
    nn.Sigmoid, nn.LogSigmoid, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Softplus, nn.Softsign, nn.Dropout,
)  # fmt: skip
CHANNELWISE = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.BatchNorm2d, nn.Dropout2d)
RANDOM = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU)
_FUNCTIONS = (torch.relu, F.relu, torch.tanh, F.tanh, torch.sigmoid, F.sigmoid, F.gelu, F.silu, F.leaky_relu)
_METHODS = ("relu", "tanh", "sigmoid")
_DRAWING = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, F.rrelu)


@dataclass(frozen=True)
class TensorPlan:
    """shared: how each layer that is shared out is, by its name. whole: why each other layer with parameters is not."""

    shared: dict[str, str] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name or 'the layer itself'}: {how}" for name, how in self.shared.items()]
        lines += [f"{name or 'the layer itself'}: whole on every rank, {why}" for name, why in self.whole.items()]
        return "\n".join(lines) or "no layer has parameters"


def plan_tensor(model: nn.Module, ranks: int) -> TensorPlan:
    """How `model` is shared out to `ranks`.

    A layer stays whole that is no nn.Linear or nn.Conv2d, has fewer outputs than there are ranks, shares a parameter
    with another, is used otherwise than by calling it, or stands in a module whose forward depends on numbers.
    Raises ValueError for a model that draws random numbers by a function such as F.dropout.
    """
    # Its forward may count, or keep something: a copy does, with the same parameters. In the chain it has a name, "0".
    holder = nn.Sequential(copied(model, model.parameters()))
    cannot = {name: why for name, layer in _layers(holder) if (why := _cannot(layer, ranks))} | _tied(holder)
    shared: dict[str, str] = {}
    between: set[str] = set()  # names of what stands between the two layers of a pair
    for prefix, part, graph in _followed(holder, ""):
        if isinstance(graph, str):
            cannot |= {prefix + name: graph for name, _ in _layers(part)}
        else:
            _share(_Calls(part, prefix, graph, cannot), shared, between)
    for name, layer in holder.named_modules(remove_duplicate=False):
        if isinstance(layer, RANDOM) and name not in between:
            shared[name] = "alike"
    weighty = [(n, m) for n, m in holder.named_modules() if any(True for _ in m.parameters(recurse=False))]
    whole = {name: cannot.get(name, _why(layer)) for name, layer in weighty if name not in shared}
    return TensorPlan(*({_without_holder(name): text for name, text in each.items()} for each in (shared, whole)))


def copied(model: nn.Module, shared: Iterable[Tensor] = ()) -> nn.Module:
    """A copy of the model with the same communicators, where layers have some, and the same `shared` tensors."""
    held = [value for module in model.modules() for value in vars(module).values() if isinstance(value, Communicator)]
    return copy.deepcopy(model, {id(each): each for each in [*held, *shared]})


class _Tracer(fx.Tracer):
    """Goes into a module only when a layer to be shared out is inside."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        inside = any(isinstance(part, (nn.Linear, nn.Conv2d)) for part in m.modules() if part is not m)
        return not inside or super().is_leaf_module(m, module_qualified_name)


def _followed(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module, fx.Graph | str]]:
    """(prefix of names, part of the module, its graph or why there is none); of a chain part by part where need be."""
    try:
        graph = _Tracer().trace(module)
    except Exception as error:  # whatever a forward does with a stand-in
        children = dict(module.named_children()) if type(module) is nn.Sequential else {}
        if len(children) > 1:
            for names in _runs(children):
                yield from _followed(nn.Sequential(OrderedDict({name: children[name] for name in names})), prefix)
            return
        for name, child in children.items():
            if type(child) is nn.Sequential:
                yield from _followed(child, f"{prefix}{name}.")
                return
        kind = type(next(iter(children.values()), module)).__name__
        yield prefix, module, f"as the forward of {kind} cannot be followed: {str(error).splitlines()[0]:.80}"
    else:
        yield prefix, module, graph


def _runs(children: Mapping[str, nn.Module]) -> Iterator[list[str]]:
    """Names of a chain's modules, together where they can be followed one after the other."""

    def alone(name: str) -> bool:
        try:
            _Tracer().trace(nn.Sequential(children[name]))
        except Exception:  # the next call says why
            return False
        return True

    for works, run in groupby(children, alone):
        names = list(run)
        yield from [names] if works and len(names) < len(children) else ([name] for name in names)


class _Calls:
    """What a graph calls, with the names that layers have in the whole model."""

    def __init__(self, part: nn.Module, prefix: str, graph: fx.Graph, cannot: Mapping[str, str]) -> None:
        self.nodes, self._prefix = list(graph.nodes), prefix
        self._modules = dict(part.named_modules())
        times = Counter(node.target for node in self.nodes if node.op == "call_module")
        direct = {str(node.target).rpartition(".")[0] for node in self.nodes if node.op == "get_attr"}
        refused = {name for name in self._modules if prefix + name in cannot} | direct
        self._once = {name for name, count in times.items() if count == 1} - refused
        self._may = times.keys() - refused

    def name(self, node: fx.Node) -> str:
        return self._prefix + node.target

    def layer(self, node: fx.Node) -> nn.Linear | nn.Conv2d | None:
        """The layer to be shared out that the node calls."""
        if node.op != "call_module" or node.target not in self._may or len(node.args) != 1:
            return None
        layer = self._modules[node.target]
        return layer if type(layer) in (nn.Linear, nn.Conv2d) else None

    def pair(self, first: fx.Node) -> list[fx.Node]:
        """The nodes behind `first` up to its partner; none when it has no partner."""
        one, node, path = self.layer(first), first, []
        while len(node.users) == 1 and (node is first or self._passes(node, one)):
            node = next(iter(node.users))
            path.append(node)
        other = self.layer(node)
        found = first.target in self._once and node.target in self._once and node is not first
        return path if found and _partners(one, other) else []

    def norms(self, path: Iterable[fx.Node]) -> list[str]:
        """Names of the batch norms on a path."""
        called = (node for node in path if node.op == "call_module")
        return [self.name(node) for node in called if type(self._modules[node.target]) is nn.BatchNorm2d]

    def _passes(self, node: fx.Node, first: nn.Module) -> bool:
        """Whether the node does the same to each element, or behind a convolution to each channel."""
        if node.op == "call_module":
            kind = type(self._modules[node.target])
            if kind is nn.BatchNorm2d and node.target not in self._once:
                return False
            return kind in ELEMENTWISE or (isinstance(first, nn.Conv2d) and kind in CHANNELWISE)
        return (node.op == "call_function" and node.target in _FUNCTIONS) or (
            node.op == "call_method" and node.target in _METHODS
        )


def _share(calls: _Calls, shared: dict[str, str], between: set[str]) -> None:
    """Add to `shared` what a graph allows, and to `between` what stands inside its pairs."""
    inside: set[fx.Node] = set()
    for node in calls.nodes:
        layer = calls.layer(node)
        if layer is None or calls.name(node) in shared:
            continue
        linear, path = isinstance(layer, nn.Linear), calls.pair(node)
        if path:
            shared[calls.name(node)] = "column" if linear else "channels"
            shared[calls.name(path[-1])] = "row" if linear else "inputs"
            shared.update(dict.fromkeys(calls.norms(path), "own channels"))
            inside.update(path)
            between.update(calls.name(each) for each in path if each.op == "call_module")
        else:
            shared[calls.name(node)] = "alone" if linear else "lone channels"
    for node in calls.nodes:
        if node.op == "call_function" and node.target in _DRAWING and node not in inside:
            raise ValueError(
                f"forward calls {node.target.__name__}, which would draw other numbers on every rank of a tensor group: "
                f"use a layer such as nn.Dropout"
            )


def _partners(one: nn.Module, other: nn.Module | None) -> bool:
    if isinstance(one, nn.Linear):
        return isinstance(other, nn.Linear) and one.out_features == other.in_features
    return isinstance(other, nn.Conv2d) and one.out_channels == other.in_channels and other.groups == 1


def _layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Linear layers and convolutions, by name."""
    return ((name, each) for name, each in module.named_modules() if type(each) in (nn.Linear, nn.Conv2d))


def _cannot(layer: nn.Linear | nn.Conv2d, ranks: int) -> str | None:
    """Why a layer cannot be shared out, wherever it stands."""
    n, what = (
        (layer.out_features, "outputs") if isinstance(layer, nn.Linear) else (layer.out_channels, "output channels")
    )
    if n < ranks:
        return f"as its {n} {what} are fewer than {ranks} ranks"
    if isinstance(layer, nn.Conv2d) and layer.groups > 1 and layer.groups % ranks:
        return f"as its {layer.groups} groups cannot be shared out to {ranks} ranks evenly"
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
        return "as it has hooks, which its parts would not have"
    return None


def _tied(module: nn.Module) -> dict[str, str]:
    """Layers that share a parameter with another, or stand at two places."""
    owners: dict[int, list[str]] = {}
    for name, layer in module.named_modules(remove_duplicate=False):
        for parameter in layer.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(name)
    several = [names for names in owners.values() if len(set(names)) > 1]
    return {
        name: f"as it shares a parameter with {_without_holder(next(n for n in names if n != name))}"
        for names in several
        for name in names
    }


def _why(layer: nn.Module) -> str:
    if type(layer) in (nn.Linear, nn.Conv2d):
        return "as forward does not call it, or uses its parameters directly"
    if isinstance(layer, nn.BatchNorm2d):
        return "as it is not between two convolutions that are a pair"
    return f"as a {type(layer).__name__} is not shared out"


def _without_holder(name: str) -> str:
    return name.partition(".")[2]
