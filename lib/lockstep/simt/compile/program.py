"""A kernel and its device functions, compiled for the kinds of one launch's arguments.

Floor 0, ties the compiler's files together: follow the kinds, find who needs merging, write the text, execute it.
"""

from __future__ import annotations

import ast
import copy
import linecache
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lockstep.simt.compile import liveness
from lockstep.simt.compile.inference import Inference
from lockstep.simt.compile.kinds import NOTHING
from lockstep.simt.compile.source import Source, read
from lockstep.simt.compile.statements import Statements
from lockstep.simt.compile.writer import Writer
from lockstep.simt.errors import Unsupported
from lockstep.simt.run import atomics, barriers, masks, warps

RUNTIME = {
    **{"np": np, "join": masks.join, "ATOMICS": atomics.ATOMICS, "EFFECTS": atomics.EFFECTS},
    **{"syncthreads": barriers.syncthreads, "barrier_vote": barriers.vote, "syncwarp": warps.syncwarp},
    **{"shuffle": warps.shuffle, "warp_vote": warps.vote, "active": warps.active, "popc": warps.popc},
}


@dataclass(eq=False)
class Function:
    """One function for one set of kinds: `name` in the generated text, `inference` with its annotated tree."""

    name: str
    source: Source
    inference: Inference
    is_kernel: bool
    uncertain: set[str] = field(default_factory=set)

    @property
    def returns(self) -> object:
        return self.inference.returns


class Program:
    """`accesses` maps an array's origin to what the kernel does to it: "r", "w", "a" (atomic).

    Raises Unsupported for anything that kernels may not contain.
    """

    def __init__(self, function: Callable, kinds: tuple) -> None:
        self.functions: dict[tuple, Function] = {}
        self.following: list[Callable] = []
        self.kernel = self._follow(function, kinds, True)
        self.accesses: dict[str, set[str]] = {}
        self.declared: dict[str, ast.Call] = {}
        self.used = self._reachable(self.kernel, [])
        self.sources = list(dict.fromkeys(part.source.function for part in self.used))
        for part in self.used:
            for origin, how in part.inference.accesses:
                self.accesses.setdefault(origin, set()).add(how)
            self.declared |= part.inference.declared
        self.built: dict[bool, Callable] = {}
        self._one_dynamic_array()

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a block declares; dynamic memory comes on top."""
        calls = [call for origin, call in self.declared.items() if origin.startswith("shared")]
        return sum(int(np.prod(call.shape, dtype=np.int64)) * call.dtype.itemsize for call in calls)

    def specialise(self, device: object, kinds: tuple, line: int) -> Function:
        """A device function for the kinds of a call's arguments."""
        if not getattr(device, "is_device", getattr(device, "targetoptions", {}).get("device", False)):
            raise Unsupported(f"{device.py_func.__name__} is a kernel: a kernel calls device functions only", line)
        if device.py_func in self.following:
            raise Unsupported(f"{device.py_func.__name__} calls itself", line)
        return self._follow(device.py_func, kinds, False)

    def _follow(self, function: Callable, kinds: tuple, is_kernel: bool) -> Function:
        key = (function, kinds)
        if key not in self.functions:
            source = read(function)
            source = Source(source.function, copy.deepcopy(source.tree), source.lines)
            if len(kinds) != len(source.parameters):
                raise Unsupported(
                    f"{function.__name__} takes {len(source.parameters)} arguments, not {len(kinds)}",
                    source.tree.lineno,
                )
            liveness.annotate(source.tree)
            name = f"F{len(self.functions) + len(self.following)}_{function.__name__}"
            inference = Inference(source, self, name, is_kernel)
            self.following.append(function)
            inference.run(dict(zip(source.parameters, kinds, strict=True)))
            self.following.pop()
            found = Function(name, source, inference, is_kernel)
            nodes = [node for node in ast.walk(source.tree) if getattr(node, "uncertain", False)]
            found.uncertain = {node.id for node in nodes}
            self.functions[key] = found
        return self.functions[key]

    def _reachable(self, function: Function, found: list[Function]) -> list[Function]:
        if function not in found:
            found.append(function)
            for node in ast.walk(function.source.tree):
                if getattr(node, "callee", None):
                    self._reachable(node.callee, found)
        return found

    def _one_dynamic_array(self) -> None:
        dynamic = [call for call in self.declared.values() if call.shape == (0,)]
        if len(dynamic) > 1:
            raise Unsupported(
                "a second dynamic shared array would lie on top of the first: declare one, and index into it",
                dynamic[1].lineno,
            )

    def watched(self, origins: list[str]) -> bool:
        """Whether memory of these origins can be raced on: somebody writes it, or changes it while others read."""
        kinds = set().union(*(self.accesses.get(origin, set()) for origin in origins))
        return "w" in kinds or {"a", "r"} <= kinds

    def executable(self, counted: bool) -> Callable:
        """`kernel(batch, mask, *arguments)`, as NumPy statements."""
        if counted not in self.built:
            self.built[counted] = self._build(counted)
        return self.built[counted]

    def _build(self, counted: bool) -> Callable:
        namespace, sites, texts = dict(RUNTIME), [], []
        for function in reversed(self.used):
            out = Writer(namespace, sites, self.sources.index(function.source.function))
            texts.append(self._text(function, out, counted))
        text = "\n\n".join(texts)
        name = f"<lockstep {self.kernel.source.function.__name__}{' counted' if counted else ''} {id(self)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), namespace)
        return namespace[self.kernel.name]

    def _text(self, function: Function, out: Writer, counted: bool) -> str:
        inference = function.inference
        kinds = [inference.arguments[name] for name in function.source.parameters]
        parameters = [f"{name}_{kind}" for name, kind in zip(function.source.parameters, kinds, strict=True)]
        variables = sorted({f"{name}_{kind}" for name, kind in inference.variables} - set(parameters))
        unset = [*variables, *(f"DEF_{name}" for name in sorted(function.uncertain)), "RESULT"]
        out.line(f"{' = '.join(unset)} = None")
        statements = Statements(out, function, lambda origin: self.watched([origin]), counted)
        statements.block(function.source.tree.body)
        if function.returns is not NOTHING:
            out.line("return RESULT")
        head = f"def {function.name}(R, M0{''.join(f', {name}' for name in parameters)}):"
        return "\n".join([head, *out.lines])
