"""Milliseconds of a kernel on the GPU at hand, `milliseconds(kernel, grid, block, *arguments)`, and which GPU that is.

Floor 0. None where the kernels run in the simulator, whose seconds say nothing of a GPU's.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np

from lockstep.hardware import DEVICES
from lockstep.simt import choice

ROUNDS = 20


def milliseconds(kernel: Callable, grid: object, block: object, *arguments: object) -> float | None:
    """Median over 20 launches after one to warm up, by the GPU's own events; None without a GPU.

    Arrays are copied to the GPU once and stay there, so that only the kernel is timed; the caller's are unchanged.
    """
    cuda = choice.chosen()
    if not hasattr(cuda, "event"):
        return None
    numbers = [cuda.to_device(one) if isinstance(one, np.ndarray) else one for one in arguments]
    launch, taken = kernel[grid, block], []
    launch(*numbers)
    for _ in range(ROUNDS):
        begun, ended = cuda.event(), cuda.event()
        begun.record()
        launch(*numbers)
        ended.record()
        ended.synchronize()
        taken.append(begun.elapsed_time(ended))
    return statistics.median(taken)


def known_gpu() -> str | None:
    """The key in `lockstep.hardware.DEVICES` of the GPU at hand; None without a GPU or without figures for it."""
    cuda = choice.chosen()
    if not hasattr(cuda, "event"):
        return None
    name = cuda.get_current_device().name
    said = (name.decode() if isinstance(name, bytes) else str(name)).replace(" ", "")
    found = [key for key in DEVICES if all(part in said for part in key.split("-"))]
    return max(found, key=len, default=None)
