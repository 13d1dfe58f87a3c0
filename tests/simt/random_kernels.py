"""Kernels made at random: nested branches and loops, jumps, short circuits, every kind of number, shared memory.

Every kernel is correct: indices stay inside, each thread writes its own cells, barriers stand where all pass. So the
compiled machine and the slow one must agree on each bit. The text of a seed is always the same.
"""

from __future__ import annotations

import linecache
import math
import random

import numpy as np

from lockstep.simt.choice import simulator
from lockstep.simt.kernel import Kernel

KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint32", "float32", "float64")
INTS = ("int16", "int32", "int64")


class Maker:
    """Writes one kernel. Integer variables hold signed integers, so that no path makes them floats."""

    def __init__(self, seed: int, threads: int) -> None:
        self.random, self.threads = random.Random(seed), threads
        self.ints, self.floats = ["i", "t"], []
        self.loops = 0
        self.count = 0
        self.budget = 28

    def pick(self, *choices):
        return self.random.choice(choices)

    def integer(self, depth: int = 2) -> str:
        if depth == 0 or self.random.random() < 0.25:
            return self.pick(*self.ints, str(self.random.randint(-9, 9)), f"a[{self.index()}]", f"u[{self.index()}]")
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        return self.pick(
            f"({a} {self.pick('+', '-', '*', '&', '|', '^')} {b})",
            f"({a} // {self.random.randint(2, 9)})",
            f"({a} % ({b} * {b} + 1))",
            f"({a} >> {self.random.randint(0, 5)})",
            f"(-{a})",
            f"(~{a})",
            f"min({a}, np.int64({b}))" if self.random.random() < 0.5 else f"abs(np.int32({a}))",
            f"np.{self.pick(*INTS)}({a})",
            f"(np.int64({a}) if {self.condition(depth - 1)} else np.int32({b}))",
            f"twice(np.int64({a}))",
            f"int(min(max({self.real(depth - 1)}, -50.0), 50.0))",
        )

    def real(self, depth: int = 2) -> str:
        if depth == 0 or self.random.random() < 0.25:
            return self.pick(
                *self.floats, f"f[{self.index()}]", f"{self.random.uniform(-2, 2):.3f}", f"d[{self.index()}]"
            )
        a, b = self.real(depth - 1), self.real(depth - 1)
        return self.pick(
            f"({a} {self.pick('+', '-', '*')} {b})",
            f"({a} / ({b} * {b} + 1.0))",
            f"math.sqrt(abs({a}))",
            f"max({a}, {b})",
            f"np.float32({a})",
            f"({a} + {self.integer(depth - 1)})",
            f"({a} if {self.condition(depth - 1)} else {b})",
            f"({a} * np.float32(0.5))",
        )

    def index(self) -> str:
        return self.pick(
            "i", "t", f"(i * {self.random.randint(1, 5)} + 3) % a.size", f"abs({self.pick(*self.ints)} % 7)"
        )

    def condition(self, depth: int = 2) -> str:
        sign = self.pick("<", "<=", ">", "==", "!=")
        plain = f"({self.integer(depth - 1)} {sign} {self.integer(0)})" if depth > 0 else f"(t {sign} 3)"
        if depth <= 0 or self.random.random() < 0.5:
            return plain
        return self.pick(
            f"({plain} and {self.condition(depth - 1)})",
            f"({plain} or a[abs({self.pick(*self.ints)} % 5)] > 0)",
            f"(not {plain})",
            f"(0 <= t < {self.random.randint(1, 40)})",
            f"({self.real(1)} > {self.real(0)})",
            f"(t % 3 and {plain})",
        )

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def block(self, depth: int, tab: str) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            lines += self.statement(depth, tab)
        return lines

    def statement(self, depth: int, tab: str) -> list[str]:
        self.budget -= 1
        if depth == 0 or self.budget < 0 or self.random.random() < 0.45:
            return [f"{tab}{self.simple()}"]
        ints, floats = list(self.ints), list(self.floats)
        lines = self.pick(self.branch, self.branch, self.for_loop, self.while_loop)(depth, tab)
        self.ints, self.floats = ints, floats  # what was first assigned inside may be unassigned outside
        return lines

    def simple(self) -> str:
        targets = [name for name in self.ints if name not in ("i", "t") and name[0] != "k"]
        how = self.random.random()
        if how < 0.35 and targets:
            return f"{self.pick(*targets)} = np.{self.pick(*INTS)}({self.integer()})"
        if how < 0.65 and self.floats:
            return f"{self.pick(*self.floats)} {self.pick('=', '+=', '*=', '-=')} {self.real()}"
        if how < 0.75:
            return f"out_{self.pick('f', 'd')}[i] {self.pick('=', '+=')} {self.real()}"
        if how < 0.85:
            return f"out_{self.pick('a', 'u')}[i] {self.pick('=', '+=', '^=')} {self.integer()}"
        if how < 0.92 and targets:
            name = self.pick(*targets)
            return f"{name}, {self.pick(*targets)} = np.int64({self.integer(1)}), np.int64({self.integer(1)})"
        if self.loops and how < 0.96:
            return f"if {self.condition(1)}: {self.pick('break', 'continue')}"
        if how > 0.985:
            return f"if {self.condition(1)} and stage == 0: return"
        new = self.name("n")
        text = f"{new} = np.int32({self.integer(1)})"
        self.ints.append(new)
        return text

    def branch(self, depth: int, tab: str) -> list[str]:
        ints = list(self.ints)
        lines = [f"{tab}if {self.condition()}:", *self.block(depth - 1, tab + "    ")]
        self.ints = ints
        if self.random.random() < 0.5:
            lines += [f"{tab}else:", *self.block(depth - 1, tab + "    ")]
        return lines

    def for_loop(self, depth: int, tab: str) -> list[str]:
        name = self.name("k")
        bounds = self.pick("3", "2, 8, 3", "t % 4", "i % 3, 5", "5, t % 3, -2", "abs(np.int64(t - 2)) % 6")
        self.ints.append(name)
        self.loops += 1
        lines = [f"{tab}for {name} in range({bounds}):", *self.block(depth - 1, tab + "    ")]
        self.loops -= 1
        return lines

    def while_loop(self, depth: int, tab: str) -> list[str]:
        name = self.name("k")
        self.ints.append(name)
        head = [f"{tab}{name} = {self.pick('0', 't % 5', 'i % 2')}", f"{tab}while {name} < {self.pick('4', '6')}:"]
        self.loops += 1
        body = self.block(depth - 1, tab + "    ")
        self.loops -= 1
        return [*head, f"{tab}    {name} += 1", *body]

    def kernel(self) -> str:
        lines = ["def random_kernel(a, u, f, d, out_a, out_u, out_f, out_d, stage):"]
        lines += ["    i = cuda.grid(1)", "    t = cuda.threadIdx.x"]
        for kind, names in (("n", self.ints), ("x", self.floats)):
            for _ in range(2):
                new = self.name(kind)
                value = f"np.{self.pick(*INTS)}({self.integer(1)})" if kind == "n" else self.real(1)
                lines.append(f"    {new} = {value}")
                names.append(new)
        if self.random.random() < 0.5:
            lines += self.shared_stage()
        for _ in range(4):
            lines += self.statement(3, "    ")
        lines += [
            f"    out_a[i] += {self.integer()}",
            f"    out_f[i] += {self.real()}",
            f"    out_d[i] -= {self.floats[0]}",
        ]
        return "\n".join(lines) + "\n"

    def shared_stage(self) -> list[str]:
        kind = self.pick("float32", "int32")
        value = self.real() if kind == "float32" else self.integer()
        shift = self.random.randint(1, 40)
        lines = [
            f"    tile = cuda.shared.array({self.threads}, np.{kind})",
            f"    tile[t] = {value}",
            "    cuda.syncthreads()",
            f"    x0 = tile[(t + {shift}) % {self.threads}] * {self.pick('1', '0.5', 'np.float32(2)')}",
            "    cuda.syncthreads()",
            f"    if t < {self.threads // 2}:",
            f"        tile[t] += tile[t + {self.threads // 2}]",
            "    cuda.syncthreads()",
            "    x0 += tile[0]",
        ]
        self.floats.append("x0")
        return lines


