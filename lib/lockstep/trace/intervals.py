"""Sets of time: lists of (start, end) pairs, sorted, that neither touch nor overlap.

Floor 0. `innermost` turns nested spans into such a list; everything in `measures` is built from these five.
"""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.trace.events import Span

Intervals = list[tuple[float, float]]


def union(intervals: Iterable[tuple[float, float]]) -> Intervals:
    """The time covered by any of the intervals; empty ones vanish."""
    merged: Intervals = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The time in both."""
    shared: Intervals = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            shared.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return shared


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The time in `a` but not in `b`."""
    left: Intervals = []
    j = 0
    for start, end in a:
        while j < len(b) and b[j][1] <= start:
            j += 1
        k = j
        while k < len(b) and b[k][0] < end:
            if b[k][0] > start:
                left.append((start, b[k][0]))
            start = max(start, b[k][1])
            k += 1
        if start < end:
            left.append((start, end))
    return left


def length(intervals: Intervals) -> float:
    """Total seconds."""
    return sum(end - start for start, end in intervals)


def innermost(spans: Iterable[Span]) -> list[tuple[Span, float, float]]:
    """Cut the spans of one stream into pieces so that at each moment only the innermost is left.

        outer   |-------------|          outer   |---|     |---|
        inner       |-----|         ->   inner       |-----|

    Where two overlap without nesting, the one that started later counts.
    """
    pieces: list[tuple[Span, float, float]] = []
    open_spans: list[Span] = []
    now = float("-inf")

    def close_until(time: float) -> None:
        nonlocal now
        while open_spans and open_spans[-1].end <= time:
            top = open_spans.pop()
            if top.end > now:
                pieces.append((top, now, top.end))
                now = top.end

    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        close_until(span.start)
        if open_spans and span.start > now:
            pieces.append((open_spans[-1], now, span.start))
        now = max(now, span.start)
        open_spans.append(span)
    close_until(float("inf"))
    return pieces
