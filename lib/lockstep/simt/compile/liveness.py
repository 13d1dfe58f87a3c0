"""Where an assignment under a mask has to keep the other lanes' value.

Floor 0. Lanes that a branch or a loop holds back read their variables later: at the other arm, after the branch, after
the loop, in its next round. An assignment to a variable that none of them will read may replace the whole vector, so a
loop counter under a guard stays one number for all lanes.

Each assigned name gets `level`: the outermost branch or loop (0 is the outermost of the function) whose held-back lanes
may still read it, or None. If the mask is the one that entered that construct, there is nobody to protect.
"""

from __future__ import annotations

import ast

Names = frozenset[str]


def annotate(function: ast.FunctionDef) -> None:
    """Set `level` on every assigned name of `function`."""
    _block(function.body, frozenset(), (), None)


def _read(node: ast.AST | None) -> Names:
    if node is None:
        return frozenset()
    return frozenset(
        part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
    )


def _assigned(target: ast.expr, levels: tuple[Names, ...]) -> Names:
    names = [part for part in ast.walk(target) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
    for name in names:
        name.level = next((depth for depth, waiting in enumerate(levels) if name.id in waiting), None)
    return frozenset(name.id for name in names)


def _block(statements: list[ast.stmt], after: Names, levels: tuple[Names, ...], loop) -> Names:
    """Names read at or after the block's start, given those read after its end."""
    for statement in reversed(statements):
        after = _statement(statement, after, levels, loop)
    return after


def _statement(statement: ast.stmt, after: Names, levels: tuple[Names, ...], loop) -> Names:
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            after -= _assigned(target, levels)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            after |= {statement.target.id}
        return after | _read(statement)
    if isinstance(statement, ast.If):
        other = _block(statement.orelse, after, (*levels, after), loop)
        return _read(statement.test) | other | _block(statement.body, after, (*levels, after | other), loop)
    if isinstance(statement, (ast.While, ast.For)):
        return _loop(statement, after, levels)
    if isinstance(statement, ast.Return):
        return _read(statement)
    if isinstance(statement, ast.Break):
        return loop[0]
    if isinstance(statement, ast.Continue):
        return loop[1]
    return after | _read(statement)


def _loop(statement: ast.While | ast.For, after: Names, levels: tuple[Names, ...]) -> Names:
    counts = isinstance(statement, ast.For)
    header = after if counts else after | _read(statement.test)
    while True:
        inner = (*levels, after | (header if _continues(statement.body) else frozenset()))
        body = _block(statement.body, header, inner, (after, header))
        again = header | (body - _assigned(statement.target, inner) if counts else body)
        if again == header:
            return header | (_read(statement.iter) if counts else frozenset())
        header = again


def _continues(statements: list[ast.stmt]) -> bool:
    """Whether a `continue` among the statements belongs to the loop around them."""
    for statement in statements:
        if isinstance(statement, ast.Continue):
            return True
        if isinstance(statement, ast.If) and (_continues(statement.body) or _continues(statement.orelse)):
            return True
    return False
