"""`lockstep author 05`: the source of a lab opened as a notebook in JupyterLab, its products remade on every save.

Floor 4, room `course`. JupyterLab reads and writes the py:percent file itself (jupytext's contents manager), so
there is no second file to keep in step.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from urllib.parse import quote

from lockstep.course.build import BuildError, build
from lockstep.course.jupyter import lab_command
from lockstep.course.source import SourceError
from lockstep.course.tree import Tree

LOOK_EVERY = 0.5  # seconds


def author(path: Path, tree: Tree, options: list[str]) -> int:
    """Open the source and rebuild whenever it changes, until JupyterLab ends; returns its exit status."""
    page = f"/lab/tree/{quote(path.name)}?factory=Jupytext%20Notebook"
    lab = subprocess.Popen([*lab_command(path.parent), f"--LabApp.default_url={page}", *options], cwd=path.parent)
    last = path.stat().st_mtime_ns
    try:
        while lab.poll() is None:
            time.sleep(LOOK_EVERY)
            now = path.stat().st_mtime_ns if path.exists() else last
            if now != last:
                last = now
                print(_rebuilt(path, tree), flush=True)
    except KeyboardInterrupt:
        lab.terminate()
    return lab.wait()


def _rebuilt(path: Path, tree: Tree) -> str:
    start = time.perf_counter()
    try:
        build(path, tree)
    except (BuildError, SourceError) as error:
        return f"{path.name} was not built: {error}"
    return f"{path.name} built in {time.perf_counter() - start:.0f} s"
