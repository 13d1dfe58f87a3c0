"""One student's files, made to stop the batch or to speak for others: they cost nobody else anything."""

import json
import os
from dataclasses import replace

import pytest
from hand_ins import TOTAL, code, judge, notebook, reader, rules, texts, zipped

from lockstep.course.grade import archive, writing
from lockstep.course.grade.cache import Cache
from lockstep.course.grade.collect import collect
from lockstep.course.grade.free_text import file_of
from lockstep.course.grade.grading import Request, grade
from lockstep.course.grade.lms import moment, sender
from lockstep.course.grade.writing import write_all
from lockstep.course.sandbox.reading import read_failure, read_observation

METADATA = "submission_metadata.yml"
GOOD = notebook(total=TOTAL)


def put(place, files):
    for name, content in files.items():
        path = os.path.join(os.fsencode(place), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(content)


# Text that cannot be written, numbers that cannot be printed, names that no file can have.

PREDICTIONS = """predict("00.p1", 1, "\\ud800 because I say so")
predict("AAA", 1, "because I say so")
predict("05/p1", 0xFFF, "because of the slash")
predict("05-p1", 2, "because of the dash")
predict("00.p2", BIG, "because it is large")
predict("00.p3", x + BIG, "because x is there")
predict("00.p4", [BIG], "because it is in a list")
"""


def test_a_whole_batch_is_written_whatever_one_notebook_says(tmp_path):
    # Each of these ended the run for everybody, some before grades.csv was written, some after: half a character in a
    # warning, in a reason, in a folder's name; an id of 300 characters that became a file name; 6,000 digits, which
    # Python reads in a notebook and refuses to print.
    evil = notebook(
        code(TOTAL, "exercise", "00.1"), code("x\ud800 = = 1", "odd\ud800"), code('STUDENT = "\\ud800"'),
        code(PREDICTIONS.replace("AAA", "a" * 300).replace("BIG", "0x" + "f" * 6000), "predict"),
        code("def mean(numbers):\n    return 0x" + "f" * 6000, "exercise", "00.2"),
    )  # fmt: skip
    names = {b"g_\xff\xfe/00_counting.ipynb": evil, b"g_\xff\xfd/00_\xff.ipynb": GOOD, b"link\xff/00.ipynb": GOOD}
    put(tmp_path / "in", names | {b"ann/00_counting.ipynb": GOOD})
    os.symlink(b"nowhere", os.fsencode(tmp_path) + b"/in/link\xff/00_\xff.ipynb")
    batch = grade(Request(tmp_path / "in", tmp_path / "out"), rules(tmp_path))
    assert write_all(tmp_path / "out", batch, {}).lost == [] and batch.complete
    assert [(one.student, one.points) for one in batch.results] == [
        ("ann", 2), ("g_\\udcff\\udcfd", 2), ("g_\\udcff\\udcfe", 2), ("link\\udcff", 2),
    ]  # fmt: skip
    wild = batch.results[2].submission
    assert any("`x\\ud800 = = 1`" in said for said in wild.warnings) and not wild.problem
    assert any("link\\udcff/00_\\udcff.ipynb is a link" in said for said in batch.said)
    pages = {file.name: file.read_text() for file in (tmp_path / "out/free_text").glob("*.html")}
    assert len(pages) == 7 and "4095: because of the slash" in pages[file_of("05/p1")]
    assert "2: because of the dash" in pages[file_of("05-p1")]  # both ids once shared a page: one text was lost
    assert "a value of type int that is too large to be shown" in pages["00.p2.html"]
    assert "\\ud800 because I say so" in pages["00.p1.html"]
    json.loads((tmp_path / "out/ledger.json").read_text(encoding="utf-8"))


def test_a_literal_keeps_its_value_when_half_a_character_is_spelled_out(tmp_path):
    (one,) = reader(tmp_path)(
        {"a.ipynb": notebook(code('def total(x):\n    return "\ud800"', "exercise", "00.1"))}
    ).values()
    scope = {}
    exec(texts(one)[0], scope)
    assert scope["total"](0) == "\ud800"


def test_pages_of_questions_have_short_names_and_none_alike():
    ids = [
        "05.w1",
        "05.W1",
        "05/w1",
        "05-w1",
        "..",
        "",
        "a" * 300,
        "a" * 301,
        "\u00e9" * 80,
        "e\u0301" * 80,
        "/../../x",
    ]
    names = [file_of(id) for id in ids]
    assert names[0] == "05.w1.html" and len({name.lower() for name in names}) == len(ids)
    assert all(len(name) < 70 and name.isascii() and "/" not in name and name[0] not in ".-" for name in names)


def test_no_student_makes_pages_without_end(tmp_path):
    many = "\n".join(f'predict("x{i}", 1, "because I say so")' for i in range(1000))
    (one,) = reader(tmp_path)({"a.ipynb": notebook(code(TOTAL, "00.1"), code(many, "predict"))}).values()
    assert len(one.predictions) == 200


def test_what_a_process_says_can_be_written_down(tmp_path):
    # raise ValueError("\ud800") reached the cache, outside of any `try`: the student had no marks at all.
    failure = {"type": "E\ud800", "message": "\ud800", "line": 1, "own": True, "file": "<cell 1>"}
    seen = read_observation({"printed": "\ud800", "counts": {"\ud800": 1.0}, "error": failure})
    said = (seen.printed, *seen.counts, seen.error.type, seen.error.message)
    kernel = read_failure({**failure, "kernel": True, "quoted": [[1, "\ud800"]]})
    assert "".join((*said, kernel.message, kernel.quoted[0][1])).encode()

    def quotes(lab, program, seed, **more):
        return [replace(one, sentence="It is \ud800.") for one in judge(lab, program, seed, **more)]

    put(tmp_path / "in", {"ann.ipynb": GOOD})
    (one,) = grade(Request(tmp_path / "in", tmp_path / "out"), rules(tmp_path, judge=quotes)).results
    assert one.points == 2 and one.outcomes[0].sentence == "It is \\ud800."


def test_a_cache_that_cannot_be_written_is_said_of_who_was_judged(tmp_path, monkeypatch):
    def full(self, key, outcome):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Cache, "put", full)
    put(tmp_path / "in", {"ann.ipynb": GOOD})
    (one,) = grade(Request(tmp_path / "in", tmp_path / "out"), rules(tmp_path)).results
    assert one.failure.startswith("Grading itself failed: OSError") and one.lab == "00"


