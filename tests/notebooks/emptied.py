"""The first cell of a notebook that shares its kernel with others."""

from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

# What is left after the reset are libraries, which no collection of garbage need look through again. Ten seconds for a
# simulation are a reader's patience; a machine that tests share can stop every process on it for as long.
EMPTY = """\
%reset -f
import gc, os, sys
import lockstep.world
gc.freeze()
sys.modules["lockstep.world.simulate"].simulate.__kwdefaults__["timeout"] = 60
os.environ["LOCKSTEP_MY"] = {my!r}
os.chdir({folder!r})
del gc, os, sys, lockstep"""


def emptied(my: Path, folder: Path) -> NotebookNode:
    """Forgets what ran before; what follows works in `folder` and keeps what a reader achieves in `my`."""
    return new_code_cell(EMPTY.format(my=str(my), folder=str(folder)))
