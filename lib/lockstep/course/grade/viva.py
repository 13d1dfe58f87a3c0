"""Three questions about a student's own code, to be asked face to face: who wrote it, can answer them.

Floor 4, room `course`. They are made from the lines that the student wrote, the same ones in every run; there is no
answer key, since the code is the answer.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping

from lockstep.course.grade.statements import CANNOT, parse

SENDS = ("send", "recv", "isend", "irecv", "exchange")
TOGETHER = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
)


def viva(texts: Mapping[str, str], count: int, seed: str) -> list[str]:
    """`count` questions on different lines. texts: the student's source by function name. seed: of this student."""
    found: list[tuple[int, str, str]] = []
    for name, text in texts.items():
        try:
            tree = parse(text)
        except CANNOT:
            continue
        found += [
            (weight, f"{name}:{line}", f"{name}, line {line}: {asked}") for weight, line, asked in _asked(tree, text)
        ]
    draw = random.Random(seed)
    draw.shuffle(found)
    found.sort(key=lambda one: -one[0])
    chosen, lines, kinds = [], set(), set()
    for fresh in (True, False):  # first one of each kind
        for _, line, question in found:
            kind = question.rsplit("`", 1)[-1]
            if len(chosen) < count and line not in lines and not (fresh and kind in kinds):
                chosen.append(question)
                lines.add(line)
                kinds.add(kind)
    return chosen


def _asked(tree: ast.AST, text: str) -> Iterator[tuple[int, int, str]]:
    """(weight, line, question) for what stands there; communication weighs most, as that is what the course is about."""
    lines = text.split("\n")
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        shown = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in SENDS:
                yield 3, line, f"`{shown}` Draw the timeline of 3 ranks around this call: who waits for whom, how long?"
            elif node.func.attr in TOGETHER:
                yield 3, line, f"`{shown}` What happens if one rank skips this call? Which ranks wait, and where?"
        if isinstance(node, (ast.For, ast.While)):
            yield 2, line, f"`{shown}` How often does this loop run on 4 ranks, and what is different on rank 3?"
        elif isinstance(node, ast.If):
            yield 2, line, f"`{shown}` Name an input for which this is true, and one for which it is not."
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mod, ast.FloorDiv)):
            yield 2, line, f"`{shown}` What comes out here when the numbers do not divide evenly?"
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            yield 1, line, f"`{shown}` What would go wrong without this line, and which test would notice?"
        elif isinstance(node, ast.Return) and node.value is not None:
            yield 1, line, f"`{shown}` What is its shape or kind, and is it the same on every rank?"
