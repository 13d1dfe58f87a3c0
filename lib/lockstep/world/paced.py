"""Paced spans: real processes whose computation lasts as long as on a device that this machine does not have.

Floor 1, room `world`. Between the two worlds: the data move and the tensors are computed for real, and ranks then
sleep for what is left, so that four of them on two cores overlap as four devices would. `linked` paces messages,
`launch(pace=True)` starts such runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch

from lockstep import hardware
from lockstep.comm.torch_group import TorchCommunicator
from lockstep.comm.torch_handles import Call
from lockstep.cost import Cost, LayerCost, seconds_of
from lockstep.hardware import Device, Link
from lockstep.trace.events import KINDS
from lockstep.world.charging import Charge

SPINNING = 150e-6  # seconds at the end of a pause that are not slept: a sleep ends late by up to as much


@dataclass(frozen=True)
class Pace:
    """How a run is paced.

    costs: whether spans last at least their cost. device: which a `Cost` is for. link: which delays every message.
    slow: for each rank, how many times as long its spans take.
    """

    slow: tuple[float, ...]
    costs: bool = False
    device: Device | None = None
    link: Link | None = None


def pace_of(
    ranks: int,
    pace: Any,
    link: Link | str | None,
    device: Device | str | None,
    slow: Mapping[int, float] | None,
    backend: str,
) -> Pace | None:
    """How a `launch` with these arguments is paced; None when it is not. TypeError and ValueError as there."""
    if not isinstance(pace, bool):
        raise TypeError(f"launch: pace is True or False, not {pace!r}")
    for name, value in (("link", link), ("device", device)):
        if value is not None and not pace:
            raise ValueError(f"launch: {name}={value!r} belongs to a paced run: add pace=True")
    factors = _factors(slow, ranks)
    if not pace and set(factors) == {1.0}:
        return None
    if backend == "nccl":
        raise ValueError("launch: a paced run sleeps on the CPU; leave backend='nccl' out")
    if isinstance(link, str):
        link = hardware.link(link)
    if isinstance(device, str):
        device = hardware.device(device)
    for name, value, kind in (("link", link, Link), ("device", device, Device)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"launch: {name} is a lockstep.hardware.{kind.__name__} or the name of one, not {value!r}")
    return Pace(factors, pace, device, link)


def _factors(slow: Mapping[int, float] | None, ranks: int) -> tuple[float, ...]:
    if slow is not None and not isinstance(slow, Mapping):
        raise TypeError(f"launch: slow maps ranks to factors, such as {{1: 2.0}}, not {slow!r}")
    factors = [1.0] * ranks
    for rank, factor in (slow or {}).items():
        if isinstance(rank, bool) or not isinstance(rank, Integral) or not 0 <= rank < ranks:
            raise ValueError(f"launch: slow is given for rank {rank!r}, but the ranks are 0 to {ranks - 1}")
        if isinstance(factor, bool) or not isinstance(factor, Real) or not 1 <= factor <= 1e6:
            raise ValueError(
                f"launch: slow[{rank}] says how many times as long rank {rank} takes: from 1 to a million, "
                f"not {factor!r}"
            )
        factors[rank] = float(factor)
    return tuple(factors)


def pause_until(clock: Callable[[], float], when: float) -> None:
    """Return at `when` seconds of `clock`, never before; uses no processor but for the last moment."""
    while (left := when - clock()) > SPINNING:
        time.sleep(left - SPINNING)
    while (left := when - clock()) > 0:
        if left > 20e-6:
            time.sleep(0)  # lets this process's other threads go on; takes some microseconds itself


class Frames(threading.local):
    """Of each thread of a rank: its open spans, since when it has been at work on the layer that ends next, and until
    when it is held by what it waited for.

    A frame is [whether costs were charged inside, seconds inside that are accounted for].
    """

    def __init__(self) -> None:
        self.open: list[list[Any]] = []
        self.since = self.until = 0.0

    def account(self, seconds: float, now: float, charged: bool = False) -> None:
        """What has just taken `seconds` is no work of the open span itself."""
        self.since = now
        if self.open:
            self.open[-1][0] |= charged
            self.open[-1][1] += seconds


class PacedCommunicator(TorchCommunicator):
    """A `TorchCommunicator` whose spans last at least as long as `pace` says; on the CPU only."""

    def __init__(self, *, pace: Pace, **options: Any) -> None:
        self.pace = pace
        self.frames = Frames()
        super().__init__(**options)
        self.slow = pace.slow[self.rank]

    def span(
        self, name: str, *, kind: str = "compute", micro_batch: int | None = None, cost: Cost | float | None = None
    ) -> PacedSpan:
        """Record what this rank does in a `with` block, and let it last at least its cost."""
        if kind not in KINDS:
            raise ValueError(f"the kind of a span is one of {', '.join(KINDS)}, not {kind!r}")
        seconds = self.cost_seconds(cost) if self.pace.costs and cost is not None else None
        return PacedSpan(self, kind, name, micro_batch, seconds)

    def charge(self, model: torch.nn.Module, profile: Mapping[str, LayerCost]) -> Any:
        """Let each layer that `profile` names last at least its cost, in the forward and in the backward pass."""
        if not self.pace.costs:
            return super().charge(model, profile)
        return Charge(model, profile, self.cost_seconds, self._spend, self._begin)

    def block(self, call: Call, kind: str, wait: Callable[[], Any]) -> Any:
        begun = self.now()
        try:
            return super().block(call, kind, wait)
        finally:
            self.frames.account(self.now() - begun, self.now())

    def cost_seconds(self, cost: Cost | float) -> float:
        """How long `cost` takes this rank. Raises ValueError when it is none, or no device is known."""
        return seconds_of(cost, self.pace.device, 'launch(..., pace=True, device="A100"), for one.') * self.slow

    def _begin(self) -> None:
        self.frames.since = self.now()

    def _spend(self, name: str, seconds: float) -> None:
        """A layer that ends now takes at least `seconds`, counted from the end of the one before it.

        Waking up late costs the next layer that much sleep and not the model its time.
        """
        frames, begun = self.frames, self.frames.since
        end = max(begun + seconds, self.now())
        pause_until(self.now, end)
        self.recorder.add_span("compute", name, begun, end)
        frames.account(end - begun, end, charged=True)


class PacedSpan:
    """What `comm.span` gives.

    A span with a cost lasts at least that, unless costs were charged inside. One without lasts `slow` times as long
    as its own work took, without what spans inside took and without waiting for other ranks.
    """

    def __init__(
        self, comm: PacedCommunicator, kind: str, name: str, micro_batch: int | None, seconds: float | None
    ) -> None:
        self._comm, self._kind, self._name = comm, kind, name
        self._micro_batch, self._seconds = micro_batch, seconds
        self._start = 0.0

    def __enter__(self) -> None:
        self._comm.frames.open.append([False, 0.0])
        self._start = self._comm.frames.since = self._comm.now()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        comm, start = self._comm, self._start
        charged, inside = comm.frames.open.pop()
        if kind is None and not charged:
            if self._seconds is not None:
                charged = True
                pause_until(comm.now, start + self._seconds)
            elif comm.slow > 1 and self._kind == "compute":
                now = comm.now()
                pause_until(comm.now, now + (now - start - inside) * (comm.slow - 1))
        end = comm.now()
        comm.recorder.add_span(self._kind, self._name, start, end, self._micro_batch)
        comm.frames.account(end - start, end, charged)
