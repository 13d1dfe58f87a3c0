"""`lockstep release`: everything an instructor hands out, made from one release.

Floor 4, room `course`; read `toml.py`, then `plan.py`. A new release gets a seed and is written to its own private file
first: what students get is never out without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.course.release.bundle import must_be_empty, write_bundle
from lockstep.course.release.gradescope import write_autograder
from lockstep.course.release.nbgrader import write_source
from lockstep.course.release.plan import plan
from lockstep.course.release.toml import Release, read_release, write_release
from lockstep.course.source import read
from lockstep.course.tree import Tree


@dataclass(frozen=True)
class Outputs:
    """Where to: the students' bundle, nbgrader's source folder, the autograder's zip; None for what is not wanted."""

    bundle: Path | None = None
    nbgrader: Path | None = None
    gradescope: Path | None = None

    def check(self, private: Path) -> None:
        """Raise ValueError when nothing is wanted, something is in the way, or the private file would be given out."""
        wanted = [one for one in (self.bundle, self.nbgrader, self.gradescope) if one is not None]
        if not wanted:
            raise ValueError("say what to make: a new folder for the students' bundle, --nbgrader or --gradescope")
        for folder in (self.bundle, self.nbgrader):
            if folder is not None and private.resolve().is_relative_to(folder.resolve()):
                raise ValueError(
                    f"{private} lies in {folder}, which is given out; it holds the seed. Name another with --to"
                )
        if self.bundle is not None:
            must_be_empty(self.bundle)
        if self.gradescope is not None and self.gradescope.exists():
            raise ValueError(f"{self.gradescope} exists already; move it, or name another zip")


def new_release(
    tree: Tree,
    labs: Sequence[str],
    to: Path,
    outputs: Outputs,
    *,
    drop: Sequence[str] = (),
    with_variants: bool = False,
    pack: Path | None = None,
    repository: str = "",
) -> tuple[Release, list[Path]]:
    """Plan a release, keep it in the private file `to`, and make what is wanted; returns it and the files for others.

    Raises ValueError with a sentence, as `plan` and `Outputs.check` say. When something fails, no private file is left.
    """
    outputs.check(to)
    if to.exists():
        raise ValueError(
            f"{to} exists and holds the seed of an earlier release: use it with --release, or name another"
        )
    release = plan(tree, labs, to, drop=drop, with_variants=with_variants, pack=pack, repository=repository)
    write_release(release)
    try:
        return release, _make(release, tree, outputs)
    except BaseException:
        to.unlink()
        raise


def from_release(tree: Tree, path: Path, outputs: Outputs) -> tuple[Release, list[Path]]:
    """Make more from a release that there is; raises ValueError when the course is not as it was released."""
    outputs.check(path)
    release = read_release(path)
    changed = release.drift()
    for lab in release.labs:
        if read(tree.find(lab.number)).digest != lab.sha256:
            changed.append(f"lab {lab.number} has changed since")
    if changed:
        raise ValueError(f"{path.name} was made from another state of the course: {changed[0]}. Make a new release.")
    return release, _make(release, tree, outputs)


def _make(release: Release, tree: Tree, outputs: Outputs) -> list[Path]:
    made: list[Path] = []
    if outputs.bundle is not None:
        made += write_bundle(release, tree, outputs.bundle)
    if outputs.nbgrader is not None:
        made += write_source(release, tree, outputs.nbgrader)
    if outputs.gradescope is not None:
        made.append(write_autograder(release, tree, outputs.gradescope))
    return made
