"""Lab 03, "The three bottlenecks": what a network costs in computation, memory and communication.

Floor 4, room `exercises`; read `exercise.py` first, then `lab03/convolution.py`. One file an exercise. What students
read around these exercises is in `solutions/03_three_bottlenecks.py`.
"""

from lockstep.exercises.lab03.activations import SAVED
from lockstep.exercises.lab03.batch import BATCH
from lockstep.exercises.lab03.convolution import CONV_COST
from lockstep.exercises.lab03.limits import LIMITS
from lockstep.exercises.lab03.questions import QUESTIONS
from lockstep.exercises.lab03.segments import SEGMENTS
from lockstep.exercises.lab03.state import MEMORY

EXERCISES = (CONV_COST, SAVED, MEMORY, BATCH, SEGMENTS, LIMITS)
WORDS = {"03.p5": ("computation", "memory", "network")}  # predictions that are a word

__all__ = ["EXERCISES", "QUESTIONS", "WORDS"]
