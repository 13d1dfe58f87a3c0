"""`submit("05")`: one file to hand in, made from the saved notebook and what `my/` knows of that lab.

Floor 4, room `exercises`. A notebook whose last changes are not on disk is refused: every cell of this kernel that
defines one of the lab's functions, checks it, predicts or answers must stand in the saved file as it was last run.
Nothing leaves the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lockstep
from lockstep.exercises import keep, registry
from lockstep.exercises.card import Card, Row

LATEST = re.compile(r"^\s*(?:def|class)\s+(\w+)|\b(check|predict|answer)\(\s*[\"']([^\"']+)[\"']", re.MULTILINE)


def submit(lab: str, notebook: str | Path | None = None) -> Card:
    """Write `my/submit/lab05.zip` with the saved notebook, the functions that passed, the record and versions.

    notebook: its file; found by itself in JupyterLab, VS Code and where one notebook of the lab lies in the folder.
    Refuses, with a sentence, when the notebook is not found or not saved. The card says where the file is.
    """
    file = Path(notebook) if notebook is not None else _open_notebook(lab)
    if file is None or not file.is_file():
        where = f"there is no file {file}" if file is not None else f"none in {Path.cwd()} begins with {lab}_"
        return _refused(
            lab, f'The notebook was not found: {where}. Name it: `submit("{lab}", notebook="my_copy.ipynb")`.'
        )
    try:
        content = file.read_bytes()
        cells = saved_cells(content)
    except (OSError, ValueError) as error:
        return _refused(lab, f"{file.name} could not be read as a notebook: {error}")
    missing = unsaved(lab, history(), cells)
    if missing:
        first = next((line for line in missing[0].splitlines() if line.strip()), "").strip()
        rest = f", and {len(missing) - 1} more," if len(missing) > 1 else ""
        why = (
            f"{file.name} is not saved as you last ran it: the cell that begins `{first}`{rest} differs or is missing."
        )
        return _refused(
            lab,
            f"{why} Save (Ctrl+S), then run this cell again; or, if you deleted that cell, restart the kernel and run "
            "the notebook again.",
        )
    try:
        target = _write_zip(lab, file.name, content)
    except OSError as error:
        return _refused(lab, f"The file could not be written: {error}")
    rows = (
        Row("File", str(target)),
        Row("Holds", "the notebook, your functions that passed, predictions, answers, versions"),
        Row("Next", "Hand in this file. Nothing was sent anywhere."),
    )
    return Card(f"Lab {lab}", "ready to hand in", "good", rows)


def _refused(lab: str, why: str) -> Card:
    return Card(f"Lab {lab}", "not made", "bad", (Row("Why", why),))


def _open_notebook(lab: str) -> Path | None:
    """The notebook of this kernel: as JupyterLab or VS Code says, otherwise the only one of the lab in this folder."""
    said = os.environ.get("JPY_SESSION_NAME", "")
    shell = _shell()
    vscode = shell.user_ns.get("__vsc_ipynb_file__", "") if shell is not None else ""
    for name in (said, vscode):
        if name.endswith(".ipynb"):
            return Path(name) if Path(name).is_file() else Path(Path(name).name)
    found = sorted(Path.cwd().glob(f"{lab}_*.ipynb"))
    return found[0] if len(found) == 1 else None


def _shell() -> Any:
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def history() -> list[str]:
    """The source of every cell that this kernel has run, in order; empty outside a notebook."""
    shell = _shell()
    return [] if shell is None else list(shell.history_manager.input_hist_raw)


def saved_cells(content: bytes) -> list[str]:
    """The sources of a notebook's code cells; ValueError when it is no notebook."""
    try:
        cells = json.loads(content.decode())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        return ["".join(cell["source"]) for cell in code]
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"it has no readable cells ({error})") from error


def unsaved(lab: str, run: Iterable[str], saved: Iterable[str]) -> list[str]:
    """The run cells that matter for the lab and are not in the saved notebook as they were last run."""
    names = {one.function for one in registry.all() if one.lab == lab}
    latest: dict[tuple[str, str], str] = {}
    for cell in run:
        for defined, call, id in LATEST.findall(cell):
            if defined in names or (call and id[:2] == lab):
                latest[call or "def", defined or id] = cell
    there = {_same(cell) for cell in saved}
    return list(dict.fromkeys(cell for cell in latest.values() if _same(cell) not in there))


def _same(cell: str) -> str:
    return "\n".join(line.rstrip() for line in cell.strip().splitlines())


def _write_zip(lab: str, name: str, content: bytes) -> Path:
    place = keep.folder()
    target = place / "submit" / f"lab{lab}.zip"
    target.parent.mkdir(exist_ok=True)
    record = keep.read()
    files = {name: content, "record.json": json.dumps(_of_lab(record, lab), indent=1, ensure_ascii=False).encode()}
    files |= {f"functions/{one.name}": one.read_bytes() for one in sorted(place.glob(f"{lab}.*.py"))}
    about = {
        "lab": lab, "made": keep.now(), "notebook": name, "versions": _versions(),
        "exercises": {one.id: one.version for one in registry.all() if one.lab == lab},
        "sha256": {path: hashlib.sha256(data).hexdigest() for path, data in files.items()},
    }  # fmt: skip
    half = target.with_suffix(".part")
    with zipfile.ZipFile(half, "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in {"about.json": json.dumps(about, indent=1).encode(), **files}.items():
            out.writestr(path, data)
    os.replace(half, target)
    return target


def _of_lab(record: dict[str, Any], lab: str) -> dict[str, Any]:
    return {
        part: {id: entry for id, entry in entries.items() if id[:2] == lab}
        for part, entries in record.items()
        if isinstance(entries, dict)
    }


def _versions() -> dict[str, str]:
    return {
        "lockstep": lockstep.__version__, "torch": torch.__version__, "numpy": np.__version__,
        "python": platform.python_version(), "platform": platform.platform(),
    }  # fmt: skip
