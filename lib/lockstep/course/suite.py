"""Everything that CI runs, in one command: `./course test`.

Floor 4, room `course`. Lint, products, then the tests on a worker for each core. Those that start many processes
share one worker (tests/conftest.py says which), so that they never run beside each other. Every stage runs even when
one before it failed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

from lockstep.course.products import problems
from lockstep.course.tree import Tree


def run_suite(tree: Tree) -> int:
    """Run every stage; returns 0 when all of them passed. The last line of a passing run is pytest's."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "logical", "--maxprocesses", "4", "--dist", "loadgroup"]
    stages: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("lint", lambda: _passes(tree, [sys.executable, "-m", "ruff", "check", "--quiet", "."])),
        ("format", lambda: _passes(tree, [sys.executable, "-m", "ruff", "format", "--quiet", "--check", "."])),
        ("products", lambda: _products_are_right(tree)),
        ("tests", lambda: _passes(tree, pytest)),
    )
    failed = []
    for name, passes in stages:
        print(f"== {name}", flush=True)
        if not passes():
            failed.append(name)
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


def run_tests(tree: Tree, arguments: Sequence[str]) -> int:
    """pytest alone, with its own arguments: `./course test -k ring`."""
    return subprocess.call([sys.executable, "-m", "pytest", *arguments], cwd=tree.root)


def _passes(tree: Tree, command: Sequence[str]) -> bool:
    return subprocess.call(command, cwd=tree.root) == 0


def _products_are_right(tree: Tree) -> bool:
    found = problems(tree)
    for sentence in found:
        print(sentence)
    return not found
