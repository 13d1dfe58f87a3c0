"""Where in the user's program a call of the communicator was made.

Floor 1, room `comm`. Costs about a microsecond, since every call that may wait asks.
"""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

import torch

_OURS = str(Path(__file__).parents[1])
_ROOM = str(Path(__file__).parent)
_FOREIGN = (_OURS, str(Path(torch.__file__).parent), sysconfig.get_paths()["stdlib"], "<frozen")
_INSTALLED = sysconfig.get_paths()["purelib"]


@lru_cache(maxsize=4096)
def _is_users(file: str) -> bool:
    """Whether a frame of `file` is the user's: not ours, torch's, nor Python's own (whose folder holds site-packages)."""
    if file.startswith(_INSTALLED):
        return not file.startswith(_FOREIGN[:2])
    return not file.startswith(_FOREIGN)


def call_site() -> tuple[str, int]:
    """(file, line) of the innermost frame outside lockstep, torch and Python's library.

    Where all are inside, as when a rank runs one of lockstep's own programs: the innermost outside this room.
    """
    frame = sys._getframe(1)
    fallback = None
    while frame is not None:
        file = frame.f_code.co_filename
        if _is_users(file):
            return file, frame.f_lineno
        if fallback is None and not file.startswith(_ROOM):
            fallback = file, frame.f_lineno
        frame = frame.f_back
    return fallback or ("", 0)