def test_a_file_that_cannot_be_written_is_named_and_the_others_are_there(tmp_path, monkeypatch):
    put(tmp_path / "in", {"ann.ipynb": GOOD, "bob.ipynb": GOOD})
    batch = grade(Request(tmp_path / "in", tmp_path / "out"), rules(tmp_path))
    whole = writing.feedback

    def breaks(student, results, titles):
        if student == "ann":
            raise ValueError("what nobody foresaw")
        return whole(student, results, titles)

    monkeypatch.setattr(writing, "feedback", breaks)
    (lost,) = write_all(tmp_path / "out", batch, {}).lost
    assert lost.startswith("feedback/ann-") and "ValueError: what nobody foresaw" in lost
    assert len([*(tmp_path / "out/feedback").iterdir()]) == 1 and (tmp_path / "out/likeness.csv").exists()


# Files that speak for others.

YEAR_ONE = b"submission_1:\n  :created_at: 0001-01-01 00:00:00\n"
REAL = b"submission_1:\n  :submitters:\n  - :name: Ada\n  :created_at: 2026-12-02 10:00:00 Z\n" + (
    b"submission_2:\n  :submitters:\n  - :name: Bob\n  :created_at: 2026-12-01 10:00:00 Z\n"
)
ADAS = b"submission_2:\n  :submitters:\n  - :name: Ada\n  :created_at: 2020-01-01 10:00:00 Z\n"


def of(place):
    handins, said = collect(place, ["00_counting"])
    return {one.student: one for one in handins}, said


