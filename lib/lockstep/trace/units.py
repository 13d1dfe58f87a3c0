"""Seconds, bytes, counts and shares as people write them.

Floor 0. GB is 10^9 bytes; three significant digits unless a number is whole.
"""

from __future__ import annotations


def show_seconds(seconds: float) -> str:
    """0.0123 -> "12.3 ms"; 95 -> "95 s"."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if abs(seconds) >= scale * 0.9995:
            return f"{show_number(seconds / scale)} {unit}"
    return "0 s" if seconds == 0 else f"{seconds:.2g} s"


def show_bytes(count: float) -> str:
    """1_500_000 -> "1.5 MB"."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(count) >= scale * 0.9995:
            return f"{show_number(count / scale)} {unit}"
    return f"{show_number(count)} B"


def show_number(number: float) -> str:
    """12_345.6 -> "12,346"; 1.2345 -> "1.23"."""
    if abs(number) >= 99.95 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.3g}"


def show_share(share: float) -> str:
    """0.734 -> "73 %"; 0.0042 -> "0.4 %"; 0.0001 -> "< 0.1 %"."""
    percent = share * 100
    if 0 < percent < 0.05:
        return "< 0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"
