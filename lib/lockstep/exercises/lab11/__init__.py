"""Lab 11, "Hiding communication": two or three files an exercise, and the lab's questions.

Floor 4, room `exercises`; read `exercise.py` first, then `path.py` with the traces of `traces.py`. What students read
around these exercises is in `solutions/11_hiding_communication.py`.
"""

from lockstep.exercises.lab11.bucket import BEST_BUCKET
from lockstep.exercises.lab11.buffers import DOUBLE_BUFFER
from lockstep.exercises.lab11.path import CRITICAL_PATH
from lockstep.exercises.lab11.priority import PRIORITY_ORDER
from lockstep.exercises.lab11.questions import QUESTIONS
from lockstep.exercises.lab11.share import OVERLAP_SHARE

EXERCISES = (CRITICAL_PATH, BEST_BUCKET, PRIORITY_ORDER, DOUBLE_BUFFER, OVERLAP_SHARE)

__all__ = ["EXERCISES", "QUESTIONS"]
