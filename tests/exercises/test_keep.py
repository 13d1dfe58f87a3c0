"""The folder `my/`: atomic, safe against two kernels, tolerant of a broken file."""

import json
import multiprocessing
from pathlib import Path

import pytest

from lockstep.exercises import keep


def write_often(name):
    for i in range(25):
        with keep.change() as record:
            record["predictions"][f"{name}.{i}"] = {"value": i}


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="importing torch twice is slow")
def test_two_processes_writing_at_once_lose_nothing():
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_often, args=(name,)) for name in "ab"]
    for one in writers:
        one.start()
    for one in writers:
        one.join(60)
    assert [one.exitcode for one in writers] == [0, 0]
    assert set(keep.read()["predictions"]) == {f"{name}.{i}" for name in "ab" for i in range(25)}
    assert not list(keep.folder().glob(".record*")), "no half-written file is left"


BROKEN = ["", "{", "[]", '{"exercises": 3}', '{"exercises": {"00.1": 3}}', '{"answers": {"00.q1": "b"}}', "\x00" * 9]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_moved_aside_and_the_version_before_takes_over(content):
    for value in (1, 2):
        with keep.change() as record:
            record["predictions"]["05.p1"] = {"value": value}
    file = keep.folder() / "record.json"
    file.write_text(content)
    with pytest.warns(UserWarning, match=r"moved to record.unreadable.*nothing was deleted"):
        record = keep.read()
    assert record["predictions"]["05.p1"]["value"] == 1
    assert [one.read_text() for one in keep.folder().glob("record.unreadable-*.json")] == [content]
    with keep.change() as record:
        record["predictions"]["05.p2"] = {"value": 3}
    assert set(keep.read()["predictions"]) == {"05.p1", "05.p2"}


def test_a_broken_file_without_a_version_before_begins_anew():
    (keep.folder() / "record.json").write_text("{")
    with pytest.warns(UserWarning, match="a new one is begun"):
        assert keep.read() == {"exercises": {}, "predictions": {}, "answers": {}}


def test_an_error_inside_a_change_changes_nothing():
    with keep.change() as record:
        record["predictions"]["05.p1"] = {"value": 1}
    with pytest.raises(ZeroDivisionError), keep.change() as record:
        record["predictions"].clear()
        raise ZeroDivisionError
    assert keep.read()["predictions"]


def test_what_this_version_does_not_know_is_kept():
    (keep.folder() / "record.json").write_text('{"notes": ["of a later version"]}')
    with keep.change() as record:
        record["predictions"]["05.p1"] = {"value": 1}
    assert json.loads((keep.folder() / "record.json").read_text())["notes"]


def test_a_folder_that_cannot_be_made_costs_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LOCKSTEP_MY", str(tmp_path / "file" / "my"))
    with pytest.warns(UserWarning, match="LOCKSTEP_MY"), keep.change() as record:
        record["predictions"]["05.p1"] = {"value": 1}
    with pytest.warns(UserWarning, match="LOCKSTEP_MY"):
        assert keep.read()["predictions"] == {}


def test_it_lies_beside_labs_wherever_the_notebook_is(tmp_path, monkeypatch):
    monkeypatch.delenv("LOCKSTEP_MY")
    (tmp_path / "labs" / "deep").mkdir(parents=True)
    (tmp_path / "course").write_text("")
    monkeypatch.chdir(tmp_path / "labs" / "deep")
    assert keep.folder() == tmp_path / "my"
    elsewhere = tmp_path / "labs" / "deep"
    (tmp_path / "course").unlink()
    assert keep.folder() == elsewhere / "my"


def test_a_function_is_kept_with_what_it_needs_from_the_notebook():
    scope = {"__name__": "__main__"}
    exec("factor = 3\ndef helper(x):\n    return factor * x\ndef triple(x):\n    return helper(x)", scope)
    assert keep.save_function("00.1", scope["triple"]) is None
    scope.clear()
    assert keep.load_function("00.1")(5) == 15


def test_a_function_that_cannot_be_read_back_raises_a_sentence():
    keep.folder()
    Path(keep.folder() / "00.1.pkl").write_bytes(b"not a pickle")
    with pytest.raises(ValueError, match=r"00.1.pkl cannot be read by this Python"):
        keep.load_function("00.1")


def test_a_thread_that_has_the_record_open_is_refused_a_second_look():
    """A passing check read the chosen variant while it wrote the attempt, and so waited five seconds for itself."""
    with keep.change() as record, pytest.raises(RuntimeError, match="open in this thread"):
        keep.entry(record, "00.1")
        keep.read()
    assert list(keep.read()["exercises"]) == ["00.1"]
