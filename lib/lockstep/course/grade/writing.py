"""The files that a run of grading leaves in its folder.

Floor 4, room `course`. Every file is written whole, readable by its owner alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lockstep.course.grade.cache import write_whole
from lockstep.course.grade.feedback import feedback
from lockstep.course.grade.free_text import file_of, marks_template, question_page, questions
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


@dataclass
class Written:
    """said: a line for each file or folder, to be shown. lost: a sentence for each file that could not be written."""

    said: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def write(self, file: Path, text: Callable[[], str]) -> None:
        """Write what `text()` gives; where that or the writing fails, the other files are written all the same."""
        try:
            write_whole(file, text())
        except Exception as error:
            why = f"{type(error).__name__}: {str(error)[:300]}"
            self.lost.append(f"{file.parent.name}/{file.name} could not be written ({why}).")


def write_all(
    out: Path,
    batch: Batch,
    titles: Mapping[str, str],
    likenesses: Sequence[Likeness] = (),
    texts: Mapping[tuple[str, str], str] | None = None,
) -> Written:
    """Write everything but a filled gradebook.

    texts: source by (student or public place, exercise), for the page of likenesses.
    """
    results, done = batch.results, Written()
    done.write(out / "grades.csv", lambda: grades_csv(results))
    done.write(out / "canvas.csv", lambda: canvas_csv(results))
    done.write(out / "moodle.csv", lambda: moodle_csv(results))
    done.write(out / "junit.xml", lambda: junit_xml(results))
    done.write(out / "notes.txt", lambda: notes(batch))
    done.write(out / "statistics.csv", lambda: statistics_csv(statistics(results)))
    for one in results:
        file = inner(out, "gradescope") / f"{one.file}-{one.lab or 'none'}.json"
        done.write(file, partial(gradescope_json, one, titles))
    for student, theirs in _by_student(results).items():
        done.write(inner(out, "feedback") / f"{theirs[0].file}.html", partial(feedback, student, theirs, titles))
    done.said += [
        "grades.csv        everything, a row for each student and lab",
        "canvas.csv, moodle.csv, gradescope/, junit.xml",
        "feedback/         a page for each student",
        "statistics.csv    how each exercise went",
        "notes.txt         what had to be guessed or left out",
    ]
    _free_text(out, batch, done)
    done.write(out / "likeness.csv", lambda: likeness_csv(likenesses))
    if likenesses:
        done.write(out / "likeness.html", lambda: likeness_page(likenesses, texts or {}))
        done.said.append(f"likeness.html     {len(likenesses)} pairs to look at; they count for nothing by themselves")
    else:
        (out / "likeness.html").unlink(missing_ok=True)
    return done


def _by_student(results: Sequence[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for one in results:
        found.setdefault(one.student, []).append(one)
    return found


def _free_text(out: Path, batch: Batch, done: Written) -> None:
    found = questions(batch.results)
    if not found:
        return
    folder = inner(out, "free_text")
    for id, texts in found.items():
        done.write(folder / file_of(id), partial(question_page, id, texts, batch.policy))
    marked = partial(marks_template, found, batch.policy, lambda id, who: batch.marks.get((who, id)))
    done.write(folder / "marks.csv", marked)
    done.said.append("free_text/        a page for each question, and a marks.csv to copy, fill in and give to --marks")


def write_gradebook(out: Path, gradebook: Path, results: Sequence[Result], columns: Mapping[str, str]) -> list[str]:
    """Fill an exported gradebook into the folder of grades; returns lines to be shown."""
    filled = fill(gradebook, results, columns)
    target = out / f"{gradebook.stem}-filled.csv"
    write_whole(target, filled.text, filled.encoding)
    return [f"{target.name}: {filled.marks} marks filled into {gradebook.name}", *filled.said]
