"""What people decide: points for words, deadlines, late penalties, marks; and the files they write for it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hand_ins import TOTAL, notebook, rules, zipped

from lockstep.course.grade.by_hand import read_marks
from lockstep.course.grade.deadline import Deadlines, hours_late, read_due, read_extensions, read_times
from lockstep.course.grade.free_text import question_page
from lockstep.course.grade.grading import Request, grade
from lockstep.course.grade.lms import gradescope_json, moment
from lockstep.course.grade.policy import Late, Policy, read_policy
from lockstep.course.grade.program import LabText
from lockstep.course.grade.submission import Submission
from lockstep.course.grade.words import of_words
from lockstep.course.grade.writing import write_all

POLICY = """
[late]
grace_hours = 1
percent_per_day = 10
at_most = 40

[predictions]
points = 1

[answers."00.w1"]
points = 4
question = "Why does the ring send less?"
rubric = "both phases (2), bytes (2)"
"""
UTC = UTC


def predicted(**made):
    return Submission("a", "00", Path("a"), predictions={"00.p1": made} if made else {})


@pytest.mark.parametrize(
    ("made", "verdict", "points"),
    [
        ({"value": 3, "reason": "each of them sends less"}, "passed", 1),
        ({"value": 1e9, "reason": "each of them sends less"}, "passed", 1),  # wildly wrong: closeness earns nothing
        ({"value": 3, "reason": "  dunno "}, "partial", 0.5),
        ({"value": 3, "reason": None}, "partial", 0.5),
        ({"value": 3, "reason": "I saw the value first", "late": True}, "not attempted", 0),
        ({}, "not attempted", 0),
    ],
)
def test_predictions_earn_for_commitment_and_reason(made, verdict, points):
    lab = LabText("00", predicts=("00.p1",))
    (one,) = of_words(predicted(**made), lab, Policy(predictions=1.0), lambda id: None)
    assert (one.verdict, one.points, one.of) == (verdict, points, 1)
    assert not of_words(predicted(**made), lab, Policy(), lambda id: None)


def test_answers_go_to_a_page_without_names_and_come_back_with_marks(tmp_path):
    for student, text in (("ann", "It sends <b>two</b> parts."), ("bob", "Because."), ("cleo", "Write here.")):
        (tmp_path / "in" / student).mkdir(parents=True)
        (tmp_path / "in" / student / "00_counting.ipynb").write_bytes(
            notebook(total=TOTAL, answer=text, prediction='predict("00.p1", 7, "every rank sends one part")')
        )
    (tmp_path / "policy.toml").write_text(POLICY)
    asked = {"submissions": tmp_path / "in", "out": tmp_path / "out", "policy": tmp_path / "policy.toml"}
    first = grade(Request(**asked), rules(tmp_path))
    ann, bob, cleo = first.results
    assert (ann.outcome("00.w1").verdict, ann.open, cleo.outcome("00.w1").verdict) == (
        "needs marking", ("00.w1",), "not attempted",
    )  # fmt: skip
    assert [one.of for one in first.results] == [11] * 3 and ann.points == 3

    write_all(tmp_path / "out", first, {})
    page = (tmp_path / "out/free_text/00.w1.html").read_text()
    assert "both phases (2), bytes (2)" in page and "Why does the ring send less?" in page
    assert "&lt;b&gt;two&lt;/b&gt;" in page and "<b>" not in page and "ann" not in page and ann.pseudonym in page
    assert "7: every rank sends one part" in (tmp_path / "out/free_text/00.p1.html").read_text()
    template = (tmp_path / "out/free_text/marks.csv").read_text()
    assert sorted(template.splitlines()) == sorted(
        ["question,pseudonym,points,comment", f"00.w1,{ann.pseudonym},,", f"00.w1,{bob.pseudonym},,"]
    )

    marks = tmp_path / "marks.csv"
    marks.write_text(template.replace(f"{ann.pseudonym},,", f"{ann.pseudonym},3.5,Name the bytes too."))
    second = grade(Request(**asked, marks=marks), rules(tmp_path))
    assert second.results[0].points == 6.5 and not second.results[0].open and second.results[1].open
    assert second.results[0].outcome("00.w1").sentence == "Name the bytes too."
    write_all(tmp_path / "out", second, {})
    assert f"{ann.pseudonym},3.5,Name the bytes too." in (tmp_path / "out/free_text/marks.csv").read_text()
    marks.write_text(f"question,pseudonym,points\n00.w1,{ann.pseudonym},5\n")
    with pytest.raises(ValueError, match="marks.csv, line 2: 5 points for 00.w1, where 0 to 4"):
        grade(Request(**asked, marks=marks), rules(tmp_path))


def test_a_page_shows_no_markup_of_a_student():
    evil = "</pre><script>alert(1)</script>"
    page = question_page("00.w1", {"xyz": evil}, Policy())
    assert "<script" not in page and "&lt;script&gt;" in page


# Time.


def test_late_hours_are_counted_and_taken_off_only_by_the_policy(tmp_path):
    (tmp_path / "in").mkdir()
    files = {
        f"{name}_4{i}_9{i}_00_counting.ipynb": notebook(total=TOTAL) for i, name in enumerate(("doe", "roe", "poe"))
    }
    (tmp_path / "in/canvas.zip").write_bytes(zipped(files))
    now = datetime.now().astimezone()
    due = (now - timedelta(hours=26)).isoformat()
    (tmp_path / "more.csv").write_text("student,hours\nroe (41),48\n42,1\nwho,3\n")
    (tmp_path / "times.csv").write_text(f"student,submitted\n42,{(now - timedelta(hours=24.5)).isoformat()}\n")
    asked = {"submissions": tmp_path / "in", "out": tmp_path / "out", "due": [due], "extensions": tmp_path / "more.csv",
             "times": tmp_path / "times.csv"}  # fmt: skip
    plain = grade(Request(**asked), rules(tmp_path))
    hours = {one.submission.lms_id: one.hours_late for one in plain.results}
    assert 25.9 < hours["40"] < 26.1 and hours["41"] == 0 and 0.45 < hours["42"] < 0.55
    assert all((one.raw, one.penalty, one.points) == (2, 0, 2) for one in plain.results)
    assert any("nobody handed in as 'who'" in said for said in plain.said)

    (tmp_path / "policy.toml").write_text("[late]\ngrace_hours = 1\npercent_per_day = 10\nat_most = 40\n")
    strict = grade(Request(**asked, policy=tmp_path / "policy.toml"), rules(tmp_path))
    assert [(one.raw, one.penalty, one.points) for one in strict.results] == [(2, 0.4, 1.6), (2, 0, 2), (2, 0, 2)]


@pytest.mark.parametrize(
    ("hours", "points"), [(None, 0), (0, 0), (1, 0), (1.01, 1), (25, 1), (25.01, 2), (97.5, 4), (9999, 4)]
)
def test_the_penalty_counts_days_begun_after_the_grace_up_to_a_limit(hours, points):
    assert Late(grace_hours=1, percent_per_day=10, at_most=40).penalty(10, hours) == points


def test_a_deadline_for_a_lab_and_an_extension_for_a_student_come_first(tmp_path):
    due = read_due(["2026-12-01 12:00+00:00", "05=2026-12-05T12:00Z"])
    (tmp_path / "e.csv").write_text("student;lab;due\nann;5;2026-12-07 12:00+00:00\nann;;2026-12-02 12:00+00:00\n")
    said = []
    deadlines = Deadlines(due, read_extensions(tmp_path / "e.csv", due, [("ann", ""), ("bob", "")], said))
    days = [deadlines.of(*who).day for who in (("ann", "05"), ("ann", "04"), ("bob", "05"), ("bob", "04"))]
    assert days == [7, 2, 5, 1] and not said and Deadlines().of("ann", "05") is None
    noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    assert [hours_late(noon + timedelta(minutes=m), noon) for m in (-5, 0, 90)] == [0, 0, 1.5] and hours_late(
        None, noon
    ) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-12-01T11:00:00Z", "2026-12-01T11:00:00+00:00"), ("2026-12-01 11:00:00 UTC", "2026-12-01T11:00:00+00:00"),
        ("2026-11-30 22:19:17.462132000 Z", "2026-11-30T22:19:17.462132+00:00"),
        ("2026-12-01 06:00:00 -0500", "2026-12-01T11:00:00+00:00"),
    ],
)  # fmt: skip
def test_times_of_every_platform_are_read(text, wanted):
    assert moment(text).astimezone(UTC).isoformat() == wanted
    assert moment("Tuesday, 1 December 2026, 10:19 PM").hour == 22 and moment("soon") is None and moment("") is None


def test_gradescope_metadata_of_one_submission():
    one = gradescope_json(
        '{"created_at": "2026-12-01T05:20:00.000000-05:00", "users": [{"email": "j@u.edu", "sid": "9"}]}'
    )
    assert (one.student, one.id, one.when.hour) == ("j@u.edu", "9", 5)
    for broken in ("", "[]", '{"users": []}'):
        with pytest.raises(ValueError, match="no submission_metadata.json"):
            gradescope_json(broken)


# Files with mistakes in them.


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[late]\nperday = 3", r"\[late\] has an unknown entry 'perday'"), ("[late]\ngrace_hours = -1", "grace_hours is -1"),
        ("[lateness]", r"unknown part \[lateness\]"), ("late = ", "not valid TOML"), ('[answers."00.w1"]\nrubric = "x"', "points is None"),
        ('[answers."00.w1"]\npoints = 1\nrubrik = "x"', "entries points, question and rubric"),
        ("[predictions]\npoints = true", "points is True"),
    ],
)  # fmt: skip
def test_a_policy_that_is_wrong_names_the_entry(tmp_path, text, why):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(ValueError, match=why):
        read_policy(tmp_path / "p.toml")


def test_csv_files_that_are_wrong_name_the_line(tmp_path):
    file = tmp_path / "x.csv"
    due = read_due(["2026-12-01 12:00"])
    for text, read, why in (
        ("question,pseudonym,points\n00.w1,abc,many\n", read_marks, "line 2: 'many' is no number"),
        ("question,points\n", read_marks, "no column 'pseudonym'"),
        ("student,due\nann,soon\n", lambda f: read_extensions(f, due, [("ann", "")], []), "line 2: 'soon' is no time"),
        ("student,hours\nann,\n", lambda f: read_extensions(f, due, [("ann", "")], []), "line 2: give a time"),
        ("student,hours\nann,3\n", lambda f: read_extensions(f, {}, [("ann", "")], []), "give it with --due"),
        ("student,submitted\nann,noon\n", lambda f: read_times(f, [("ann", "")], []), "line 2: 'noon' is no time"),
        ("", read_marks, "is empty"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=why):
            read(file)
    file.write_bytes("pseudonym,question,points\nMüller,1,2".encode("latin-1"))
    with pytest.raises(ValueError, match="not in UTF-8"):
        read_marks(file)
    with pytest.raises(ValueError, match="'someday' is no time"):
        read_due(["someday"])
