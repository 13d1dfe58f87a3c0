"""What has to be read by a person: a page for each question, with its rubric and every answer, without names.

Floor 4, room `course`. Marks go into `marks.csv` beside the pages, by pseudonym, and come back with `--marks`.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Callable, Mapping, Sequence

from lockstep.course.grade.by_hand import Mark
from lockstep.course.grade.characters import as_text
from lockstep.course.grade.page import page, sentence
from lockstep.course.grade.policy import Policy
from lockstep.course.grade.result import Result
from lockstep.course.grade.text_table import csv_text

PLAIN = re.compile(r"\d\d\.[a-z]{1,9}\d{1,3}", re.ASCII)  # "05.p1": an id as the labs have them
HOW_PREDICTIONS = "Half the points for a prediction in time, half for a reason. Not for being close."


def questions(results: Sequence[Result]) -> dict[str, dict[str, str]]:
    """The texts by question and pseudonym: answers, and the reasons of predictions."""
    found: dict[str, dict[str, str]] = {}
    for one in results:
        for id, text in one.submission.answers.items():
            found.setdefault(id, {})[one.pseudonym] = text
        for id, made in one.submission.predictions.items():
            if made.get("reason"):
                found.setdefault(id, {})[one.pseudonym] = f"{as_text(made['value'])}: {made['reason']}"
    return dict(sorted(found.items()))


def file_of(id: str) -> str:
    """The file name of a question's page. Ids that a student made up are any text: no two of them share a name."""
    if PLAIN.fullmatch(id):
        return f"{id}.html"
    words = re.sub(r"[^A-Za-z0-9.]+", "-", id)[:40].strip("-.")
    return f"{words or 'question'}-{hashlib.sha256(id.encode()).hexdigest()[:12]}.html"


def question_page(id: str, texts: Mapping[str, str], policy: Policy) -> str:
    """Every answer to one question, in the order of the pseudonyms, below its rubric."""
    asked = policy.answers.get(id)
    rubric = asked.rubric if asked else HOW_PREDICTIONS if ".p" in id else ""
    head = f"<h1>{html.escape(id)}</h1>" + (f"<p>{sentence(asked.question)}</p>" if asked and asked.question else "")
    head += f'<div class="card note"><strong>Rubric.</strong> {sentence(rubric)}</div>' if rubric else ""
    body = "".join(
        f'<div class="card open"><strong>{html.escape(who)}</strong><pre>{html.escape(text)}</pre></div>'
        for who, text in sorted(texts.items())
    )
    return page(f"Question {id}", head + body)


def marks_template(
    found: Mapping[str, Mapping[str, str]], policy: Policy, mark: Callable[[str, str], Mark | None]
) -> str:
    """A `marks.csv` to fill in: a line for each answer that earns points, with the marks that are there already."""
    rows: list[list[object]] = [["question", "pseudonym", "points", "comment"]]
    for id, texts in found.items():
        if id in policy.answers:
            for who in sorted(texts):
                given = mark(id, who)
                rows.append([id, who, given.points if given else "", given.why if given else ""])
    return csv_text(rows)
