"""Stage 3 of ZeRO: a unit's parameters are whole only while their modules compute.

Floor 2, room `parallel`. Read `sharded` first. In forward a unit is gathered before its first module runs, and let go
after its last. What autograd saves of a unit for backward is not the tensor but its place in the unit
(`torch.autograd.graph.saved_tensors_hooks`), so that the memory really goes; when backward asks for it, the unit is
gathered once more, and let go when its gradients have left. While one unit computes, the next is on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.comm import Handle
from lockstep.parallel.sharded import Unit


@dataclass(frozen=True)
class _Place:
    """Where in a unit a saved tensor lies."""

    unit: Unit
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]


class Gathering:
    """Makes units of `model` whole when they are needed, with hooks on its modules."""

    def __init__(self, model: nn.Module, units: Sequence[Unit]) -> None:
        self._units = units
        self._coming: dict[int, Handle] = {}  # by index of the unit
        self._running: dict[int, set[nn.Module]] = {unit.index: set() for unit in units}
        self._here: dict[int, Unit] = {}  # those that are whole, by the address of their memory
        self._direction = -1  # units are in reverse: forward counts down
        of_parameter = {id(p): unit for unit in units for p in unit.parameters}
        self._modules: dict[int, set[nn.Module]] = {unit.index: set() for unit in units}
        for module in model.modules():
            needed = {of_parameter[id(p)] for p in module.parameters(recurse=False) if id(p) in of_parameter}
            for unit in needed:
                self._modules[unit.index].add(module)
            if needed:
                ordered = sorted(needed, key=lambda unit: -unit.index)
                module.register_forward_pre_hook(self._before(ordered))
                module.register_forward_hook(self._after(ordered), always_call=True)
        for unit in units:
            unit.release()

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Around the whole model's forward: parameters are saved by their places, and all are let go at the end."""
        self._direction = -1
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            try:
                yield
            finally:
                self.release_all()
                self._direction = 1

    def gather_all(self) -> None:
        """Make all units whole, until the next forward ends. Collective."""
        for unit in self._units:
            self._call(unit)
        for unit in self._units:
            self._settle(unit)

    def done(self, unit: Unit) -> None:
        """Its gradients are there: backward needs it no more."""
        self._settle(unit)
        if unit.flat is not None:
            self._here.pop(unit.flat.untyped_storage().data_ptr(), None)
            unit.release()

    def release_all(self) -> None:
        """Let go of every unit, also of those that come."""
        for unit in self._units:
            self.done(unit)
            self._running[unit.index].clear()

    def _before(self, units: Sequence[Unit]) -> Any:
        def hook(module: nn.Module, _: Any) -> None:
            for unit in units:
                self._need(unit)

        return hook

    def _after(self, units: Sequence[Unit]) -> Any:
        def hook(module: nn.Module, *_: Any) -> None:
            if self._direction > 0:  # a forward that backward runs again: its end is that of backward
                return
            for unit in units:
                ran = self._running[unit.index]
                ran.add(module)
                if ran == self._modules[unit.index]:
                    ran.clear()
                    self.done(unit)

        return hook

    def _need(self, unit: Unit) -> None:
        """Wait until the unit is whole, and start the next one."""
        self._call(unit)
        following = unit.index + self._direction
        if 0 <= following < len(self._units):
            self._call(self._units[following])
        self._settle(unit)

    def _call(self, unit: Unit) -> None:
        if unit.flat is None:
            self._coming[unit.index] = unit.start_gather()
            self._here[unit.flat.untyped_storage().data_ptr()] = unit

    def _settle(self, unit: Unit) -> None:
        handle = self._coming.pop(unit.index, None)
        if handle is not None:
            handle.wait()

    def _pack(self, tensor: Tensor) -> Tensor | _Place:
        if tensor.layout is not torch.strided:
            return tensor
        unit = self._here.get(tensor.untyped_storage().data_ptr())
        return tensor if unit is None else _Place(unit, tensor.storage_offset(), tensor.shape, tensor.stride())

    def _unpack(self, saved: Tensor | _Place) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        self._need(saved.unit)
        return saved.unit.flat.as_strided(saved.shape, saved.stride, saved.offset)
