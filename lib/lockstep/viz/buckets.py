"""Bucket size against overlap: recorded gradients, and the reductions that a bucket size would give them.

Floor 3, room `viz`. When each gradient is ready is a recording; how long a reduction takes is a function of its bytes.
`bucket_timeline` is the figure for one size, `bucket_player` the same figure for many, with a slider.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from lockstep.trace.units import show_bytes, show_seconds, show_share
from lockstep.viz.figure import INK, ORANGE, QUIET, SCREEN, SKY, VERMILLION, Figure, our_style, pixels, small_png
from lockstep.viz.player import Frame, Frames, Player

WIDTH, HEIGHT = 9.4, 3.7  # inches
FRAME_SCALE, FRAME_COLORS = 0.9, 24


@dataclass(frozen=True)
class ReadyGradient:
    """One parameter's gradient: its bytes, and when backward had it (seconds after backward began)."""

    name: str
    bytes: int
    ready: float


@dataclass(frozen=True)
class Reduction:
    """A bucket on its way: launched when its last gradient was ready, moving from `start` to `end` (seconds)."""

    names: tuple[str, ...]
    bytes: int
    launched: float
    start: float
    end: float


def reductions(
    gradients: Sequence[ReadyGradient], bucket_bytes: int, reduce_seconds: Callable[[int], float]
) -> list[Reduction]:
    """The reductions in launch order: a bucket closes when it holds `bucket_bytes`, and they move one after the other.

    Raises ValueError without gradients, or for a `bucket_bytes` below 1.
    """
    if not gradients or bucket_bytes < 1:
        raise ValueError(f"{len(gradients)} gradients in buckets of {bucket_bytes} bytes: at least 1 of each is needed")
    done: list[Reduction] = []
    names: list[str] = []
    held, free = 0, 0.0
    arriving = sorted(gradients, key=lambda gradient: gradient.ready)
    for gradient in arriving:
        names.append(gradient.name)
        held += gradient.bytes
        if held >= bucket_bytes or gradient is arriving[-1]:
            start = max(gradient.ready, free)
            free = start + reduce_seconds(held)
            done.append(Reduction(tuple(names), held, gradient.ready, start, free))
            names, held = [], 0
    return done


def exposed(gradients: Sequence[ReadyGradient], plan: Sequence[Reduction]) -> float:
    """Seconds that a step waits for reductions after its last gradient is ready."""
    return max(0.0, plan[-1].end - max(gradient.ready for gradient in gradients))


def bucket_timeline(
    gradients: Sequence[ReadyGradient],
    bucket_bytes: int,
    reduce_seconds: Callable[[int], float],
    sizes: Sequence[int],
    title: str = "Buckets",
) -> Figure:
    """Above, backward and the reductions of one bucket size; below, the exposed seconds of all `sizes`.

    reduce_seconds(bytes): of one all-reduce. Raises ValueError as `reductions` does.
    """
    plans = {size: reductions(gradients, size, reduce_seconds) for size in {*sizes, bucket_bytes}}
    waits = {size: exposed(gradients, plan) for size, plan in sorted(plans.items())}
    end = max(plan[-1].end for plan in plans.values())
    plan, wait = plans[bucket_bytes], waits[bucket_bytes]
    with our_style():
        canvas = Canvas(figsize=(WIDTH, HEIGHT))
        above = canvas.add_axes((0.11, 0.57, 0.87, 0.24))
        below = canvas.add_axes((0.11, 0.125, 0.87, 0.27))
        canvas.text(0.01, 0.945, title, fontsize=12, fontweight="bold")
        canvas.text(0.01, 0.87, _sentence(gradients, bucket_bytes, plan, wait), fontsize=8.5, color=QUIET)
        _draw_timeline(above, gradients, plan, end)
        _draw_waits(below, waits, bucket_bytes)
    return Figure(canvas, f"{title}. {_sentence(gradients, bucket_bytes, plan, wait)} {_all_waits(waits)}")


