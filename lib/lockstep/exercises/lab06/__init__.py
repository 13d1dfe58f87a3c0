"""Lab 06, "Splitting the model": for each exercise a file with what is asked, one with right solutions, one or two
with mistakes; and the lab's questions.

Floor 4, room `exercises`; read `exercise.py` first. What students read around these exercises is in
`solutions/06_splitting_the_model.py`.
"""

from lockstep.exercises.lab06.balancing import BALANCED_PARTITION
from lockstep.exercises.lab06.bytes import BYTES_PER_STEP
from lockstep.exercises.lab06.channels import CHANNEL_PARALLEL
from lockstep.exercises.lab06.columns import COLUMN_PARALLEL
from lockstep.exercises.lab06.questions import QUESTIONS
from lockstep.exercises.lab06.rows import ROW_PARALLEL
from lockstep.exercises.lab06.splitting import SPLIT_LAYERS

EXERCISES = (SPLIT_LAYERS, BALANCED_PARTITION, COLUMN_PARALLEL, ROW_PARALLEL, CHANNEL_PARALLEL, BYTES_PER_STEP)

__all__ = ["EXERCISES", "QUESTIONS"]
