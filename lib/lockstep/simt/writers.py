"""Which thread writes which cell of an array, to draw: `writers(kernel, grid, block, *arguments, array="out")`.

Floor 0, after `report`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lockstep.simt.kernel import Launch, simulated
from lockstep.simt.places import Places, places
from lockstep.simt.run.counting import Counters
from lockstep.simt.run.masks import Mask


def writers(
    kernel: Callable, grid: int | tuple[int, ...], block: int | tuple[int, ...], *arguments: object, array: str
) -> np.ndarray:
    """For each cell of the parameter `array`, in its shape: the number of the thread that writes it last, or -1.

    A thread's number is that of its block times the threads of a block, plus its own, both counted with x fastest. The
    launch runs in the simulator. ValueError for a parameter that the kernel does not have, or that is no array.
    """
    chosen, shape = simulated(kernel), places(grid, block)
    names = chosen.py_func.__code__.co_varnames[: chosen.py_func.__code__.co_argcount]
    given = dict(zip(names, arguments, strict=False))
    if not hasattr(given.get(array), "shape"):
        raise ValueError(f"{chosen.__name__} has no array {array!r}; its parameters are {', '.join(names)}")
    noted = _Writers(shape, array, given[array].shape)
    Launch(chosen, shape).run(arguments, noted)
    return noted.thread.reshape(given[array].shape)


class _Writers(Counters):
    """Counters that also note who writes where."""

    def __init__(self, shape: Places, array: str, cells: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.array = shape, array
        self.thread = np.full(int(np.prod(cells)), -1, dtype=np.int64)

    def global_request(self, array, address, mask: Mask, kind: str, site) -> None:
        super().global_request(array, address, mask, kind, site)
        if kind == "r" or site.text != self.array:
            return
        block, lane = np.nonzero(mask.full())
        cell = np.broadcast_to(address, (mask.blocks, mask.lanes))[block, lane]
        self.thread[cell] = (array.batch.first + block) * self.shape.threads + lane
