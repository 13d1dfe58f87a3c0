"""Floor 3, room `viz`: figures with a text alternative, and their moving twins.

`timeline` shows what each rank of a run did when, `ring` which chunk a ring collective moves at a step;
`timeline_player` and `ring_player` are the same with a slider. `threads` shows which GPU thread writes which cell, `warp`
(and `warp_player`) what one warp's requests touch, `kernel_roofline` what kernels can reach. `window` (and
`window_player`) shows which pixels an output of a convolution reads, `numbers` small tables, `curves` what develops
over epochs.
`gantt` draws pipeline schedules (and `pipeline_explorer` behind a menu), `predicted_and_measured` a step of one.
"""

from lockstep.viz.curves import curves
from lockstep.viz.figure import Figure
from lockstep.viz.gantt import gantt
from lockstep.viz.kernel_roofline import kernel_roofline
from lockstep.viz.numbers import numbers
from lockstep.viz.pipeline_explorer import pipeline_explorer
from lockstep.viz.player import Player
from lockstep.viz.predicted import measured_step, predicted_and_measured
from lockstep.viz.ring import ring, ring_player
from lockstep.viz.threads import threads
from lockstep.viz.timeline import timeline, timeline_player
from lockstep.viz.warp import warp, warp_player
from lockstep.viz.windows import window, window_player

__all__ = [
    "Figure",
    "Player",
    "curves",
    "gantt",
    "kernel_roofline",
    "measured_step",
    "numbers",
    "pipeline_explorer",
    "predicted_and_measured",
    "ring",
    "ring_player",
    "threads",
    "timeline",
    "timeline_player",
    "warp",
    "warp_player",
    "window",
    "window_player",
]
