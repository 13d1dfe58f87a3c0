"""Exercises: check a solution, get a hint, predict, answer, see how far you are.

Floor 4. Read `exercise.py` first: an exercise is a value. `check.py` is the student's way in, `registry.py` finds
the labs' exercises, `keep.py` is the folder `my/`.
"""

from lockstep.exercises.asking import answer, ask, recall
from lockstep.exercises.check import check
from lockstep.exercises.diagnosis import diagnose
from lockstep.exercises.help import hint, mine, solution, whose
from lockstep.exercises.predictions import predict, reveal
from lockstep.exercises.progress import progress
from lockstep.exercises.registry import all as all
from lockstep.exercises.registry import find as find
from lockstep.exercises.submission import submit

__all__ = [  # without `all`, which would hide the builtin from who imports *
    "answer",
    "ask",
    "check",
    "diagnose",
    "hint",
    "mine",
    "predict",
    "progress",
    "recall",
    "reveal",
    "solution",
    "submit",
    "whose",
]
