"""What grading knows of each lab before it reads a submission: names, skeletons, and what was handed out.

Floor 4, room `course`. It comes from the exercises and, where the clone is there, from the lab's own notebook.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lockstep.course.grade.notebook import read_notebook
from lockstep.course.grade.program import LabText, pieces_of
from lockstep.course.grade.written import answer_id
from lockstep.course.tree import NoClone, here

PREDICTS = re.compile(r"^predict\(\s*[\"']([^\"']+)[\"']", re.MULTILINE)


def lab_text(number: str, exercises: Iterable[Any], notebook: Path | None) -> LabText:
    """exercises: of this lab, with `id` and `function`. notebook: as it was handed out, None where there is none."""
    functions = {one.id: one.function for one in exercises}
    if notebook is None or not notebook.is_file():
        return LabText(number, functions)
    cells = read_notebook(notebook.read_bytes(), notebook.name).cells
    pieces, _, _ = pieces_of(cells, set())
    defined = (ast.FunctionDef, ast.ClassDef)
    skeletons = {
        name: one.parsed.text
        for name in functions.values()
        for one in pieces
        if name in one.binds and isinstance(one.parsed.node, defined)
    }
    given = tuple(one for one in pieces if "exercise" not in one.tags)
    texts = {answer_id(cell): cell.text for cell in cells if answer_id(cell)}
    predicts = tuple(dict.fromkeys(id for cell in cells for id in PREDICTS.findall(cell.text) if cell.kind == "code"))
    heading = re.search(r"^# +(.+)$", next((cell.text for cell in cells if cell.kind == "text"), ""), re.MULTILINE)
    return LabText(number, functions, skeletons, given, texts, predicts, notebook.stem, heading[1] if heading else "")


def notebook_of(number: str) -> Path | None:
    """The lab's notebook in this clone, None without a clone."""
    try:
        tree = here()
        return tree.labs / f"{tree.find(number).stem}.ipynb"
    except (NoClone, ValueError):
        return None
