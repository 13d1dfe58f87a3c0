"""The files that an instructor uploads, hands back or reads, opened as those who take them would."""

import csv
import io
import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from rich.console import Console

from lockstep.course.grade.feedback import feedback
from lockstep.course.grade.grades_csv import grades_csv
from lockstep.course.grade.grading import Batch
from lockstep.course.grade.lms_csv import canvas_csv, fill, moodle_csv
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.policy import Policy
from lockstep.course.grade.private import pseudonym
from lockstep.course.grade.reports import gradescope_json, junit_xml
from lockstep.course.grade.result import Result
from lockstep.course.grade.show import show_batch, show_statistics
from lockstep.course.grade.statistics import statistics, statistics_csv
from lockstep.course.grade.submission import Submission
from lockstep.course.grade.text_table import csv_text
from lockstep.course.grade.writing import write_all, write_gradebook

EVIL = "<script>alert(1)</script>"


def result(student="Doe Jane (42)", earned=(2, 0), lab="05", lms_id="", **more):
    outcomes = (
        Outcome(
            f"{lab}.1", "passed" if earned[0] else "wrong", earned[0], 2, "" if earned[0] else "Off by one.", seconds=1
        ),
        Outcome(
            f"{lab}.2", "wrong", earned[1], 3, f"Got `{EVIL}`.", "averages early", f"Look at {EVIL}.", 2, "bubblewrap"
        ),
    )
    about = {"when": datetime(2026, 12, 1, 12, tzinfo=UTC), "warnings": (f"cell 3 is odd: {EVIL}",)}
    submission = Submission(student, lab, Path("x"), "d", lms_id=lms_id, **about)
    return Result(submission, outcomes, pseudonym(7, student), **more)


def rows(text):
    return list(csv.reader(io.StringIO(text, newline="")))


def test_grades_csv_has_everything_and_no_formula():
    text = grades_csv([result(hours_late=3.5, penalty=0.5), result("=cmd|' /C calc'!A0"), result(failure="It broke.")])
    head, jane, evil, broken = rows(text)
    of = dict(zip(head, jane, strict=True))
    assert (of["student"], of["points"], of["raw"], of["of"], of["penalty"], of["hours late"]) == (
        "Doe Jane (42)", "1.5", "2", "5", "0.5", "3.5",
    )  # fmt: skip
    assert (of["05.1"], of["05.2 verdict"], of["isolation"], of["seconds"]) == ("2", "wrong", "bubblewrap", "3")
    assert evil[0].startswith("'=cmd") and dict(zip(head, broken, strict=True))["points"] == ""
    for cell in (cell for row in rows(text) for cell in row):
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_text_begins_a_formula_but_numbers_stay_numbers(text):
    # "\r=1" once ended its row for every reader, and began the next one with a formula.
    assert rows(csv_text([[text, -1, 2.50]])) == [["'" + text.replace("\r", "\n"), "-1", "2.5"]]


# Gradebooks as the platforms export them.

CANVAS = (
    "\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,Lab 04 (11),Lab 05 (12),Final Score\r\n"
    "    Points Possible,,,,,10,5,(read only)\r\n"
    '"Doe, Jane",42,u042,jdoe@uni.edu,Section 1,7,,=70\r\n'
    '"Müller, Zoë",43,u043,zmueller@uni.edu,Section 1,,1,\r\n'
    '"Student, Test",99,,,Section 1,,,\r\n'
)
MOODLE = (
    'Identifier;"Full name";"Email address";Status;Grade;"Maximum Grade";"Feedback comments"\n'
    '"Participant 42";"Jane Doe";jane@uni.edu;"Submitted for grading";;100,00;\n'
    '"Participant 43";"Zoë Müller";zoe@uni.edu;"No submission";;100,00;"<p>keep</p>"\n'
)


