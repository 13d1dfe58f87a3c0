"""Pipelines: a schedule is a value that is drawn, proved, timed and executed by the same code.

Floor 2, room `parallel`. Read `schedule` first (what an action is), then `schedules` (the known ones), `prove`,
`timing` and `execute`.
"""

from lockstep.parallel.pipeline.batch_norm import DeferredBatchNorm2d
from lockstep.parallel.pipeline.execute import Pipeline
from lockstep.parallel.pipeline.prove import Proof, prove
from lockstep.parallel.pipeline.schedule import Action, InvalidSchedule, Overlap, Schedule
from lockstep.parallel.pipeline.schedules import (
    SCHEDULES,
    dualpipev,
    fuse_backward,
    gpipe,
    interleaved,
    looped_bfs,
    naive,
    one_f_one_b,
    pipedream,
    zbv,
    zero_bubble,
)
from lockstep.parallel.pipeline.timing import Timing, simulate
from lockstep.parallel.pipeline.torch_csv import read_csv, write_csv
from lockstep.parallel.pipeline.versions import VersionUse

__all__ = [
    "SCHEDULES",
    "Action",
    "DeferredBatchNorm2d",
    "InvalidSchedule",
    "Overlap",
    "Pipeline",
    "Proof",
    "Schedule",
    "Timing",
    "VersionUse",
    "dualpipev",
    "fuse_backward",
    "gpipe",
    "interleaved",
    "looped_bfs",
    "naive",
    "one_f_one_b",
    "pipedream",
    "prove",
    "read_csv",
    "simulate",
    "write_csv",
    "zbv",
    "zero_bubble",
]
