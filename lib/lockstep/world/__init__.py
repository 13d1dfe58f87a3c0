"""Room `world`: the two worlds a rank function can run in, `launch` (processes) and `simulate` (a virtual clock)."""

from lockstep.world.calibrate import calibrate
from lockstep.world.launch import launch
from lockstep.world.magic import load_ipython_extension, prepare_notebook
from lockstep.world.run import DeadlockError, RankError, Run, RunError, RunTimeout
from lockstep.world.simulate import simulate
from lockstep.world.timing import fit_collective, time_collectives

__all__ = [
    "DeadlockError",
    "RankError",
    "Run",
    "RunError",
    "RunTimeout",
    "calibrate",
    "fit_collective",
    "launch",
    "load_ipython_extension",
    "simulate",
    "time_collectives",
]

prepare_notebook()
