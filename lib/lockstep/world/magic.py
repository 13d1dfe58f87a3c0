"""`%%ranks 4`: run a cell's body on four ranks, with `comm` in scope.

Floor 1. Names of the notebook that the cell uses are sent along, as copies; what the cell assigns stays
in the ranks. The value of the cell's last line is shown for each rank.

    %%ranks 4 --timeout 20 --seed 1
    x = torch.full((3,), float(comm.rank))
    comm.all_reduce(x)
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any

from lockstep.world.forked import start_warm_parent
from lockstep.world.launch import launch
from lockstep.world.report import name_ranks
from lockstep.world.run import Run

LONGEST_VALUE = 2000  # characters


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(f"%%ranks: {message}. Usage: %%ranks 4 [--timeout 20] [--seed 1] [--world simulate]")


def ranks_magic(line: str, cell: str, shell: Any) -> None:
    """The cell magic itself; `shell` is IPython's."""
    options = _options().parse_args(shlex.split(line))
    file = shell.compile.cache("\n" + cell, shell.execution_count)  # one line lower: the magic is the cell's first
    body = _body("\n" + cell, file, names_sent(cell, shell.user_ns))
    settings = {"timeout": options.timeout, "seed": options.seed}
    if options.world == "simulate":
        from lockstep.world.simulate import simulate

        run = simulate(body, options.ranks, **settings)
    else:
        run = launch(body, options.ranks, **settings, threads=options.threads)
    show_values(run)


def _options() -> argparse.ArgumentParser:
    parser = _Options(prog="%%ranks", add_help=False)
    parser.add_argument("ranks", type=int)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--world", choices=("processes", "simulate"), default="processes")
    return parser


def names_sent(cell: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """What the cell uses of the notebook: every name that it reads and the notebook has."""
    used = {node.id for node in ast.walk(_parse(cell)) if isinstance(node, ast.Name)}
    return {name: namespace[name] for name in used if name in namespace and not hasattr(builtins, name)}


def _parse(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        first = (error.text or "").lstrip()[:1]
        if first in ("%", "!"):
            raise ValueError(
                f"%%ranks: a rank runs plain Python, and {(error.text or '').strip()!r} is for IPython alone; "
                f"put it in a cell of its own"
            ) from None
        raise


def _body(source: str, file: str, names: dict[str, Any]) -> Callable[[Any], Any]:
    """The cell as a rank function that gives the value of its last line, if that is an expression."""

    def body(comm: Any) -> Any:
        tree = ast.parse(source, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        scope = {"__name__": "__main__", **names, "comm": comm}
        exec(compile(tree, file, "exec"), scope)
        return eval(compile(ast.Expression(last.value), file, "eval"), scope) if last else None

    return body


def show_values(run: Run) -> None:
    """Print what each rank's last line gave; ranks with equal values share a line."""
    shown: dict[str, list[int]] = {}
    for rank, value in enumerate(run.values):
        if value is not None:
            shown.setdefault(_short(repr(value)), []).append(rank)
    for text, ranks in shown.items():
        print(f"{name_ranks(ranks)}: {text}")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} ... ({len(text):,} characters)"


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext lockstep`; `import lockstep.world` in a notebook does the same."""
    shell.register_magic_function(lambda line, cell: ranks_magic(line, cell, shell), "cell", "ranks")


def prepare_notebook() -> None:
    """In a notebook kernel or IPython: register the magic, and let the warm parent import while the reader reads."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        load_ipython_extension(shell)
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # the first launch will say why
                start_warm_parent()
