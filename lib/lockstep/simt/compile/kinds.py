"""What a value in a kernel may be: a number, an array, a tuple, or a name that only the compiler knows.

Floor 0. A number's kind is its NumPy dtype. Kinds compare by value, so that a loop's types can be found by repetition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lockstep.simt import rules


@dataclass(frozen=True)
class Array:
    """An array in global, constant, shared or local memory.

    `origin` is the parameter it came in by, or the line that declared it: what a kernel does to each is known
    before it runs, so memory that is only read needs no record of who read it.
    """

    dtype: np.dtype
    ndim: int
    space: str
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.space} array of {self.dtype}, {self.ndim}-D"


@dataclass(frozen=True)
class Tuple:
    items: tuple

    def __str__(self) -> str:
        return f"tuple of {len(self.items)}"


@dataclass(frozen=True, eq=False)
class Static:
    """A module, a function or a type that a name stands for: `path` is "cuda.shared.array", "math.sqrt", "range"."""

    path: str
    value: object = None

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Conflict:
    """A variable that has kinds which nothing unites, on two paths; refused when it is read."""

    left: object
    right: object

    def __str__(self) -> str:
        return f"{self.left} on one path and {self.right} on another"


NOTHING = Static("None")


def is_number(kind: object) -> bool:
    return isinstance(kind, np.dtype)


def unite(left: object, right: object) -> object:
    """The kind of a variable that comes from two paths."""
    if left == right:
        return left
    if is_number(left) and is_number(right):
        return rules.unify(left, right)
    if isinstance(left, Tuple) and isinstance(right, Tuple) and len(left.items) == len(right.items):
        return Tuple(tuple(unite(a, b) for a, b in zip(left.items, right.items, strict=True)))
    return Conflict(left, right)


def suffix(kind: object) -> str:
    """Letters that tell a variable's kinds apart in the generated code: x of int64 is `x_i8`."""
    if is_number(kind):
        return kind.str[1:]
    if isinstance(kind, Tuple):
        return "t" + "".join(suffix(item) for item in kind.items)
    if isinstance(kind, Array):
        return f"a{kind.dtype.str[1:]}{kind.ndim}{kind.space[0]}"
    return "s"


@dataclass(frozen=True)
class Binding:
    """A variable at one point of the kernel: its kind, and whether every path to here assigned it."""

    kind: object
    certain: bool = True


Environment = dict[str, Binding]


def join(left: Environment | None, right: Environment | None) -> Environment | None:
    """What is known where two paths meet; None stands for a path that no lane takes."""
    if left is None or right is None:
        return right if left is None else left
    met = {}
    for name in {**left, **right}:
        a, b = left.get(name), right.get(name)
        if a is None or b is None:
            met[name] = Binding((a or b).kind, False)
        else:
            met[name] = Binding(unite(a.kind, b.kind), a.certain and b.certain)
    return met


def casts(before: Environment | None, after: Environment) -> list[tuple[str, object, object]]:
    """Variables whose kind changes on the way from one point to the next: (name, kind before, kind after)."""
    changed = []
    for name, binding in (before or {}).items():
        kind = after[name].kind if name in after else binding.kind
        if kind != binding.kind and not isinstance(kind, Conflict):
            changed.append((name, binding.kind, kind))
    return changed
