"""Make functions refuse: what an exercise asks to write is not there to be called.

Floor 4, room `course`. A Python function's code is replaced in place, so that every name, closure and partial that
leads to it leads to a refusal; of the code that was there nothing is left in the process. A function of torch in C++
is taken out of every module that shows it, and its operator is replaced in torch's dispatcher.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import torch

from lockstep.exercises.forbidden import ForbiddenCall

TORCH_PLACES = (
    torch,
    torch.nn.functional,
    torch.Tensor,
    torch._C._VariableFunctions,
    torch._C._nn,
    torch._C.TensorBase,
)

# What torch's functions come down to; the last part of a name stands for its operators.
OPERATORS = {
    "conv2d": (
        "conv2d", "convolution", "_convolution", "mkldnn_convolution", "thnn_conv2d", "_slow_conv2d_forward",
        "slow_conv_dilated2d", "_nnpack_spatial_convolution", "convolution_backward",
    ),
    "conv_transpose2d": ("conv_transpose2d", "slow_conv_transpose2d"),
    "unfold": ("im2col",),
    "fold": ("col2im",),
    "max_pool2d": (
        "max_pool2d", "max_pool2d_with_indices", "mkldnn_max_pool2d", "max_pool2d_with_indices_backward",
        "adaptive_max_pool2d", "fractional_max_pool2d", "max_pool3d_with_indices",
    ),
    "max_unpool2d": ("max_unpool2d",),
    "batch_norm": (
        "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_impl_index",
        "_batch_norm_with_update", "_batch_norm_no_update", "native_batch_norm_backward",
    ),
    "cross_entropy": ("cross_entropy_loss",),
    "nll_loss": ("nll_loss", "nll_loss_nd", "nll_loss_forward"),
    "log_softmax": ("log_softmax", "_log_softmax"),
    "logsumexp": ("logsumexp", "special_logsumexp"),
}  # fmt: skip


def refuse(names: Iterable[str]) -> None:
    """Refuse what each name stands for: a module of ours with all its functions, a class with its methods, a function.

    "!lockstep.comm.mesh.MeshShape" takes a name out of what modules cover. Unknown names are passed over.
    """
    spared = {id(one) for name in names if name.startswith("!") for one in _functions(_found(name[1:]))}
    for name in names:
        if name.startswith("torch."):
            _refuse_torch(name)
        elif not name.startswith("!"):
            found = _found(name)
            for function in list(_functions(found)):
                if id(function) not in spared or not isinstance(found, types.ModuleType):
                    _hollow(function, name)


def _found(name: str) -> Any:
    """The object behind a dotted name; None where there is none."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        found: Any = sys.modules.get(".".join(parts[:cut]))
        if found is not None:
            for part in parts[cut:]:
                found = getattr(found, part, None)
            return found
    return None


def _functions(thing: Any) -> Iterator[types.FunctionType]:
    """The Python functions of a module, a package, a class, or the function itself."""
    if isinstance(thing, types.FunctionType):
        yield thing
    elif isinstance(thing, type):
        for value in vars(thing).values():
            # Not what classes share: a dataclass with slots is pickled by two functions of `dataclasses`.
            yield from (one for one in _plain_functions(value) if one.__module__ == thing.__module__)
    elif isinstance(thing, types.ModuleType):
        inside = thing.__name__ + "."
        for name, module in list(sys.modules.items()):
            if name == thing.__name__ or name.startswith(inside):
                for value in list(vars(module).values()):
                    if getattr(value, "__module__", None) == name:
                        yield from _functions(value) if isinstance(value, type) else _plain_functions(value)


def _plain_functions(value: Any) -> Iterator[types.FunctionType]:
    for one in (
        value,
        getattr(value, "__func__", None),
        getattr(value, "fget", None),
        getattr(value, "__wrapped__", None),
    ):
        if isinstance(one, types.FunctionType):
            yield one


def _hollow(function: types.FunctionType, name: str) -> None:
    function.__code__ = _refusing_code(name, len(function.__code__.co_freevars))
    function.__defaults__ = function.__kwdefaults__ = None


@lru_cache
def _refusing_code(name: str, free: int) -> types.CodeType:
    """Code that refuses; it must have as many free variables as the function's closure has cells."""
    cells = [f"cell{i}" for i in range(free)]
    lines = [
        f"def outer({', '.join(cells)}):",
        "    def refusal(*_, **__):",
        "        from lockstep.exercises.forbidden import ForbiddenCall",
        f"        raise ForbiddenCall({_text(name)!r})",
        *(f"        {cell}" for cell in cells),  # never reached
        "    return refusal",
    ]
    made: dict[str, Any] = {}
    exec("\n".join(lines), made)
    return made["outer"](*cells).__code__


def _refuse_torch(name: str) -> None:
    def refusal(*_: Any, **__: Any) -> Any:
        raise ForbiddenCall(_text(name))

    owner, last = name.rsplit(".", 1)
    found = _found(name)
    if isinstance(found, types.FunctionType):
        _hollow(found, name)
    elif found is not None:
        for place in (torch.Tensor,) if owner == "torch.Tensor" else TORCH_PLACES:
            if getattr(place, last, None) is not None:
                with contextlib.suppress(TypeError, AttributeError):  # a type of C++ cannot be changed
                    setattr(place, last, refusal)
    for operator in OPERATORS.get(last, ()):
        _replace_operator(operator, refusal)


def _replace_operator(operator: str, refusal: Any) -> None:
    """Register the refusal for every overload. What undoes it is left without an owner, so that nobody finds it."""
    overloads = [
        one.removeprefix("aten::")
        for one in torch._C._dispatch_get_all_op_names()
        if one == f"aten::{operator}" or one.startswith(f"aten::{operator}.")
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that a kernel is replaced, which is the point
        for overload in overloads:
            library = torch._C._dispatch_library("IMPL", "aten", "")
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
            with contextlib.suppress(RuntimeError, TypeError):
                library.impl(overload, "CPU", refusal)


def _text(name: str) -> str:
    return f"{name} may not be called in this exercise"
