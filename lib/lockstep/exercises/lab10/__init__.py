"""Lab 10, "Compression": a file an exercise, with more beside it where there is more to say, and the lab's questions.

Floor 4, room `exercises`; read `exercise.py` first. What students read around these exercises is in
`solutions/10_compression.py`.
"""

from lockstep.exercises.lab10.feedback import ERROR_FEEDBACK
from lockstep.exercises.lab10.local_sgd import LOCAL_SGD
from lockstep.exercises.lab10.one_bit import ONE_BIT
from lockstep.exercises.lab10.pays_off import PAYS_OFF
from lockstep.exercises.lab10.power_sgd import POWER_SGD
from lockstep.exercises.lab10.quantize import QUANTIZE
from lockstep.exercises.lab10.questions import QUESTIONS
from lockstep.exercises.lab10.sensing import SENSE_AND_RECOVER
from lockstep.exercises.lab10.top_k import TOP_K

EXERCISES = (QUANTIZE, ONE_BIT, TOP_K, ERROR_FEEDBACK, POWER_SGD, SENSE_AND_RECOVER, PAYS_OFF, LOCAL_SGD)

__all__ = ["EXERCISES", "QUESTIONS"]
