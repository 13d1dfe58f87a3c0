"""The first cell of a notebook that shares its kernel with others."""

from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

EMPTY = "%reset -f\nimport os\nos.environ['LOCKSTEP_MY'] = {my!r}\nos.chdir({folder!r})\ndel os"


def emptied(my: Path, folder: Path) -> NotebookNode:
    """Forgets what ran before; what follows works in `folder` and keeps what a reader achieves in `my`."""
    return new_code_cell(EMPTY.format(my=str(my), folder=str(folder)))
