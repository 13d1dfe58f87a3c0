"""A compressor: a gradient made smaller, and an exchange that averages what is left of it.

Floor 2, room `compress`. Read `payload` first, then `gathered` and `summed`: the two ways in which compressed
gradients of several ranks can meet.

Vocabulary: to *send* is to contribute to the mean. What a rank sent is what `decompress` makes of its payload; what
the gradient had beyond it is the *residual*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from lockstep.comm import Bucket, Communicator, Handle
from lockstep.compress.finite import check_finite, check_tensor
from lockstep.compress.payload import Payload
from lockstep.compress.work import passes, working
from lockstep.cost import Cost


class Round(Protocol):
    """One averaging of some tensors that is under way."""

    def finish(self, means: Sequence[Tensor]) -> None:
        """Wait, and write the mean over ranks of what was sent into `means`, of the tensors' shapes."""

    def leave_residual(self, tensors: Sequence[Tensor]) -> None:
        """After `finish`: take from `tensors`, those given at the start, what this rank sent of them, in place."""


class Compressor(ABC):
    """A compressor and, for `DistributedDataParallel(exchange=...)`, the exchange that uses it.

    Each parameter's gradient is compressed by itself. One object serves one model: what it keeps from step to step it
    keeps by the parameter's name. Random numbers are torch's own, seeded apart on each rank by both worlds, unless
    ranks have to draw the same, for which a compressor has a `seed`.
    """

    exact = False

    @abstractmethod
    def encode(self, tensor: Tensor, name: str) -> Payload:
        """As `compress`, of a tensor that is known to be finite."""

    @abstractmethod
    def decompress(self, payload: Payload) -> Tensor:
        """The tensor that `payload` stands for, in its shape and dtype."""

    @abstractmethod
    def wire_bytes(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> int:
        """Bytes that all `ranks` together send to average a gradient of `shape`; a dense ring sends 2(p-1)n."""

    @abstractmethod
    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """Of making what is sent of a tensor of `shape`, as counted in `work`."""

    @abstractmethod
    def decompress_cost(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> Cost:
        """Of making the mean of what `ranks` sent of a tensor of `shape`."""

    @abstractmethod
    def residual_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """Of taking from a tensor of `shape` what this rank sent of it."""

    @abstractmethod
    def begin(self, comm: Communicator, tensors: Sequence[Tensor], names: Sequence[str]) -> Round:
        """Start to average finite `tensors` over ranks; every rank calls it alike. They are left as they are."""

    def compress(self, tensor: Tensor, name: str = "") -> Payload:
        """What is sent of `tensor`, of any shape.

        name: of the tensor, where something is kept of it from call to call, and for errors. Raises NotFinite, a
        FloatingPointError, when it has NaN or infinity, TypeError when it is no tensor of real floating-point numbers.
        """
        check_tensor(tensor, name)
        return self.encode(tensor.detach(), name)

    def start(self, comm: Communicator, bucket: Bucket) -> Handle:
        """Start to average a bucket; see `comm.Exchange`. Raises NotFinite naming a gradient with NaN in it.

        Its costs lie in spans "compress", here, and "decompress", in `wait()`; one pass looks for NaN. Charge backward
        by layers (`comm.charge`): a span with a cost of its own around backward would take these costs for its own.
        """
        names = bucket.names or [f"part {at} of bucket {bucket.index}" for at in range(len(bucket.parts))]
        with working(comm, "compress", passes(bucket.flat.numel(), bucket.flat.dtype)):
            if not bucket.flat.sum().isfinite():
                check_finite(bucket.parts, names, comm.rank)
        return _Averaging(self.begin(comm, bucket.parts, names), bucket)


class _Averaging:
    """The handle of a bucket on its way."""

    def __init__(self, round_: Round, bucket: Bucket) -> None:
        self._round, self._bucket = round_, bucket
        self._waited = False

    def wait(self) -> Any:
        if not self._waited:
            self._waited = True
            self._round.finish(self._bucket.parts)
        return self._bucket.flat


def check_fraction(fraction: float, what: str) -> float:
    """`fraction`, if it is above 0 and at most 1; ValueError if not."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise ValueError(f"{what} is {fraction!r}: it is a share of the elements, above 0 and at most 1, such as 0.01.")
    return float(fraction)


def check_count(count: int, what: str, least: int = 1) -> int:
    """`count`, if it is a whole number of at least `least`; ValueError if not."""
    if isinstance(count, bool) or not isinstance(count, int) or count < least:
        raise ValueError(f"{what} is {count!r}: it is a whole number, at least {least}.")
    return count
