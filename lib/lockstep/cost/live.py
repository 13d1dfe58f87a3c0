"""How many bytes of tensors are alive, at each moment of a step, as unique pieces of memory.

Floor 1, room `cost`. `LiveMemory` sees every operation of PyTorch and counts a piece of memory from the operation that
makes it until nobody holds it any more. What an operation allocates inside itself and frees again is not seen, and
neither is what the allocator keeps back; both are the backend's business.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.nn.outputs import tensors_in


class LiveMemory(TorchDispatchMode):
    """A context in which the memory of tensors is counted, in bytes.

    live: now. peak: the most since `restart`. curve: `live` after each operation since then, and `marks` the places in
    it that `mark` has named.
    """

    def __init__(self, before: Iterable[Tensor] = ()) -> None:
        """before: tensors that exist already and count, such as the parameters."""
        super().__init__()
        self.live = self.peak = 0
        self.curve: list[int] = []
        self.marks: list[tuple[str, int]] = []
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        for tensor in before:
            self._count(tensor)

    def restart(self) -> None:
        """Forget the past; what is alive stays counted."""
        self.peak, self.curve, self.marks = self.live, [self.live], []

    def mark(self, name: str) -> None:
        """A new part of the step begins here."""
        self.marks.append((name, len(self.curve)))

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()  # torch keeps one Python object for a storage as long as it lives
        if key in self._known:
            return

        def freed(_: object) -> None:
            del self._known[key]
            self.live -= size

        self._known[key] = weakref.ref(storage, freed)
        self.live += size

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tensors_in(out):
            self._count(tensor)
        self.peak = max(self.peak, self.live)
        self.curve.append(self.live)
        return out
