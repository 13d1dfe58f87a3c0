"""How ranks average gradients: the seam where one way can stand for another.

Floor 1, room `comm`. A `Bucket` is some parameters' gradients side by side; an `Exchange` replaces it by the mean
over ranks. Data parallelism launches one exchange for each bucket while backward still runs. Read `communicator`
first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from lockstep.comm.collectives import central_all_reduce, ring_all_reduce
from lockstep.comm.communicator import Communicator, Handle
from lockstep.comm.signature import describe

AllReduceFunction = Callable[[Any, Tensor], Any]
"""f(comm, tensor): sum over ranks, in place; of `comm` it may use rank, size, device and messages."""


@dataclass(frozen=True, eq=False)
class Bucket:
    """Some parameters' gradients side by side in one tensor.

    index: position in launch order, the same on every rank. flat: 1-D. parts: views into `flat` with the parameters'
    shapes, in the order of `flat`; where the exchange is `exact`, a few elements may follow them. names: of the
    parameters, in that order, the same on every rank; for errors, and for what an exchange keeps of each.
    """

    index: int
    flat: Tensor
    parts: tuple[Tensor, ...]
    names: tuple[str, ...] = ()


class Exchange(Protocol):
    """Averages buckets over ranks.

    exact: whether the mean arrives as it is and not as an approximation, so that a count may travel in a bucket. An
    exchange that does not say so counts as inexact. One may also have `start_sum`, see `AllReduce`.
    """

    exact: bool

    def start(self, comm: Communicator, bucket: Bucket) -> Handle:
        """Start to replace `bucket.flat` by the mean over ranks; `wait()` of the handle returns when it is there.

        Every rank calls it, for the same buckets in the same order. State may be kept by `bucket.names`; the index of
        a parameter's bucket changes when others are frozen.
        """


@dataclass(frozen=True)
class AllReduce:
    """The communicator's own all-reduce: the backend's in processes, a ring in the simulated world."""

    exact = True

    def start(self, comm: Communicator, bucket: Bucket) -> Handle:
        return comm.all_reduce(bucket.flat, op="mean", async_op=True)

    def start_sum(self, comm: Communicator, bucket: Bucket) -> Handle:
        """As `start`, of gradients that were divided by the number of ranks as they were written: saves one pass."""
        return comm.all_reduce(bucket.flat, op="sum", async_op=True)


@dataclass(frozen=True)
class RingAllReduce:
    """An all-reduce written from messages: the library's ring, or any other function of that kind.

    algorithm: f(comm, tensor) sums over ranks in place; of `comm` it may use rank, size, device, send, recv, isend,
    irecv and exchange. It runs beside backward, and the sum is divided by the number of ranks afterwards.
    """

    algorithm: AllReduceFunction = ring_all_reduce
    exact = True

    def start(self, comm: Communicator, bucket: Bucket) -> Handle:
        return _run_beside(comm, bucket, self.algorithm)


@dataclass(frozen=True)
class Central:
    """Through rank 0, which receives from everyone, adds up in rank order and sends to everyone."""

    exact = True

    def start(self, comm: Communicator, bucket: Bucket) -> Handle:
        return _run_beside(comm, bucket, central_all_reduce)


def _run_beside(comm: Communicator, bucket: Bucket, algorithm: AllReduceFunction) -> Handle:
    flat = bucket.flat

    def average(wire: Communicator) -> Tensor:
        algorithm(_MessageRank(wire), flat)
        return flat.div_(comm.size)

    name = getattr(algorithm, "__name__", type(algorithm).__name__)
    return comm.run_collective(name, f"{name} of {describe(flat)}", average, async_op=True)


class _MessageRank:
    """The messages of one collective, with `isend` and `irecv`: they start with the next call that waits, in one batch.

    A collective's own messages have only `exchange`, because that is what every backend can do without deadlock.
    """

    def __init__(self, wire: Communicator) -> None:
        self.rank, self.size, self.device = wire.rank, wire.size, wire.device
        self._wire = wire
        self._sends: list[tuple[Tensor, int]] = []
        self._recvs: list[tuple[Tensor, int]] = []

    def exchange(self, sends: Sequence[tuple[Tensor, int]], recvs: Sequence[tuple[Tensor, int]]) -> None:
        sends, recvs = [*self._sends, *sends], [*self._recvs, *recvs]
        self._sends, self._recvs = [], []
        self._wire.exchange(sends, recvs)

    def send(self, tensor: Tensor, dst: int) -> None:
        self.exchange([(tensor, dst)], [])

    def recv(self, tensor: Tensor, src: int) -> int:
        self.exchange([], [(tensor, src)])
        return src

    def isend(self, tensor: Tensor, dst: int) -> Handle:
        self._sends.append((tensor, dst))
        return _Postponed(self, None)

    def irecv(self, tensor: Tensor, src: int) -> Handle:
        self._recvs.append((tensor, src))
        return _Postponed(self, tensor)


@dataclass(frozen=True, eq=False)
class _Postponed:
    """The handle of a message that starts with the next call that waits."""

    comm: _MessageRank
    result: Tensor | None

    def wait(self) -> Tensor | None:
        self.comm.exchange([], [])
        return self.result
