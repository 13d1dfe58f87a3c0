"""Random numbers and default dtype of each simulated rank, kept apart in one process.

Floor 1, room `world`. torch's, NumPy's and `random`'s global generators and torch's default dtype exist
once in a process. Here they belong to one rank at a time: `install(rank)` puts the owner's away and
brings the rank's out. It is called when the code of another rank is about to go on, not at every
hand-over of the baton: inside the library's collectives nobody draws.

Grad mode and autocast need no care: torch keeps them per thread, and a rank is a thread.
"""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.world.seeding import seed_cpu

MT19937_BYTES = 624 * 4 + 4  # the key's 624 words and the position in it

_NumpySaved = tuple[Any, bytes | None, dict[str, Any] | None]  # generator, its bytes, and NumPy's dict where needed


@dataclass(frozen=True, slots=True)
class _State:
    torch: Tensor
    numpy: _NumpySaved
    python: tuple[Any, ...]
    dtype: torch.dtype


class Generators:
    """The generator states of all ranks of one run; also a context manager that restores the caller's."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numpy = _NumpyState()
        self._states: dict[int, _State] = {}
        self._owner: int | None = None

    def __enter__(self) -> Generators:
        self._callers = self._save()
        return self

    def __exit__(self, *_: object) -> None:
        self._load(self._callers)

    def install(self, rank: int) -> None:
        """Let `rank` go on where its generators were; at its first turn they are seeded from (seed, rank)."""
        if rank == self._owner:
            return
        if self._owner is not None:
            self._states[self._owner] = self._save()
        self._owner = rank
        state = self._states.pop(rank, None)
        if state is not None:
            self._load(state)
        else:
            self._numpy.seed_next()
            seed_cpu(self._seed, rank)
            torch.set_default_dtype(torch.float32)

    def _save(self) -> _State:
        return _State(
            torch.default_generator.get_state(), self._numpy.save(), random.getstate(), torch.get_default_dtype()
        )

    def _load(self, state: _State) -> None:
        torch.default_generator.set_state(state.torch)
        self._numpy.load(state.numpy)
        random.setstate(state.python)
        torch.set_default_dtype(state.dtype)


class _NumpyState:
    """NumPy's global generator, saved and loaded in microseconds.

    `np.random.get_state` and `set_state` take 0.1 ms each, because they go through the state word by word.
    The state is 2,500 bytes at an address that NumPy publishes, and beside them half a pair of normal
    numbers that may be left over; only where one is do we need NumPy's own way.
    """

    def __init__(self) -> None:
        own = np.random.get_bit_generator()
        self._own = own if isinstance(own, np.random.MT19937) else np.random.MT19937()
        self._loaded: bytes | None = None  # the bytes loaded last, if they were all there was to load

    def seed_next(self) -> None:
        """Put the generator in place that `np.random.seed` can seed."""
        np.random.set_bit_generator(self._own)
        self._loaded = None

    def save(self) -> _NumpySaved:
        generator = np.random.get_bit_generator()
        raw = _raw(generator)
        if raw is not None and raw == self._loaded:  # nothing was drawn since
            return generator, raw, None
        full = np.random.get_state(legacy=False)
        return generator, raw, full if raw is None or full["has_gauss"] else None

    def load(self, saved: _NumpySaved) -> None:
        generator, raw, full = saved
        np.random.set_bit_generator(generator)  # also drops what the last owner may have left of a pair
        if full is None:
            ctypes.memmove(generator.ctypes.state_address, raw, MT19937_BYTES)
        else:
            np.random.set_state(full)
        self._loaded = raw if full is None else None


def _raw(generator: Any) -> bytes | None:
    """The bytes of an MT19937's state; None for another generator, or where this NumPy lays it out in another way."""
    if not isinstance(generator, np.random.MT19937) or not _layout_is_known():
        return None
    return ctypes.string_at(generator.ctypes.state_address, MT19937_BYTES)


@cache
def _layout_is_known() -> bool:
    generator = np.random.MT19937(0)
    state = generator.state["state"]
    expected = state["key"].astype(np.uint32).tobytes() + np.int32(state["pos"]).tobytes()
    return ctypes.string_at(generator.ctypes.state_address, MT19937_BYTES) == expected
