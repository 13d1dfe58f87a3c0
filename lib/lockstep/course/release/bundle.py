"""The folder that students get.

Floor 4, room `course`. Everything is made and searched for solutions first, then written.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lockstep.course.build import as_text
from lockstep.course.release.notebooks import leaked, student_notebook
from lockstep.course.release.toml import Release
from lockstep.course.source import Source, read
from lockstep.course.tree import Tree

README = """\
# Your labs

{notebooks}

{start}

`labs/AGENTS.md` tells AI assistants how to tutor here. What you solve, predict and answer stays in a folder `my/` on your
machine. `submit("{number}")`, at the end of a lab, makes the file to hand in.
"""
ANYWHERE = "Install Lockstep {version} as your instructor says, then open JupyterLab in the folder `labs/`."
FROM = """\
Install the course into a Python environment of its own, then open JupyterLab in the folder `labs/`:

    pip install "lockstep @ git+{repository}@v{version}"
    jupyter lab labs/"""


def write_bundle(release: Release, tree: Tree, out: Path) -> list[Path]:
    """Write the students' notebooks and what belongs to them to `out`; returns the files.

    Raises ValueError when `out` holds anything already, or when a notebook would give a solution away.
    """
    must_be_empty(out)
    sources = [read(path) for path in tree.sources()]
    texts: dict[str, str] = {}
    for source in sources:
        if source.number in {lab.number for lab in release.labs}:
            texts[f"labs/{source.name}.ipynb"] = _checked(release, source, sources, tree)
    texts["README.md"] = _readme(release)
    for name, text in texts.items():
        target = out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")
    written = [out / name for name in texts]
    agents = tree.labs / "AGENTS.md"
    if agents.is_file():
        written.append(Path(shutil.copyfile(agents, out / "labs" / "AGENTS.md")))
    return sorted(written)


def must_be_empty(folder: Path) -> None:
    """Raise ValueError, saying what is there, unless the folder is new or empty."""
    if folder.is_dir() and any(folder.iterdir()):
        first = sorted(path.name for path in folder.iterdir())[0]
        raise ValueError(
            f"{folder} is not empty (it holds {first}): name a new folder, so that nothing old is released"
        )
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; the release needs a folder")


def _checked(release: Release, source: Source, sources: list[Source], tree: Tree) -> str:
    notebook = student_notebook(source, tree, release)
    found = leaked(notebook, source, sources, release)
    if found:
        raise ValueError(f"nothing was written, since {source.name} would give a solution away: {found[0]}")
    return as_text(notebook)


def _readme(release: Release) -> str:
    start = FROM if release.repository else ANYWHERE
    return README.format(
        notebooks="\n".join(f"- `labs/{lab.notebook}`" for lab in release.labs),
        start=start.format(repository=release.repository, version=release.lockstep),
        number=release.labs[0].number,
    )
