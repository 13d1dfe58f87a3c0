"""Which buckets make a step short, worked out before it runs: from a trace or a profile of one that has.

Floor 2, room `parallel`; read `predict` first, which times a step with given buckets. `profile_of` reads the layers'
seconds from a trace, `best_bucket_bytes` chooses a size for `DistributedDataParallel`, and `plan_buckets` cuts anywhere,
which shows what a size costs against the best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from torch import nn

from lockstep.cost import LayerCost, seconds_of
from lockstep.hardware import Device
from lockstep.parallel.predict import Step, predict_step, ready_times
from lockstep.trace import Trace

PASSES = ("forward ", "backward ")


@dataclass(frozen=True, slots=True)
class ReadyGradient:
    """One parameter's gradient: its bytes, and when it is ready (seconds after the step began)."""

    name: str
    bytes: int
    ready: float


@dataclass(frozen=True)
class BucketPlan:
    """Names of the gradients in each bucket, in launch order, and (begin, end) of its exchange in seconds."""

    buckets: tuple[tuple[str, ...], ...]
    exchanges: tuple[tuple[float, float], ...]

    @property
    def end(self) -> float:
        """When the last exchange ends."""
        return self.exchanges[-1][1]


def profile_of(model: nn.Module, run: Any) -> dict[str, LayerCost]:
    """What each layer of `model` took in a run, or in its `Trace`: seconds forward and backward, in order.

    Of spans "forward NAME" and "backward NAME", which `comm.charge` leaves; the median over steps, on the slowest rank,
    since the others wait for it. Raises ValueError when the trace has none.
    """
    trace: Trace = getattr(run, "trace", run)
    found: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    names: dict[str, None] = {}
    layers = {name or type(model).__name__: name for name, _ in model.named_modules()}
    for span in trace.spans:
        passed = next((word for word in PASSES if span.name.startswith(word)), None)
        layer = layers.get(span.name.removeprefix(passed)) if passed else None
        if span.kind == "compute" and layer is not None:
            names.setdefault(layer)
            found[passed, layer, span.rank].append(span.seconds)
    if not names:
        raise ValueError(
            "This trace has no spans of the model's layers, such as 'forward conv1': call comm.charge(model, profile) in "
            "the run, or take measure_profile(model, loss) instead of a trace."
        )

    def slowest(which: str, layer: str) -> float:
        return max((median(found[which, layer, r]) for r in range(trace.ranks) if found[which, layer, r]), default=0.0)

    return {name: LayerCost(*(slowest(which, name) for which in PASSES)) for name in names}


def gradients_of(
    model: nn.Module, profile: Mapping[str, LayerCost], device: Device | None = None
) -> tuple[ReadyGradient, ...]:
    """The gradients of a step in the order in which they become ready, forward included.

    Of those of one layer, the last parameter comes first, as in `make_buckets`. Raises as `predict_step`.
    """
    _, ready = ready_times(model, profile, device)
    forward = sum(seconds_of(cost.forward, device) for cost in profile.values())
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad and p.numel()]
    gradients = [ReadyGradient(name, p.nbytes, forward + ready[id(p)]) for name, p in reversed(trained)]
    return tuple(sorted(gradients, key=lambda gradient: gradient.ready))


def plan_buckets(gradients: Sequence[ReadyGradient], seconds: Callable[[int], float]) -> BucketPlan:
    """The cuts with which the last exchange ends first.

    seconds(bytes): of one exchange. An exchange begins when its bucket's last gradient is ready and the exchange before
    it has ended. Gradients travel in the order in which they are ready. Raises ValueError without gradients.

    By dynamic programming: to have the first i gradients over earlier never makes what follows later.
    """
    if not gradients:
        raise ValueError("there are no gradients to share out: give at least one")
    gradients = sorted(gradients, key=lambda gradient: gradient.ready)
    best: list[tuple[float, int, int]] = [
        (0.0, 0, 0)
    ]  # of the first i: when they are over, buckets, where the last begins
    for i, last in enumerate(gradients, 1):
        size, ways = 0, []
        for begin in reversed(range(i)):
            size += gradients[begin].bytes
            ways.append((max(best[begin][0], last.ready) + seconds(size), begin))
        best.append(min(ways))
    cuts, end = [], len(gradients)
    while end:
        begin = best[end][1]
        cuts.append((gradients[begin:end], best[end][0]))
        end = begin
    buckets, exchanges, free = [], [], 0.0
    for bucket, over in reversed(cuts):
        buckets.append(tuple(gradient.name for gradient in bucket))
        exchanges.append((max(free, bucket[-1].ready), over))
        free = over
    return BucketPlan(tuple(buckets), tuple(exchanges))


def steps_by_bucket_bytes(
    model: nn.Module,
    profile: Mapping[str, LayerCost],
    ranks: int,
    latency: float,
    bandwidth: float,
    sizes: Sequence[int] | None = None,
    *,
    device: Device | None = None,
) -> dict[int, Step]:
    """The predicted step of `DistributedDataParallel` with each bucket size, in bytes.

    sizes: by default the powers of two from 1 KiB to all of the model. Raises as `predict_step`.
    """
    whole = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    if sizes is None:
        sizes = [2**k for k in range(10, max(11, whole.bit_length() + 1))]
    settings = model, profile, ranks, latency, bandwidth
    return {size: predict_step(*settings, bucket_bytes=size, device=device) for size in sizes}


def best_bucket_bytes(
    model: nn.Module,
    profile: Mapping[str, LayerCost],
    ranks: int,
    latency: float,
    bandwidth: float,
    sizes: Sequence[int] | None = None,
    *,
    device: Device | None = None,
) -> int:
    """The bucket size with the shortest predicted step, the largest of equal ones; as `steps_by_bucket_bytes`."""
    steps = steps_by_bucket_bytes(model, profile, ranks, latency, bandwidth, sizes, device=device)
    if not steps:
        raise ValueError("sizes is empty: give at least one bucket size, in bytes")
    return min(steps, key=lambda size: (steps[size].seconds, -size))
