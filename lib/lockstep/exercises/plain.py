"""Plain data: the only kind of value that leaves the child, and how two of them compare.

Floor 4, room `exercises`. Objects of a student's own classes never reach the judge: an object that
claims to equal everything arrives as a `Strange`, which equals nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

SCALARS = (bool, int, float, complex, str, bytes, type(None))
DEEPEST = 8  # containers in containers; also ends a list that holds itself
LONGEST = 4096  # bits of an int: Python refuses to print far longer ones


@dataclass(frozen=True)
class Strange:
    """A value that is not plain: its type's name, and the start of its repr."""

    type: str
    text: str


def plain(value: Any, depth: int = 0) -> Any:
    """Copy `value` to plain data: exact types of numbers, strings, arrays, tensors and containers of them.

    Tensors are detached copies on the CPU, NumPy scalars become 0-dimensional arrays. Everything else,
    sets and subclasses included, becomes `Strange`. Never raises.
    """
    kind = type(value)
    if kind is int and value.bit_length() > LONGEST:
        return Strange("int", f"of {value.bit_length():,} bits")
    if kind in SCALARS:
        return value
    if kind in (torch.Tensor, torch.nn.Parameter):
        return _tensor(value)
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return value.copy()
    if kind.__module__ == "numpy" and isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return np.asarray(value).copy()
    if depth < DEEPEST:
        if kind in (list, tuple):
            return kind(plain(one, depth + 1) for one in value)
        if kind is dict:
            return {
                key if type(key) in SCALARS else plain(key, DEEPEST): plain(v, depth + 1) for key, v in value.items()
            }
        if kind in (torch.Size, range):
            return tuple(value)
    return Strange(kind.__qualname__, _text(value))


def _tensor(value: torch.Tensor) -> Any:
    try:
        dense = value.detach().cpu()
        return torch.empty_like(dense).copy_(dense) if dense.layout is torch.strided else dense.to_dense()
    except Exception as error:  # a tensor on the meta device, for one, has no numbers to copy
        return Strange("Tensor", f"without readable numbers: {error}")


def _text(value: Any) -> str:
    try:
        return repr(value)[:200]
    except BaseException as error:  # a student's class may do anything here
        return f"(its repr raises {type(error).__name__})"


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
        pairs = [(f"{where}[{i}]", s, e) for i, (s, e) in enumerate(zip(seen, expected, strict=True))]
        return next((d for w, s, e in pairs if (d := differs(s, e, rtol, atol, w))), None)
    if isinstance(expected, dict):
        if not isinstance(seen, dict):
            return f"expected {kind(expected)}{at}, got {kind(seen)}"
        if set(seen) != set(expected):
            return f"expected the keys {short(sorted(expected, key=str))}{at}, got {short(sorted(seen, key=str))}"
        pairs = [(f"{where}[{k!r}]", seen[k], expected[k]) for k in expected]
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
        return f"expected dtype {_dtype(expected)}{at}, got {_dtype(seen)}"
    if isinstance(expected, torch.Tensor):
        seen, expected = _as_numpy(seen), _as_numpy(expected)
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


def _as_numpy(tensor: torch.Tensor) -> np.ndarray:
    wide = tensor.to(torch.float64) if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
    return wide.resolve_conj().numpy()


def alike(one: Any, other: Any) -> bool:
    """True when two plain values show the same behaviour: as `differs`, but NaN is like NaN, and types are lax."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, Strange) and isinstance(other, Strange):
        return one.type == other.type
    try:
        a, b = (np.asarray(_as_numpy(v) if isinstance(v, torch.Tensor) else v) for v in (one, other))
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True))
    except (TypeError, ValueError, OverflowError):
        return type(one) is type(other) and one == other


def kind(value: Any) -> str:
    """What sort of thing a plain value is, with its shape: "float32[3, 4] (tensor)", "a list of 3", "None"."""
    if value is None:
        return "None"
    if isinstance(value, Strange):
        return f"an object of type {value.type}"
    if isinstance(value, torch.Tensor):
        return f"a tensor {_dtype(value)}{list(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"an array {_dtype(value)}{list(value.shape)}" if value.ndim else f"a number {short(value)}"
    if isinstance(value, (list, tuple, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{type(value).__name__} {short(value)}"


def short(value: Any, limit: int = 120) -> str:
    """A plain value on one line, numbers with at most 6 digits, cut at `limit` characters."""
    text = _short(value)
    return text if len(text) <= limit else text[: limit - 2].rstrip() + " …"


def _short(value: Any) -> str:
    if isinstance(value, Strange):
        return f"{value.type} object {value.text}"
    if isinstance(value, float):
        text = f"{value:.6g}"
        return text + ".0" if text.lstrip("-").isdigit() else text
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return _short(value.item())
    if isinstance(value, (torch.Tensor, np.ndarray)):
        numbers = (_as_numpy(value) if isinstance(value, torch.Tensor) else value).reshape(-1)
        listed = ", ".join(_short(one.item()) for one in numbers[:8]) + (", …" if numbers.size > 8 else "")
        return f"{_dtype(value)}{list(value.shape)} [{listed}]"
    if isinstance(value, (list, tuple)):
        ends = "[]" if isinstance(value, list) else "()"
        listed = ", ".join(map(_short, value[:12])) + (", …" if len(value) > 12 else "")
        return ends[0] + listed + ("," if isinstance(value, tuple) and len(value) == 1 else "") + ends[1]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_short(v)}" for k, v in list(value.items())[:12]) + "}"
    return repr(value)


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")
