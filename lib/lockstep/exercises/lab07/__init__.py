"""Lab 07, "Pipelines": schedules as data, from GPipe to one of the student's own.

Floor 4, room `exercises`; read `exercise.py` first, then `lab07/rows.py`, which says how schedules are judged,
`lab07/judging.py`, what each is asked, and `lab07/staircase.py`. One file an exercise, and one for what students get
wrong in it; `lab07/shapes.py` has what goes wrong in any schedule. What students read around these exercises is in
`solutions/07_pipelines.py`.
"""

from lockstep.exercises.lab07.designing import DESIGN
from lockstep.exercises.lab07.held import IN_FLIGHT
from lockstep.exercises.lab07.idle import BUBBLE
from lockstep.exercises.lab07.one_and_one import ONE_F_ONE_B
from lockstep.exercises.lab07.questions import QUESTIONS
from lockstep.exercises.lab07.rounds import INTERLEAVED
from lockstep.exercises.lab07.sharing import SHARES
from lockstep.exercises.lab07.staircase import GPIPE
from lockstep.exercises.lab07.stash import STASHED_VERSION

EXERCISES = (GPIPE, BUBBLE, ONE_F_ONE_B, IN_FLIGHT, INTERLEAVED, STASHED_VERSION, DESIGN, SHARES)

__all__ = ["EXERCISES", "QUESTIONS"]
