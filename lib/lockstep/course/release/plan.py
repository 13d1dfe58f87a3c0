"""What is to be released: choices checked against the clone, and a fresh seed.

Floor 4, room `course`; read `toml.py` first. Nothing is written here.
"""

from __future__ import annotations

import ast
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import lockstep
from lockstep.course.build import stale
from lockstep.course.release.pack import LoadedPack, digest, faults, load
from lockstep.course.release.toml import Pack, Release, ReleasedExercise, ReleasedLab
from lockstep.course.release.values import SEED_BYTES
from lockstep.course.source import Cell, Source, parse, read
from lockstep.course.tree import Tree
from lockstep.exercises import registry
from lockstep.exercises.exercise import Exercise

GITHUB = "https://github.com/"


def plan(
    tree: Tree,
    labs: Sequence[str],
    to: Path,
    *,
    drop: Sequence[str] = (),
    with_variants: bool = False,
    pack: Path | None = None,
    repository: str = "",
) -> Release:
    """A release of these labs, to be kept in the file `to`.

    Raises ValueError with a sentence: no or an unknown lab, a stale product, a dropped exercise that is unknown or that
    another one builds on, a pack that is missing or faulty, a repository that is not owner/name.
    """
    sources = chosen_sources(tree, labs)
    old = [sentence for source in sources for sentence in stale(source, tree)]
    if old:
        raise ValueError(f"only what is built is released: {old[0]}")
    numbers = [source.number for source in sources]
    exercises = [one for number in numbers for one in registry.of_lab(number)]
    _may_be_dropped(drop, exercises, sources)
    listed = [_listed(one, "course", with_variants) for one in exercises if one.id not in drop]
    own = None
    if pack is not None:
        own = Pack(pack, digest(pack))
        listed += [_listed(one, "pack", False) for one in _of_pack(load(pack), numbers)]
    if not listed:
        raise ValueError("no exercise is left to be released")
    if with_variants and not any(one.variants for one in listed):
        have = ", ".join(one.id for one in registry.all() if registry.variants(one.id))
        raise ValueError(f"--variants: no exercise of these labs comes in variants; {have} do")
    return Release(
        path=to,
        made=datetime.now().astimezone(),
        lockstep=lockstep.__version__,
        seed=secrets.randbits(8 * SEED_BYTES),
        labs=tuple(ReleasedLab(source.number, f"{source.name}.ipynb", source.digest) for source in sources),
        exercises=tuple(sorted(listed, key=lambda one: (one.lab, int(one.id[3:])))),
        dropped=tuple(drop),
        repository=_address(repository),
        has_variants=any(one.variants for one in listed),
        pack=own,
    )


def chosen_sources(tree: Tree, labs: Sequence[str]) -> list[Source]:
    """The sources of the labs, each once, by number; ValueError names an unknown one."""
    if not labs:
        raise ValueError("name the labs to release: --labs 04,05")
    paths = {tree.find(lab) for lab in labs}
    return [read(path) for path in sorted(paths)]


def _listed(one: Exercise, origin: str, with_variants: bool) -> ReleasedExercise:
    names = tuple(variant.name for variant in registry.variants(one.id)) if with_variants else ()
    return ReleasedExercise(one.id, one.version, one.points, one.core, origin, names)


def _of_pack(pack: LoadedPack, numbers: Sequence[str]) -> Iterator[Exercise]:
    for one in pack.exercises.values():
        if one.lab not in numbers:
            raise ValueError(f"the pack's exercise {one.id} belongs to lab {one.lab}, which is not released")
        wrong = faults(one)
        if wrong:
            raise ValueError(f"the pack is not ready: {wrong[0]}")
        yield one


def _address(repository: str) -> str:
    """ "owner/name", or its address, as the address."""
    if not repository:
        return ""
    name = repository.removeprefix(GITHUB).removesuffix("/").removesuffix(".git")
    if not re.fullmatch(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+", name):
        raise ValueError(f"--repository is {repository!r}; it is a repository on GitHub, as owner/name")
    return GITHUB + name


def _may_be_dropped(drop: Sequence[str], exercises: Sequence[Exercise], sources: Sequence[Source]) -> None:
    there = {one.id: one for one in exercises}
    for id in drop:
        if id not in there:
            raise ValueError(f"--drop {id}: these labs have the exercises {', '.join(there)}")
        for user in built_on(there[id], [cell for source in sources for cell in source.cells]):
            if user not in drop:
                raise ValueError(f"{id} cannot be dropped: {user} builds on it. Drop {user} too, or keep {id}.")


def built_on(exercise: Exercise, cells: Iterable[Cell]) -> list[str]:
    """The exercises whose cells use this one: its function by name, or a name that was given `mine("04.2")`."""
    names, users = {exercise.function}, []
    code = [cell for cell in cells if cell.kind == "code"]
    for cell in code:
        for node in ast.walk(parse(cell.text)):
            if isinstance(node, ast.Assign) and _asks_for(exercise.id, node.value):
                names |= {one.id for target in node.targets for one in _names(target, ast.Store)}
    for cell in code:
        if not cell.exercise or cell.exercise == exercise.id or not {"exercise", "check"} & set(cell.tags):
            continue
        tree = parse(cell.text)
        own = {one.id for one in _names(tree, ast.Store)} | {
            one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)
        }
        used = {one.id for one in _names(tree, ast.Load)}
        if (names - own) & used or any(_asks_for(exercise.id, node) for node in tree.body):
            users.append(cell.exercise)
    return list(dict.fromkeys(users))


def _asks_for(id: str, tree: ast.AST) -> bool:
    """Whether `mine(id)` is called in it."""
    return any(
        isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == "mine"
        and any(isinstance(one, ast.Constant) and one.value == id for one in node.args)
        for node in ast.walk(tree)
    )


def _names(tree: ast.AST, kind: type) -> Iterator[ast.Name]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, kind))
