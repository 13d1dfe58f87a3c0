"""Lab 04, "Talking: collectives": from a message between neighbours to the choice of an all-reduce.

Floor 4, room `exercises`; read `exercise.py` first, then `lab04/exchange.py`. One file an exercise; `steps.py` holds
what they share. What students read around these exercises is in `solutions/04_collectives.py`.
"""

from lockstep.exercises.lab04.all_gather import ALL_GATHER
from lockstep.exercises.lab04.all_reduce import ALL_REDUCE
from lockstep.exercises.lab04.broadcast import BROADCAST
from lockstep.exercises.lab04.choose import CHOOSE
from lockstep.exercises.lab04.exchange import EXCHANGE
from lockstep.exercises.lab04.questions import QUESTIONS
from lockstep.exercises.lab04.reduce_scatter import REDUCE_SCATTER
from lockstep.exercises.lab04.seconds import PREDICT_SECONDS
from lockstep.exercises.lab04.variants import VARIANTS

EXERCISES = (EXCHANGE, REDUCE_SCATTER, ALL_GATHER, ALL_REDUCE, BROADCAST, PREDICT_SECONDS, CHOOSE)

__all__ = ["EXERCISES", "QUESTIONS", "VARIANTS"]
