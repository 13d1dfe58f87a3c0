"""A batch: a result for each, side by side, from the cache where nothing changed; and one run after another."""

import contextlib
import json
import os
import subprocess
import time
from dataclasses import replace

import psutil
import pytest
from hand_ins import EXERCISES, MEAN, TOTAL, WRONG_TOTAL, judge, notebook, rules, zipped

from lockstep.course.grade.cache import Cache, Key
from lockstep.course.grade.feedback import feedback
from lockstep.course.grade.grades_csv import grades_csv
from lockstep.course.grade.grading import Request, grade
from lockstep.course.grade.ledger import read_ledger
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.workers import Failure, run

FILES = {
    "ann/00_counting.ipynb": notebook(total=TOTAL, mean=MEAN),
    "bob/00_counting.ipynb": notebook(total=WRONG_TOTAL, mean=MEAN),
    "cleo/00_counting.ipynb": notebook(),
    "dan/lab00.zip": zipped({"00_counting.ipynb": notebook(total=TOTAL)}),
    "eve/00_counting.ipynb": b"",
}


def put(tmp_path, files):
    for name, content in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)


@pytest.fixture
def run_batch(tmp_path):
    """run_batch(files, **changes of the request or the rules) -> Batch."""

    def running(files=None, judge=judge, values=None, **asked):
        put(tmp_path, FILES if files is None else files)
        made = rules(tmp_path, judge=judge, **({"values": values} if values else {}))
        return grade(Request(tmp_path / "in", tmp_path / "out", **asked), made)

    return running


def points(batch):
    return {one.student: one.points for one in batch.results}


def test_everybody_gets_a_result_and_the_same_one_twice(run_batch, tmp_path):
    said = []
    first = run_batch(jobs=2)
    assert points(first) == {"ann": 6, "bob": 4, "cleo": 0, "dan": 2, "eve": 0} and first.complete
    assert [one.of for one in first.results] == [6] * 5
    verdicts = {one.student: [outcome.verdict for outcome in one.outcomes] for one in first.results}
    # Bob's mean builds on mine("00.1"), which is the library's until his own has passed.
    assert verdicts["bob"] == ["wrong", "passed"] and verdicts["cleo"] == ["not attempted"] * 2

    def never(*args, **kwargs):
        said.append(args)
        raise AssertionError("what was judged is judged again")

    again = run_batch(judge=never)
    assert [one.outcomes for one in again.results] == [one.outcomes for one in first.results] and not said
    fresh = run_batch(fresh=True)
    assert [one.outcomes for one in fresh.results] == [one.outcomes for one in first.results]
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700 and (tmp_path / "out/.gitignore").read_text() == "*\n"
    names = [file.name for file in (tmp_path / "out/.cache").rglob("*")]
    assert len(names) > 4 and not any(student in "".join(names) for student in points(first))


def test_one_that_ends_its_process_or_breaks_the_judge_costs_nobody_else(run_batch):
    harm = {
        "a.ipynb": notebook(total=TOTAL + "\nEXIT = 1\ntotal.x = EXIT"),
        "b.ipynb": notebook(total=TOTAL + "\nRAISE = 1\ntotal.x = RAISE"), "c.ipynb": notebook(total=TOTAL),
    }  # fmt: skip
    batch = run_batch(harm, jobs=1)
    said = {one.student: one.failure for one in batch.results}
    assert "exit status 3" in said["a"] and "RuntimeError: the judge itself is broken" in said["b"] and not said["c"]
    assert not batch.complete and points(batch)["c"] == 2


def test_a_run_that_was_interrupted_goes_on_where_it_stopped(run_batch, tmp_path):
    class Stopped(Exception):
        pass

    def stop(done, of):
        if done == 3:
            raise Stopped

    put(tmp_path, FILES)
    with pytest.raises(Stopped):
        grade(Request(tmp_path / "in", tmp_path / "out"), rules(tmp_path), stop)
    kept = len([*(tmp_path / "out/.cache").rglob("*.json")])
    assert kept >= 6 and not (tmp_path / "out/ledger.json").exists()

    def not_again(lab, program, seed, **kwargs):
        texts = [one.text for one in program.statements]
        assert WRONG_TOTAL not in texts, "Bob had been judged"
        return judge(lab, program, seed, **kwargs)

    assert points(run_batch(judge=not_again)) == {"ann": 6, "bob": 4, "cleo": 0, "dan": 2, "eve": 0}


def test_a_function_that_is_not_python_was_attempted_and_crashed(run_batch):
    (one,) = run_batch({"a.ipynb": notebook(total="def total(numbers):\nreturn 3", mean=MEAN)}).results
    assert one.outcome("00.1").verdict == "crashed" and "is not Python" in one.outcome("00.1").sentence
    assert one.outcome("00.2").verdict == "passed", "one bad exercise costs only its own points"


def test_a_doubt_is_for_a_person_and_not_on_the_students_page(tmp_path):
    put(tmp_path, {"ann.ipynb": notebook(total=TOTAL)})
    made = rules(tmp_path, whose=lambda submission: ("bob", "the notebook says 'bob'"))
    (one,) = grade(Request(tmp_path / "in", tmp_path / "out"), made).results
    assert one.doubt and "bob" not in feedback("ann", [one], {}) and "the notebook says" in grades_csv([one])


