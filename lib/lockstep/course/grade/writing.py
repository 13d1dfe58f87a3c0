"""The files that a run of grading leaves in its folder.

Floor 4, room `course`. Every file is written whole, readable by its owner alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lockstep.course.grade.cache import write_whole
from lockstep.course.grade.feedback import feedback
from lockstep.course.grade.free_text import marks_template, question_page, questions
from lockstep.course.grade.grades_csv import grades_csv
from lockstep.course.grade.grading import Batch
from lockstep.course.grade.likeness import Likeness
from lockstep.course.grade.lms_csv import canvas_csv, fill, moodle_csv
from lockstep.course.grade.look import likeness_csv, likeness_page
from lockstep.course.grade.private import inner
from lockstep.course.grade.reports import gradescope_json, junit_xml
from lockstep.course.grade.result import Result
from lockstep.course.grade.show import notes
from lockstep.course.grade.statistics import statistics, statistics_csv


def write_all(
    out: Path,
    batch: Batch,
    titles: Mapping[str, str],
    likenesses: Sequence[Likeness] = (),
    texts: Mapping[tuple[str, str], str] | None = None,
) -> list[str]:
    """Write everything but a filled gradebook; returns a line for each file or folder, to be shown.

    texts: source by (student or public place, exercise), for the page of likenesses.
    """
    results = batch.results
    write_whole(out / "grades.csv", grades_csv(results))
    write_whole(out / "canvas.csv", canvas_csv(results))
    write_whole(out / "moodle.csv", moodle_csv(results))
    write_whole(out / "junit.xml", junit_xml(results))
    write_whole(out / "notes.txt", notes(batch))
    write_whole(out / "statistics.csv", statistics_csv(statistics(results)))
    for one in results:
        write_whole(inner(out, "gradescope") / f"{one.file}-{one.lab or 'none'}.json", gradescope_json(one, titles))
    for student, theirs in _by_student(results).items():
        write_whole(inner(out, "feedback") / f"{theirs[0].file}.html", feedback(student, theirs, titles))
    said = [
        "grades.csv        everything, a row for each student and lab",
        "canvas.csv, moodle.csv, gradescope/, junit.xml",
        "feedback/         a page for each student",
        "statistics.csv    how each exercise went",
        "notes.txt         what had to be guessed or left out",
    ]
    said += _free_text(out, batch)
    write_whole(out / "likeness.csv", likeness_csv(likenesses))
    if likenesses:
        write_whole(out / "likeness.html", likeness_page(likenesses, texts or {}))
        said.append(f"likeness.html     {len(likenesses)} pairs to look at; they count for nothing by themselves")
    else:
        (out / "likeness.html").unlink(missing_ok=True)
    return said


def _by_student(results: Sequence[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for one in results:
        found.setdefault(one.student, []).append(one)
    return found


def _free_text(out: Path, batch: Batch) -> list[str]:
    found = questions(batch.results)
    if not found:
        return []
    folder = inner(out, "free_text")
    for id, texts in found.items():
        write_whole(
            folder / f"{''.join(c if c.isalnum() or c in '.-' else '-' for c in id)}.html",
            question_page(id, texts, batch.policy),
        )
    write_whole(folder / "marks.csv", marks_template(found, batch.policy, lambda id, who: batch.marks.get((who, id))))
    return ["free_text/        a page for each question, and a marks.csv to copy, fill in and give to --marks"]


def write_gradebook(out: Path, gradebook: Path, results: Sequence[Result], columns: Mapping[str, str]) -> list[str]:
    """Fill an exported gradebook into the folder of grades; returns lines to be shown."""
    filled = fill(gradebook, results, columns)
    target = out / f"{gradebook.stem}-filled.csv"
    write_whole(target, filled.text, filled.encoding)
    return [f"{target.name}: {filled.marks} marks filled into {gradebook.name}", *filled.said]
