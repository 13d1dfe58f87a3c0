"""What one rank did and which messages it moved: its part of a run's trace.

Floor 1, room `comm`. `Recorder` collects; `SpanTimer` is what `comm.span(...)` gives; `LayerSpans` is what
`comm.charge(...)` gives in processes. A run's trace joins the recorders of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch

from lockstep.cost import LayerCost, check_profile
from lockstep.trace import Span

_NO_DETAIL: Mapping[str, object] = {}
LIMIT = 200_000  # events kept: a training job that runs for days must not fill the memory with its trace


class Recorder:
    """Spans and message halves of one rank; times in seconds of the run's clock, ranks those of the whole run.

    sent: (dst, index, bytes, time at which the send was posted)
    received: (src, index, bytes, time at which the data was there)
    receive_posts: for each of `received`, in order, the time at which the receive was posted
    dropped: events beyond the first `limit`, which are not kept

    `index` is equal on both halves of a message and unlike that of any other between the two ranks. A message
    begins to move when both halves are posted.
    """

    def __init__(self, rank: int, clock: Callable[[], float], limit: int = LIMIT) -> None:
        self.rank, self.limit, self.dropped = rank, limit, 0
        self.sent: list[tuple[int, Hashable, int, float]] = []
        self.received: list[tuple[int, Hashable, int, float]] = []
        self.receive_posts: list[float] = []
        self._clock, self._kept = clock, 0
        self._spans: list[Span] = []
        self._facts: list[tuple[Any, ...]] = []  # the fields of spans to be: a tuple costs a call less than a span
        self._on_gpu: list[tuple[dict[str, Any], torch.cuda.Event, torch.cuda.Event]] = []
        self._origin: tuple[torch.cuda.Event, float] | None = None

    @property
    def spans(self) -> list[Span]:
        """All spans so far; those timed on the GPU are looked up now."""
        self._spans += [Span(self.rank, *fields) for fields in self._facts]
        self._facts.clear()
        if self._on_gpu:
            torch.cuda.synchronize()
            event, origin = self._origin
            for facts, start, end in self._on_gpu:
                begun, ended = (origin + event.elapsed_time(each) / 1e3 for each in (start, end))
                self._spans.append(Span(self.rank, start=begun, end=ended, **facts))
            self._on_gpu.clear()
        return self._spans

    def add_span(
        self,
        kind: str,
        name: str,
        start: float,
        end: float,
        micro_batch: int | None = None,
        stream: int = 0,
        size: int | None = None,
        detail: Mapping[str, object] = _NO_DETAIL,
    ) -> None:
        """Keep one span, fields in the order of `Span`."""
        if self._room():
            self._facts.append((kind, name, start, end, micro_batch, stream, size, detail))

    def add_gpu_span(self, facts: dict[str, Any], start: torch.cuda.Event, end: torch.cuda.Event) -> None:
        """Keep a span between two recorded events, to be looked up later."""
        if self._room():
            self._on_gpu.append((facts, start, end))

    def gpu_event(self) -> torch.cuda.Event:
        """An event recorded now on the current stream; the first one also ties the GPU's clock to the run's."""
        if self._origin is None:
            torch.cuda.synchronize()
            origin = torch.cuda.Event(enable_timing=True)
            origin.record()
            origin.synchronize()
            self._origin = origin, self._clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def add_sent(self, dst: int, index: Hashable, size: int, posted: float) -> None:
        """Keep the sender's half of a message of `size` bytes."""
        if self._room():
            self.sent.append((dst, index, size, posted))

    def add_received(self, src: int, index: Hashable, size: int, posted: float, arrived: float) -> None:
        """Keep the receiver's half of a message of `size` bytes."""
        if self._room():
            self.received.append((src, index, size, arrived))
            self.receive_posts.append(posted)

    def _room(self) -> bool:
        if self._kept < self.limit:
            self._kept += 1
            return True
        self.dropped += 1
        return False

    def __getstate__(self) -> dict[str, Any]:
        """Facts only, so that a rank can hand its record to the kernel."""
        kept = ("rank", "limit", "dropped", "sent", "received", "receive_posts", "_kept")
        return {name: getattr(self, name) for name in kept} | {"_spans": self.spans, "_facts": [], "_on_gpu": []}


class SpanTimer:
    """A `with` block that becomes a span: by the host's clock, or on a GPU by two events."""

    def __init__(
        self,
        recorder: Recorder,
        clock: Callable[[], float],
        on_gpu: bool,
        kind: str,
        name: str,
        micro_batch: int | None,
    ) -> None:
        self._recorder, self._clock, self._on_gpu = recorder, clock, on_gpu
        self._facts: dict[str, Any] = {"kind": kind, "name": name, "micro_batch": micro_batch}
        self._start: Any = None

    def __enter__(self) -> None:
        self._start = self._recorder.gpu_event() if self._on_gpu else self._clock()

    def __exit__(self, *_: object) -> None:
        if self._on_gpu:
            self._recorder.add_gpu_span(self._facts, self._start, self._recorder.gpu_event())
        else:
            self._recorder.add_span(start=self._start, end=self._clock(), **self._facts)


class LayerSpans:
    """A span around the forward of each module of a model that `profile` names, until `remove()`.

    Raises what `lockstep.cost.check_profile` raises, as the simulated world does.
    """

    def __init__(
        self, model: torch.nn.Module, profile: Mapping[str, LayerCost], timer: Callable[[str], SpanTimer]
    ) -> None:
        check_profile(model, profile)
        self._open: list[SpanTimer] = []
        self._hooks = []
        for name in profile:
            module = model.get_submodule(name)
            self._hooks.append(module.register_forward_pre_hook(self._starter(timer, name)))
            self._hooks.append(module.register_forward_hook(self._stop, always_call=True))

    def _starter(self, timer: Callable[[str], SpanTimer], name: str) -> Callable[..., None]:
        def start(*_: object) -> None:
            self._open.append(timer(name))
            self._open[-1].__enter__()

        return start

    def _stop(self, *_: object) -> None:
        if self._open:  # empty when the forward was entered before the hooks were there
            self._open.pop().__exit__()

    def remove(self) -> None:
        """Take the hooks off again."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
