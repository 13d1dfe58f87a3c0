"""Lab 09, "ZeRO": a file an exercise (three each for 09.3 and 09.5), and the lab's questions.

Floor 4, room `exercises`; read `exercise.py` first, then `toys.py`, which counts the memory that is held. What students
read around these exercises is in `solutions/09_zero.py`.
"""

from lockstep.exercises.lab09.flat import SHARD_FLAT
from lockstep.exercises.lab09.gathering import ZERO3
from lockstep.exercises.lab09.questions import QUESTIONS
from lockstep.exercises.lab09.reducing import ZERO2
from lockstep.exercises.lab09.reshard import RESHARD
from lockstep.exercises.lab09.state import STATE_BYTES
from lockstep.exercises.lab09.stepping import ZERO1_STEP

EXERCISES = (STATE_BYTES, SHARD_FLAT, ZERO1_STEP, ZERO2, ZERO3, RESHARD)

__all__ = ["EXERCISES", "QUESTIONS"]
