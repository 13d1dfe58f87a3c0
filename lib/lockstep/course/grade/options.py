"""The options of `lockstep grade` and `lockstep regrade`. Nothing heavy is imported before they are read.

Floor 4, room `course`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Submissions = Annotated[
    Path, typer.Argument(help="A folder for each student, loose notebooks, submit() files, or an LMS's download (zip).")
]
ReleaseFile = Annotated[Path, typer.Option("--release", help="The release.toml that `lockstep release` wrote.")]
Out = Annotated[Path, typer.Option("--out", help="The folder of grades; made private.")]
Due = Annotated[list[str] | None, typer.Option("--due", help="'2026-12-01 23:59', or '05=2026-12-01 23:59' for a lab.")]
Extensions = Annotated[Path | None, typer.Option("--extensions", help="CSV: student, due or hours.")]
Times = Annotated[Path | None, typer.Option("--times", help="CSV: student, submitted; where the LMS does not say.")]
PolicyFile = Annotated[Path | None, typer.Option("--policy", help="TOML: late penalty, points for words.")]
MarksFile = Annotated[Path | None, typer.Option("--marks", help="CSV: question, pseudonym, points, comment.")]
Overrides = Annotated[
    Path | None,
    typer.Option(
        "--overrides", help="CSV: student, exercise, points, why; else overrides.csv in the folder of grades."
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Processes side by side; 0: as many as there are cores.")]
Isolation = Annotated[str, typer.Option("--isolation", help="auto takes the best that works here.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Judge again what was judged before.")]
Lower = Annotated[bool, typer.Option("--lower", help="Let marks fall below those of the last run.")]


def grade(
    submissions: Submissions,
    release: ReleaseFile,
    out: Out = Path("grades"),
    due: Due = None,
    extensions: Extensions = None,
    times: Times = None,
    policy: PolicyFile = None,
    marks: MarksFile = None,
    overrides: Overrides = None,
    gradebook: Annotated[Path | None, typer.Option("--gradebook", help="A gradebook that the LMS exported.")] = None,
    column: Annotated[list[str] | None, typer.Option("--column", help="05='Lab 05 (123)': its column there.")] = None,
    viva: Annotated[int, typer.Option("--viva", min=0, help="So many questions about each student's own code.")] = 0,
    jobs: Jobs = 0,
    isolation: Isolation = "auto",
    fresh: Fresh = False,
    lower: Lower = False,
) -> None:
    """Grade a batch of submissions; exit status 0 means that every one has a result."""
    from lockstep.course.grade.command import grade_batch
    from lockstep.course.grade.grading import Request

    request = Request(
        submissions, out, due or (), extensions, times, policy, marks, overrides, jobs or _cores(), fresh, lower
    )  # fmt: skip
    complete = grade_batch(
        request, release, isolation=isolation, gradebook=gradebook, columns=column or (), questions=viva
    )
    raise typer.Exit(0 if complete else 1)


def regrade(
    submissions: Submissions,
    release: ReleaseFile,
    out: Out = Path("grades"),
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing: only show whose marks would change.")] = False,
    due: Due = None,
    extensions: Extensions = None,
    times: Times = None,
    policy: PolicyFile = None,
    marks: MarksFile = None,
    overrides: Overrides = None,
    jobs: Jobs = 0,
    isolation: Isolation = "auto",
    fresh: Fresh = False,
    lower: Lower = False,
) -> None:
    """Grade again, after an exercise or the library changed, and show whose marks change."""
    from lockstep.course.grade.command import regrade_batch
    from lockstep.course.grade.grading import Request

    request = Request(
        submissions, out, due or (), extensions, times, policy, marks, overrides, jobs or _cores(), fresh, lower,
        keep=not diff,
    )  # fmt: skip
    raise typer.Exit(0 if regrade_batch(request, release, isolation=isolation) else 1)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
