"""How two pieces of plain data compare: strictly, to judge, and by behaviour, to recognise a mistake.

Floor 4, room `exercises`; read `plain.py` first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from lockstep.exercises.plain import Strange, as_numpy, dtype_name, kind, short

WORDS = (str, bytes, type(None))


def differs(seen: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-8, where: str = "") -> str | None:
    """Say how plain `seen` differs from plain `expected`, None when it does not.

    Numbers compare with tolerance, |seen - expected| <= atol + rtol |expected|; NaN equals nothing.
    A Python number may come as a NumPy scalar or a 0-dimensional tensor, a list as a tuple; otherwise types,
    shapes and dtypes must be equal.
    """
    at = f" at {where}" if where else ""
    if isinstance(expected, (list, tuple)):
        if not isinstance(seen, (list, tuple)):
            return f"expected {kind(expected)}{at}, got {kind(seen)}"
        if len(seen) != len(expected):
            return f"expected {len(expected)} values{at}, got {len(seen)}"
        pairs = ((f"{where}[{i}]", s, e) for i, (s, e) in enumerate(zip(seen, expected, strict=True)))
        return next((d for w, s, e in pairs if (d := differs(s, e, rtol, atol, w))), None)
    if isinstance(expected, dict):
        if not isinstance(seen, dict):
            return f"expected {kind(expected)}{at}, got {kind(seen)}"
        if set(seen) != set(expected):
            return f"expected the keys {short(sorted(expected, key=str))}{at}, got {short(sorted(seen, key=str))}"
        pairs = ((f"{where}[{k!r}]", seen[k], expected[k]) for k in expected)
        return next((d for w, s, e in pairs if (d := differs(s, e, rtol, atol, w))), None)
    if isinstance(expected, (torch.Tensor, np.ndarray)) and _is_array(expected):
        return _array_differs(seen, expected, rtol, atol, at)
    if _is_number(expected):
        number = _number(seen)
        if number is None or isinstance(number, bool) != isinstance(expected, bool):
            return f"expected {kind(expected)}{at}, got {kind(seen)}"
        return None if _near(number, expected, rtol, atol) else f"expected {short(expected)}{at}, got {short(number)}"
    if type(seen) is not type(expected):
        return f"expected {kind(expected)}{at}, got {kind(seen)}"
    equal = seen == expected and not isinstance(seen, Strange)
    return None if equal else f"expected {short(expected)}{at}, got {short(seen)}"


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or value.ndim > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex, np.ndarray))


def _number(value: Any) -> Any:
    """The Python number that a plain scalar stands for; None when it stands for none."""
    if type(value) in (bool, int, float, complex):
        return value
    if isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim == 0:
        return value.item()
    return None


def _near(seen: Any, expected: Any, rtol: float, atol: float) -> bool:
    expected = _number(expected)
    if isinstance(seen, int) and isinstance(expected, int):
        return seen == expected
    if seen == expected:
        return True
    try:
        gap = abs(seen - expected)
        return math.isfinite(gap) and gap <= atol + rtol * abs(expected)
    except OverflowError:
        return False


def _array_differs(seen: Any, expected: Any, rtol: float, atol: float, at: str) -> str | None:
    if type(seen) is not type(expected):
        return f"expected {kind(expected)}{at}, got {kind(seen)}"
    if tuple(seen.shape) != tuple(expected.shape):
        return f"expected shape {list(expected.shape)}{at}, got {list(seen.shape)}"
    if seen.dtype != expected.dtype:
        return f"expected dtype {dtype_name(expected)}{at}, got {dtype_name(seen)}"
    if isinstance(expected, torch.Tensor):
        seen, expected = as_numpy(seen), as_numpy(expected)
    if expected.dtype.kind in "biu":
        wrong = seen != expected
    else:
        with np.errstate(all="ignore"):
            wrong = ~((seen == expected) | (np.abs(seen - expected) <= atol + rtol * np.abs(expected)))
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"element {list(index)} " if index else ""
    many = f" ({int(wrong.sum())} of {wrong.size} elements differ)" if wrong.size > 1 else ""
    return f"{place}expected {short(expected[index].item())}{at}, got {short(seen[index].item())}{many}"


def alike(one: Any, other: Any) -> bool:
    """True when two plain values show the same behaviour: as `differs`, but NaN is like NaN, and types are lax."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, Strange) and isinstance(other, Strange):
        return one.type == other.type
    if type(one) in WORDS or type(other) in WORDS:
        return type(one) is type(other) and one == other
    try:
        if type(one) in (int, float) and type(other) in (int, float):  # as NumPy does it, in a small part of its time
            near = math.isclose(one, other, rel_tol=0, abs_tol=1e-6 + 1e-4 * abs(other))
            return near or (one != one and other != other)
        a, b = (np.asarray(as_numpy(v) if isinstance(v, torch.Tensor) else v) for v in (one, other))
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True))
    except (TypeError, ValueError, OverflowError):
        return type(one) is type(other) and one == other
