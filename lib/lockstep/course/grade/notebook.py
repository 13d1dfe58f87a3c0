"""A notebook's cells out of its bytes, whatever has happened to them.

Floor 4, room `course`. Any nbformat, any of the usual encodings, cut off in the middle: what is whole is read, what
had to be guessed becomes a warning, and only a file without a single cell is `Unreadable`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lockstep.course.grade.archive import Unreadable
from lockstep.course.grade.characters import writable

BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
LONGEST = 500_000  # characters of one cell; the labs' longest has three thousand
TRIES = 300  # places where reading a damaged file goes on
PATIENCE = 300_000_000  # characters of a damaged file that are read, all tries together
PERCENT = re.compile(r"^# (?:%%|In\[[\d ]*\]:?)(?P<rest>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class NotebookCell:
    """One cell. number: its place among the code cells, from 1 (0 for text). id: "" before nbformat 4.5."""

    kind: str
    text: str
    tags: tuple[str, ...] = ()
    id: str = ""
    number: int = 0


@dataclass(frozen=True)
class Notebook:
    """What could be read. metadata: of the notebook. warnings: sentences about what could not."""

    cells: tuple[NotebookCell, ...]
    metadata: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def read_notebook(content: bytes, name: str = "the notebook") -> Notebook:
    """Read bytes as a notebook (or as a script with `# %%` cells); raises Unreadable with a sentence."""
    warnings: list[str] = []
    text = _decoded(content, name, warnings)
    start = text.lstrip()[:200]
    if not start:
        raise Unreadable("it is empty")
    if start.startswith("<"):
        raise Unreadable("it is a web page and no notebook; the .ipynb file itself is needed")
    if not start.startswith("{"):
        raw, metadata = _script(text, name), {}
    else:
        raw, metadata = _parsed(text, name, warnings)
    cells, count = [], 0
    for one in raw:
        cell = _cell(one, count + 1)
        if cell is None:
            continue
        if len(cell.text) > LONGEST:
            warnings.append(f"{name}: a cell of {len(cell.text):,} characters was left out.")
            continue
        count += cell.kind == "code"
        cells.append(cell)
    if not cells:
        raise Unreadable("it has no cells" + (", or is damaged beyond reading" if warnings else ""))
    return Notebook(tuple(cells), metadata, tuple(warnings))


def _decoded(content: bytes, name: str, warnings: list[str]) -> str:
    encoding = next((called for mark, called in BOMS if content.startswith(mark)), None)
    if encoding is None and content[1:2] == b"\0":
        encoding = "utf-16-le"
    if encoding is None:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            warnings.append(f"{name} is not in UTF-8; letters outside English may be wrong.")
            return content.decode("cp1252", errors="replace")
    if encoding != "utf-8-sig":
        warnings.append(f"{name} is in {encoding.upper()}, not in UTF-8.")
    return content.decode(encoding, errors="replace").lstrip("\ufeff")


def _parsed(text: str, name: str, warnings: list[str]) -> tuple[list[Any], dict[str, Any]]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        cells = list(_whole_cells(text))
        warnings.append(f"{name} is damaged: {len(cells)} whole cells were read, the rest is lost.")
        return cells, {}
    if not isinstance(whole, dict):
        raise Unreadable("it holds no notebook")
    cells = whole.get("cells")
    if not isinstance(cells, list):  # nbformat 2 and 3
        sheets = whole.get("worksheets")
        inner = [one.get("cells") for one in sheets if isinstance(one, dict)] if isinstance(sheets, list) else []
        cells = [cell for part in inner if isinstance(part, list) for cell in part]
    metadata = whole.get("metadata")
    return cells, metadata if isinstance(metadata, dict) else {}


def _whole_cells(text: str) -> Iterator[Any]:
    """The cells of a damaged notebook that are whole, found one after the other."""
    decoder, place, tries, spent = json.JSONDecoder(), text.find("["), 0, 0
    start = re.compile(r'\{\s*"(?:cell_type|attachments|id|metadata|execution_count|source|outputs|collapsed)"')
    while place >= 0 and tries < TRIES and spent < PATIENCE:
        found = start.search(text, place)
        if found is None:
            return
        try:
            one, place = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError) as error:
            spent += getattr(error, "pos", len(text)) - found.start()
            one, place, tries = None, found.start() + 1, tries + 1
        if isinstance(one, dict) and "cell_type" in one:
            yield one


def _script(text: str, name: str) -> list[dict[str, Any]]:
    """A Python script as cells; raises Unreadable when it does not look like one."""
    marks = [*PERCENT.finditer(text)]
    if not marks and not re.search(r"^(def|class|import|from) ", text, re.MULTILINE):
        raise Unreadable("it is neither a notebook nor a Python script")
    if not marks:
        return [{"cell_type": "code", "source": text}]
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    cells = [{"cell_type": "code", "source": text[: marks[0].start()]}]
    for mark, end in zip(marks, ends, strict=True):
        kind = "markdown" if "[markdown]" in mark["rest"] else "code"
        tags = re.findall(r'"([^"]+)"', mark["rest"].partition("tags=")[2])
        cells.append({"cell_type": kind, "source": text[mark.end() : end].strip("\n"), "metadata": {"tags": tags}})
    return cells


def _cell(raw: Any, number: int) -> NotebookCell | None:
    if not isinstance(raw, dict):
        return None
    source = raw.get("source", raw.get("input", ""))
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    metadata, id = raw.get("metadata"), raw.get("id")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    kept = tuple(writable(tag) for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()
    code = raw.get("cell_type") == "code"
    if not isinstance(source, str):
        return None
    text = writable(source).replace("\r\n", "\n").replace("\r", "\n")
    return NotebookCell(
        "code" if code else "text", text, kept, writable(id) if isinstance(id, str) else "", number if code else 0
    )
