"""The trainer that a user takes home: any strategy by name, from a notebook, in ranks, or under torchrun.

Floor 4. `train(...)` in one process, `launch(train, 2, strategy="naive")` in ranks,
`torchrun --nproc-per-node=2 -m lockstep.train --strategy naive` from a shell. Read `trainer.py` first.
"""

from lockstep.train.strategies import STRATEGIES
from lockstep.train.trainer import TrainResult, train

__all__ = ["STRATEGIES", "TrainResult", "train"]
