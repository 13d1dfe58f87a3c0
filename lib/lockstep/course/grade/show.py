"""What an instructor sees on the screen: a bar while it runs, then a table, and sentences about what needs a person.

Floor 4, room `course`. Names are shown on a terminal only; in a log stand pseudonyms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from lockstep.course.grade.characters import visible
from lockstep.course.grade.grading import Batch
from lockstep.course.grade.ledger import Change
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.result import Result, number
from lockstep.course.grade.statistics import FEW, percent, statistics

MARKS = {
    "passed": "+", "partial": "±", "wrong": "-", "crashed": "!", "timed out": "t", "out of memory": "m",
    "forbidden": "f", "unstable": "u", "not attempted": "·", "needs marking": "?",
}  # fmt: skip
MOST_LINES = 12


@contextmanager
def progress_bar(of_what: str = "grading") -> Iterator[Callable[[int, int], None]]:
    """Gives progress(done, of): a bar on a terminal, nothing elsewhere. No thread draws it, since workers are forked."""
    console = Console(stderr=True)
    columns = (TextColumn(of_what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal) as bar:
        task = bar.add_task(of_what, total=None)

        def progress(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of, refresh=True)

        yield progress


def show_batch(batch: Batch, console: Console | None = None) -> None:
    """The table of submissions, its legend, and what a person should know."""
    console = console or Console(highlight=False)
    names = console.is_terminal
    several = len({one.lab for one in batch.results}) > 1
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("student", max_width=32, no_wrap=True)
    if several:
        table.add_column("lab")
    table.add_column("points", justify="right")
    table.add_column("late", justify="right")
    table.add_column("exercises", no_wrap=True)
    table.add_column("")
    for one in batch.results:
        who = one.student if names else one.pseudonym
        late = "" if not one.hours_late else f"{number(one.hours_late)} h"
        cells = [
            escape(who),
            *([one.lab] if several else []),
            _points(one),
            late,
            _marks(one.outcomes),
            escape(_note(one)),
        ]
        table.add_row(*cells)
    console.print(table)
    seen = {outcome.verdict for one in batch.results for outcome in one.outcomes}
    order = list(dict.fromkeys(outcome.exercise for one in batch.results for outcome in one.outcomes))
    console.print(f"exercises: {' '.join(order)}", style="dim")
    console.print("  ".join(f"{mark} {verdict}" for verdict, mark in MARKS.items() if verdict in seen), style="dim")
    _summary(batch, console)


def _points(one: Result) -> str:
    return "none" if one.failure else f"{number(one.points)} of {number(one.of)}"


def _marks(outcomes: Sequence[Outcome]) -> str:
    return "".join(MARKS[one.verdict] for one in outcomes)


def _note(one: Result) -> str:
    if one.failure or one.submission.problem:
        return "no result" if one.failure else "not readable"
    warnings = len(one.submission.warnings)
    parts = [f"{len(one.kept)} kept from before" if one.kept else ""]
    parts += [
        f"{len(one.open)} to mark" if one.open else "",
        f"{warnings} note{'s' * (warnings > 1)}" if warnings else "",
    ]
    return ", ".join(part for part in parts if part)


def _summary(batch: Batch, console: Console) -> None:
    results = batch.results
    without = sum(bool(one.failure) for one in results)
    unread = sum(bool(one.submission.problem) for one in results)
    levels = sorted({outcome.level for one in results for outcome in one.outcomes if outcome.level})
    said = f"{len(results)} submission{'s' * (len(results) != 1)}: {len(results) - without} graded"
    said += f", {unread} of them not readable" if unread else ""
    said += f", {without} without a result" if without else ""
    console.print(f"{said}." + (f" Isolation: {', '.join(levels)}." if levels else ""))
    troubled = [one for one in results if one.failure or one.submission.problem or one.doubt]
    said_of = [f"{one.student}: {one.failure or one.submission.problem or one.doubt}" for one in troubled]
    lines = [*said_of, *batch.said]
    if not console.is_terminal and lines:  # file names and sentences may hold names
        console.print(f"{len(lines)} notes for a person are in notes.txt, with the names.")
        return
    for line in (
        *lines[:MOST_LINES],
        *([f"and {len(lines) - MOST_LINES} more, in notes.txt"] * (len(lines) > MOST_LINES)),
    ):
        console.print(_on_one_line(line), markup=False, soft_wrap=True)


def notes(batch: Batch) -> str:
    """Everything that a person should know, one line each, with names."""
    lines = [
        f"{one.student}, lab {one.lab or 'unknown'}: {text}"
        for one in batch.results
        for text in (one.failure, one.submission.problem, one.doubt, *one.submission.warnings)
        if text
    ]
    return "\n".join([*map(_on_one_line, [*batch.said, *lines]), ""])


def _on_one_line(text: str) -> str:
    """What a student named or wrote begins no line of its own, and moves nobody's cursor."""
    return visible(" ".join(text.splitlines()))


def show_statistics(batch: Batch, console: Console | None = None) -> None:
    """How each exercise went, where the group is large enough."""
    console = console or Console(highlight=False)
    found = statistics(batch.results)
    if all(one.handed_in is None for one in found):
        console.print(f"Statistics are not shown: {FEW} submissions.")
        return
    table = Table("exercise", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("passed", "attempted", "seconds"):
        table.add_column(head, justify="right")
    table.add_column("known mistakes")
    for one in found:
        mistakes = ", ".join(f"{name} ({count})" for name, count in one.mistakes.items())
        seconds = "" if one.seconds is None else f"{one.seconds:.1f}"
        table.add_row(one.exercise, percent(one.passed), percent(one.attempted), seconds, escape(mistakes))
    console.print(table)


def show_changes(changes: Sequence[Change], names: Callable[[str], str], console: Console | None = None) -> None:
    """Whose marks differ from the last run's, and how. names: what to call a student here."""
    console = console or Console(highlight=False)
    if not changes:
        console.print("No mark changes: everybody keeps what the last run gave.")
        return
    table = Table(
        "student", "lab", "exercise", "before", "now", "verdict", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for one in changes:
        verdicts = " → ".join(dict.fromkeys(each.verdict for each in (one.before, one.after) if each))
        table.add_row(
            escape(names(one.student)), one.lab, one.exercise, _share(one.before), _share(one.after), verdicts
        )
    console.print(table)
    students = counted(len({one.student for one in changes}), "student")
    console.print(f"{counted(len(changes), 'mark')} of {students} {'changes' if len(changes) == 1 else 'change'}.")


def counted(count: int, of_what: str) -> str:
    """ "1 mark", "2 marks"."""
    return f"{count} {of_what}{'s' * (count != 1)}"


def _share(one: Outcome | None) -> str:
    return "none" if one is None else f"{number(one.points)} of {number(one.of)}"


def has_terminal() -> bool:
    """Whether what is printed is read on a screen by whoever typed the command."""
    return sys.stdout.isatty()
