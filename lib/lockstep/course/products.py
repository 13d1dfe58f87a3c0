"""What `lockstep build --check` says: products that are stale, solutions that leaked, rules that a lab breaks.

Floor 4, room `course`; `build.py`, `leak.py` and `spine.py` do the looking.
"""

from __future__ import annotations

import nbformat

from lockstep.course.build import products, stale
from lockstep.course.leak import leaks
from lockstep.course.source import Source, SourceError, read
from lockstep.course.spine import Lab, broken
from lockstep.course.tree import Tree


def problems(tree: Tree) -> list[str]:
    """Everything wrong with the sources and products of this clone, a sentence each; empty when all is right."""
    from lockstep.exercises.registry import all as every_exercise

    sources, said = [], []
    for path in tree.sources():
        try:
            sources.append(read(path))
        except SourceError as error:
            said.append(str(error))
    exercises = every_exercise()
    for source in sources:
        said += [f"{source.name}: {sentence}" for sentence in _of_one(source, exercises, sources, tree)]
    return said + [f"{name}: there is no source for it in solutions/" for name in _orphans(tree, sources)]


def _of_one(source: Source, exercises: list, sources: list[Source], tree: Tree) -> list[str]:
    lab, solution = products(source, tree)
    said = stale(source, tree)
    if lab.exists():
        said += leaks(source.number, nbformat.read(lab, as_version=4), sources, exercises)
    executed = nbformat.read(solution, as_version=4) if solution.exists() else None
    own = [exercise for exercise in exercises if exercise.lab == source.number]
    return said + broken(Lab(source, own, executed))


def _orphans(tree: Tree, sources: list[Source]) -> list[str]:
    known = {source.name for source in sources}
    there = [*tree.labs.glob("*.ipynb"), *tree.solutions.glob("*.ipynb")]
    return sorted(f"{path.parent.name}/{path.name}" for path in there if path.stem not in known)
