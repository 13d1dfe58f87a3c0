"""Floor 3, room `viz`: figures with a text alternative, and their moving twins.

`timeline` shows what each rank of a run did when, `ring` which chunk a ring collective moves at a step;
`timeline_player` and `ring_player` are the same with a slider.
"""

from lockstep.viz.figure import Figure
from lockstep.viz.player import Player
from lockstep.viz.ring import ring, ring_player
from lockstep.viz.timeline import timeline, timeline_player

__all__ = ["Figure", "Player", "ring", "ring_player", "timeline", "timeline_player"]
