"""Random numbers that all ranks draw alike, without a message.

Floor 2, room `compress`.
"""

from __future__ import annotations

import zlib

import torch


class Draws:
    """A generator for each tensor and step: equal `seed`, name and number of calls give equal numbers.

    On the CPU whatever the device, so that ranks with different devices agree.
    """

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ValueError(f"seed is {seed!r}: it is a whole number, the same on every rank.")
        self._seed = seed
        self._calls: dict[str, int] = {}

    def next(self, name: str) -> torch.Generator:
        """The generator for this call with `name`."""
        call = self._calls[name] = self._calls.get(name, 0) + 1
        mark = zlib.crc32(f"{self._seed}:{name}:{call}".encode())
        return torch.Generator().manual_seed(mark)
