"""Statements as text: control flow becomes masks.

Floor 0, after `values`. A block of statements has one mask variable, the lanes that are still there; None is nobody.
Branches run one arm after the other, each under its lanes. For

    if c: x = 1          M2 = R.branch(M1, c, 7)
                         if M2 is not None:
                             x_i8 = K1 if M2 is M1 else R.merge(M2, K1, x_i8)
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator

from lockstep.simt.compile.kinds import suffix
from lockstep.simt.compile.loops import ALWAYS, MAYBE, NEVER, Loops, jumps
from lockstep.simt.compile.writer import Writer


class Statements(Loops):
    """Writes one function. `counted` adds a line that counts each statement."""

    def __init__(self, out: Writer, function, watched: Callable[[str], bool], counted: bool) -> None:
        self.out, self.function, self.watched, self.counted = out, function, watched, counted
        self.mask = "M0"
        self.bases: list[str] = []  # for each branch and loop around: the mask that entered it
        self.lines_around: list[int] = []
        self.loops: list[str] = []  # for each loop around: the variable with the lanes that wait for its next round
        self.exits: list[str | None] = []  # and the one with the lanes that left it, None where all of them do
        self.instructions = self.flops = 0

    # Counting.

    def count(self, instructions: int, flops: int = 0) -> None:
        """Note what the expression that is being written costs a warp, and a lane."""
        self.instructions += instructions
        self.flops += flops

    def step(self, line: int) -> None:
        """Note that the lanes of the mask execute a statement, and what it costs."""
        if self.counted:
            self.out.line(
                f"R.counters.step({self.out.key(line)}, {self.mask}, {max(1, self.instructions)}, {self.flops})"
            )
        self.instructions = self.flops = 0

    @contextlib.contextmanager
    def under(self, condition: str, line: int) -> Iterator[str]:
        """A part of an expression that only the lanes with `condition` evaluate."""
        outer, mask, before = self.mask, self.out.fresh("M"), (self.instructions, self.flops)
        self.out.line(f"{mask} = R.when({outer}, {condition})")
        self.instructions = self.flops = 0
        with self.out.inside(f"if {mask} is not None:"):
            self.mask = mask
            yield mask
            if self.counted and self.instructions:
                self.out.line(f"R.counters.part({self.out.key(line)}, {mask}, {self.instructions}, {self.flops})")
        self.mask, (self.instructions, self.flops) = outer, before

    def levels(self) -> str:
        """The branches and loops around a barrier."""
        pairs = "".join(f"({line}, {base}), " for line, base in zip(self.lines_around, self.bases, strict=True))
        return f"({pairs})"

    # Blocks.

    def block(self, statements: list[ast.stmt]) -> int:
        """Write statements under `self.mask`; returns whether lanes are gone at its end."""
        before, gone = self.out.depth, NEVER
        for at, statement in enumerate(statements):
            if statement.dead:
                break
            lost = getattr(self, f"do_{type(statement).__name__}")(statement)
            gone = max(gone, lost)
            if lost == ALWAYS:
                break
            if lost == MAYBE and any(not later.dead for later in statements[at + 1 :]):
                self.out.line(f"if {self.mask} is not None:")
                self.out.depth += 1
        self.out.depth = before
        return gone

    def region(self, mask: str, line: int, statements: list[ast.stmt], casts: list) -> int:
        """A block of its own under `mask`, inside the branch or loop of `line`."""
        outer, self.mask = self.mask, mask
        self.bases.append(outer)
        self.lines_around.append(line)
        gone = self.block(statements)
        if gone != ALWAYS:
            self.guarded_casts(casts, gone)
        self.bases.pop()
        self.lines_around.pop()
        self.mask = outer
        return gone

    def guarded_casts(self, casts: list, gone: int) -> None:
        if casts and gone == MAYBE:
            with self.out.inside(f"if {self.mask} is not None:"):
                self.casts(casts)
        else:
            self.casts(casts)

    def casts(self, casts: list) -> None:
        """Variables whose kind changes where paths meet, for the lanes that come this way."""
        for name, before, after in casts:
            source, target = f"{name}_{suffix(before)}", f"{name}_{suffix(after)}"
            with self.out.inside(f"if {source} is not None:"):
                self.out.line(f"{target} = R.merge({self.mask}, {self.cast(source, before, after)}, {target})")

    # Assignments.

    def do_Assign(self, statement: ast.Assign) -> int:
        if len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            text = self.value(statement.value)
        else:
            text = self.temporary(self.value(statement.value))
        for target in statement.targets:
            self.assign(target, text, statement.value.kind)
        self.step(statement.lineno)
        return NEVER

    def do_AnnAssign(self, statement: ast.AnnAssign) -> int:
        if statement.value is not None:
            self.assign(statement.target, self.value(statement.value), statement.value.kind)
            self.step(statement.lineno)
        return NEVER

    def do_AugAssign(self, statement: ast.AugAssign) -> int:
        target = statement.target
        if isinstance(target, ast.Name):
            target.const = None
            target.kind, new = statement.old, target.kind
            text = self.binary(statement, target, self.value_Name(target), statement.value)
            target.kind = new
            self.assign(target, text, statement.kind)
        else:
            owner, index, site = self.element(target.value, target.slice, statement.lineno)
            old = self.temporary(f"{owner}.load({index}, {self.mask}, {site})")
            text = self.binary(statement, target, old, statement.value)
            text = self.cast(text, statement.kind, target.value.kind.dtype)
            self.out.line(f"{owner}.store({index}, {text}, {self.mask}, {site})")
        self.step(statement.lineno)
        return NEVER

    def assign(self, target: ast.expr, text: str, kind: object) -> None:
        if isinstance(target, ast.Name):
            self.assign_name(target, text, kind)
        elif isinstance(target, ast.Tuple):
            whole = self.temporary(text)
            for at, (element, item) in enumerate(zip(target.elts, kind.items, strict=True)):
                self.assign(element, f"{whole}[{at}]", item)
        else:
            text = self.temporary(self.cast(text, kind, target.value.kind.dtype))
            owner, index, site = self.element(target.value, target.slice, target.lineno)
            self.out.line(f"{owner}.store({index}, {text}, {self.mask}, {site})")

    def assign_name(self, target: ast.Name, text: str, kind: object) -> None:
        name = f"{target.id}_{suffix(kind)}"
        if target.level is None:
            self.out.line(f"{name} = {text}")
        else:
            base = self.bases[target.level]
            self.out.line(f"{name} = {text} if {self.mask} is {base} else R.merge({self.mask}, {text}, {name})")
        if target.id in self.function.uncertain:
            self.out.line(f"DEF_{target.id} = R.mark(DEF_{target.id}, {self.mask})")

    def do_Expr(self, statement: ast.Expr) -> int:
        if isinstance(statement.value, ast.Constant):
            return NEVER
        statement.value.dropped = True
        text = self.value(statement.value)
        if not text.isidentifier() and text != "None":
            self.out.line(text)
        self.step(statement.lineno)
        return NEVER

    def do_Pass(self, statement: ast.Pass) -> int:
        return NEVER

    # Branches.

    def do_If(self, statement: ast.If) -> int:
        test = self.temporary(self.truth(statement.test))
        self.step(statement.lineno)
        taken, left = self.out.fresh("M"), self.out.fresh("M")
        leaves = jumps(statement.body) or jumps(statement.orelse)
        needs_both = bool(statement.orelse or statement.else_casts or leaves)
        if not needs_both:
            self.out.line(f"{taken} = R.branch({self.mask}, {test}, {self.out.key(statement.lineno)})")
        else:
            self.out.line(f"{taken}, {left} = R.split({self.mask}, {test}, {self.out.key(statement.lineno)})")
        ends = []
        with self.out.inside(f"if {taken} is not None:"):
            ends.append(self.region(taken, statement.lineno, statement.body, statement.body_casts))
        if needs_both:
            with self.out.inside(f"if {left} is not None:"):
                ends.append(self.region(left, statement.lineno, statement.orelse, statement.else_casts))
        if not leaves:
            return NEVER
        self.out.line(f"{self.mask} = join({taken}, {left})")
        return ALWAYS if ends == [ALWAYS, ALWAYS] else MAYBE
