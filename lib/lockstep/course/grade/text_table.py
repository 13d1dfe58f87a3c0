"""Small CSV files that people write, and CSV cells that no spreadsheet takes for a formula.

Floor 4, room `course`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from lockstep.course.grade.characters import visible

FORMULA = ("=", "+", "-", "@", "\t", "\n", *"＝＋－＠")  # noqa: RUF001 - the last as wide as Chinese letters


def read_table(path: Path, needs: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV file by column; header and cells stripped. Raises ValueError naming file and missing column."""
    header, rows = read_csv(path)
    header = [name.strip().lower() for name in header]
    lacking = [name for name in needs if name not in header]
    if lacking:
        raise ValueError(f"{path} has no column {lacking[0]!r}; it needs {', '.join(needs)}")
    return [
        {name: cell.strip() for name, cell in zip(header, [*row, *[""] * len(header)], strict=False)}
        for row in rows
        if any(cell.strip() for cell in row)
    ]


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file in UTF-8, with comma, semicolon or tab; raises ValueError."""
    text = read_text(path)
    rows = rows_of(text, path)
    if not rows:
        raise ValueError(f"{path} is empty")
    return rows[0], rows[1:]


def rows_of(text: str, path: Path) -> list[list[str]]:
    """The rows of a table as text; raises ValueError naming the file where a cell is too long for one."""
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text)))
    except csv.Error as error:
        raise ValueError(f"{path} is no table of cells ({error}): is a quotation mark missing?") from None


def read_text(path: Path) -> str:
    """A text file in UTF-8 (with or without BOM) or UTF-16; raises ValueError naming it."""
    try:
        content = Path(path).read_bytes()
        return content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not in UTF-8: save it as 'CSV UTF-8'") from None


def delimiter_of(text: str) -> str:
    """What separates cells, by the first line."""
    head = text.partition("\n")[0]
    return max(",;\t", key=head.count)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows([guarded(cell) for cell in row] for row in rows)
    return out.getvalue()


def guarded(cell: object) -> str:
    """One cell. Numbers that we computed stay numbers; a text never begins a formula."""
    if isinstance(cell, (int, float)):
        return f"{cell:.2f}".rstrip("0").rstrip(".") if isinstance(cell, float) else str(cell)
    # A lone carriage return ends the row for whoever reads it, and what follows would be a cell of its own.
    text = "" if cell is None else str(cell).replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    text = visible(text)
    return f"'{text}" if text.startswith(FORMULA) else text


def whose(row: dict[str, str], students: Iterable[tuple[str, str]]) -> str | None:
    """The student's key that a row means, by key or by the platform's number; None when it means nobody."""
    wanted = row["student"].removeprefix("'")
    return next((key for key, id in students if wanted == key or (id and wanted == id)), None)
