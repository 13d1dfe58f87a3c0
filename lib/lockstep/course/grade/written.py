"""What a student wrote in words: cells tagged `answer`, and predictions with their reasons.

Floor 4, room `course`. Out of the notebook's text, and out of the record that `submit()` puts beside it, which also
knows whether a prediction came before its measurement.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.course.grade.characters import as_text, unparsed, writable
from lockstep.course.grade.notebook import NotebookCell
from lockstep.course.grade.statements import statements

ANSWER_ID = re.compile(r"\d\d\.[a-z]+\d+")
LONGEST = 20_000  # characters of one answer that are kept
MOST = 200  # answers of one student, and predictions; the labs have a dozen. Each makes a page


def answers(cells: Iterable[NotebookCell], given: Mapping[str, str]) -> dict[str, str]:
    """Text by the id of an answer cell; a cell as it was handed out (`given`) holds no answer."""
    found: dict[str, str] = {}
    for cell in cells:
        id = answer_id(cell)
        text = cell.text.strip()
        if id and text and text != given.get(id, "").strip():
            found[id] = f"{found[id]}\n\n{text}" if id in found else text  # split in two, or written twice
    return {id: found[id][:LONGEST] for id in list(found)[:MOST]}


def answer_id(cell: NotebookCell) -> str:
    """The id of an answer cell: its tag like "05.w1", else the cell's own; "" for any other cell."""
    if "answer" not in cell.tags:
        return ""
    return next((tag for tag in cell.tags if ANSWER_ID.fullmatch(tag)), cell.id)


def predictions(cells: Iterable[NotebookCell], record: bytes | None) -> dict[str, dict[str, Any]]:
    """{"value", "reason", "late"} by id, of those that were made. The record counts before the notebook's text."""
    made = {id: entry for id, entry in _predicted(cells) if entry["value"] is not None}
    for id, entry in _recorded(record).items():
        if entry.get("value") is not None:
            reason = entry.get("reason") or made.get(id, {}).get("reason", "")
            made[id] = {"value": entry["value"], "reason": as_text(reason), "late": bool(entry.get("late"))}
    return {id: made[id] | {"value": _kept(made[id]["value"])} for id in list(made)[:MOST]}


def _kept(value: Any) -> Any:
    """A number as it is, if it can be printed; anything else as text."""
    text = as_text(value)
    return value if isinstance(value, (int, float)) and not text.startswith("(") else text


def _recorded(record: bytes | None) -> dict[str, dict[str, Any]]:
    try:
        entries = json.loads(record.decode("utf-8"))["predictions"] if record else {}
        return {writable(str(id)): entry for id, entry in entries.items() if isinstance(entry, dict)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _predicted(cells: Iterable[NotebookCell]) -> Iterable[tuple[str, dict[str, Any]]]:
    for cell in cells:
        if cell.kind != "code" or "predict" not in cell.text:
            continue
        for statement in statements(cell.text)[0]:
            call = getattr(statement.node, "value", None)
            if isinstance(call, ast.Call) and unparsed(call.func) == "predict" and call.args:
                words = {one.arg: one.value for one in call.keywords}
                rest = dict(zip(("value", "reason"), call.args[1:], strict=False)) | words
                reason = _plain(rest.get("reason"))
                entry = {"value": _plain(rest.get("value")), "late": False}
                yield (
                    as_text(_plain(call.args[0])),
                    entry | {"reason": as_text(reason) if isinstance(reason, str) else ""},
                )


def _plain(node: ast.expr | None) -> Any:
    """The value of a literal, the text of anything else; None where nothing was put in."""
    if node is None:
        return None
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return unparsed(node)
    return None if value is Ellipsis else value
