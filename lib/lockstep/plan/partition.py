"""Cut a chain of layers into contiguous parts so that the slowest part is as fast as it can be.

Floor 3, room `plan`. Legend: n layers, k parts, T(j, a, b) seconds of part j when it has the layers a to b - 1. The
bottleneck of the best cut of the first b layers into j + 1 parts is, as in the dynamic programme of Narayanan et al.
2019, "PipeDream", section 3.1,

    best(j, b) = min over a < b of max(best(j - 1, a), T(j, a, b))

which is exact and takes k n^2 steps. Of all cuts with that bottleneck the most even one is taken: the least sum of
squared times, from a second pass of the same form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from numbers import Real


def balanced_partition(
    costs: Sequence[float],
    parts: int,
    communication: Sequence[float] | None = None,
    *,
    hidden: bool = False,
    speeds: Sequence[float] | None = None,
    memory: Sequence[float] | None = None,
    limit: float | Sequence[float] | None = None,
    activations: Sequence[float] | None = None,
    in_flight: Sequence[int] | None = None,
) -> list[int]:
    """Where to cut: `parts - 1` indices, each of the first layer of a next part; every part has a layer.

    costs: seconds (or anything else that adds) of each layer, forward and backward. communication: seconds to carry
    activation and gradient across the cut after each layer but the last; a part's time is that of its layers plus that
    of its cuts. hidden: messages move beside the work, so that a part's time is the largest of the three. speeds: of
    each part's device; its layers take costs / speed.
    memory: bytes of each layer, of which a part may have `limit` (one number, or one for each part); `activations` are
    bytes of each layer once per micro-batch in flight, of which part j has `in_flight[j]`, by default one.

    Raises ValueError when there are fewer layers than parts, when numbers make no sense, or when no cut fits.
    """
    costs = _numbers("costs", costs, None)
    n, k = len(costs), _parts(parts, len(costs))
    time = _times(costs, k, _numbers("communication", communication, n - 1), hidden, _speeds(speeds, k))
    fits = _fits(n, k, memory, limit, activations, in_flight)

    def penalised(j: int, a: int, b: int) -> float:
        return time(j, a, b) if fits(j, a, b) else math.inf

    bottleneck, _ = _best(n, k, penalised, max)
    if bottleneck == math.inf:
        raise ValueError(
            f"no cut into {k} parts fits: in each, some part needs more than its limit of {limit}. "
            f"Use more parts, fewer micro-batches in flight or activation checkpointing."
        )

    def squared(j: int, a: int, b: int) -> float:
        seconds = penalised(j, a, b)
        return seconds * seconds if seconds <= bottleneck else math.inf

    return _best(n, k, squared, lambda before, own: before + own)[1]


def spans_of(cuts: Sequence[int], layers: int) -> list[range]:
    """The layers of each part: `spans_of([2, 5], 8)` is [range(0, 2), range(2, 5), range(5, 8)].

    Raises ValueError for cuts that do not rise, or leave a part without a layer.
    """
    ends = [0, *cuts, layers]
    if any(before >= after for before, after in zip(ends, ends[1:], strict=False)):
        raise ValueError(f"cuts are {list(cuts)}: they must rise, from at least 1 to at most {layers - 1}")
    return [range(before, after) for before, after in zip(ends, ends[1:], strict=False)]


def part_times(
    costs: Sequence[float],
    cuts: Sequence[int],
    communication: Sequence[float] | None = None,
    *,
    hidden: bool = False,
    speeds: Sequence[float] | None = None,
) -> list[float]:
    """The time of each part of a given cut, with the meaning that `balanced_partition` gives to its arguments."""
    costs = _numbers("costs", costs, None)
    spans = spans_of(cuts, len(costs))
    n, k = len(costs), len(spans)
    time = _times(costs, k, _numbers("communication", communication, n - 1), hidden, _speeds(speeds, k))
    return [time(j, span.start, span.stop) for j, span in enumerate(spans)]


Time = Callable[[int, int, int], float]


def _best(n: int, k: int, own: Time, join: Callable[[float, float], float]) -> tuple[float, list[int]]:
    """The least value over all cuts, and the cuts; `join` adds a part's own value to that of the parts before it."""
    best = [0.0] + [math.inf] * n
    choices: list[list[int]] = []
    for j in range(k):
        now, choice = [math.inf] * (n + 1), [0] * (n + 1)
        for b in range(j + 1, n - (k - 1 - j) + 1):
            for a in range(j, b):
                if best[a] < math.inf and (value := join(best[a], own(j, a, b))) < now[b]:
                    now[b], choice[b] = value, a
        best = now
        choices.append(choice)
    cuts, b = [], n
    for choice in reversed(choices[1:]):
        b = choice[b]
        cuts.append(b)
    return best[n], cuts[::-1]


def _times(
    costs: Sequence[float], k: int, communication: Sequence[float] | None, hidden: bool, speeds: Sequence[float]
) -> Time:
    sums = [0, *accumulate(costs)]
    cut = [0, *communication, 0] if communication is not None else [0] * (len(costs) + 1)

    def time(j: int, a: int, b: int) -> float:
        work = (sums[b] - sums[a]) / speeds[j]
        return max(work, cut[a], cut[b]) if hidden else work + cut[a] + cut[b]

    return time


def _fits(
    n: int,
    k: int,
    memory: Sequence[float] | None,
    limit: float | Sequence[float] | None,
    activations: Sequence[float] | None,
    in_flight: Sequence[int] | None,
) -> Callable[[int, int, int], bool]:
    if limit is None:
        if memory is not None or activations is not None or in_flight is not None:
            raise ValueError("memory is given without a limit: say how many bytes a part may have, limit=")
        return lambda j, a, b: True
    limits = _numbers("limit", [limit] * k if isinstance(limit, Real) else limit, k)
    fixed = [0, *accumulate(_numbers("memory", memory, n) or [0] * n)]
    each = [0, *accumulate(_numbers("activations", activations, n) or [0] * n)]
    many = _numbers("in_flight", in_flight, k) or [1] * k
    return lambda j, a, b: fixed[b] - fixed[a] + many[j] * (each[b] - each[a]) <= limits[j]


def _parts(parts: int, layers: int) -> int:
    if not isinstance(parts, int) or isinstance(parts, bool) or parts < 1:
        raise ValueError(f"parts is {parts!r}: give a whole number of at least 1")
    if parts > layers:
        raise ValueError(f"{layers} layers cannot be cut into {parts} parts, since each part needs a layer")
    return parts


def _speeds(speeds: Sequence[float] | None, k: int) -> Sequence[float]:
    values = _numbers("speeds", speeds, k) or [1] * k
    if min(values) <= 0:
        raise ValueError(f"speeds are {list(values)}: each must be above 0")
    return values


def _numbers(name: str, values: Sequence[float] | None, count: int | None) -> list[float] | None:
    """A list of finite numbers of at least 0, `count` of them unless that is None; None stays None."""
    if values is None:
        return None
    values = list(values)
    for value in values:
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise ValueError(f"{name} holds {value!r}: give finite numbers of at least 0")
    if count is not None and len(values) != count:
        raise ValueError(f"{name} has {len(values)} numbers; {count} are needed")
    return values
