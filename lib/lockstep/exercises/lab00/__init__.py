"""Lab 00, "Start here": a first rank function, and Amdahl's law.

Floor 4, room `exercises`; read `exercise.py` first. What students read around these exercises is in
`solutions/00_start_here.py`.
"""

from lockstep.exercises.lab00.amdahl import AMDAHL
from lockstep.exercises.lab00.hello import HELLO
from lockstep.exercises.lab00.questions import QUESTIONS

EXERCISES = (HELLO, AMDAHL)

__all__ = ["EXERCISES", "QUESTIONS"]
