"""A lab's notebook as this release gives it to students: variants stated, dropped exercises out, the pack's in.

Floor 4, room `course`; `build.py` makes the notebook that this one begins with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from lockstep.course.build import lab_notebook
from lockstep.course.hosted import set_up_cell
from lockstep.course.leak import leaks
from lockstep.course.release.pack import load
from lockstep.course.release.toml import Release
from lockstep.course.release.values import variants_key
from lockstep.course.source import EXERCISE_ID, Source
from lockstep.course.tree import Tree
from lockstep.exercises import registry
from lockstep.exercises.exercise import Exercise
from lockstep.exercises.source import source_of
from lockstep.exercises.variants import varied

COLAB = "https://colab.research.google.com/github/"
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({address})"

WHO = """\
**Whose notebook is this?** Some exercises come in variants, chosen by your name. Write it as your instructor asked for
it: the same name gives the same variants when your work is graded."""


def student_notebook(source: Source, tree: Tree, release: Release) -> NotebookNode:
    """The lab for students, without any line of a solution."""
    notebook = lab_notebook(source, tree)
    notebook.cells = list(_cells(notebook.cells, source, release))
    by_id = {cell.id: cell for cell in notebook.cells}
    by_id["setup"].source = set_up_cell(release.repository or None, release.lockstep)
    if release.repository:
        name = release.repository.removeprefix("https://github.com/")
        address = f"{COLAB}{name}/blob/main/labs/{source.name}.ipynb"
        title, _, rest = notebook.cells[0].source.partition("\n")
        notebook.cells[0].source = f"{title}\n\n{BADGE.format(address=address)}\n{rest}"
    notebook.metadata["lockstep"]["release"] = variants_key(release.seed)[:8]
    return notebook


def _cells(cells: list[NotebookNode], source: Source, release: Release) -> Iterator[NotebookNode]:
    listed = {one.id: one for one in release.listed(source.number)}
    for cell in without_dropped(cells, release.dropped):
        tags = cell.metadata.get("tags", [])
        id = _exercise(cell)
        if "exercise" in tags and id in listed and listed[id].variants:
            yield new_code_cell(f'variant("{id}")', id=f"variant-{_slug(id)}", metadata={"tags": ["variant"]})
        yield cell
        if cell.id == "setup" and any(one.variants for one in listed.values()):
            yield from _who(release, source.number)
    own = [one for one in listed.values() if one.origin == "pack"]
    if own:
        pack = load(release.pack.path)
        yield new_markdown_cell(
            "## Further exercises\n\nYour instructor added these. They are checked when your work is graded, not here.",
            id="further-exercises",
        )
        for one in own:
            yield from _added(pack.exercises[one.id], one.points)


def _who(release: Release, lab: str) -> Iterator[NotebookNode]:
    yield new_markdown_cell(WHO, id="whose")
    text = (
        "from lockstep.exercises.variants import use_variants, variant\n\n"
        f'STUDENT = ""\nuse_variants(STUDENT, "{variants_key(release.seed)}", lab="{lab}")'
    )
    yield new_code_cell(text, id="student", metadata={"tags": ["student"]})


def without_dropped(cells: Iterable[NotebookNode], dropped: Iterable[str]) -> Iterator[NotebookNode]:
    """The cells, the library's function in the place of each exercise that is dropped, and no check of it."""
    for cell in cells:
        tags, id = cell.metadata.get("tags", []), _exercise(cell)
        if id not in dropped or not {"exercise", "check"} & set(tags):
            yield cell
        elif "exercise" in tags:
            yield from _from_the_library(registry.find(id))


def _exercise(cell: NotebookNode) -> str | None:
    return next((tag for tag in cell.metadata.get("tags", []) if EXERCISE_ID.fullmatch(tag)), None)


def _from_the_library(exercise: Exercise) -> Iterator[NotebookNode]:
    note = f"*{exercise.id} is not part of your course. What follows uses the library's `{exercise.function}`.*"
    yield new_markdown_cell(note, id=f"dropped-{_slug(exercise.id)}")
    text = f'from lockstep.exercises import mine\n\n{exercise.function} = mine("{exercise.id}")'
    yield new_code_cell(text, id=f"library-{_slug(exercise.id)}")


def _added(exercise: Exercise, points: int) -> Iterator[NotebookNode]:
    many = f"{points} point" + ("" if points == 1 else "s")
    task = f"### Exercise {exercise.id} · `{exercise.function}`\n\n{exercise.asks} ({many})"
    yield new_markdown_cell(task, id=f"task-{_slug(exercise.id)}")
    metadata = {"tags": ["exercise", exercise.id]}
    yield new_code_cell(stub_text(exercise), id=f"exercise-{_slug(exercise.id)}", metadata=metadata)


def stub_text(exercise: Exercise) -> str:
    """The stub as students get it: under the name of the exercise's function."""
    text = (source_of(exercise.stub) or "").rstrip()
    text = re.sub(r"\s*# noqa.*", "", text)
    return re.sub(rf"\b{re.escape(exercise.stub.__name__)}\b", exercise.function, text, count=1)


def _slug(id: str) -> str:
    return id.replace(".", "-")


def leaked(notebook: NotebookNode, source: Source, sources: Iterable[Source], release: Release) -> list[str]:
    """A sentence for each line of a solution that the notebook holds; variants' and the pack's answers count."""
    every = registry.all()
    every += [varied(one, form.name) for one in every for form in registry.variants(one.id)]
    if release.pack is not None:
        every += load(release.pack.path).exercises.values()
    return leaks(source.number, notebook, sources, every)
