"""The trainer that a user takes home: any strategy by name, from a notebook, in ranks, or under torchrun.

Floor 4. `train(...)` in one process, `launch(train, 2, strategy="ddp")` in ranks,
`torchrun --nproc-per-node=2 -m lockstep.train --strategy ddp` from a shell. Read `trainer.py` first.
"""

from lockstep.train.meshed import hybrid, pipeline
from lockstep.train.result import TrainResult
from lockstep.train.served import parameter_server
from lockstep.train.strategies import STRATEGIES, compressed
from lockstep.train.student import averaged_by, wrapped_by
from lockstep.train.trainer import train

__all__ = [
    "STRATEGIES",
    "TrainResult",
    "averaged_by",
    "compressed",
    "hybrid",
    "parameter_server",
    "pipeline",
    "train",
    "wrapped_by",
]
