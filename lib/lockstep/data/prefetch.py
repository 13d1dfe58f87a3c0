"""Double-buffered batches: the next one is made ready, and moved, while this one is used.

Floor 0, room `data`. A thread makes it, since most of that is waiting or work outside Python; on a GPU it moves on a
stream of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from lockstep.data.loader import Loader, each_tensor

END = object()


def prefetch(batches: Iterable[Any], device: torch.device | str | None = None) -> Iterator[Any]:
    """The batches of a `Loader`, or of anything else, each on `device` and made ready while the one before was used.

    One batch is ahead, never more: two are in memory. The state of a `Loader` counts what was handed out. What making
    a batch raises is raised where that batch would have come. To make one must not need the program's random numbers,
    nor a communicator: a second thread asks for it. Leave the loop, or exhaust it, and the thread ends.

    On a GPU, batches come from pinned memory on a stream of their own; before one is used, the current stream waits for
    an event behind its copy, and so the program never does.
    """
    device = None if device is None else torch.device(device)
    move = _Mover(device) if device is not None and device.type == "cuda" else _Placed(device)
    if isinstance(batches, Loader):
        return batches.through(lambda made: _one_ahead(made, move))
    return _one_ahead(batches, move)


def _one_ahead(batches: Iterable[Any], move: _Mover | _Placed) -> Iterator[Any]:
    source = iter(batches)

    def make() -> Any:
        batch = next(source, END)
        return batch if batch is END else move.start(batch)

    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        coming = thread.submit(make)
        while (batch := coming.result()) is not END:
            coming = thread.submit(make)
            yield move.finish(batch)


class _Placed:
    """Batches go to `device` where they are made; None leaves them where they are."""

    def __init__(self, device: torch.device | None) -> None:
        self._device = device

    def start(self, batch: Any) -> Any:
        return batch if self._device is None else each_tensor(lambda tensor: tensor.to(self._device), batch)

    def finish(self, batch: Any) -> Any:
        return batch


class _Mover:
    """Copies to a GPU on a stream of its own; an event says when a batch is there."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)

    def start(self, batch: Any) -> tuple[Any, torch.cuda.Event]:
        event = torch.cuda.Event()
        with torch.cuda.stream(self._stream):
            moved = each_tensor(self._copy, batch)
            event.record(self._stream)
        return moved, event

    def finish(self, moved: tuple[Any, torch.cuda.Event]) -> Any:
        batch, event = moved
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        each_tensor(_used_on(current), batch)
        return batch

    def _copy(self, tensor: Tensor) -> Tensor:
        pinned = tensor if tensor.is_cuda or tensor.is_pinned() else tensor.pin_memory()
        return pinned.to(self._device, non_blocking=True)


def _used_on(stream: torch.cuda.Stream) -> Callable[[Tensor], Tensor]:
    """Tell the allocator that a tensor of the side stream is used on `stream`, so that its memory stays until then."""

    def record(tensor: Tensor) -> Tensor:
        tensor.record_stream(stream)
        return tensor

    return record
