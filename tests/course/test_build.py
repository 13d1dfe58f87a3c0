"""Both products of a source: what is in them, and when they are stale."""

import json

import nbformat
import pytest

from lockstep.course import build as building
from lockstep.course.build import BuildError, as_text, build, lab_notebook, solution_notebook, stale
from lockstep.course.hosted import set_up_cell


def cell(notebook, id):
    return next(cell for cell in notebook.cells if cell.id == id)


def fake_execution(monkeypatch):
    monkeypatch.setattr(building, "execute", lambda notebook, name, folder: notebook)


def test_the_lab_has_no_solution_and_no_output(clone):
    lab = lab_notebook(clone.write(), clone.tree)
    nbformat.validate(lab)
    text = as_text(lab)
    assert "sum(number" not in text and "BEGIN" not in text
    assert cell(lab, "exercise-00-1").source.endswith('raise NotImplementedError("write your solution here")')
    assert all(not one.outputs and one.execution_count is None for one in lab.cells if one.cell_type == "code")


def test_nbgrader_can_read_exercise_and_check(clone):
    lab = lab_notebook(clone.write(), clone.tree)
    exercise, check = (cell(lab, id).metadata.nbgrader for id in ("exercise-00-1", "check-00-1"))
    assert (exercise.solution, exercise.grade, exercise.locked) == (True, False, False)
    assert (check.solution, check.grade, check.locked) == (False, True, True)
    assert check.points >= 1 and exercise.grade_id != check.grade_id
    assert exercise.schema_version == check.schema_version == 3


def test_the_first_code_cell_sets_up_hosted_notebooks(clone):
    lab = lab_notebook(clone.write(), clone.tree)
    assert [one.cell_type for one in lab.cells[:2]] == ["markdown", "code"]
    assert lab.cells[1].id == "setup"


def test_the_set_up_cell_does_nothing_where_the_course_is_installed(monkeypatch):
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release")
    cell = set_up_cell(None, "1.2.3")
    exec(compile(cell, "cell", "exec"), {})


def test_the_set_up_cell_pins_the_release_and_asks_for_a_copy_first():
    cell = set_up_cell("https://example.org/lockstep/", "1.2.3")
    assert '--no-deps "lockstep @ git+https://example.org/lockstep@v1.2.3"' in cell
    assert cell.index("Save a copy in Drive") < cell.index("drive.mount") < cell.index("%pip")
    assert "no published release yet" in set_up_cell(None, "1.2.3")


def test_nbval_replays_only_stable_cells(clone):
    solution = solution_notebook(clone.write())
    replayed = [one.source for one in solution.cells if "nbval-check-output" in one.metadata.get("tags", [])]
    skipped = [one for one in solution.cells if "nbval-skip" in one.metadata.get("tags", [])]
    assert replayed == ['print("one", "two", sep="-")']
    assert len(skipped) + 1 == sum(one.cell_type == "code" for one in solution.cells)


def test_equal_sources_give_equal_bytes(clone):
    source = clone.write()
    assert as_text(lab_notebook(source, clone.tree)) == as_text(lab_notebook(source, clone.tree))


def test_a_built_lab_is_not_stale_until_its_source_changes(clone, monkeypatch):
    fake_execution(monkeypatch)
    source = clone.write()
    assert [line.split(":")[0] for line in stale(source, clone.tree)] == [
        "labs/00_counting.ipynb is missing",
        "solutions/00_counting.ipynb is missing",
    ]
    build(clone.path, clone.tree)
    assert stale(source, clone.tree) == []
    changed = clone.changed("count. **You need", "count well. **You need")
    assert [line.split(":")[0] for line in stale(changed, clone.tree)] == [
        "labs/00_counting.ipynb is older than its source",
        "solutions/00_counting.ipynb is older than its source",
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda cells: cells[0].update(source="# Another title"), "was edited by hand"),
        (lambda cells: cells[3]["metadata"].update(tags=["experiment"]), "was edited by hand"),
        (lambda cells: cells.pop(), "was edited by hand"),
        (
            lambda cells: cells[1].update(outputs=[{"output_type": "stream", "name": "stdout", "text": "hello"}]),
            "holds outputs",
        ),
    ],
)
def test_a_lab_edited_by_hand_is_found(clone, monkeypatch, change, sentence):
    fake_execution(monkeypatch)
    source = clone.write()
    lab, _ = build(clone.path, clone.tree)
    plain = json.loads(lab.read_text())
    change(plain["cells"])
    lab.write_text(json.dumps(plain))
    assert [sentence in line for line in stale(source, clone.tree)] == [True]


def test_a_solution_too_large_to_keep_is_refused(clone, monkeypatch):
    fake_execution(monkeypatch)
    monkeypatch.setattr(building, "LARGEST", 1000)
    clone.write()
    with pytest.raises(BuildError, match="at most 1,000"):
        build(clone.path, clone.tree)


def test_execution_joins_streams_and_leaves_out_what_is_volatile(clone):
    text = '# %%\nimport sys\nprint("a", flush=True)\nprint("b", flush=True)\nprint("oops", file=sys.stderr)'
    source = clone.write("# %% [markdown]\n# # Small\n\n" + text)
    executed = building.execute(solution_notebook(source), "small", clone.tree.solutions)
    outputs = executed.cells[1].outputs
    assert sorted((output.name, output.text) for output in outputs) == [("stderr", "oops\n"), ("stdout", "a\nb\n")]
    assert "execution" not in executed.cells[1].metadata and "widgets" not in executed.metadata
    assert "version" not in executed.metadata.language_info


def test_a_failing_cell_stops_the_build_and_is_named(clone):
    source = clone.write("# %% [markdown]\n# # Small\n\n# %%\n1 / 0")
    with pytest.raises(BuildError, match="(?s)small: a cell fails.*ZeroDivisionError"):
        building.execute(solution_notebook(source), "small", clone.tree.solutions)
