"""What `lockstep grade` and `lockstep regrade` do, in order; their options are in the command line's module.

Floor 4, room `course`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console

from lockstep.course.grade.batch import Rules
from lockstep.course.grade.cache import write_whole
from lockstep.course.grade.grading import Batch, Request, grade
from lockstep.course.grade.program import source_of
from lockstep.course.grade.public import likenesses
from lockstep.course.grade.released import rules_of, titles_of
from lockstep.course.grade.result import Result
from lockstep.course.grade.show import (
    MOST_LINES,
    counted,
    has_terminal,
    progress_bar,
    show_batch,
    show_changes,
    show_statistics,
)
from lockstep.course.grade.viva import viva
from lockstep.course.grade.writing import Written, write_all, write_gradebook
from lockstep.course.release.toml import Release, read_release


def grade_batch(
    request: Request,
    release_file: Path,
    *,
    isolation: str = "auto",
    gradebook: Path | None = None,
    columns: Iterable[str] = (),
    questions: int = 0,
) -> bool:
    """Grade, write and show everything; returns whether every submission has a result."""
    release = read_release(release_file)
    chosen = columns_by_lab(columns)
    rules = rules_of(release, isolation=isolation)
    batch = _graded(request, release, rules)
    values = [one for lab in release.labs for one in release.values(lab.number)]
    pairs, texts = likenesses(batch.results, values, rules.labs, request.cache)
    written = write_all(request.out, batch, _titles(release, rules, batch), pairs, texts)
    show_batch(batch)
    show_statistics(batch)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"\nIn {request.out}/, which is private and which git ignores:")
    for line in written.said:
        console.print(f"  {line}", markup=False)
    _show_lost(written, console)
    if gradebook is not None:
        for line in write_gradebook(request.out, gradebook, batch.results, chosen):
            console.print(line, markup=False)
    if questions:
        _viva(request.out, batch, rules, questions, console)
    return batch.complete and not written.lost


def regrade_batch(request: Request, release_file: Path, *, isolation: str = "auto") -> bool:
    """Grade again and show whose marks change, compared with the last run; files are written unless `keep` is off."""
    release = read_release(release_file)
    rules = rules_of(release, isolation=isolation)
    batch = _graded(request, release, rules)
    pseudonyms = {one.student: one.pseudonym for one in batch.results}
    show_changes(batch.changes, (lambda who: who) if has_terminal() else (lambda who: pseudonyms.get(who, "gone")))
    kept = [one for one in batch.results if one.kept]
    console = Console(highlight=False, soft_wrap=True)
    if kept:
        console.print(
            f"{counted(sum(len(one.kept) for one in kept), 'mark')} of {counted(len(kept), 'student')} would have "
            "fallen; those of the last run stay, unless you say --lower."
        )
    if not request.keep:
        console.print(f"Nothing was written to {request.out}/: --diff only looks. Leave it out to write.", markup=False)
        return batch.complete
    values = [one for lab in release.labs for one in release.values(lab.number)]
    pairs, texts = likenesses(batch.results, values, rules.labs, request.cache)
    written = write_all(request.out, batch, _titles(release, rules, batch), pairs, texts)
    console.print(f"Written to {request.out}/.", markup=False)
    _show_lost(written, console)
    return batch.complete and not written.lost


def _show_lost(written: Written, console: Console) -> None:
    """What could not be written, as far as it fits a screen; in a log, without the names that files have."""
    if written.lost and not has_terminal():
        console.print(f"{len(written.lost)} files could not be written; on a terminal their names are shown.")
        return
    for line in written.lost[:MOST_LINES]:
        console.print(line, markup=False)
    if len(written.lost) > MOST_LINES:
        console.print(f"and {len(written.lost) - MOST_LINES} more files")


def _graded(request: Request, release: Release, rules: Rules) -> Batch:
    drift = release.drift()
    try:
        with progress_bar() as progress:
            batch = grade(request, rules, progress)
    except KeyboardInterrupt:
        again = "with --fresh, it begins anew" if request.fresh else "it goes on where it stopped"
        print(
            f"\nStopped before the end: no marks were written. Give the same command again; {again}.", file=sys.stderr
        )
        raise
    for line in drift:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"{line[:1].upper()}{line[1:]}.", markup=False)
    return batch


def _titles(release: Release, rules: Rules, batch: Batch) -> dict[str, str]:
    return titles_of(release, rules) | {id: asked.question for id, asked in batch.policy.answers.items()}


def columns_by_lab(said: Iterable[str]) -> dict[str, str]:
    """ "05=Lab 05 (123)" by lab; raises ValueError."""
    found = {}
    for text in said:
        lab, equals, name = text.partition("=")
        if not equals or not lab.strip().isdigit():
            raise ValueError(f"--column {text!r} is not like 05='Lab 05 (1234)': a lab, then the column's name")
        found[lab.strip().zfill(2)] = name
    return found


def _viva(out: Path, batch: Batch, rules: Rules, count: int, console: Console) -> None:
    lines = []
    for one in batch.results:
        asked = viva(_texts(one, rules.labs[one.lab].functions), count, one.pseudonym) if one.lab in rules.labs else []
        who = one.student if has_terminal() else one.pseudonym
        console.print(f"\n{who}, lab {one.lab}", markup=False)
        lines += [f"{one.student}, lab {one.lab}", *(f"  {i}. {text}" for i, text in enumerate(asked, 1)), ""]
        for i, text in enumerate(asked, 1):
            console.print(f"  {i}. {text}", markup=False)
    write_whole(out / "viva.txt", "\n".join(lines))


def _texts(one: Result, functions: Mapping[str, str]) -> dict[str, str]:
    """What the student wrote, by function; exercises that were not attempted left out."""
    tried = {outcome.exercise for outcome in one.outcomes if outcome.verdict != "not attempted"}
    return {
        name: text
        for id, name in functions.items()
        if id in tried and (text := source_of(one.submission.program, name))
    }
