"""Everything that CI runs, in one command: `./course test`.

Floor 4, room `course`. Lint, products, then the tests: first those that need the cores for themselves, one at a
time, then all others on two workers. Every stage runs even when one before it failed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

from lockstep.course.products import problems
from lockstep.course.tree import Tree

NOTHING_TO_RUN = 5  # pytest's exit status when no test was selected


def run_suite(tree: Tree) -> int:
    """Run every stage; returns 0 when all of them passed. The last line of a passing run is pytest's."""
    pytest = [sys.executable, "-m", "pytest", "-q"]
    stages: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("lint", lambda: _passes(tree, [sys.executable, "-m", "ruff", "check", "--quiet", "."])),
        ("format", lambda: _passes(tree, [sys.executable, "-m", "ruff", "format", "--quiet", "--check", "."])),
        ("products", lambda: _products_are_right(tree)),
        ("tests that need the cores alone", lambda: _passes(tree, [*pytest, "-m", "alone"])),
        ("tests", lambda: _passes(tree, [*pytest, "-m", "not alone", "-n", "2", "--dist", "loadgroup"])),
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
    return subprocess.call(command, cwd=tree.root) in (0, NOTHING_TO_RUN if "pytest" in command else 0)


def _products_are_right(tree: Tree) -> bool:
    found = problems(tree)
    for sentence in found:
        print(sentence)
    return not found
