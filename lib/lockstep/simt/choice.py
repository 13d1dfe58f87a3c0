"""Which `cuda` a kernel is written for: the simulator, or Numba's where there is a GPU.

Floor 0. `LOCKSTEP_SIMT=simulator` forces the simulator, `LOCKSTEP_SIMT=numba` forces Numba. Unset, Numba is chosen when
it is installed and finds a GPU; it is not imported where there is no driver, since that alone takes seconds.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from types import ModuleType

from lockstep.simt import cuda as simulator

VARIABLE = "LOCKSTEP_SIMT"


def chosen() -> ModuleType:
    """The module that `from lockstep.simt import cuda` gives; ValueError for another value of the variable."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "simulator", "numba"):
        raise ValueError(f"{VARIABLE} is simulator or numba, not {wanted!r}")
    if wanted == "numba":
        return importlib.import_module("numba.cuda")
    if wanted == "simulator" or not has_driver():
        return simulator
    try:
        numba_cuda = importlib.import_module("numba.cuda")
    except ImportError:
        return simulator
    return numba_cuda if numba_cuda.is_available() else simulator


def has_driver() -> bool:
    """Whether this machine has a CUDA driver."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
