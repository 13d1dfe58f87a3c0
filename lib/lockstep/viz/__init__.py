"""Floor 3, room `viz`: figures with a text alternative, and their moving twins.

`timeline` shows what each rank of a run did when; `timeline_player` is the same with a slider.
"""

from lockstep.viz.figure import Figure
from lockstep.viz.player import Player
from lockstep.viz.timeline import timeline, timeline_player

__all__ = ["Figure", "Player", "timeline", "timeline_player"]
