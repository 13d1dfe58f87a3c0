"""Sending functions, arguments and results between processes, by value.

Floor 1. A function, class or lambda that was defined in a notebook cell has no module that another
process could import, so cloudpickle sends it by value. Tensors travel as plain bytes on the CPU:
a result that lives on a GPU or hangs on a graph comes back detached, on the CPU. A parameter stays one.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
import torch


class ShippingError(TypeError):
    """Something cannot be sent to another process; the message names it."""


def pack(fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of a call; `ShippingError` names the argument or variable that cannot be sent."""
    return pack_and_list(fn, args, kwargs)[0]


def pack_and_list(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> tuple[bytes, set[str]]:
    """What `pack` gives, and the names of modules that a process imports when it unpacks that."""
    try:
        return _pickled((fn, tuple(args), dict(kwargs or {})))
    except Exception as error:
        raise ShippingError(_explain(fn, args, kwargs or {}, error)) from None


def unpack(data: bytes | bytearray | memoryview) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A new copy of the call that `pack` was given."""
    return pickle.loads(data)


def dumps(value: Any) -> bytes:
    """Pickle by value where there is no module to import; tensors as plain bytes."""
    return _pickled(value)[0]


def _pickled(value: Any) -> tuple[bytes, set[str]]:
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=5)
    pickler.dump(value)
    # Not the file's buffer: Python 3.12.1 crashes when it collects one that an error kept (gh-111049).
    return file.getvalue(), pickler.modules


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol=protocol)
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, FunctionType)):
            self.modules.add(str(obj.__module__))
        elif isinstance(obj, ModuleType):
            self.modules.add(obj.__name__)
        if type(obj) is torch.Tensor and obj.layout is torch.strided and not obj.is_quantized:
            return _reduce_tensor(obj)
        if type(obj) is CodeType:
            return _reduce_code(*self.dispatch_table[CodeType](obj), obj.co_filename)
        return super().reducer_override(obj)


def _reduce_code(make: Any, parts: tuple[Any, ...], file: str) -> tuple[Any, ...]:
    """Keep the file name, which newer cloudpickles replace: without it no error could show the cell's line."""
    return make, tuple(file if part == "<dynamic-code>" else part for part in parts)


def _reduce_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    requires_grad = tensor.requires_grad and tensor.is_leaf
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    flat = plain.reshape(-1) if plain.numel() else plain.new_empty(0)  # without elements its stride may be 0
    data = pickle.PickleBuffer(flat.view(torch.uint8).numpy())
    return _rebuild_tensor, (data, plain.dtype, tuple(plain.shape), requires_grad)


def _rebuild_tensor(data: Any, dtype: torch.dtype, shape: tuple[int, ...], requires_grad: bool) -> torch.Tensor:
    flat = torch.frombuffer(bytearray(data) if isinstance(data, bytes) else data, dtype=dtype) if len(data) else None
    tensor = torch.empty(shape, dtype=dtype) if flat is None else flat.reshape(shape)
    return tensor.requires_grad_(requires_grad)


def _explain(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> str:
    """Which part of the call cannot be sent, by the name the reader knows."""
    parts: list[tuple[str, Any]] = [(f"argument {i + 1} after `ranks`", a) for i, a in enumerate(args)]
    parts += [(f"the argument `{name}`", value) for name, value in kwargs.items()]
    parts += [(f"the variable `{name}`, which `{owner}` uses,", value) for owner, name, value in _variables(fn)]
    parts += [(f"`{_name(fn)}`", fn)]
    for what, value in parts:
        try:
            dumps(value)
        except Exception as cause:
            return (
                f"{what} cannot be sent to another process: it is of type {type(value).__name__} "
                f"({_first_line(cause)}). Create it inside the function instead."
            )
    return f"the call of `{_name(fn)}` cannot be sent to another process: {_first_line(error)}"


def _variables(fn: Any, seen: set[int] | None = None) -> Iterator[tuple[str, str, Any]]:
    """(owner, name, value) of what a function uses from outside; innermost functions first."""
    seen = set() if seen is None else seen
    fn = getattr(fn, "__func__", fn)
    if not isinstance(fn, FunctionType) or id(fn) in seen:
        return
    seen.add(id(fn))
    used = [(n, fn.__globals__[n]) for n in fn.__code__.co_names if n in fn.__globals__]
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
        try:
            used.append((name, cell.cell_contents))
        except ValueError:  # a name that is bound later
            continue
    for name, value in used:
        yield from _variables(value, seen)
        yield _name(fn), name, value


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", None) or type(fn).__name__


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