def bucket_player(
    gradients: Sequence[ReadyGradient],
    reduce_seconds: Callable[[int], float],
    sizes: Sequence[int],
    title: str = "Buckets",
) -> Player:
    """`bucket_timeline` for each of `sizes`, with a slider for the size; nothing plays until the reader presses play."""

    def draw(at: int) -> Frame:
        figure = bucket_timeline(gradients, sizes[at], reduce_seconds, sizes, title)
        png = small_png(pixels(figure.matplotlib, FRAME_SCALE), FRAME_COLORS)
        return Frame(png, figure.alt, show_bytes(sizes[at]))

    frames = Frames(draw, len(sizes))
    return Player(frames, frames[-1].alt, round(WIDTH * SCREEN))


def _sentence(gradients: Sequence[ReadyGradient], size: int, plan: Sequence[Reduction], wait: float) -> str:
    moving = sum(one.end - one.start for one in plan)
    hidden = show_share(1 - wait / moving) if moving else "all"
    many = f"{len(plan)} bucket{'s' * (len(plan) != 1)}"
    return (
        f"{show_bytes(size)} a bucket: {many} for {len(gradients)} gradients, {show_seconds(moving)} of reductions, "
        f"{hidden} of that hidden behind backward, {show_seconds(wait)} exposed."
    )


def _all_waits(waits: dict[int, float]) -> str:
    return "Exposed by bucket size: " + ", ".join(f"{show_bytes(s)} {show_seconds(w)}" for s, w in waits.items()) + "."


def _draw_timeline(axes: Axes, gradients: Sequence[ReadyGradient], plan: Sequence[Reduction], end: float) -> None:
    """Upper row: backward, a line where a gradient is ready. Lower row: reductions, dark where nothing hides them."""
    last = max(gradient.ready for gradient in gradients)
    row = {"height": 0.8, "linewidth": 0.6, "edgecolor": INK}
    axes.barh(0, 1e3 * last, color=SKY, **row)
    for gradient in gradients:
        axes.plot([1e3 * gradient.ready] * 2, [-0.4, 0.4], color=INK, linewidth=0.8)
    for one in plan:
        for start, stop, color, hatch in (
            (one.start, min(one.end, last), ORANGE, "xx"),
            (max(one.start, last), one.end, VERMILLION, "||"),
        ):
            if stop > start:
                axes.barh(1, 1e3 * (stop - start), left=1e3 * start, color=color, hatch=hatch, **row)
    axes.barh([0], [0], color=ORANGE, hatch="xx", label="reduction, hidden", **row)
    axes.barh([0], [0], color=VERMILLION, hatch="||", label="reduction, exposed", **row)
    axes.set_yticks([0, 1], ["backward", "reductions"])
    axes.set_ylim(1.5, -0.5)
    axes.set_xlim(0, 1e3 * end * 1.02)
    axes.set_xlabel("ms since backward began; a line where a gradient is ready", fontsize=8.5, labelpad=2)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2, frameon=False, fontsize=8.5, borderaxespad=0.1)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_waits(axes: Axes, waits: dict[int, float], chosen: int) -> None:
    """One bar a size, with its seconds above it; the chosen one is dark and hatched."""
    sizes = list(waits)
    bars = axes.bar(range(len(sizes)), [1e3 * wait for wait in waits.values()], width=0.6, color=SKY, edgecolor=INK)
    bars[sizes.index(chosen)].set(facecolor=VERMILLION, hatch="||")
    axes.bar_label(bars, [show_seconds(wait) for wait in waits.values()], fontsize=8.5, padding=2)
    axes.set_xticks(range(len(sizes)), [show_bytes(size) for size in sizes])
    axes.set_ylim(0, 1.35e3 * max(waits.values()) or 1.0)
    axes.set_ylabel("exposed (ms)")
    axes.set_xlabel("bytes at which a bucket closes; the hatched bar is the size shown above", fontsize=8.5, labelpad=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
