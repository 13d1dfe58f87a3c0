"""An ordinary model in its tensor-parallel form: every rank has a part of each layer that can be shared out.

Floor 2, room `parallel`. Read `tensor_plan` first, which says which layers those are; here they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator
from lockstep.parallel.agreement import check_same_model, copy_from_rank_0
from lockstep.parallel.channels import ChannelParallelConv2d, InputChannelParallelConv2d, own_batch_norm
from lockstep.parallel.conjugate import joined
from lockstep.parallel.shares import shares
from lockstep.parallel.tensor import ColumnParallelLinear, RowParallelLinear
from lockstep.parallel.tensor_plan import copied, plan_tensor

_Build = Callable[[nn.Module, Communicator], nn.Module]


class Alike(nn.Module):
    """`layer`, which draws random numbers, with the same ones on all ranks of `comm`: those of rank 0's generator.

    For dropout on a tensor that is whole. Collective in training.
    """

    def __init__(self, layer: nn.Module, comm: Communicator) -> None:
        super().__init__()
        self.layer, self.comm = layer, comm

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self.layer(x)
        seed = self.comm.broadcast(torch.randint(2**62, (), device=self.comm.device))
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            torch.manual_seed(int(seed))
            return self.layer(x)


_BUILD: dict[str, _Build] = {
    "column": ColumnParallelLinear,
    "row": RowParallelLinear,
    "alone": partial(ColumnParallelLinear, gather=True),
    "channels": ChannelParallelConv2d,
    "own channels": own_batch_norm,
    "inputs": InputChannelParallelConv2d,
    "lone channels": partial(ChannelParallelConv2d, gather=True),
    "alike": Alike,
}
_BY_INPUTS = ("row", "inputs")  # those whose weight is split along its second dimension, and whose bias is whole


class TensorParallel(nn.Module):
    """`model` shared out among the ranks of `comm`: the same inputs on all of them give the same outputs on all.

    plan: which layers are shared out and how, and why the others stay whole; `print(parallel.plan)`. The given model
    stays as it is; this is a copy, with the parameters and buffers of rank 0. Gradients need no further communication:
    those of parameters that stay whole are whole on every rank. Ranks may have different seeds: dropout on a whole
    tensor drops the same on all of them (but no one sees it when a module of your own draws random numbers).
    Collective: to build, to run forward and backward.

    split: of the parameters and buffers, by their names in the model, of which a rank has a part only: along which
    dimension, and how many each rank has. Raises CommunicationError when ranks have different models, TypeError for no
    model, and what `plan_tensor` raises.
    """

    def __init__(self, model: nn.Module, comm: Communicator) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"model is {model!r:.60}: give a torch.nn.Module")
        check_same_model(comm, model, "TensorParallel")
        self.comm, self.plan = comm, plan_tensor(model, comm.size)
        self.split: dict[str, tuple[int, list[int]]] = {}
        holder = nn.Sequential(copied(model))
        for name, how in self.plan.shared.items():
            self._replace(holder, name, how)
        self.module = holder[0]
        whole = {id(t): t for n, t in _named_tensors(self.module) if n not in self.split}
        copy_from_rank_0(comm, list(whole.values()))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives, on every rank."""
        return self.module(*args, **kwargs)

    def full_state_dict(self) -> dict[str, Tensor]:
        """Collective: that of the plain model, on every rank."""
        return {
            name: joined(tensor, self.comm, *self.split[name]) if name in self.split else tensor.detach().clone()
            for name, tensor in self.module.state_dict().items()
        }

    def _replace(self, holder: nn.Module, name: str, how: str) -> None:
        place, _, last = f"0.{name}".rstrip(".").rpartition(".")
        parent = holder.get_submodule(place)
        whole = getattr(parent, last)
        part = _BUILD[how](whole, self.comm)
        for own, parameter in part.named_parameters(recurse=False):
            parameter.requires_grad_(getattr(whole, own).requires_grad)
        setattr(parent, last, part.train(whole.training))
        for own, tensor in _named_tensors(whole):
            dim = 1 if how in _BY_INPUTS else 0
            if how != "alike" and dim < tensor.dim():
                sizes = shares(tensor.shape[dim], self.comm.size, own)
                self.split[f"{name}.{own}" if name else own] = dim, sizes


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
