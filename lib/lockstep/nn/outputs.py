"""The tensors in what a model returns and in what a loader gives: one, or a structure of them.

Floor 0, room `nn`. A structure is made of tuples, lists, dictionaries and dataclasses, however deep.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensor itself, or those in the structure."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


def map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A structure of the same kind with `change(tensor)` for each tensor; what is no tensor stays."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        parts = [map_tensors(change, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, Mapping):
        changed = copy.copy(value)  # keeps what a subclass has besides its items
        for name, part in value.items():
            changed[name] = map_tensors(change, part)
        return changed
    if is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for field in fields(value):
            object.__setattr__(changed, field.name, map_tensors(change, getattr(value, field.name)))
        return changed
    return value
