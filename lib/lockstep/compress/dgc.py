"""Deep gradient compression: top-k with the momentum that it would otherwise lose.

Floor 2, room `compress`. Source: Lin et al. 2018, sections 3.1 (momentum correction), 3.2 (clipping, masking, warm-up).
Legend: u velocity, v what has not been sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.compress.compressor import check_count, check_fraction
from lockstep.compress.gathered import GatheredRound
from lockstep.compress.payload import Payload
from lockstep.compress.sparse import Sparse, kept, largest, largest_cost, sparse_bytes, sparse_payload
from lockstep.compress.work import passes, scattered
from lockstep.cost import Cost

WARM_UP = (0.25, 0.0625, 0.015625, 0.004)
"""Fractions that are sent in the four parts of the warm-up (the paper's sparsities of 75 to 99.6 %)."""


class DGC(Sparse):
    """u = momentum*u + g; v = v + u; the largest values of v are sent, and set to zero in v and in u.

    Give the optimizer no momentum of its own: what arrives has it. warm_up: steps in which more than `fraction` is
    sent, in four parts (see `WARM_UP`). clip: the largest norm of a tensor's gradient on one rank is clip/sqrt(p); None
    clips nothing. It keeps what it has not sent, so it needs no `ErrorFeedback`. Raises ValueError for other settings.
    """

    def __init__(
        self, fraction: float = 0.001, momentum: float = 0.9, warm_up: int = 0, clip: float | None = None
    ) -> None:
        self.fraction, self.warm_up = check_fraction(fraction, "fraction"), check_count(warm_up, "warm_up", least=0)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum!r}: it is at least 0 and below 1.")
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip!r}: it is a norm above 0, or None.")
        self.momentum, self.clip = momentum, clip
        self.velocities: dict[str, Tensor] = {}
        self.residuals: dict[str, Tensor] = {}
        self._steps: dict[str, int] = {}
        self._ranks = 1

    def __repr__(self) -> str:
        return f"DGC({self.fraction:g}, momentum={self.momentum:g})"

    def fraction_at(self, step: int) -> float:
        """The fraction that is sent in `step`, counted from 0."""
        if step >= self.warm_up:
            return self.fraction
        return max(self.fraction, WARM_UP[step * len(WARM_UP) // self.warm_up])

    def encode(self, tensor: Tensor, name: str) -> Payload:
        step = self._steps.get(name, 0)
        self._steps[name] = step + 1
        if step == 0:
            self.velocities[name], self.residuals[name] = torch.zeros(2, tensor.numel()).to(tensor).unbind()
        u, v = self.velocities[name], self.residuals[name]
        if u.numel() != tensor.numel():
            raise ValueError(
                f"{name or 'the tensor'} has {tensor.numel()} elements, and had {u.numel()} before: one DGC serves one "
                f"model, and a tensor of its own needs a name of its own."
            )
        v.add_(u.mul_(self.momentum).add_(self._clipped(tensor.reshape(-1))))
        indices = largest(v, kept(v.numel(), self.fraction_at(step)))
        payload = sparse_payload(v.view(tensor.shape), indices)
        v[indices] = 0
        u[indices] = 0
        return payload

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32, step: int | None = None) -> Cost:
        """g, u and v are read and u and v written, one pass more with `clip`; five select (`largest_cost`), then u and v
        are set to zero at the places that are sent in `step`, by default after the warm-up."""
        n, sent = torch.Size(shape).numel(), self.payload_bytes(shape, dtype, step)
        momentum = passes(n, dtype, 5 if self.clip is None else 6)
        return momentum + largest_cost(n, dtype) + Cost(bytes=sent) + scattered(sent // sparse_bytes(1, dtype), 2)

    def cost_ahead(self, tensors: Sequence[Tensor], names: Sequence[str]) -> Cost:
        costs = [
            self.compress_cost(tensor.shape, tensor.dtype, self._steps.get(name, 0))
            for tensor, name in zip(tensors, names, strict=True)
        ]
        return sum(costs, Cost())

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32, step: int | None = None) -> int:
        """Value and index of each that is kept in `step`, by default after the warm-up."""
        fraction = self.fraction if step is None else self.fraction_at(step)
        return sparse_bytes(kept(torch.Size(shape).numel(), fraction), dtype)

    def begin(self, comm: Communicator, tensors: Sequence[Tensor], names: Sequence[str]) -> GatheredRound:
        self._ranks = comm.size
        return super().begin(comm, tensors, names)

    def _clipped(self, gradient: Tensor) -> Tensor:
        if self.clip is None:
            return gradient
        most = self.clip / math.sqrt(self._ranks)
        norm = torch.linalg.vector_norm(gradient)
        return gradient * (most / norm) if norm > most else gradient
