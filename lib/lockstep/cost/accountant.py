"""Books every operation of a running model on the layer that makes it, on the way forward and on the way back.

Floor 1, room `cost`; used by `profile.py`. Forward, the innermost module that is running makes the operation. Backward,
it is the one that had kept the tensor which was last taken out again: who multiplies by something has kept it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.cost.multiply_adds import moves_memory, multiply_adds
from lockstep.nn.outputs import tensors_in


@dataclass
class Tally:
    """What is counted of one layer while it runs; its fields are those of `LayerProfile`."""

    name: str
    kind: str
    shape: tuple[int, ...] = ()
    parameters: int = 0
    macs: int = 0
    backward_macs: int = 0
    saved_bytes: int = 0
    saved_float_bytes: int = 0
    workspace: int = 0
    moved_bytes: int = 0
    backward_moved_bytes: int = 0

    @property
    def empty(self) -> bool:
        work = self.macs, self.backward_macs, self.saved_bytes, self.moved_bytes, self.backward_moved_bytes
        return not (self.parameters or any(work))


class UnfusedAttention(Exception):
    """Without a device, attention falls apart into pieces of which no device would keep any."""


class Accountant(TorchDispatchMode):
    """`run` takes `model` forward and backward once; `tallies` then holds what each layer cost."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        own = [tensor.untyped_storage() for tensor in (*model.parameters(), *model.buffers())]
        self._own = {id(storage): storage for storage in own}
        self._kept: dict[int, Tensor] = {}
        self._by_module = {id(m): Tally(name, type(m).__name__) for name, m in model.named_modules()}
        self._used: dict[int, Tally] = {}
        self._running = [self._by_module[id(model)]]
        self._backward: Tally | None = None
        self._count_parameters()
        for module in model.modules():
            module.register_forward_pre_hook(self._enter)
            module.register_forward_hook(self._leave)

    def _count_parameters(self) -> None:
        seen: set[int] = set()
        for module in self.model.modules():
            for parameter in module.parameters(recurse=False):
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    self._by_module[id(module)].parameters += parameter.numel()

    def run(self, x: Tensor) -> None:
        """One forward and one backward pass; raises what the model raises, and `here` says where that was."""
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(self._keep, self._take), self:
            out = self.model(x)
            ends = [tensor for tensor in tensors_in(out) if tensor.requires_grad]
            if ends:
                self._backward = self._running[-1]
                torch.autograd.backward(ends, [torch.empty_like(end) for end in ends])

    @property
    def here(self) -> str:
        """The layer at work, in words."""
        one = self._backward or self._running[-1]
        where = "the backward pass of " if self._backward else ""
        return where + (f"layer {one.name!r} ({one.kind})" if one.name else f"the model itself ({one.kind})")

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of the last tensor that the model returns."""
        return self._by_module[id(self.model)].shape

    @property
    def tallies(self) -> list[Tally]:
        """Of the layers that cost anything, in the order of their first use; those never run come last."""
        order = {id(one): one for one in (*self._used.values(), *self._by_module.values())}
        return [one for one in order.values() if not one.empty]

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        tally = self._by_module[id(module)]
        self._used.setdefault(id(module), tally)
        self._running.append(tally)

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        tally, made = self._running.pop(), list(tensors_in(output))
        tally.shape = tuple(made[-1].shape) if made else ()
        flowing = sum(t.nbytes for t in (*made, *tensors_in(inputs)) if t.requires_grad)
        tally.workspace = max(tally.workspace, flowing)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is torch.ops.aten._safe_softmax.default:
            raise UnfusedAttention
        out = func(*args, **(kwargs or {}))
        macs = multiply_adds(func, args, out)
        moved = sum(t.nbytes for t in (*tensors_in(args), *tensors_in(out))) if moves_memory(func) else 0
        if self._backward is None:
            self._running[-1].macs += macs
            self._running[-1].moved_bytes += moved
        else:
            self._backward.backward_macs += macs
            self._backward.backward_moved_bytes += moved
        return out

    def _keep(self, tensor: Tensor) -> tuple[Tensor, Tally]:
        storage, layer = tensor.untyped_storage(), self._running[-1]
        if id(storage) not in self._own and id(storage) not in self._kept:
            self._kept[id(storage)] = tensor
            layer.saved_bytes += storage.nbytes()
            layer.saved_float_bytes += storage.nbytes() if tensor.is_floating_point() else 0
        return tensor, layer

    def _take(self, kept: tuple[Tensor, Tally]) -> Tensor:
        tensor, self._backward = kept
        return tensor
