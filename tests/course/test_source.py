"""Reading a source: whose lines are whose, ids that stay, and marks that do not pair up."""

import pytest

from lockstep.course.source import Cell, SourceError, regions

SOLVED = """\
def f(x):
    first = x
    ### BEGIN SOLUTION
    y = x + 1
    return y
    ### END SOLUTION"""

STUBBED = (
    SOLVED
    + """
    ### BEGIN STUB
    # y = ...
    # return y
    ### END STUB"""
)


def test_a_student_gets_a_blank_in_place_of_the_solution():
    assert Cell("code", SOLVED).for_student == (
        'def f(x):\n    first = x\n    raise NotImplementedError("write your solution here")'
    )


def test_a_stub_takes_the_place_of_the_solution():
    assert Cell("code", STUBBED).for_student == "def f(x):\n    first = x\n    y = ...\n    return y"


def test_an_instructor_gets_the_solution_with_the_marks_that_nbgrader_reads_and_no_stub():
    assert Cell("code", STUBBED).for_instructor == SOLVED


def test_the_solution_lines_are_those_between_the_marks():
    assert Cell("code", STUBBED).solution_lines == ["    y = x + 1", "    return y"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("### BEGIN SOLUTION\nx = 1", "has no END"),
        ("### END STUB", "without its BEGIN"),
        ("### BEGIN SOLUTION\n### BEGIN STUB\n### END STUB", "inside SOLUTION"),
        ("### BEGIN SOLUTION\n### END STUB", "inside SOLUTION"),
    ],
)
def test_marks_that_do_not_pair_up_are_named(text, sentence):
    with pytest.raises(SourceError, match=sentence):
        list(regions(text))


def test_the_error_names_file_and_cell(clone):
    with pytest.raises(SourceError, match=r"00_counting.py, cell 7: '### BEGIN STUB' comes inside SOLUTION"):
        clone.changed("    return result\n", "    ### BEGIN STUB\n    return result\n")


def test_python_that_does_not_parse_is_named(clone):
    with pytest.raises(SourceError, match="00_counting.py, cell 2: "):
        clone.changed("RANKS = 2", "RANKS = = 2")


def test_a_solution_outside_a_function_needs_a_stub_since_labs_run_unsolved(clone):
    cell = "SEED = 0\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION"
    with pytest.raises(SourceError, match="add a stub"):
        clone.changed("SEED = 0", cell)
    clone.changed("SEED = 0", cell + "\n### BEGIN STUB\n# x = ...\n### END STUB")


def test_a_file_is_named_by_number_and_topic(clone):
    path = clone.path.with_name("counting.py")
    path.write_text("")
    from lockstep.course.source import read

    with pytest.raises(SourceError, match="not named like"):
        read(path)


def test_cell_magics_survive(clone):
    source = clone.changed('print("one", "two", sep="-")', "# %%ranks 2\nprint(comm.rank)")
    assert "%%ranks 2\nprint(comm.rank)" in [cell.text for cell in source.cells]


def test_cell_ids_say_what_a_cell_is_for_and_are_unique(clone):
    ids = [cell.id for cell in clone.write().cells]
    assert {"parameters", "predict-00-p1", "exercise-00-1", "check-00-1", "reveal-00-p1", "adding-up-1"} <= set(ids)
    assert len(set(ids)) == len(ids)


def test_a_cell_added_in_one_section_changes_no_id_in_another(clone):
    before = [cell.id for cell in clone.write().cells]
    added = clone.changed("# %%\nfrom lockstep", "# %%\nnew = 1\n\n# %%\nfrom lockstep")
    assert [id for id in before if id not in {cell.id for cell in added.cells}] == []
