"""The source of what a student writes in a cell, and of what was kept of it."""

import linecache

import pytest

from lockstep.exercises import keep
from lockstep.exercises.source import fingerprint, is_blank, source_of
from lockstep.world import RankError, simulate

CELL = '''\
before = 1


def left_out(comm):
    """Never sends."""
    position = 3
    return comm.rank / (position - 3)


class Wrapper:
    """Of a notebook: Python before 3.13 finds no source of it."""

    def __init__(self, comm):
        self.comm = comm

    def finish(self):
        return {body}
'''


@pytest.fixture
def cell():
    """Runs the cell as IPython does: its text is known to `linecache` alone, its module is `__main__`."""

    def run(body="1"):
        text = CELL.replace("{body}", body)
        file = f"<cell {body}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        names = {"__name__": "__main__"}
        exec(compile(text, file, "exec"), names)
        return names

    return run


def test_a_class_of_a_cell_has_its_source(cell):
    # Without it all attempts at a class were taken for one, and its solution never opened.
    first, second = cell("1")["Wrapper"], cell("2")["Wrapper"]
    assert source_of(first).startswith("class Wrapper:") and source_of(first).endswith("return 1\n")
    assert fingerprint(first) != fingerprint(second) == fingerprint(cell("2  # a comment")["Wrapper"])
    assert not is_blank(first, second)


def test_a_kept_function_shows_its_line_when_it_fails(cell):
    # A report named "<dynamic-code>, line 5", which nobody can open.
    assert keep.save_function("04.1", cell()["left_out"]) is None
    fn = keep.load_function("04.1")
    with pytest.raises(RankError) as caught:
        simulate(lambda comm: fn(comm), 1)
    assert "04.1.py, line 4:  return comm.rank / (position - 3)" in str(caught.value)


def test_the_methods_of_a_kept_class_are_at_home_in_its_file(cell):
    assert keep.save_function("05.4", cell("comm.rank")["Wrapper"]) is None
    finish = keep.load_function("05.4").finish.__code__
    line = (keep.folder() / "05.4.py").read_text().splitlines()[finish.co_firstlineno - 1]
    assert finish.co_filename.endswith("05.4.py") and line.strip() == "def finish(self):"
