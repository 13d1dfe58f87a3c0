"""Room `data`: what the labs train on, and who sees which part of it; start with `load`."""

from lockstep.data.errors import DataError
from lockstep.data.sampling import permutation, shard
from lockstep.data.sets import NAMES, SPLITS, Images, load

__all__ = ["NAMES", "SPLITS", "DataError", "Images", "load", "permutation", "shard"]
