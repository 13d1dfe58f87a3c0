"""What the exercises of lab 09 share: an optimizer, small layers, and a count of the memory that is held.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.comm import Communicator, Handle

ITEM = 4  # bytes of a float32


class Momentum:
    """v = 0.5 v + g, w = w - lr v, with one v for each tensor that it steps; called like an optimizer of torch.

    The first optimizer of torch itself that a process makes would cost it seconds of importing.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float = 0.5) -> None:
        self.param_groups = [{"params": list(parameters), "lr": lr}]
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is not None:
                    v = self.state.setdefault(w, {"velocity": torch.zeros_like(w)})["velocity"]
                    v.mul_(0.5).add_(w.grad)
                    w.sub_(v, alpha=group["lr"])

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for w in group["params"]:
                w.grad = None

    @property
    def bytes(self) -> int:
        """Of its state."""
        return sum(tensor.nbytes for state in self.state.values() for tensor in state.values())


class Held:
    """Counts the bytes that somebody holds of the tensors it has been shown; `peak` is the most since `restart`.

    A context of torch that sees every operation would show more, and would cost seconds of importing. A storage is asked
    for its size each time, since it may have been resized.
    """

    def __init__(self, *before: Tensor) -> None:
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.peak = 0
        self.note(*before)

    @property
    def bytes(self) -> int:
        return sum(storage.nbytes() for ref in list(self._storages.values()) if (storage := ref()) is not None)

    def note(self, *tensors: Any) -> None:
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                key = id(storage)  # torch keeps one Python object for a storage as long as it lives
                if key not in self._storages:
                    self._storages[key] = weakref.ref(storage, lambda _, key=key: self._storages.pop(key, None))
        self.peak = max(self.peak, self.bytes)

    def restart(self) -> int:
        """Forget the peak; gives what is held now."""
        self.peak = self.bytes
        return self.peak

    def watch(self, comm: Communicator) -> None:
        """See from now on what goes into the collectives of `comm`, and what comes out."""
        for name in ("all_gather", "reduce_scatter", "all_reduce", "broadcast"):
            setattr(comm, name, self._watched(getattr(comm, name)))

    def _watched(self, collective: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.note(*args, *kwargs.values())
            result = collective(*args, **kwargs)
            self.note(result)
            return Waiting(result, self) if hasattr(result, "wait") else result

        return call


class Waiting:
    """A handle that shows its result to `held`. (To change the handle itself would keep it alive, and its buffers.)"""

    def __init__(self, handle: Handle, held: Held) -> None:
        self._handle, self._held = handle, held

    def wait(self) -> Any:
        result = self._handle.wait()
        self._held.note(result)
        return result


class Layer(nn.Linear):
    """Shows its weights to `held` whenever it computes."""

    held: Held | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.held is not None:
            self.held.note(self.weight, self.bias)
        return super().forward(x)


class Scaled(nn.Module):
    """A layer with another inside, and no `weight` of its own."""

    held: Held | None = None

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, b))
        self.inner = Layer(a, b)

    def forward(self, x: Tensor) -> Tensor:
        if self.held is not None:
            self.held.note(self.scale, self.inner.weight, self.inner.bias)
        return self.inner(x) * self.scale


def numbers(rng: np.random.Generator, *shape: int) -> Tensor:
    """Normal numbers of that shape."""
    return torch.tensor(rng.normal(size=shape), dtype=torch.float32)


def chain(seed: int, widths: Sequence[int], kind: type[Layer] | type[Scaled] = Layer) -> list[Any]:
    """Layers of that kind from each width to the next, with the numbers that `seed` fixes."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would look for GPUs each time
    return [kind(a, b) for a, b in zip(widths, widths[1:], strict=False)]


def fill(layer: nn.Module, flat: Tensor) -> None:
    """Make the layer's parameters windows into `flat`, which may be longer."""
    start = 0
    for parameter in layer.parameters():
        parameter.data = flat[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()


def free(layer: nn.Module) -> None:
    """Let the layer's parameters keep their shapes and next to no memory."""
    for parameter in layer.parameters():
        parameter.data = parameter.new_zeros(1).expand(parameter.shape)


def sends(comm: Communicator, work: Callable[[], Any]) -> tuple[Any, int]:
    """What `work()` gives, and the bytes that this rank sends meanwhile."""
    before = comm.traffic.bytes_sent
    value = work()
    return value, comm.traffic.bytes_sent - before
