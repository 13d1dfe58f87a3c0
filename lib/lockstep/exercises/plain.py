"""Plain data: the only kind of value that leaves the child, and how it is put in words.

Floor 4, room `exercises`. Objects of a student's own classes never reach the judge: an object that
claims to equal everything arrives as a `Strange`, which equals nothing.
"""

from __future__ import annotations

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


class Words(str):
    """What an observer says of a run: shown as it stands, without quotes, since nobody returned it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


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


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a plain tensor; types that NumPy lacks are widened."""
    wide = tensor.to(torch.float64) if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
    return wide.resolve_conj().numpy()


def kind(value: Any) -> str:
    """What sort of thing a plain value is, with its shape: "float32[3, 4] (tensor)", "a list of 3", "None"."""
    if value is None:
        return "None"
    if isinstance(value, Strange):
        return f"an object of type {value.type}"
    if isinstance(value, torch.Tensor):
        return f"a tensor {dtype_name(value)}{list(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"an array {dtype_name(value)}{list(value.shape)}" if value.ndim else f"a number {short(value)}"
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
        numbers = (as_numpy(value) if isinstance(value, torch.Tensor) else value).reshape(-1)
        listed = ", ".join(_short(one.item()) for one in numbers[:8]) + (", …" if numbers.size > 8 else "")
        return f"{dtype_name(value)}{list(value.shape)} [{listed}]"
    if isinstance(value, (list, tuple)):
        ends = "[]" if isinstance(value, list) else "()"
        listed = ", ".join(map(_short, value[:12])) + (", …" if len(value) > 12 else "")
        return ends[0] + listed + ("," if isinstance(value, tuple) and len(value) == 1 else "") + ends[1]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_short(v)}" for k, v in list(value.items())[:12]) + "}"
    return repr(value)


def dtype_name(value: Any) -> str:
    """The dtype of a tensor or array, "float32" for both."""
    return str(value.dtype).removeprefix("torch.")
