"""Loops and jumps as text: a loop runs until no lane is left in it.

Floor 0, part of `statements`. `break` takes lanes out of the loop's mask; `continue` puts them into its C mask, where they
wait for the next round; `return` takes them out of everything. Only where a `return` lies in a loop do fewer lanes come
out than went in, and an X mask collects those that do.
"""

from __future__ import annotations

import ast

from lockstep.simt import rules
from lockstep.simt.compile.kinds import NOTHING
from lockstep.simt.compile.values import Values

NEVER, MAYBE, ALWAYS = 0, 1, 2  # whether lanes are gone after a statement


class Loops(Values):
    """Text for loops and for the statements that leave them; part of `Statements`."""

    def do_While(self, statement: ast.While) -> int:
        inner, rounds = self.out.fresh("M"), self.out.fresh("W")
        self.out.line(f"{rounds} = 0")

        def head() -> None:
            self.out.line(f"{rounds} += 1")
            self.out.line(f"if {rounds} > R.limit: R.endless({inner}, {statement.lineno})")
            self.test(statement, inner)

        return self._loop(statement, inner, head)

    def test(self, statement: ast.While, inner: str) -> None:
        """The condition, by which lanes leave."""
        outer, self.mask = self.mask, inner
        text = self.temporary(self.truth(statement.test))
        self.step(statement.lineno)
        self.mask = outer
        if not (isinstance(statement.test, ast.Constant) and statement.test.value):
            self.leave(statement, inner, f"R.split({inner}, {text}, {self.out.key(statement.lineno)})")

    def leave(self, statement: ast.While | ast.For, inner: str, split: str) -> None:
        gone = self.out.fresh("M")
        self.out.line(f"{inner}, {gone} = {split}")
        if _returns(statement.body):
            self.out.line(f"{self.exits[-1]} = join({self.exits[-1]}, {gone})")
        if statement.exit_casts:
            with self.out.inside(f"if {gone} is not None:"):
                outer, self.mask = self.mask, gone
                self.casts(statement.exit_casts)
                self.mask = outer
        self.out.line(f"if {inner} is None: break")

    def do_For(self, statement: ast.For) -> int:
        inner, counter = self.out.fresh("M"), self.out.fresh("I")
        arguments = statement.iter.args
        start, stop = (None, arguments[0]) if len(arguments) == 1 else arguments[:2]
        texts = [
            self.out.constant(default, rules.INT64) if bound is None else self.as_kind(bound, rules.INT64)
            for bound, default in ((start, 0), (stop, 0), (arguments[2] if len(arguments) == 3 else None, 1))
        ]
        kind = self.out.named(statement.kind.type, "D")
        self.out.line(f"{counter} = R.range({', '.join(texts)}, {kind}, {self.out.key(statement.lineno)})")

        def head() -> None:
            if self.counted:
                self.out.line(f"R.counters.step({self.out.key(statement.lineno)}, {inner}, 2, 0)")
            self.leave(statement, inner, f"{counter}.next({inner})")
            outer, self.mask = self.mask, inner
            self.bases.append(outer)
            self.assign(statement.target, f"{counter}.value", statement.kind)
            self.bases.pop()
            self.mask = outer

        return self._loop(statement, inner, head)

    def _loop(self, statement: ast.While | ast.For, inner: str, head) -> int:
        self.casts(statement.entry_casts)
        returns, waits = _returns(statement.body), self.out.fresh("C")
        self.exits.append(self.out.fresh("X") if returns else None)
        self.loops.append(waits)
        if returns:
            self.out.line(f"{self.exits[-1]} = None")
        self.out.line(f"{inner} = {self.mask}")
        with self.out.inside("while True:"):
            head()
            self.out.line(f"{waits} = None")
            gone = self.region(inner, statement.lineno, statement.body, statement.back_casts)
            self.out.line(f"{inner} = join({inner}, {waits})")
            if gone != NEVER:
                self.out.line(f"if {inner} is None: break")
        exits = self.exits.pop()
        self.loops.pop()
        if not returns:
            return NEVER  # every lane that came leaves, by the condition or by a break
        self.out.line(f"{self.mask} = {exits}")
        return MAYBE

    # Jumps.

    def do_Break(self, statement: ast.Break) -> int:
        self.casts(statement.casts)
        if self.exits[-1]:
            self.out.line(f"{self.exits[-1]} = join({self.exits[-1]}, {self.mask})")
        self.step(statement.lineno)
        self.out.line(f"{self.mask} = None")
        return ALWAYS

    def do_Continue(self, statement: ast.Continue) -> int:
        self.casts(statement.casts)
        self.out.line(f"{self.loops[-1]} = join({self.loops[-1]}, {self.mask})")
        self.step(statement.lineno)
        self.out.line(f"{self.mask} = None")
        return ALWAYS

    def do_Return(self, statement: ast.Return) -> int:
        if self.function.returns is not NOTHING:
            text = self.cast(self.temporary(self.value(statement.value)), statement.value.kind, self.function.returns)
            self.out.line(f"RESULT = R.merge({self.mask}, {text}, RESULT)")
        elif self.function.is_kernel:
            self.out.line(f"R.leaves({self.mask}, {statement.lineno})")
        self.step(statement.lineno)
        self.out.line(f"{self.mask} = None")
        return ALWAYS


def jumps(statements: list[ast.stmt]) -> bool:
    """Whether lanes may leave a branch other than by its end."""
    for statement in statements:
        if isinstance(statement, (ast.Break, ast.Continue, ast.Return)):
            return True
        if isinstance(statement, ast.If) and (jumps(statement.body) or jumps(statement.orelse)):
            return True
        if isinstance(statement, (ast.While, ast.For)) and _returns([statement]):
            return True
    return False


def _returns(statements: list[ast.stmt]) -> bool:
    return any(isinstance(part, ast.Return) for statement in statements for part in ast.walk(statement))