@pytest.mark.parametrize("packed", [True, False])
def test_gradescopes_metadata_are_those_of_the_export_alone(tmp_path, packed):
    # A file of that name in Ada's own folder was read first: Bob's hand-in counted as hers, with dates of her choice.
    files = {
        f"submission_1/{METADATA}": ADAS,
        "submission_1/a.ipynb": GOOD,
        "submission_2/b.ipynb": GOOD,
        METADATA: REAL,
    }
    if packed:
        put(tmp_path, {"export.zip": zipped({f"assignment_5_export/{name}": text for name, text in files.items()})})
    else:
        put(tmp_path / "in", files)
    found, _ = of(tmp_path / ("export.zip" if packed else "in"))
    assert {name: one.when.day for name, one in found.items()} == {"Ada": 2, "Bob": 1}
    assert [one.name for one in found["Bob"].pieces] == ["b.ipynb"]


def test_metadata_that_cannot_be_read_or_dated_stop_nobody(tmp_path, monkeypatch):
    # "year 0 is out of range" ended the batch, and so did a pipe, or 130 MiB of zeros in 170 KB of zip.
    monkeypatch.setattr(archive, "MOST_BYTES", 2**16)
    large = b" " * (2**16 + 1)
    put(
        tmp_path / "in",
        {f"ada/{METADATA}": YEAR_ONE, "ada/a.ipynb": GOOD, f"eve/{METADATA}": large, "bob/b.ipynb": GOOD},
    )
    os.mkfifo(tmp_path / "in/bob" / METADATA)
    assert sorted(of(tmp_path / "in")[0]) == ["ada", "bob", "eve"]
    for content, said in ((YEAR_ONE, []), (large, ["more than"])):  # of an export itself
        put(tmp_path / "own", {METADATA: content, "submission_1/a.ipynb": GOOD})
        found, left_out = of(tmp_path / "own")
        assert list(found)[0].startswith("submission") and len(found) == 1 and len(left_out) == len(said)
        assert next(iter(found.values())).when is None
    assert moment("0001-01-01 00:00:00") is moment("9999-12-31 23:59:59 -1200") is moment("0001-01-01 00:00 Z") is None


def test_a_students_zip_hands_in_for_nobody_else(tmp_path):
    # Ada's zip held a file named as Canvas names Bob's. It was taken for a download, and replaced what Bob handed in.
    fake = {"bob_111_222_00_counting.ipynb": notebook(), METADATA: ADAS, "Bob_2_assignsubmission_file_/b.ipynb": GOOD}
    for others in ({"bob_111_201_00_counting.ipynb": GOOD}, {"eve.zip": zipped({"00_counting.ipynb": GOOD})}):
        place = tmp_path / str(len(others)) / next(iter(others))
        put(place, {**others, "ada.zip": zipped(fake)})
        found, _ = of(place)
        assert len(found) == 2 and found["ada"].when is None
        assert [one.name for one in found["ada"].pieces] == ["ada.zip"]
    put(tmp_path / "canvas", {"ada_1_2_lab00.zip": zipped(fake)})  # named by Canvas itself: one student's
    assert list(of(tmp_path / "canvas")[0]) == ["ada (1)"]


@pytest.mark.parametrize("name", ["Ada_7_assignsubmission_file_", "Ada_7_8_", "Ada_LATE_7_8_"])
def test_a_file_name_that_the_student_chose_names_nobody_else(name):
    # On Canvas, "Ada_7_8_Bob_2_assignsubmission_file_x.ipynb" had number 2: Ada's points went into Bob's row.
    for chosen in ("Bob_2_assignsubmission_file_x.ipynb", "Bob_2_3_x.ipynb", "submission_2"):
        assert (sender(name + chosen).student, sender(name + chosen).id) == ("Ada", "7")


def test_several_downloads_in_a_folder_are_opened_aloud(tmp_path):
    one, two = ({f"{who}_{i}_2_lab.ipynb": GOOD} for i, who in enumerate(("ann", "bob")))
    put(tmp_path / "in", {"group A.zip": zipped(one), "group B.zip": zipped(two)})
    found, said = of(tmp_path / "in")
    assert sorted(found) == ["ann (0)", "bob (1)"] and len(said) == 2 and "group A.zip was opened as" in said[0]


def test_an_entry_without_a_name_is_left_out(tmp_path):
    put(tmp_path / "in", {"ada.zip": zipped({".": b"x", "00_counting.ipynb": GOOD})})
    assert list(of(tmp_path / "in")[0]) == ["ada"]
    found, said = of(tmp_path / "in/ada.zip")
    assert len(found) == 1 and "has no name" in said[0]