def twice_source() -> str:
    return "def twice(x):\n    if x > 3:\n        return x * 2\n    return x + np.int32(1)\n"


def make(seed: int, threads: int) -> tuple[Kernel, str]:
    """(kernel, its text) of a seed."""
    text = Maker(seed, threads).kernel()
    whole = f"{twice_source()}\n\n{text}"
    name = f"<random kernel {seed}>"
    linecache.cache[name] = (len(whole), None, whole.splitlines(keepends=True), name)
    namespace: dict = {"np": np, "math": math, "cuda": simulator}
    exec(compile(whole, name, "exec"), namespace)
    namespace["twice"] = Kernel(namespace["twice"], is_device=True)
    return Kernel(namespace["random_kernel"]), whole


def arguments(seed: int, size: int) -> list:
    """Inputs and outputs of a launch with `size` threads."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-100, 100, size).astype(rng.choice(["int8", "int32", "int64"]))
    u = rng.integers(0, 100, size).astype(rng.choice(["uint8", "uint32"]))
    f, d = rng.standard_normal(size).astype(np.float32), rng.standard_normal(size)
    outs = [np.zeros(size, kind) for kind in (rng.choice(["int8", "int32", "int64"]), "uint8", "float32", "float64")]
    return [a, u, f, d, *outs, 0]
