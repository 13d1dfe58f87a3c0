"""A copy of the rank function and its arguments for each simulated rank, as if it had come to another process.

Floor 1, room `world`. `shipping` makes the bytes. Unpickling them in the process that made them needs
care with classes that are sent by value, those of a notebook: cloudpickle would give the notebook's own
class and write its attributes anew, so that ranks shared class attributes and the notebook's methods
changed under its hands. Here every rank gets classes of its own, and what a rank returns finds its way
back to the notebook's.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from cloudpickle import cloudpickle

from lockstep.world.shipping import dumps, pack

MAKERS = ("_make_skeleton_class", "_make_skeleton_enum")
TRACKER = -2  # which argument of a maker is the class's identity; the last one is for later versions


class Copies:
    """Pickles a call once, gives each rank a copy, and takes results home."""

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._data = bytes(pack(fn, args, kwargs))
        self._identities: WeakKeyDictionary[type, str] = WeakKeyDictionary()  # of the ranks' own classes

    def new(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Function, positional and keyword arguments, sharing nothing with the caller's or another rank's."""
        return _StrangersUnpickler(self._data, self._identities).load()

    def home(self, value: Any) -> Any:
        """`value` with instances of the caller's own classes in place of the rank's; itself where there are none."""
        if not self._identities:
            return value
        with cloudpickle._DYNAMIC_CLASS_TRACKER_LOCK:
            cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.update(self._identities)
        try:
            return HomeUnpickler(dumps(value)).load()
        except Exception:  # cannot be pickled; then it stays an instance of the rank's class
            return value


class _StrangersUnpickler(pickle.Unpickler):
    """Makes a new class for each class that was sent by value."""

    def __init__(self, data: bytes, identities: WeakKeyDictionary[type, str]) -> None:
        super().__init__(io.BytesIO(data))
        self._identities = identities

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if module != cloudpickle.__name__ or name not in MAKERS:
            return found

        def make(*args: Any) -> type:
            made = found(*args[:TRACKER], None, *args[TRACKER + 1 :])
            self._identities[made] = args[TRACKER]
            return made

        return make


class HomeUnpickler(pickle.Unpickler):
    """Gives classes that this process knows already, and leaves them as they are."""

    def __init__(self, data: bytes | memoryview) -> None:
        super().__init__(io.BytesIO(data))
        self._known: set[type] = set()

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if module != cloudpickle.__name__:
            return found
        if name in MAKERS:

            def make(*args: Any) -> type:
                known = args[TRACKER] in cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID
                made = found(*args)
                if known:
                    self._known.add(made)
                return made

            return make
        if name == "_class_setstate":
            return lambda made, state: made if made in self._known else found(made, state)
        return found
