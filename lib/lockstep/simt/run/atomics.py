"""Atomic operations on flat cells, lane after lane where two lanes meet on one cell.

Floor 0. `ATOMICS[name](cells, addresses, *values)` returns the old values in the order of the lanes, which is one of the
orders that a GPU may take.
"""

from __future__ import annotations

import numpy as np

_NEW = {
    "add": np.add,
    "sub": np.subtract,
    "max": np.fmax,  # a NaN loses, as on the GPU
    "min": np.fmin,
    "and_": np.bitwise_and,
    "or_": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, value: value,
}


def _swapped(old, expected, value):
    return np.where(old == expected, value, old)


def _one_by_one(new, cells: np.ndarray, addresses: np.ndarray, *values: np.ndarray) -> np.ndarray:
    old = cells[addresses]
    ordered = np.sort(addresses)
    if (ordered[1:] != ordered[:-1]).all():
        cells[addresses] = new(old, *values)
        return old
    for at, address in enumerate(addresses):
        old[at] = cells[address]
        cells[address] = new(old[at], *(value[at] for value in values))
    return old


def _accumulated(new, cells: np.ndarray, addresses: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For an operation whose old value nobody looks at."""
    new.at(cells, addresses, values)
    return cells[addresses]


def _bind(function, new):
    return lambda cells, addresses, *values: function(new, cells, addresses, *values)


ATOMICS = {name: _bind(_one_by_one, new) for name, new in _NEW.items()}
ATOMICS["cas"] = ATOMICS["compare_and_swap"] = _bind(_one_by_one, _swapped)
# The same where the call is a statement and its old value is dropped.
EFFECTS = ATOMICS | {name: _bind(_accumulated, new) for name, new in _NEW.items() if isinstance(new, np.ufunc)}
