"""Seconds of a data-parallel step before it runs: from its layers, its buckets and the link.

Floor 2, room `parallel`. Layers compute one after the other, forward and then backward. A bucket's exchange begins
when its last gradient is there and the exchange before it has ended; the step ends when both streams have.
`measure_profile` gives the layers' seconds on this machine, `lockstep.comm.predict_seconds` those of an exchange.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from torch import Tensor, nn

from lockstep.comm import predict_seconds
from lockstep.cost import LayerCost, check_profile, seconds_of
from lockstep.hardware import Device
from lockstep.parallel.buckets import FIRST_BYTES, make_buckets


@dataclass(frozen=True)
class Step:
    """A predicted step, in seconds: `exchanges` are (begin, end) of each bucket's, from the begin of the step.

    seconds: of the whole step. exposed: communication that no computation hides.
    """

    forward: float
    backward: float
    exchanges: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> float:
        return max(self.forward + self.backward, *(end for _, end in self.exchanges), 0.0)

    @property
    def exposed(self) -> float:
        return self.seconds - self.forward - self.backward


def predict_step(
    model: nn.Module,
    profile: Mapping[str, LayerCost],
    ranks: int,
    latency: float,
    bandwidth: float,
    *,
    bucket_bytes: int = 25 * 2**20,
    overlap: bool = True,
    algorithm: str = "ring_all_reduce",
    gamma: float = 0.0,
    device: Device | None = None,
) -> Step:
    """One step of `DistributedDataParallel(model, comm, bucket_bytes, overlap)`: forward, backward, averaged gradients.

    profile: cost of each layer, by module name in the order of the forward pass; as `Cost` only with a `device`.
    Layers that it leaves out cost nothing, and neither do the statistics of batch norm that travel along.
    latency, bandwidth, gamma: of a message, as in `predict_seconds`, with the exchange's `algorithm`.
    Raises what `predict_seconds`, `make_buckets` and `check_profile` raise; ValueError for a `Cost` without a device.
    """
    check_profile(model, profile)
    forward = sum(seconds_of(cost.forward, device) for cost in profile.values())
    backward, ready = ready_times(model, profile, device)
    trained = [p for p in model.parameters() if p.requires_grad and p.numel()]
    free, exchanges = 0.0, []
    for positions in make_buckets(trained, bucket_bytes, FIRST_BYTES):
        bucket = [trained[position] for position in positions]
        last = max(ready[id(p)] for p in bucket) if overlap else backward
        begin = max(free, forward + last)
        size = sum(p.nbytes for p in bucket)
        seconds = predict_seconds(algorithm, size, ranks, latency, bandwidth, itemsize=bucket[0].itemsize, gamma=gamma)
        free = begin + seconds
        exchanges.append((begin, free))
    return Step(forward, backward, tuple(exchanges))


def measure_profile(model: nn.Module, loss: Callable[[], Tensor], repeats: int = 5) -> dict[str, LayerCost]:
    """Median seconds of each layer of `model` on this machine, in the order of the forward pass.

    loss: runs the model forward and gives the loss. A layer is a module without children; its forward counts from the
    end of the one before it, its backward until the gradient reaches the one before it, so that layers add up to the
    whole pass. Gradients are left behind. Raises ValueError when `loss` runs no layer of `model`.
    """
    if not isinstance(repeats, int) or repeats < 1:
        raise ValueError(f"repeats is {repeats!r}: it is a whole number, at least 1.")
    layers = {module: name for name, module in model.named_modules() if not any(module.children())}
    events: list[tuple[str, float]] = []

    def ended(module: nn.Module, _: Any, output: Any) -> None:
        events.append((layers[module], time.perf_counter()))
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda _: events.append((layers[module], time.perf_counter())))

    forward, backward = defaultdict(list), defaultdict(list)
    hooks = [module.register_forward_hook(ended) for module in layers]
    try:
        for repeat in range(repeats + 1):
            events.clear()
            begun = time.perf_counter()
            value = loss()
            ran, seen = list(events), len(events)
            value.backward()
            over = time.perf_counter()
            if repeat:  # the first one warms up
                _add_up(forward, [begun, *(when for _, when in ran)], [name for name, _ in ran])
                arrived = events[seen:]
                _add_up(backward, [*(when for _, when in arrived), over], [name for name, _ in arrived])
    finally:
        for hook in hooks:
            hook.remove()
    if not forward:
        raise ValueError("loss() ran no layer of the model, so there is nothing to measure: let it call model(...).")
    return {name: LayerCost(median(forward[name]), median(backward.get(name, [0.0]))) for name in forward}


def _add_up(into: dict[str, list[float]], times: list[float], names: list[str]) -> None:
    """One pass: the seconds between `times` belong to `names`; a layer that ran twice has the sum."""
    total: dict[str, float] = defaultdict(float)
    for name, begin, end in zip(names, times, times[1:], strict=False):
        total[name] += end - begin
    for name, seconds in total.items():
        into[name].append(seconds)


def ready_times(
    model: nn.Module, profile: Mapping[str, LayerCost], device: Device | None = None
) -> tuple[float, dict[int, float]]:
    """Seconds of backward, and when in it the gradient of each parameter, by `id`, is there.

    A layer's gradients are there when its cost is spent. One without a cost comes at once after the next that has one.
    """
    at, spent = {}, 0.0
    for name, cost in reversed(profile.items()):
        spent += seconds_of(cost.backward, device)
        at[name] = spent
    ready: dict[int, float] = {}
    when = 0.0
    for name, module in reversed(list(model.named_modules())):
        when = at.get(name, when)
        for parameter in module.parameters(recurse=False):
            ready[id(parameter)] = max(when, ready.get(id(parameter), 0.0))  # a tied one is there at its last use
    return spent, ready
