"""A solution line in the lab is found wherever it hides, and common lines are not mistaken for one."""

import pytest

from lockstep.course.build import lab_notebook
from lockstep.course.leak import is_telling, leaks, texts

SOLUTION = "result = sum(number + 0 for number in numbers)"


def leaked(clone, source):
    return leaks("00", lab_notebook(source, clone.tree), [source])


def test_the_small_lab_leaks_nothing(clone):
    assert leaked(clone, clone.write()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# Predict the sum before it is printed.", f"# Predict the sum: `{SOLUTION}`."),
        ('print("one", "two", sep="-")', SOLUTION.replace("result", "numbers = [1]; result")),
        ('"""Return the sum of the numbers."""', f'"""Return the sum: {SOLUTION}"""'),
        ('reveal("00.p1", 3)', "# " + SOLUTION.replace(" = ", "=") + '\nreveal("00.p1", 3)'),
    ],
)
def test_a_solution_line_is_found_in_prose_code_docstring_and_comment(clone, old, new):
    assert any(SOLUTION in line for line in leaked(clone, clone.changed(old, new)))


def test_a_solution_line_in_another_function_is_found(clone):
    # A worked example beside the exercise that happens to be its answer.
    twin = f'# %%\ndef another(numbers):\n    {SOLUTION}\n    return result\n\n# %% tags=["stable"]'
    assert any(SOLUTION in line for line in leaked(clone, clone.changed('# %% tags=["stable"]', twin)))


def test_a_solution_whose_marks_were_forgotten_is_found_by_the_reference(clone):
    # Without marks there is nothing to cut and nothing to look for, were it not for the registered reference.
    unmarked = clone.text.replace("    ### BEGIN SOLUTION\n", "").replace("    ### END SOLUTION\n", "")
    source = clone.write(unmarked)
    lab = lab_notebook(source, clone.tree)
    said = leaks("00", lab, [source], clone.exercises)
    assert said == [f"cell exercise-00-1 holds a line of the solution of 00.1: {SOLUTION}"]


def test_outputs_and_metadata_are_searched(clone):
    source = clone.write()
    lab = lab_notebook(source, clone.tree)
    lab.metadata["note"] = f"remember: {SOLUTION}"
    assert leaks("00", lab, [source]) == [f"the metadata holds a line of the solution of 00.1: {SOLUTION}"]


def test_a_line_of_a_later_lab_is_a_leak_and_one_of_an_earlier_lab_is_not(clone):
    source = clone.changed("# Predict the sum before it is printed.", f"# `{SOLUTION}`")
    lab = lab_notebook(source, clone.tree)
    assert leaks("00", lab, [source])
    assert leaks("01", lab, [source]) == []


def test_marks_left_in_a_lab_are_found(clone):
    source = clone.write()
    lab = lab_notebook(source, clone.tree)
    lab.cells[0].source += "\n### BEGIN SOLUTION"
    assert "still has '### BEGIN'" in leaks("00", lab, [source])[0]


@pytest.mark.parametrize(
    "line",
    [
        "", "pass", "return total", "else:", "# total = comm.all_reduce(mine, op='sum')", "import torch",
        "for step in range(10):", "if comm.rank == 0:", "def hello(comm):", "comm.all_reduce(total)", ")", "x = 1",
    ],
)  # fmt: skip
def test_common_lines_tell_nothing(line):
    assert not is_telling(line)


@pytest.mark.parametrize(
    "line",
    [
        "    return 1 / (serial + (1 - serial) / workers)",
        "square = comm.rank**2",
        "total = comm.all_reduce(torch.tensor(square))",
        "chunk = chunks[(comm.rank - step) % comm.size]  # the one received last",
        "for left, right in zip(chunks[comm.rank:], chunks[:comm.rank], strict=True):",
    ],
)
def test_lines_with_an_idea_in_them_tell(line):
    assert is_telling(line)


def test_texts_of_a_notebook_that_nbgrader_has_marked():
    """nbgrader writes `cell_type` into a cell's own metadata too, where no id stands; the search once stopped there."""
    cell = {"cell_type": "code", "id": "one", "metadata": {"nbgrader": {"cell_type": "code"}}, "source": "x = 1"}
    assert ("cell one", "x = 1") in texts({"cells": [cell]})
