"""`mine("05.3")` in a submission: the student's own function once it has passed, the library's until then.

Floor 4, room `course`. As in the notebook, one exercise that is wrong does not pull down those that build on it. A
program that borrows is therefore graded in two rounds; see `batch`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping

from lockstep.course.grade.submission import Program, Statement

MINE = re.compile(r"\bmine\(\s*[\"'](\d\d\.\d+)[\"']\s*\)")


def borrowed(program: Program) -> set[str]:
    """The exercises that the program asks `mine` for."""
    return {id for one in program.statements for id in MINE.findall(one.text)}


def resolved(
    program: Program, functions: Mapping[str, str], passed: Collection[str], library: Mapping[str, tuple[str, str]]
) -> Program:
    """The program without `mine`. functions: the student's names by exercise id, used for those that `passed`.

    library: for the others a pair, the text that defines the library's function and its name.
    """

    def name(found: re.Match) -> str:
        own = found[1] in functions and found[1] in passed
        return functions[found[1]] if own else f"_library_{found[1].replace('.', '_')}()"

    lent = sorted(id for id in borrowed(program) if not (id in functions and id in passed) and id in library)
    heads = [Statement(_wrapped(id, *library[id]), 0, 1) for id in lent]
    kept = [Statement(MINE.sub(name, one.text), one.cell, one.line) for one in program.statements]
    return Program((*heads, *kept))


def _wrapped(id: str, text: str, name: str) -> str:
    """A function that makes the library's, so that none of its names takes the place of a student's."""
    return f"def _library_{id.replace('.', '_')}():\n{textwrap.indent(text, '    ')}\n    return {name}\n"
