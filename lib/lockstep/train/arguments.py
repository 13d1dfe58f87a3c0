"""Arguments of the trainer that cannot be: each is a sentence, before anything is trained.

Floor 4.
"""

from __future__ import annotations

import math
import os
from numbers import Integral, Real

from lockstep.nn import MODELS
from lockstep.train.step import Strategy
from lockstep.train.strategies import STRATEGIES


def named_strategy(strategy: str | Strategy) -> tuple[str, Strategy]:
    """Its name and itself."""
    if callable(strategy):
        return getattr(strategy, "__name__", type(strategy).__name__), strategy
    if strategy not in STRATEGIES:
        raise ValueError(f"there is no strategy {strategy!r}; there are {', '.join(STRATEGIES)}")
    return strategy, STRATEGIES[strategy]


def check_run(model: str, epochs: int, batch: int, lr: float) -> None:
    """Raise ValueError for one that cannot be."""
    if model not in MODELS:
        raise ValueError(f"there is no model {model!r}; there are {', '.join(MODELS)}")
    for name, value in (("epochs", epochs), ("batch", batch)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    if not isinstance(lr, Real) or not math.isfinite(lr) or lr <= 0:
        raise ValueError(f"lr, the learning rate, must be a number above 0, not {lr!r}")


def check_checkpoints(folder: str | os.PathLike | None, every: int | None, resume: bool) -> None:
    """Raise ValueError for what makes no sense together."""
    for name, given in (("checkpoint_every", every is not None), ("resume", resume)):
        if given and folder is None:
            raise ValueError(f"{name} needs a checkpoint_dir, where the checkpoints are")
    if every is not None and (isinstance(every, bool) or not isinstance(every, Integral) or every < 1):
        raise ValueError(f"checkpoint_every must be a whole number of steps of at least 1, not {every!r}")


def check_batch(batch: int, parts: int, images: int) -> None:
    """Raise ValueError for a batch that is too large, or too small for each part to have an image."""
    if batch > images:
        raise ValueError(f"batch={batch} is more than the {images} images there are to train on; choose at most that")
    if batch < parts:
        raise ValueError(f"batch={batch} leaves some of the {parts} ranks without an image; choose at least {parts}")
