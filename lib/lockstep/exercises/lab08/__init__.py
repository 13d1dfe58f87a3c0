"""Lab 08, "Hybrid": a file an exercise (two for 08.3), and the lab's questions.

Floor 4, room `exercises`; read `exercise.py` first. What students read around these exercises is in
`solutions/08_hybrid.py`.
"""

from lockstep.exercises.lab08.axes import MESH
from lockstep.exercises.lab08.levels import HIERARCHICAL
from lockstep.exercises.lab08.links import BYTES_BY_LINK
from lockstep.exercises.lab08.placing import PLACE
from lockstep.exercises.lab08.questions import QUESTIONS
from lockstep.exercises.lab08.switching import WEIRD_TRICK
from lockstep.exercises.lab08.variants import VARIANTS

EXERCISES = (MESH, HIERARCHICAL, WEIRD_TRICK, PLACE, BYTES_BY_LINK)

__all__ = ["EXERCISES", "QUESTIONS", "VARIANTS"]
