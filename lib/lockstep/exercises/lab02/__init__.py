"""Lab 02, "CNN layers": convolution, pooling, batch norm and the loss, forward and backward by hand.

Floor 4, room `exercises`; read `exercise.py` first, then `lab02/convolution.py`. One file an exercise; `parts.py` and
`shapes.py` hold what they share. What students read around these exercises is in `solutions/02_cnn_layers.py`.
"""

from lockstep.exercises.lab02.batch_norm import BATCH_NORM
from lockstep.exercises.lab02.convolution import CONVOLUTION
from lockstep.exercises.lab02.convolution_backward import CONVOLUTION_BACKWARD
from lockstep.exercises.lab02.cross_entropy import CROSS_ENTROPY
from lockstep.exercises.lab02.max_pool import MAX_POOL
from lockstep.exercises.lab02.output_size import OUTPUT_SIZE
from lockstep.exercises.lab02.questions import QUESTIONS

EXERCISES = (OUTPUT_SIZE, CONVOLUTION, CONVOLUTION_BACKWARD, MAX_POOL, BATCH_NORM, CROSS_ENTROPY)

__all__ = ["EXERCISES", "QUESTIONS"]
