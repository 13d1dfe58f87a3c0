"""Lab 05, "Data parallel": a file an exercise (four for 05.4), and the lab's questions.

Floor 4, room `exercises`; read `exercise.py` first. What students read around these exercises is in
`solutions/05_data_parallel.py`.
"""

from lockstep.exercises.lab05.accuracy import ACCURACY
from lockstep.exercises.lab05.asynchrony import ASYNC
from lockstep.exercises.lab05.averaging import AVERAGE
from lockstep.exercises.lab05.batch_norm import SYNC_BATCH_NORM
from lockstep.exercises.lab05.bucketing import BUCKETS
from lockstep.exercises.lab05.learning_rate import SCALED
from lockstep.exercises.lab05.overlapping import OVERLAPPED
from lockstep.exercises.lab05.questions import QUESTIONS
from lockstep.exercises.lab05.shards import SHARD
from lockstep.exercises.lab05.variants import VARIANTS

EXERCISES = (SHARD, AVERAGE, BUCKETS, OVERLAPPED, SCALED, ASYNC, SYNC_BATCH_NORM, ACCURACY)

__all__ = ["EXERCISES", "QUESTIONS", "VARIANTS"]
