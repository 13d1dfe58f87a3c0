"""Lab 01, "One GPU thread": kernels, from the index of a thread to a tiled convolution.

Floor 4, room `exercises`; read `exercise.py` first, then `lab01/launching.py`, which runs and counts a kernel, and
`lab01/index.py`. One file an exercise. What students read around these exercises is in `solutions/01_one_gpu_thread.py`.
"""

from lockstep.exercises.lab01.index import GLOBAL_INDEX
from lockstep.exercises.lab01.naive import CONV2D_NAIVE
from lockstep.exercises.lab01.occupying import OCCUPANCY
from lockstep.exercises.lab01.questions import QUESTIONS
from lockstep.exercises.lab01.reducing import REDUCE_SUM
from lockstep.exercises.lab01.shape import LAUNCH_SHAPE
from lockstep.exercises.lab01.tiled import CONV2D_TILED
from lockstep.exercises.lab01.transposing import TRANSPOSE

EXERCISES = (GLOBAL_INDEX, LAUNCH_SHAPE, TRANSPOSE, CONV2D_NAIVE, CONV2D_TILED, REDUCE_SUM, OCCUPANCY)

__all__ = ["EXERCISES", "QUESTIONS"]
