"""`lockstep grade` and `lockstep regrade` on the course's own lab 00, as an instructor types them; the judge is made up."""

import json
from pathlib import Path

import pytest
from hand_ins import zipped
from typer.testing import CliRunner

import lockstep.exercises
from lockstep.course import cli
from lockstep.course.grade import command
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.released import rules_of
from lockstep.course.release.toml import read_release
from lockstep.exercises import registry

HOME = Path(__file__).resolve().parents[2]
RELEASE = f"""
format = 1
made = 2026-12-01T12:00:00+00:00
lockstep = "0.1.0"
repository = ""
seed = "{9:064x}"
variants = false
dropped = []

[[labs]]
number = "00"
notebook = "00_start_here.ipynb"
sha256 = ""

[[exercises]]
id = "00.1"
version = 1
points = 4
core = true
from = "course"
variants = []

[[exercises]]
id = "00.2"
version = 1
points = 1
core = true
from = "course"
variants = []
"""


def judged(lab, program, seed, *, exercises, isolation, right=4):
    """Passes what holds a line of the solution; 00.1 is worth `right`."""
    text = "\n".join(one.text for one in program.statements)
    assert seed == 9 and "check(" not in text and "launch" not in text
    found = []
    for one in exercises:
        solved = {"00.1": "all_reduce", "00.2": "1 / ("}[one.id] in text
        points = (right if one.id == "00.1" else one.points) if solved else 0
        verdict = "passed" if points == one.points else "partial" if points else "not attempted"
        found.append(Outcome(one.id, verdict, points, one.points, level="a test", version=one.version))
    return found


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a release and a download of Moodle: one solved, one blank."""
    solved = (HOME / "solutions/00_start_here.ipynb").read_bytes()
    blank = (HOME / "labs/00_start_here.ipynb").read_bytes()
    (tmp_path / "release.toml").write_text(RELEASE)
    (tmp_path / "download.zip").write_bytes(zipped({
        "Ann A_1_assignsubmission_file_/00_start_here.ipynb": solved, "Bob B_2_assignsubmission_file_/lab.ipynb": blank,
    }))  # fmt: skip
    (tmp_path / "book.csv").write_text(
        "Identifier,Full name,Grade,Maximum Grade\nParticipant 1,A,,5\nParticipant 2,B,,5\n"
    )
    monkeypatch.chdir(tmp_path)
    judge_by(monkeypatch, judged)
    return tmp_path


def judge_by(monkeypatch, judge):
    monkeypatch.setattr(
        command, "rules_of", lambda release, isolation: rules_of(release, isolation=isolation, judge=judge)
    )


def invoke(*words):
    return CliRunner().invoke(cli.app, [*words, "--release", "release.toml", "--jobs", "1"])


def test_an_instructor_grades_fills_the_gradebook_and_regrades(place, monkeypatch):
    shown = invoke("grade", "download.zip", "--gradebook", "book.csv", "--viva", "2", "--due", "2026-01-01")
    assert shown.exit_code == 0, shown.output
    for words in ("5 of 5", "0 of 5", "2 submissions: 2 graded. Isolation: a test.", "fewer than 5 submissions",
                  "feedback/         a page for each student", "book-filled.csv: 2 marks"):  # fmt: skip
        assert words in shown.output, words
    assert "Ann" not in shown.output, "a log has no names"
    assert "What happens if one rank skips this call?" in shown.output
    assert (place / "grades/book-filled.csv").read_text() == (
        "Identifier,Full name,Grade,Maximum Grade\nParticipant 1,A,5,5\nParticipant 2,B,0,5\n"
    )
    (page,) = (place / "grades/feedback").glob("Ann-A-1-*.html")
    assert "5 of 5 points" in page.read_text() and "Ann A (1), lab 00" in (place / "grades/viva.txt").read_text()

    judge_by(monkeypatch, lambda *args, **kwargs: judged(*args, right=3, **kwargs))
    kept = invoke("regrade", "download.zip", "--fresh", "--diff")
    assert "No mark changes: " in kept.output and "1 mark of 1 student would have fallen; those" in kept.output
    assert "Nothing was written to grades/: --diff only looks." in kept.output
    lower = invoke("regrade", "download.zip", "--fresh", "--lower")
    assert "00.1" in lower.output and "passed → partial" in lower.output
    assert "Written to grades/" in lower.output and "1 mark of 1 student changes." in lower.output
    rows = json.loads((place / "grades/ledger.json").read_text())
    assert [row["points"] for row in rows] == [4, 0]


def test_exit_status_says_whether_everybody_has_a_result(place, monkeypatch):
    def breaks(lab, program, seed, **kwargs):
        if "all_reduce" in "".join(one.text for one in program.statements):
            raise RuntimeError("no sandbox")
        return judged(lab, program, seed, **kwargs)

    judge_by(monkeypatch, breaks)
    shown = invoke("grade", "download.zip")
    assert (
        shown.exit_code == 1
        and "1 without a result" in shown.output
        and "RuntimeError" in (place / "grades/notes.txt").read_text()
    )


def test_who_stops_it_is_told_that_it_goes_on(place, monkeypatch):
    # Ctrl-C ended a batch of an hour without a word, and nothing said that most of it was kept.
    def stops(request, rules, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "grade", stops)
    shown = invoke("grade", "download.zip")
    assert shown.exit_code == 130 and "the same command again; it goes on where it stopped" in shown.output
    assert "it begins anew" in invoke("grade", "download.zip", "--fresh").output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("grade", "nowhere"), "there is no nowhere"),
        (("grade", "download.zip", "--due", "soon"), "'soon' is no time"),
        (("grade", "download.zip", "--column", "Lab"), "is not like 05="),
        (("grade", "download.zip", "--policy", "gone.toml"), "gone.toml cannot be read"),
        (("grade", "release.toml"), "cannot be opened"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(place, words, why):
    assert why in str(invoke(*words).exception)


def test_the_rules_of_a_release_come_from_its_exercises_and_the_labs_notebook(place):
    rules = rules_of(read_release(place / "release.toml"), judge=judged)
    (text,) = rules.labs.values()
    assert text.title.startswith("Lab 00") and set(text.functions.values()) == {"hello", "amdahl"}
    assert [one.points for one, _ in rules.values("00", "Ann")] == [4, 1]
    assert rules.library("00.1")[1] == "hello" and rules.library("99.9") is None


def test_a_lab_that_is_broken_stops_no_other(place, tmp_path, monkeypatch):
    # Whoever asked for one exercise had imported all labs: half a line saved in lab 07 ended the grading of lab 00.
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/lab97.py").write_text("EXERCISES = (\n")
    monkeypatch.setattr(lockstep.exercises, "__path__", [*lockstep.exercises.__path__, str(tmp_path / "broken")])
    registry._labs.cache_clear()
    with pytest.raises(SyntaxError):
        registry.all()
    assert invoke("grade", "download.zip").exit_code == 0
    assert registry.find("00.1").lab == "00" and registry.of_lab("98") == [] == registry.of_lab("")
    registry._labs.cache_clear()