def test_workers_are_stopped_when_they_take_too_long_and_replaced():
    def work(task):
        if task == "slow":
            time.sleep(60)
        return task.upper()

    found = dict(run(work, ["slow", "a", "b"], jobs=1, patience=1.0))
    assert isinstance(found[0], Failure) and "not graded within 1 s" in found[0].why
    assert (found[1], found[2]) == ("A", "B")


def test_workers_say_goodbye_and_leave_nothing_behind(tmp_path):
    def work(task):
        time.sleep(0.1)
        return os.getpid(), subprocess.Popen(["sleep", "60"]).pid

    found = dict(run(work, [1, 2, 3, 4], jobs=2, patience=60.0, goodbye=lambda: (tmp_path / str(os.getpid())).touch()))
    assert {int(file.name) for file in tmp_path.iterdir()} == {worker for worker, _ in found.values()}
    for pid in {pid for pair in found.values() for pid in pair}:
        with contextlib.suppress(psutil.NoSuchProcess):
            process, until = psutil.Process(pid), time.monotonic() + 20
            while process.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < until, f"{process} was left behind"
                time.sleep(0.01)


def test_every_part_of_the_key_makes_another_outcome():
    key = Key("d", "00.1", 1, "", 2.0, 7, "0.1.0")
    others = [
        replace(key, **{name: value})
        for name, value in {"digest": "e", "exercise": "00.2", "version": 2, "variant": "left", "of": 3.0, "seed": 8,
                            "library": "0.2.0", "rest": "x"}.items()
    ]  # fmt: skip
    assert len({one.name for one in (key, *others)}) == 9 and "7" * 8 not in key.name


def test_a_damaged_entry_of_the_cache_counts_as_none(tmp_path):
    cache, key = Cache(tmp_path), Key("d", "00.1", 1, "", 2.0, 7, "0.1.0")
    cache.put(key, Outcome("00.1", "passed", 2, 2))
    assert cache.get(key) == Outcome("00.1", "passed", 2, 2)
    (file,) = tmp_path.rglob("*.json")
    for damage in ("", '{"exercise": "00.1"}', "[1]", file.read_text().replace("passed", "won")):
        file.write_text(damage)
        assert cache.get(key) is None


# One run after another.


def version_two(lab, student):
    return [(type(one)(**{**vars(one), "version": 2}), "") for one in EXERCISES]


def stricter(lab, program, seed, **kwargs):
    """Version 2 of 00.1 lets nobody pass."""
    return [
        replace(one, verdict="wrong", points=0, sentence="Not any more.") if one.exercise == "00.1" else one
        for one in judge(lab, program, seed, **kwargs)
    ]


def test_a_regrade_shows_who_changes_and_lowers_nobody_unless_asked(run_batch, tmp_path):
    before = points(run_batch())
    kept = run_batch(judge=stricter, values=version_two, keep=False)
    assert points(kept) == before and {one.student for one in kept.results if one.kept == ("00.1",)} == {"ann", "dan"}
    assert not kept.changes
    lowered = run_batch(judge=stricter, values=version_two, keep=False, lower=True)
    assert points(lowered) == {**before, "ann": 4, "dan": 0}
    assert [(c.student, c.exercise, c.before.points, c.after.points) for c in lowered.changes] == [
        ("ann", "00.1", 2, 0), ("dan", "00.1", 2, 0),
    ]  # fmt: skip
    assert points(run_batch()) == before, "a diff writes nothing down"


def test_marks_set_by_hand_survive_every_run(run_batch, tmp_path):
    run_batch()
    overrides = tmp_path / "out/overrides.csv"
    overrides.write_text("student,exercise,points,why\nbob,00.1,1.5,explained it well\nnobody,00.1,1,\n")
    for again in (run_batch(), run_batch(judge=stricter, values=version_two, lower=True)):
        bob = next(one for one in again.results if one.student == "bob")
        assert bob.points == 5.5 and bob.outcome("00.1").by_hand == "explained it well"
        assert any("there is no 00.1 of 'nobody'" in said for said in again.said)
    entry = read_ledger(tmp_path / "out/ledger.json")["bob", "00"]
    assert [one.points for one in entry.outcomes] == [0, 4] and entry.points == 5.5
    overrides.write_text("student,exercise,points,why\nbob,00.1,3,too much\n")
    with pytest.raises(ValueError, match="overrides.csv, line 2: 3 points for 00.1, where 0 to 2 can be had"):
        run_batch()


def test_who_hands_in_something_else_is_judged_by_that(run_batch):
    run_batch()
    later = run_batch({"ann/00_counting.ipynb": notebook(total=WRONG_TOTAL)})
    assert points(later)["ann"] == 0 and [one.student for one in later.changes] == ["ann", "ann"]


def test_a_ledger_that_cannot_be_read_is_said_and_not_overwritten(run_batch, tmp_path):
    run_batch()
    (tmp_path / "out/ledger.json").write_text(json.dumps([{"student": "ann"}]))
    with pytest.raises(ValueError, match="cannot be read .*move it away"):
        run_batch()


def test_nothing_handed_in_is_a_sentence(run_batch, tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match="nothing was handed in"):
        run_batch({})