def test_a_canvas_gradebook_is_filled_in_one_column_and_nowhere_else(tmp_path):
    book = tmp_path / "export.csv"
    book.write_bytes(CANVAS.encode())
    found = [result("doejane (42)", (2, 3), lms_id="42"), result("Zoe Muller", (2, 0)), result("nobody")]
    written = write_gradebook(tmp_path, book, found, {})
    content = (tmp_path / "export-filled.csv").read_bytes()
    assert content == (
        CANVAS.replace("Section 1,7,,", "Section 1,7,5,").replace("Section 1,,1,", "Section 1,,2,").encode()
    )
    assert written[0] == "export-filled.csv: 2 marks filled into export.csv"
    assert written[1].startswith(found[2].pseudonym) and "nobody" not in " ".join(written)


def test_a_moodle_sheet_is_filled_and_scaled_aloud(tmp_path):
    book = tmp_path / "grades.csv"
    book.write_text(MOODLE, encoding="utf-8")
    filled = fill(book, [result("Jane Doe (42)", (2, 1), lms_id="42")], {})
    (head, jane, zoe) = list(csv.reader(io.StringIO(filled.text), delimiter=";"))
    assert head == list(csv.reader(io.StringIO(MOODLE), delimiter=";"))[0]
    assert jane[4] == "60" and zoe[4] == "" and zoe[6] == "<p>keep</p>"
    assert filled.said == ("Grade has 100 points there and 5 here: marks were scaled.",)


def test_a_full_moodle_export_is_matched_by_name_and_the_doubtful_left_alone(tmp_path):
    book = tmp_path / "all.csv"
    head = '"First name","Last name","ID number","Email address","Assignment: Lab 05 (Real)"\n'
    book.write_text(head + "Jane,Doe,900,jane@uni.edu,-\nAl,Ba,901,al@uni.edu,-\nAl,Ba,902,al2@uni.edu,-\n")
    filled = fill(book, [result("Jane Doe"), result("Al Ba"), result("al2@uni.edu", (0, 3))], {})
    assert [row[4] for row in rows(filled.text)[1:]] == ["2", "-", "3"]
    assert "2 rows of the gradebook could be meant; none was filled" in filled.said[0]


@pytest.mark.parametrize(
    ("text", "columns", "why"),
    [
        (CANVAS, {"05": "Lab five"}, "which column of .* is lab 05.*there is none.*'Lab 04 .11.'"),
        (CANVAS.replace("Lab 04 (11)", "Lab 05 (13)"), {}, "there are several"),
        ("a,b\n1,2\n", {}, "no gradebook of Canvas or Moodle"),
        ("Student,ID\n", {}, "holds no students"),
    ],
)
def test_a_gradebook_that_cannot_be_filled_is_a_sentence(tmp_path, text, columns, why):
    book = tmp_path / "export.csv"
    book.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=why):
        fill(book, [result()], columns)


def test_our_own_tables_for_canvas_and_moodle():
    found = [
        result("Jane Doe (42)", (2, 3), lms_id="42"),
        result("@bob", (2, 0)),
        result("Jane Doe (42)", (2, 0), "06", "42"),
    ]
    assert rows(canvas_csv(found))[:3] == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Lab 05", "Lab 06"],
        ["    Points Possible", "", "", "", "", "5", "5"], ["Jane Doe", "42", "", "", "", "5", "2"],
    ]  # fmt: skip
    assert rows(moodle_csv(found))[1:] == [["Participant 42", "Jane Doe", "5", "2"], ["", "'@bob", "2", ""]]


# For other programs.


def test_gradescope_gets_a_test_for_each_exercise_and_junit_no_names():
    late = result(hours_late=2, penalty=0.5)
    whole = json.loads(gradescope_json(late, {"05.1": "Sharding"}))
    assert whole["score"] == 1.5 and "2 of 5 points" in whole["output"] and whole["stdout_visibility"] == "hidden"
    first, second = whole["tests"]
    assert (first["name"], first["score"], first["max_score"], first["status"]) == ("05.1 Sharding", 2, 2, "passed")
    assert second["status"] == "failed" and second["output"].startswith("wrong. Got") and "\nHint: " in second["output"]

    text = junit_xml([late, result("Bob\x00\x1b", failure="It broke \x07.")])
    root = ElementTree.fromstring(text)
    assert [suite.get("failures") for suite in root] == ["1", "1"] and root[1].get("errors") == "1"
    assert root.find(".//failure").get("message") == "wrong: averages early"
    assert "Jane" not in text and "Bob" not in text and late.pseudonym in text


