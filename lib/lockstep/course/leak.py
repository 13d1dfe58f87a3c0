"""Does a lab hold a line of its own solution, or of a later one?

Floor 4, room `course`. Every text of the notebook is searched: code, prose, outputs and metadata. Lines are
compared without spaces. A line that many programs contain ("return total", "for step in range(10):") tells nothing
and is not counted.
"""

from __future__ import annotations

import inspect
import io
import keyword
import tokenize
from collections.abc import Iterable, Iterator
from typing import Any

from lockstep.course.source import Source

TELLING = 7  # tokens: `square = comm.rank**2` has seven, `comm.all_reduce(total)` six


def is_telling(line: str) -> bool:
    """Whether a line gives a solution away; imports, definitions, comments and short or common lines do not."""
    text = line.strip()
    first = text.split(maxsplit=1)[0] if text else ""
    if not text or text.startswith(("#", '"""', "'''", "@")) or first in ("import", "from", "def", "class"):
        return False
    tokens = _tokens(text)
    least = 2 * TELLING if text.endswith(":") and keyword.iskeyword(first) else TELLING
    return len(tokens) >= least


def _tokens(text: str) -> list[str]:
    """The tokens of a line; of one that is part of a longer statement, its words."""
    skipped = (tokenize.COMMENT, tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    try:
        found = tokenize.generate_tokens(io.StringIO(text).readline)
        return [token.string for token in found if token.type not in skipped]
    except tokenize.TokenError:  # an open bracket: the statement goes on
        return text.split()


def without_spaces(text: str) -> str:
    """A text in the one spelling that lines are compared in; a comment behind code is not part of it."""
    return "".join(text.split())


def telling_lines(lines: Iterable[str]) -> dict[str, str]:
    """The telling lines, by their spelling without spaces."""
    return {without_spaces(_code(line)): line.strip() for line in lines if is_telling(line)}


def _code(line: str) -> str:
    """A line without the comment behind it."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(line.strip()).readline):
            if token.type == tokenize.COMMENT:
                return line.strip()[: token.start[1]]
    except tokenize.TokenError:
        pass
    return line


def texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a notebook (or any nest of dicts and lists), with the id of the cell it lies in."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        place = f"cell {value['id']}" if {"cell_type", "id"} <= value.keys() else place
        for inner in value.values():
            yield from texts(inner, place)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, place)


def leaks(lab: str, notebook: Any, sources: Iterable[Source], exercises: Iterable[Any] = ()) -> list[str]:
    """A sentence for each solution line of this lab or a later one that the lab's notebook holds.

    lab: "04". A later lab may show what an earlier one asked for. Solutions are the marked lines of the sources and
    the references of the registered exercises (which find a solution whose marks were forgotten). Marks that the
    build should have removed count too.
    """
    secret = _solutions(lab, sources, exercises)
    said = []
    for place, text in texts(notebook):
        squeezed = without_spaces(text)
        said += [
            f"{place or 'the metadata'} holds a line of the solution of {of}: {line}"
            for key, (of, line) in secret.items()
            if key in squeezed
        ]
        said += [f"{place} still has '{mark}'" for mark in ("### BEGIN", "### END") if mark in text]
    return list(dict.fromkeys(said))


def _solutions(lab: str, sources: Iterable[Source], exercises: Iterable[Any]) -> dict[str, tuple[str, str]]:
    """Telling lines by their spelling without spaces: whose they are, and how they were written."""
    written = [
        (cell.exercise or source.name, cell.solution_lines)
        for source in sources
        if source.number >= lab
        for cell in source.cells
    ]
    written += [(one.id, inspect.getsource(one.reference).split("\n")) for one in exercises if one.lab >= lab]
    secret: dict[str, tuple[str, str]] = {}
    for of, lines in written:
        for key, line in telling_lines(lines).items():
            secret.setdefault(key, (of, line))
    return secret
