"""Which kind each variable has where: statements of a kernel, followed path by path as Numba's typing does.

Floor 0, after `kinds`. A variable may change its kind from one assignment to the next; where paths meet its kinds are
united and the casts are noted on the statement that needs them. A loop is repeated until nothing changes.

Notes left on the tree: `kind` and `const` on expressions, `casts` on statements that jump, `entry_casts`, `back_casts`,
`exit_casts` on loops, `body_casts`, `else_casts` on branches.
"""

from __future__ import annotations

import ast

from lockstep.simt import rules
from lockstep.simt.compile.expressions import Expressions, decided
from lockstep.simt.compile.kinds import (
    NOTHING,
    Array,
    Binding,
    Environment,
    Tuple,
    casts,
    is_number,
    join,
    suffix,
    unite,
)
from lockstep.simt.errors import Unsupported

ROUNDS = 20  # kinds only widen, so a loop settles within a few rounds


class Inference(Expressions):
    """Follows one function with the kinds of its arguments; `returns` is the kind of its result."""

    def run(self, arguments: dict[str, object]) -> None:
        """Annotate the tree; raises Unsupported by name and line."""
        self.arguments = {name: suffix(kind) for name, kind in arguments.items()}
        self.returned: list[ast.Return] = []
        self.loops: list[dict] = []
        environment = {name: Binding(kind) for name, kind in arguments.items()}
        end = self.block(self.source.tree.body, environment)
        self.returns = self._result(end)

    def _result(self, end: Environment | None) -> object:
        kinds = [statement.value.kind if statement.value else NOTHING for statement in self.returned]
        if end is not None or not kinds:  # a loop that never ends has neither an end nor a return
            kinds.append(NOTHING)
        result = kinds[0]
        for kind in kinds[1:]:
            if (kind is NOTHING) != (result is NOTHING):
                raise Unsupported(
                    f"{self.source.function.__name__} returns a value on some paths only", self.source.tree.lineno
                )
            result = unite(result, kind)
        if self.is_kernel and result is not NOTHING:
            raise Unsupported("a kernel returns nothing: store the result in an array", self.returned[0].lineno)
        return result

    def block(self, statements: list[ast.stmt], environment: Environment | None) -> Environment | None:
        for statement in statements:
            if environment is None:
                statement.dead = True
                continue
            statement.dead = False
            method = getattr(self, f"do_{type(statement).__name__}", None)
            if method is None:
                word = type(statement).__name__.lower()
                raise Unsupported(
                    f"a kernel cannot contain `{word}`: {ast.unparse(statement).splitlines()[0]}", statement.lineno
                )
            self.environment = environment
            environment = method(statement, environment)
        return environment

    # Assignments.

    def do_Assign(self, statement: ast.Assign, environment: Environment) -> Environment:
        kind = self.visit(statement.value)
        for target in statement.targets:
            self.assign(target, kind, statement)
        return environment

    def do_AnnAssign(self, statement: ast.AnnAssign, environment: Environment) -> Environment:
        if statement.value is not None:
            self.assign(statement.target, self.visit(statement.value), statement)
        return environment

    def do_AugAssign(self, statement: ast.AugAssign, environment: Environment) -> Environment:
        target = statement.target
        if isinstance(target, ast.Name):
            self.visit_Name(target)
            statement.old = target.kind
        else:
            statement.old = self.visit(target)
            if isinstance(target.value.kind, Array):
                self.touches(target.value.kind, "r")
        kind = self.operation(statement, statement.old, self.visit(statement.value))
        statement.kind = kind
        self.assign(target, kind, statement)
        return environment

    def assign(self, target: ast.expr, kind: object, statement: ast.stmt) -> None:
        """Note what an assignment of `kind` does to `target`."""
        if kind is NOTHING:
            raise Unsupported(f"this call returns nothing that {ast.unparse(target)} could hold", statement.lineno)
        if isinstance(target, ast.Name):
            if not (is_number(kind) or isinstance(kind, (Array, Tuple))):
                raise Unsupported(f"{target.id} cannot hold {kind}: use it directly", statement.lineno)
            target.kind = kind
            self.environment[target.id] = Binding(kind)
            self.variables.add((target.id, suffix(kind)))
        elif isinstance(target, ast.Tuple):
            if not isinstance(kind, Tuple) or len(kind.items) != len(target.elts):
                raise Unsupported(f"{kind} cannot be unpacked into {len(target.elts)} names", statement.lineno)
            target.kind = kind
            for element, item in zip(target.elts, kind.items, strict=True):
                self.assign(element, item, statement)
        elif isinstance(target, ast.Subscript):
            if not isinstance(statement, ast.AugAssign):
                self.visit(target)
            owner = target.value.kind
            if not isinstance(owner, Array) or not is_number(kind):
                raise Unsupported(f"{ast.unparse(target)} = {kind}: only a number goes into an array", statement.lineno)
            if owner.space == "const":
                raise Unsupported(f"{ast.unparse(target.value)} is constant memory: it is only read", statement.lineno)
        else:
            raise Unsupported(f"a kernel cannot assign to {ast.unparse(target)}", statement.lineno)

    # Calls for their effect, and nothing at all.

    def do_Expr(self, statement: ast.Expr, environment: Environment) -> Environment:
        if not isinstance(statement.value, ast.Constant):  # a docstring
            self.visit(statement.value)
        return environment

    def do_Pass(self, statement: ast.Pass, environment: Environment) -> Environment:
        return environment

    # Branches.

    def do_If(self, statement: ast.If, environment: Environment) -> Environment | None:
        self.condition(statement.test)
        known = decided(statement.test)
        starts = (None if known is False else dict(environment), None if known is True else dict(environment))
        arms = (statement.body, statement.orelse)
        ends = [self.block(arm, start) for arm, start in zip(arms, starts, strict=True)]
        met = join(*ends)
        statement.body_casts, statement.else_casts = ([], [])
        if met is not None:
            statement.body_casts, statement.else_casts = (self._casts(end, met) for end in ends)
        return met

    def condition(self, test: ast.expr) -> None:
        kind = self.visit(test)
        if not is_number(kind):
            raise Unsupported(f"{ast.unparse(test)} is {kind}, not a condition", test.lineno)

    def _casts(self, before: Environment | None, after: Environment) -> list:
        noted = casts(before, after)
        self.variables |= {(name, suffix(kind)) for name, _, kind in noted}
        return noted

    # Loops.

    def do_While(self, statement: ast.While, environment: Environment) -> Environment | None:
        return self._loop(statement, environment, lambda: self.condition(statement.test))

    def do_For(self, statement: ast.For, environment: Environment) -> Environment | None:
        call = statement.iter
        if not (
            isinstance(call, ast.Call)
            and getattr(self.visit(call.func), "path", "") == "range"
            and 1 <= len(call.args) <= 3
        ):
            raise Unsupported(f"`for` goes over range(...) only, not {ast.unparse(call)}", statement.lineno)
        try:
            statement.kind = rules.ranged(*(self.number(argument) for argument in call.args))
        except rules.TypeRefused as refused:
            raise Unsupported(str(refused), statement.lineno) from None
        return self._loop(statement, environment, lambda: self.assign(statement.target, statement.kind, statement))

    def _loop(self, statement: ast.stmt, environment: Environment, head) -> Environment | None:
        if statement.orelse:
            raise Unsupported("a loop in a kernel has no `else`", statement.lineno)
        forever = isinstance(statement, ast.While) and isinstance(statement.test, ast.Constant) and statement.test.value
        header = dict(environment)
        for _ in range(ROUNDS):
            loop = {"breaks": [], "continues": []}
            self.loops.append(loop)
            self.environment = dict(header)
            if isinstance(statement, ast.While):
                head()
                left = dict(self.environment)
            else:
                left = dict(self.environment)  # the lanes that leave get no new value of the loop variable
                head()
            end = self.block(statement.body, self.environment)
            self.loops.pop()
            again = join(header, join(end, self._met(loop["continues"])))
            if again == header:
                break
            header = again
        after = join(None if forever else left, self._met(loop["breaks"]))
        statement.entry_casts, statement.back_casts = self._casts(environment, header), self._casts(end, header)
        for jump, known in loop["continues"]:
            jump.casts = self._casts(known, header)
        for jump, known in loop["breaks"]:
            jump.casts = self._casts(known, after)
        statement.exit_casts = [] if after is None else self._casts(left, after)
        return after

    def _met(self, jumps: list) -> Environment | None:
        met = None
        for _, known in jumps:
            met = join(met, known)
        return met

    def do_Break(self, statement: ast.Break, environment: Environment) -> None:
        self.loops[-1]["breaks"].append((statement, environment))

    def do_Continue(self, statement: ast.Continue, environment: Environment) -> None:
        self.loops[-1]["continues"].append((statement, environment))

    def do_Return(self, statement: ast.Return, environment: Environment) -> None:
        if statement.value is not None:
            self.visit(statement.value)
        if statement not in self.returned:
            self.returned.append(statement)
