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

`op` is "sum", "mean", "max", "min" or "product". With `async_op=True` a call returns a `Handle`
whose `wait()` gives the result. Changing a buffer before `wait()` is an error of the program.
An integer sum or product that does not fit its dtype is an error, never a wrap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

OPS = ("sum", "mean", "max", "min", "product")


class CommunicationError(RuntimeError):
    """A call that cannot be right: ranks disagree, a shape differs, a rank does not exist."""


class Handle(Protocol):
    """What an asynchronous call returns; `wait()` blocks until it is done and gives its result."""

    def wait(self) -> Any: ...


@dataclass
class Traffic:
    """Messages and bytes that one rank sent and received; `sent_to[dst]` is (messages, bytes).

    `nominal` lists bytes this rank should send for each of the backend's own collectives, by name;
    those cannot be seen from outside. The simulated world leaves it empty: there every byte is counted.
    """

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    sent_to: dict[int, tuple[int, int]] = field(default_factory=dict)
    nominal: dict[str, int] = field(default_factory=dict)


class Communicator(ABC):
    """See the table in this module's docstring; `rank`, `size` and `device` are fixed for its life."""

    rank: int
    size: int
    device: torch.device
    traffic: Traffic

    # point to point
    @abstractmethod
    def send(self, tensor: Tensor, dst: int) -> None: ...
    @abstractmethod
    def recv(self, tensor: Tensor, src: int | None = None) -> int: ...
    @abstractmethod
    def isend(self, tensor: Tensor, dst: int) -> Handle: ...
    @abstractmethod
    def irecv(self, tensor: Tensor, src: int) -> Handle: ...
    @abstractmethod
    def exchange(self, sends: Sequence[tuple[Tensor, int]], recvs: Sequence[tuple[Tensor, int]]) -> None: ...

    # collectives
    @abstractmethod
    def all_reduce(self, tensor: Tensor, op: str = "sum", async_op: bool = False) -> Tensor | Handle: ...
    @abstractmethod
    def reduce_scatter(self, tensor: Tensor, op: str = "sum", sizes: Sequence[int] | None = None, async_op: bool = False) -> Tensor | Handle: ...
    @abstractmethod
    def all_gather(self, tensor: Tensor, sizes: Sequence[int] | None = None, async_op: bool = False) -> Tensor | Handle: ...
    @abstractmethod
    def all_to_all(self, tensor: Tensor, send_sizes: Sequence[int] | None = None, recv_sizes: Sequence[int] | None = None, async_op: bool = False) -> Tensor | Handle: ...
    @abstractmethod
    def broadcast(self, tensor: Tensor, src: int = 0, async_op: bool = False) -> Tensor | Handle: ...
    @abstractmethod
    def reduce(self, tensor: Tensor, dst: int = 0, op: str = "sum", async_op: bool = False) -> Tensor | Handle: ...
    @abstractmethod
    def gather(self, tensor: Tensor, dst: int = 0, sizes: Sequence[int] | None = None) -> list[Tensor] | None: ...
    @abstractmethod
    def scatter(self, tensor: Tensor, tensors: Sequence[Tensor] | None = None, src: int = 0) -> Tensor: ...
    @abstractmethod
    def barrier(self) -> None: ...
    @abstractmethod
    def split(self, color: int | None, key: int = 0) -> Communicator | None: ...

    # time
    @abstractmethod
    def now(self) -> float:
        """Seconds since the run began: virtual in the simulated world, wall clock in processes."""

    @abstractmethod
    def span(self, name: str, *, kind: str = "compute", micro_batch: int | None = None, cost: Any = None) -> Any:
        """A context manager that records what this rank does; `cost` is a `Cost` or seconds (simulated and paced worlds)."""

    @abstractmethod
    def charge(self, model: torch.nn.Module, profile: Mapping[str, Any]) -> Any:
        """Spread `profile` (module name to `LayerCost`) over the model's forward and backward hooks; `.remove()` undoes it."""
