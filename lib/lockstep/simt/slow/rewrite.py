"""A kernel's own text, made to run thread by thread: literals become numbers, meeting paths get their casts.

Floor 0. The tree comes annotated by the compiler's inference; everything else is left to Python.
"""

from __future__ import annotations

import ast

from lockstep.simt.compile.kinds import is_number
from lockstep.simt.compile.program import Function, Program


def rewritten(program: Program) -> tuple[dict[str, ast.FunctionDef], dict[str, object]]:
    """(definitions by generated name, what names outside the functions stand for)."""
    definitions, outside = {}, {}
    for function in program.used:
        tree = copied(function.source.tree)
        tree.name, tree.decorator_list = function.name, []
        for argument in tree.args.args:
            argument.annotation = None
        tree.returns = None
        rewriter = Rewriter(function, outside)
        tree.body = rewriter.statements(tree.body)
        definitions[function.name] = ast.fix_missing_locations(tree)
    return definitions, outside


def copied(node: object) -> object:
    """The tree anew, with the compiler's notes on it."""
    if isinstance(node, list):
        return [copied(part) for part in node]
    if not isinstance(node, ast.AST):
        return node
    new = type(node)()
    new.__dict__.update(node.__dict__)
    for name in node._fields:
        setattr(new, name, copied(getattr(node, name, None)))
    return new


class Rewriter(ast.NodeTransformer):
    """One function's statements and expressions."""

    def __init__(self, function: Function, outside: dict[str, object]) -> None:
        self.function, self.outside = function, outside

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            if getattr(statement, "dead", True):
                break
            new = self.visit(statement)
            found.extend(new if isinstance(new, list) else [new])
        return found or [ast.Pass()]

    def casts(self, casts: list, at: ast.stmt) -> list[ast.stmt]:
        """`x = AS(kind, x)` for each variable that changes its kind here, if it has a value."""
        found = []
        for name, _, kind in casts:
            if is_number(kind):
                text = f"try:\n {name} = AS('{kind}', {name})\nexcept NameError:\n pass"
                found += [ast.copy_location(part, at) for part in ast.parse(text).body]
        for part in found:
            for inner in ast.walk(part):
                inner.lineno = inner.end_lineno = at.lineno
        return found

    # Statements.

    def visit_If(self, node: ast.If) -> ast.If:
        body = self.statements(node.body) + self.casts(node.body_casts, node)
        orelse = [*(self.statements(node.orelse) if node.orelse else []), *self.casts(node.else_casts, node)]
        return ast.copy_location(ast.If(self.visit(node.test), body, orelse), node)

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        body = [*_call(node, "STEP"), *self.statements(node.body), *self.casts(node.back_casts, node)]
        loop = ast.While(self.visit(node.test), body, self.casts(node.exit_casts, node))
        return [*self.casts(node.entry_casts, node), ast.copy_location(loop, node)]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        body = [*self.statements(node.body), *self.casts(node.back_casts, node)]
        loop = ast.For(node.target, self.visit(node.iter), body, self.casts(node.exit_casts, node), None)
        return [*self.casts(node.entry_casts, node), ast.copy_location(loop, node)]

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        return [*self.casts(node.casts, node), node]

    def visit_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return [*self.casts(node.casts, node), node]

    def visit_Return(self, node: ast.Return) -> ast.Return:
        if node.value is not None and is_number(self.function.returns):
            node.value = self._as(self.visit(node.value), self.function.returns, node)
            return node
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([self.visit(node.target)], self.visit(node.value)), node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    # Expressions.

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        name = f"{self.function.name}_constant_{type(node.value).__name__}_{node.value}"
        self.outside[name] = node.value
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if getattr(node, "outside", False):
            name = f"{self.function.name}_{node.id}"
            self.outside[name] = self.function.source.meaning(node.id, node.lineno)
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return self._as(self.generic_visit(node), node.kind, node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        kind = node.kind
        node = self.generic_visit(node)
        return self._as(node, kind, node) if is_number(kind) else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        is_not = isinstance(node.op, ast.Not)
        return self._as(self.generic_visit(node), "bool", node) if is_not else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        callee = getattr(node, "callee", None)
        node = self.generic_visit(node)
        if callee is not None:
            node.func = ast.copy_location(ast.Name(callee.name, ast.Load()), node)
        return node

    def _as(self, node: ast.expr, kind: object, at: ast.AST) -> ast.expr:
        return ast.copy_location(ast.Call(ast.Name("AS", ast.Load()), [ast.Constant(str(kind)), node], []), at)


def _call(node: ast.stmt, name: str) -> list[ast.stmt]:
    return [ast.copy_location(ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], [])), node)]
