"""Kernels under the roof of a device: what their counters say they can reach, and what was measured.

Floor 3. Source: Williams, Waterman, Patterson 2009, "Roofline: An Insightful Visual Performance Model".
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from lockstep.hardware import DEVICES, Device
from lockstep.simt.report import Report
from lockstep.trace.units import show_number, show_seconds
from lockstep.viz.figure import BLUE, GREEN, INK, ORANGE, PURPLE, QUIET, VERMILLION, Figure, our_style

# Sizes go down, so that a mark on top of another hides nothing.
LOOKS = ((BLUE, "o", 13), (VERMILLION, "s", 11), (GREEN, "^", 8), (PURPLE, "D", 7), (ORANGE, "v", 5))


def kernel_roofline(
    reports: Mapping[str, Report],
    device: str = "A100",
    milliseconds: Mapping[str, float | None] | None = None,
    title: str = "Kernels under the roof",
) -> Figure:
    """Draw each report by its FLOP per byte moved; filled on the roof: the model, open: measured, if it was.

    reports: at most five, by the name in the legend. milliseconds: of the same launches, on `device`. ValueError for no
    kernel, more than five, one that computes or moves nothing, or a device without figures.
    """
    if not 1 <= len(reports) <= len(LOOKS):
        raise ValueError(f"{len(reports)} kernels; the figure shows 1 to {len(LOOKS)}.")
    if device not in DEVICES:
        raise ValueError(f"no figures are known for {device!r}; known: {', '.join(DEVICES)}")
    for label, report in reports.items():
        if not report.flops or not report.bytes_moved:
            raise ValueError(
                f"{label} computes {report.flops} FLOP and moves {report.bytes_moved} bytes of global memory: without "
                "both it has no place under the roof."
            )
    chosen, taken = DEVICES[device], milliseconds or {}
    said = [_place(label, report, chosen, taken.get(label)) for label, report in reports.items()]
    peak, bandwidth = chosen.rate(), chosen.memory_bandwidth
    alt = (
        f"{title} ({chosen.name}, {show_number(peak / 1e12)} TFLOP/s in float32, {show_number(bandwidth / 1e9)} GB/s; "
        f"they meet at {peak / bandwidth:.1f} FLOP a byte). {' '.join(said)}"
    )
    with our_style():
        return Figure(_draw(reports, chosen, taken, title), alt)


def _place(label: str, report: Report, device: Device, milliseconds: float | None) -> str:
    rate = report.flops / report.modelled_seconds(device)
    measured = f", measured {show_seconds(milliseconds / 1e3)}" if milliseconds else ""
    return (
        f"{label}: {report.intensity:.2f} FLOP a byte, at most {show_number(rate / 1e9)} GFLOP/s, "
        f"{show_seconds(report.modelled_seconds(device))} by the model{measured}."
    )


def _draw(reports: Mapping[str, Report], device: Device, taken: Mapping[str, float | None], title: str) -> Canvas:
    peak, bandwidth = device.rate(), device.memory_bandwidth
    ridge = peak / bandwidth
    canvas = Canvas(figsize=(7.6, 4.0))
    axes = canvas.add_axes((0.1, 0.125, 0.88, 0.72))
    left = min(0.05, *(report.intensity / 2 for report in reports.values()))
    right = 20 * ridge
    axes.loglog([left, ridge, right], [left * bandwidth / 1e9, peak / 1e9, peak / 1e9], color=INK, linewidth=2)
    axes.axvline(ridge, color=QUIET, linestyle=":", linewidth=1)
    axes.text(ridge * 1.1, peak / 1e9 * 1.15, f"peak {show_number(peak / 1e12)} TFLOP/s", fontsize=8.5, va="bottom")
    axes.text(left * 1.15, left * bandwidth / 1e9 * 6, f"memory {show_number(bandwidth / 1e9)} GB/s", fontsize=8.5)
    lowest = left * bandwidth / 1e9
    for (label, report), look in zip(reports.items(), LOOKS, strict=False):
        lowest = min(lowest, _draw_kernel(axes, label, report, device, taken.get(label), *look))
    axes.set(xlim=(left, right), ylim=(lowest / 2, peak / 1e9 * 4))
    axes.set_xlabel("FLOP for each byte moved")
    axes.set_ylabel("GFLOP/s")
    axes.minorticks_off()
    axes.grid(color="#D9D9D9", linewidth=0.6)
    axes.legend(loc="lower right", fontsize=8.5, frameon=True)
    kind = "filled: the model, on the roof by construction"
    kind += ", open: measured" if any(taken.values()) else "; no caches, no banks, no latency"
    canvas.text(0.012, 0.98, title, va="top", fontsize=11.5, fontweight="bold")
    canvas.text(0.012, 0.915, f"{device.name}, float32; {kind}", va="top", fontsize=8.5, color=QUIET)
    return canvas


def _draw_kernel(
    axes: Axes, label: str, report: Report, device: Device, milliseconds: float | None, color: str, mark: str, size: int
) -> float:
    """Draws one kernel; returns its lowest GFLOP/s."""
    rate = report.flops / report.modelled_seconds(device) / 1e9
    named = f"{label}: {report.intensity:.2f} FLOP a byte"
    axes.plot(report.intensity, rate, mark, color=color, markeredgecolor=INK, markersize=size, label=named, zorder=4)
    if not milliseconds:
        return rate
    reached = report.flops / milliseconds / 1e6
    axes.plot(report.intensity, reached, mark, color="white", markeredgecolor=color, markeredgewidth=2, markersize=size)
    return min(rate, reached)