# What a student reads.


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("href", "src", "action", "data")]

    def handle_data(self, data):
        self.words.append(data)


def test_the_feedback_page_has_points_verdict_hint_and_nothing_that_runs_or_loads():
    titles = {"lab 05": "Lab 05 · Data parallel", "05.2": EVIL}
    text = feedback(f"Jane {EVIL}", [result(hours_late=30, penalty=0.4)], titles)
    page = Page(text)
    said = " ".join(page.words)
    assert "script" not in page.tags and not page.links and "url(" not in text and "@import" not in text
    assert "default-src 'none'" in text and "prefers-color-scheme: dark" in text
    for words in ("Lab 05 · Data parallel", "1.6 of 5 points", "30 hours after the deadline. 0.4 of 2 points", "2 of 2",
                  "passed", "wrong", "Hint", EVIL):  # fmt: skip
        assert words in said, words
    broken = feedback("Jane", [result(failure="It broke.")], {})
    assert "no result yet" in broken and "It broke" not in broken, "a fault of ours is not for students"


def test_contrast_of_the_page_in_both_themes():
    # WCAG 2.2: 4.5 for text. Badges have white text on their own colour in both themes.
    from lockstep.course.grade.page import STYLE

    light, dark = (
        dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in (STYLE.split("@media")[0], STYLE.split("@media")[1])
    )
    for theme in (light, dark):
        for text in ("text", "soft"):
            assert min(contrast(theme[text], theme[ground]) for ground in ("back", "card")) >= 4.5
        assert contrast(theme["text"], theme["code"]) >= 4.5
    assert all(contrast(badge, "#ffffff") >= 4.5 for badge in re.findall(r"--badge: (#\w{6})", STYLE))


def contrast(one, other):
    def luminance(color):
        parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


# For the instructor.


def group(n, wrong):
    return [result(f"s{i}", (0 if i < wrong else 2, 0)) for i in range(n)]


def test_statistics_speak_of_no_group_under_five():
    one, two = statistics(group(12, 3))
    assert (one.handed_in, one.passed, one.attempted, one.seconds, one.slowest) == (12, 0.75, 1.0, 1, 1)
    assert two.mistakes == {"averages early": 12} and two.rarer == 0
    few = [result("a")] * 4
    assert all(each.handed_in is None and not each.mistakes for each in statistics(few))
    rare = group(8, 0)
    rare = [
        *rare,
        *(SimpleNamespace(outcomes=(Outcome("05.1", "wrong", 0, 2, mistake="counts twice"),)) for _ in range(4)),
    ]
    first = statistics(rare)[0]
    assert not first.mistakes and first.rarer == 1 and "counts twice" not in statistics_csv(statistics(rare))


def test_the_screen_shows_a_row_for_each_and_names_on_a_terminal_only():
    batch = Batch((*group(6, 2), result("Torn", failure="It broke.")), Policy(), {}, ("nobody is called x",))
    for terminal in (True, False):
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=100, highlight=False, color_system=None)
        show_batch(batch, console)
        show_statistics(batch, console)
        said = out.getvalue()
        assert ("s3 " in said) == terminal and ("Torn: It broke." in said) == terminal
        assert "2 of 5" in said and "7 submissions: 6 graded, 1 without a result." in said
        assert ("nobody is called x" in said) == terminal and "averages early (7)" in said


def test_everything_is_written_for_the_owner_alone(tmp_path):
    write_all(tmp_path, Batch(tuple(group(2, 1)), Policy(), {}), {})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path).parts[0] for path in files} == {
        "grades.csv", "canvas.csv", "moodle.csv", "junit.xml", "statistics.csv", "likeness.csv", "notes.txt", "feedback", "gradescope",
    }  # fmt: skip
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)


def test_pseudonyms_are_the_same_in_every_run_and_need_the_seed():
    assert pseudonym(7, "Jane") == pseudonym(7, "Jane") != pseudonym(8, "Jane")
    assert len({pseudonym(7, f"s{i}") for i in range(2000)}) == 2000
