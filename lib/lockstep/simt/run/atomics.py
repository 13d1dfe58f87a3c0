"""Atomic operations on flat cells, lane after lane where two lanes meet on one cell.

Floor 0. `ATOMICS[name](cells, addresses, *values)` returns the old values in the order of the lanes, which is one of the
orders that a GPU may take.
"""

from __future__ import annotations

import numpy as np


def _largest(old, value):
    """A NaN is never stored, and one that is there stays: Numba returns early for both."""
    return np.where(value > old, value, old)


def _smallest(old, value):
    return np.where(value < old, value, old)


_NEW = {
    "add": np.add,
    "sub": np.subtract,
    "max": _largest,
    "min": _smallest,
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


def _extreme(new, cells: np.ndarray, addresses: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`max` or `min` whose old value nobody looks at; cells that hold a NaN keep it."""
    kept = addresses[cells[addresses] != cells[addresses]]
    new.at(cells, addresses, values)
    cells[kept] = np.nan if kept.size else 0
    return cells[addresses]


def _bind(function, new):
    return lambda cells, addresses, *values: function(new, cells, addresses, *values)


ATOMICS = {name: _bind(_one_by_one, new) for name, new in _NEW.items()}
ATOMICS["cas"] = ATOMICS["compare_and_swap"] = _bind(_one_by_one, _swapped)
# The same where the call is a statement and its old value is dropped.
EFFECTS = ATOMICS | {name: _bind(_accumulated, new) for name, new in _NEW.items() if isinstance(new, np.ufunc)}
EFFECTS |= {"max": _bind(_extreme, np.fmax), "min": _bind(_extreme, np.fmin)}
