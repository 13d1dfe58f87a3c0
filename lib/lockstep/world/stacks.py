"""Where a rank is: the stacks that faulthandler writes, and lines of code as the reader knows them.

Floor 1. A rank dumps its threads' stacks into a file; the kernel, which knows the cells' text, reads them.
"""

from __future__ import annotations

import linecache
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

import lockstep

THREAD = re.compile(r"(?:(?:Current thread|Thread) (0x[0-9a-f]+)|Stack) .*\(most recent call first\)")
FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
CELL = re.compile(r"<ipython-input-(\d+)-")
# Where a rank's main thread is while the backend communicates: these call into C++ and block there.
COMMUNICATION = ("torch/distributed/", "torch/nn/parallel/distributed.py")
BACKWARD = ("torch/autograd/graph.py", "_engine_run_backward")  # DDP waits for its buckets in here
RANK = "/lockstep/world/rank.py"
# A thread that is in one of these only waits; nothing will come from it.
IDLE = ("threading.py", "queue.py", "selectors.py", "connection.py", "_monitor.py")


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The text of the line, stripped; "" if nobody has it."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        said = f":  {self.source}" if self.source else f", in {self.function}" if self.function else ""
        return f"{place(self.file, self.line)}{said}"


def parse(text: str) -> dict[int, list[Frame]]:
    """Thread to its frames, innermost first, as faulthandler wrote them."""
    threads: dict[int, list[Frame]] = {}
    frames: list[Frame] = []
    for row in text.splitlines():
        if thread := THREAD.match(row):
            frames = threads[int(thread[1] or "0", 16)] = []
        elif frame := FRAME.match(row):
            frames.append(Frame(frame[1], int(frame[2]), frame[3]))
    return threads


def place(file: str, line: int) -> str:
    """ "cell In[3], line 4", "train.py, line 10"."""
    number = _cell_number(file)
    if number is not None:
        return f"cell In[{number}], line {line}"
    if not Path(file).exists():
        return f"cell line {line}" if linecache.getline(file, line) else f"{file}, line {line}"
    try:
        shown = os.path.relpath(file)
    except (OSError, ValueError):  # no working directory, or another drive
        shown = file
    return f"{file if shown.startswith('..') else shown}, line {line}"


def _cell_number(file: str) -> int | None:
    """Which In[n] a code file of IPython is."""
    old = CELL.match(file)
    if old:
        return int(old[1])
    if "IPython" not in sys.modules:
        return None
    shell = sys.modules["IPython"].get_ipython()
    return getattr(getattr(shell, "compile", None), "_filename_map", {}).get(file)


@cache
def is_users(file: str) -> bool:
    """Whether the reader wrote this file: not Python's library, not an installed package, not ours."""
    if file.startswith("<frozen"):
        return False
    return not any(file.startswith(folder + os.sep) for folder in _not_the_users())


@cache
def _not_the_users() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names} | set(site.getsitepackages())
    folders |= {os.path.realpath(folder) for folder in folders} | {os.path.dirname(lockstep.__file__)}
    folders.add(os.path.dirname(os.__file__))
    return tuple(folders)


def without_start(frames: Iterable[Frame]) -> list[Frame]:
    """Frames (innermost first) without those that started the rank."""
    return list(takewhile(lambda frame: not _slashes(frame.file).endswith(RANK), frames))


def users(frames: Iterable[Frame]) -> list[Frame]:
    """The reader's own frames (innermost first); all of the rank's if it runs a function of a library."""
    inside = without_start(frames)
    return [frame for frame in inside if is_users(frame.file)] or inside


def format_stack(frames: Sequence[Frame]) -> str:
    """A rank's frames (innermost first) as text, outermost first."""
    return "\n".join(str(frame) for frame in reversed(without_start(frames)))


def waits_in_communication(threads: dict[int, list[Frame]], main: int) -> bool:
    """Whether a rank's main thread is inside torch.distributed and no other thread of it could move it on."""
    frames = threads.get(main)
    return (
        bool(frames)
        and _communicates(frames)
        and all(_only_waits(other) or _communicates(other) for ident, other in threads.items() if ident != main)
    )


def _communicates(frames: Sequence[Frame]) -> bool:
    inner = frames[0]
    if (inner.function, _slashes(inner.file).endswith(BACKWARD[0])) == (BACKWARD[1], True):
        return True
    # A handle's wait() is C++ without a frame of its own: the line that calls it is the innermost.
    if ".wait(" in inner.source and is_users(inner.file):
        return True
    library = []
    for frame in frames:
        if is_users(frame.file):
            break
        library.append(frame)
    return any(part in _slashes(frame.file) for frame in library for part in COMMUNICATION)


def _only_waits(frames: Sequence[Frame]) -> bool:
    return not frames or os.path.basename(frames[0].file) in IDLE


def _slashes(file: str) -> str:
    return file.replace("\\", "/")
