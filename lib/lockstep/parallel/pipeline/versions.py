"""Weights of several ages: what PipeDream's stages keep so that each micro-batch meets the same ones both ways.

Floor 2, room `parallel`. Version v of a chunk is its weights after v updates. A micro-batch computes with *leaves* that
share a version's memory and have gradients of their own. An update moves the parameters to new memory first, so that
whoever still computes with the old version keeps it, and an old version goes when its last user does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lockstep.parallel.pipeline.schedule import Schedule

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class VersionUse:
    """One line of the version log: which weights a micro-batch met on a chunk, and which its gradient was added to.

    forward, backward: versions; equal, or the gradient would be of no function. updated: the version that its update
    was applied to, so that `updated - forward` is its staleness. held: versions kept at that time, this one included.
    """

    chunk: int
    micro_batch: int
    forward: int
    backward: int
    updated: int
    held: int


def planned_versions(schedule: Schedule) -> dict[tuple[int, int], int]:
    """Which version each (chunk, micro-batch) meets forward: as many updates as lie before it on its rank.

    With vertical sync, as many as lie before the micro-batch's forward on chunk 0.
    """
    plan: dict[tuple[int, int], int] = {}
    for rank in range(schedule.ranks):
        updates: dict[int, int] = {}
        for part in schedule.parts(rank):
            if part.kind == "F":
                plan[part.chunk, part.micro_batch] = updates.get(part.chunk, 0)
            elif part.kind == "U":
                updates[part.chunk] = updates.get(part.chunk, 0) + 1
    return {(c, i): plan[0, i] if schedule.vertical_sync else own for (c, i), own in plan.items()}


class WeightVersions:
    """The versions of one chunk; `plan` is the version that each of its micro-batches meets, counted from a step's begin."""

    def __init__(self, module: nn.Module, plan: Mapping[int, int]) -> None:
        self._parameters = dict(module.named_parameters())
        self._plan = dict(plan)
        self._base = self.newest = 0
        self._kept: dict[int, Tensors] = {}
        self._leaves: dict[int, tuple[int, Tensors]] = {}  # by micro-batch
        self._to_come: list[int] = []

    def begin(self) -> None:
        """A new step: versions go on counting."""
        self._base = self.newest
        self._leaves.clear()
        self._to_come = sorted(self._base + version for version in self._plan.values())
        self._kept = {self.newest: self._memory()}

    def leaves(self, i: int) -> Tensors:
        """The weights for micro-batch `i`, with gradients of their own."""
        version = self._base + self._plan[i]
        made = {name: memory.detach().requires_grad_() for name, memory in self._kept[version].items()}
        self._leaves[i] = version, made
        self._to_come.remove(version)
        self._drop()
        return made

    @torch.no_grad()
    def update(self, i: int, chunk: int, optimizer: torch.optim.Optimizer) -> VersionUse:
        """Step with the gradients of micro-batch `i`; gives its line of the log."""
        version, leaves = self._leaves.pop(i)
        use = VersionUse(chunk, i, version, version, self.newest, len(self._kept))
        for name, parameter in self._parameters.items():
            if self._needed(self.newest):
                parameter.data = parameter.data.clone()
            parameter.grad = leaves[name].grad if name in leaves else None
        optimizer.step()
        optimizer.zero_grad()
        self.newest += 1
        self._kept[self.newest] = self._memory()
        self._drop()
        return use

    def _memory(self) -> Tensors:
        """The parameters' memory as it is, apart from their history and their count of writes."""
        return {name: parameter.data for name, parameter in self._parameters.items() if parameter.requires_grad}

    def _needed(self, version: int) -> bool:
        return version in self._to_come or any(version == used for used, _ in self._leaves.values())

    def _drop(self) -> None:
        """Forget the versions that nobody uses or will use."""
        self._kept = {v: kept for v, kept in self._kept.items() if v == self.newest or self._needed(v)}
