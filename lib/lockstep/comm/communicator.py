"""The communicator: what a rank function is given, the same in both worlds.

Floor 1, room `comm`. A rank function `program(comm, ...)` never asks which world it is in.

Vocabulary: a *rank* is one process (or one simulated one), `size` how many there are. A *message*
goes from one rank to one other. A *collective* is called by every rank of the communicator, in the
same order. A *chunk* is a rank's part of a flattened tensor, split as `torch.tensor_split` does:
when n elements do not divide by p ranks, the first n mod p chunks have one more.

| call                                   | result             | `op` | `async_op` | uneven sizes            | backends   |
|----------------------------------------|--------------------|------|------------|-------------------------|------------|
| `send(t, dst)`, `recv(t, src)`         | in place; `recv` returns the source rank | | `isend`, `irecv` | no: equal shape and dtype | all; `recv(t, src=None)` gloo, simulated |
| `exchange(sends, recvs)`               | in place           |      |            | each pair its own shape | all        |
| `all_reduce(t)`                        | in place, returned | yes  | yes        | no                      | all        |
| `reduce_scatter(t)`                    | returned: own chunk, 1-D | yes | yes   | chunks as above, or `sizes` | all    |
| `all_gather(t)`                        | returned: joined along dim 0 |    | yes  | dim 0, told by `sizes`  | all        |
| `all_to_all(t)`                        | returned: joined along dim 0 |    | yes  | `send_sizes`, `recv_sizes` (rows) | all |
| `broadcast(t, src)`                    | in place, returned |      | yes        | no                      | all        |
| `reduce(t, dst)`                       | in place on `dst`, elsewhere untouched | yes | yes | no           | all        |
| `gather(t, dst)`                       | list on `dst`, else None |      | no   | shapes may differ in dim 0, told by `sizes` | all |
| `scatter(t, tensors, src)`             | in place, returned |      | no         | each rank its own shape | all        |
| `barrier()`                            | None               |      | no         |                         | all        |
| `split(color, key)`                    | a communicator, or None |  | no        |                         | all        |
| `on_cpu()`, `beside(work)`             | a communicator; a handle |  | no      |                         | all with gloo |

`op` is "sum", "mean", "max", "min" or "product". With `async_op=True` a call returns a `Handle`
whose `wait()` gives the result; a rank that returns without it ends the run with an error. Changing a buffer
before `wait()` is an error of the program: the simulated world notices, processes cannot. An integer sum or
product that does not fit its dtype is an error, never a wrap (`reduction` says how). Tensors of any layout are
accepted, and in place means in place for all of them.

Communication is outside autograd: a tensor that requires grad gives its values, a receive into one changes
its values, and results carry no history. Wrap a call in a `torch.autograd.Function` where gradients must flow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from lockstep.comm import collectives
from lockstep.comm.errors import CommunicationError
from lockstep.comm.reduction import OPS, check_op
from lockstep.comm.signature import check_rank, check_tensor, describe, in_sizes, rows_left_open
from lockstep.comm.traffic import Traffic
from lockstep.cost import Cost, LayerCost

__all__ = ["OPS", "CommunicationError", "Communicator", "Handle", "Traffic"]


class Handle(Protocol):
    """What an asynchronous call returns; `wait()` blocks until it is done and gives its result."""

    def wait(self) -> Any:
        """Block until the call is done; gives its result, also when called again."""


class Communicator(ABC):
    """See the table in this module's docstring; `rank`, `size` and `device` are fixed for its life.

    A world supplies point to point, `split`, the clock and `run_collective`; the collectives here are the
    algorithms of `collectives`. A world with faster ones of its own overrides them.
    """

    rank: int
    size: int
    device: torch.device
    traffic: Traffic

    # point to point
    @abstractmethod
    def send(self, tensor: Tensor, dst: int) -> None:
        """Send to rank `dst`; return when it has received.

        Raises CommunicationError, as every call here, when the other side has another shape or dtype, `dst` is this
        rank or none, or `tensor` is not dense or not on `device`.
        """

    @abstractmethod
    def recv(self, tensor: Tensor, src: int | None = None) -> int:
        """Fill `tensor` with the next message from `src`, or from whoever sends first; gives the source rank."""

    @abstractmethod
    def isend(self, tensor: Tensor, dst: int) -> Handle:
        """Start to send and go on; leave `tensor` alone until `wait()`, which gives None."""

    @abstractmethod
    def irecv(self, tensor: Tensor, src: int) -> Handle:
        """Start to receive and go on; `wait()` gives `tensor`, full."""

    @abstractmethod
    def exchange(self, sends: Sequence[tuple[Tensor, int]], recvs: Sequence[tuple[Tensor, int]]) -> None:
        """Start all sends (tensor, dst) and receives (tensor, src) together; return when all have ended."""

    # collectives
    @abstractmethod
    def run_collective(
        self, name: str, signature: str, algorithm: Callable[[Communicator], Any], async_op: bool = False
    ) -> Any:
        """Run `algorithm(comm)` as the next collective of this communicator, apart from the user's own messages.

        name: of the call, e.g. "all_reduce". signature: what all ranks must agree on, e.g.
        "all_reduce(sum) of float32[8]". Gives the algorithm's result, or a handle whose `wait()` does.
        Raises CommunicationError, naming both calls, when ranks disagree.
        """

    def all_reduce(self, tensor: Tensor, op: str = "sum", async_op: bool = False) -> Tensor | Handle:
        """Reduce over all ranks, in place on all of them."""
        check_tensor(tensor, self.device)
        check_op(op, tensor.dtype)
        return self.run_collective(
            "all_reduce",
            f"all_reduce({op}) of {describe(tensor)}",
            lambda comm: collectives.ring_all_reduce(comm, tensor, op),
            async_op,
        )

    def reduce_scatter(
        self, tensor: Tensor, op: str = "sum", sizes: Sequence[int] | None = None, async_op: bool = False
    ) -> Tensor | Handle:
        """Reduce over all ranks and give each its own chunk, 1-D, of `sizes[rank]` elements."""
        check_tensor(tensor, self.device)
        check_op(op, tensor.dtype)
        return self.run_collective(
            "reduce_scatter",
            f"reduce_scatter({op}) of {describe(tensor)}{in_sizes(sizes)}",
            lambda comm: collectives.ring_reduce_scatter(comm, tensor, op, sizes),
            async_op,
        )

    def all_gather(self, tensor: Tensor, sizes: Sequence[int] | None = None, async_op: bool = False) -> Tensor | Handle:
        """Give everyone the tensors of all ranks joined along dimension 0; `sizes` are the rows of each."""
        check_tensor(tensor, self.device)
        return self.run_collective(
            "all_gather",
            f"all_gather of {rows_left_open(tensor, sizes)}{in_sizes(sizes)}",
            lambda comm: collectives.ring_all_gather(comm, tensor, sizes),
            async_op,
        )

    def all_to_all(
        self,
        tensor: Tensor,
        send_sizes: Sequence[int] | None = None,
        recv_sizes: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> Tensor | Handle:
        """Give each rank the rows that every rank has for it, joined along dimension 0 in rank order."""
        check_tensor(tensor, self.device)
        return self.run_collective(
            "all_to_all",
            f"all_to_all of {rows_left_open(tensor, send_sizes)}",
            lambda comm: collectives.pairwise_all_to_all(comm, tensor, send_sizes, recv_sizes),
            async_op,
        )

    def broadcast(self, tensor: Tensor, src: int = 0, async_op: bool = False) -> Tensor | Handle:
        """Copy the tensor of rank `src` to all ranks, in place."""
        check_tensor(tensor, self.device)
        check_rank(src, self.size, "src")
        return self.run_collective(
            "broadcast",
            f"broadcast from rank {src} of {describe(tensor)}",
            lambda comm: collectives.tree_broadcast(comm, tensor, src),
            async_op,
        )

    def reduce(self, tensor: Tensor, dst: int = 0, op: str = "sum", async_op: bool = False) -> Tensor | Handle:
        """Reduce over all ranks, in place on rank `dst` alone."""
        check_tensor(tensor, self.device)
        check_rank(dst, self.size, "dst")
        check_op(op, tensor.dtype)
        return self.run_collective(
            "reduce",
            f"reduce({op}) to rank {dst} of {describe(tensor)}",
            lambda comm: collectives.tree_reduce(comm, tensor, dst, op),
            async_op,
        )

    def gather(self, tensor: Tensor, dst: int = 0, sizes: Sequence[int] | None = None) -> list[Tensor] | None:
        """Give rank `dst` the tensors of all ranks as a list; `sizes` are the rows of each."""
        check_tensor(tensor, self.device)
        check_rank(dst, self.size, "dst")
        return self.run_collective(
            "gather",
            f"gather to rank {dst} of {rows_left_open(tensor, sizes)}{in_sizes(sizes)}",
            lambda comm: collectives.direct_gather(comm, tensor, dst, sizes),
        )

    def scatter(self, tensor: Tensor, tensors: Sequence[Tensor] | None = None, src: int = 0) -> Tensor:
        """Fill `tensor` on each rank r with `tensors[r]` of rank `src`, in place."""
        check_tensor(tensor, self.device)
        check_rank(src, self.size, "src")
        for each in tensors or ():
            check_tensor(each, self.device)
        return self.run_collective(
            "scatter",
            f"scatter from rank {src}",
            lambda comm: collectives.direct_scatter(comm, tensor, tensors, src),
        )

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self.run_collective("barrier", "barrier", collectives.dissemination_barrier)

    @abstractmethod
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Collective: one communicator for each `color`, its ranks in order of (key, rank); None for `color=None`."""

    @abstractmethod
    def on_cpu(self) -> Communicator:
        """Collective: the same ranks, for messages of CPU tensors, apart from those of this communicator."""

    @abstractmethod
    def beside(self, work: Callable[[Communicator], Any]) -> Handle:
        """Start `work(comm)` in a second thread of this rank alone; `wait()` gives its result, or raises its error.

        Its `comm` has the ranks and the messages of this one, so use a communicator made for it. Its spans lie
        on the rank's stream 1. One at a time, and no asynchronous collective of ours meanwhile.
        """

    # time
    @abstractmethod
    def now(self) -> float:
        """Seconds since the run began: virtual in the simulated world, wall clock in processes."""

    @abstractmethod
    def span(
        self, name: str, *, kind: str = "compute", micro_batch: int | None = None, cost: Cost | float | None = None
    ) -> AbstractContextManager[None]:
        """Record what this rank does in a `with` block.

        kind: one of `trace.events.KINDS`; ValueError for another. cost: a `Cost` or seconds, which the simulated and
        the paced world charge; processes as such do not.
        """

    @abstractmethod
    def charge(self, model: torch.nn.Module, profile: Mapping[str, LayerCost]) -> Any:
        """Spread `profile` (by the names of the model's modules) over the model's forward and backward hooks.

        `.remove()` of what it gives undoes it. Raises ValueError for a module that the model does not have, TypeError
        for a cost that is no `LayerCost`.
        """
