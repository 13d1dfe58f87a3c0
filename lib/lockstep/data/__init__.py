"""Room `data`: what the labs train on, and who sees which part of it; start with `load`."""

from lockstep.data.cache import Cache
from lockstep.data.errors import DataError
from lockstep.data.loader import Loader
from lockstep.data.prefetch import prefetch
from lockstep.data.sampler import DistributedSampler
from lockstep.data.sampling import permutation, shard
from lockstep.data.sets import NAMES, SPLITS, Images, load
from lockstep.data.transforms import Normalize, OneHot

__all__ = [
    "NAMES",
    "SPLITS",
    "Cache",
    "DataError",
    "DistributedSampler",
    "Images",
    "Loader",
    "Normalize",
    "OneHot",
    "load",
    "permutation",
    "prefetch",
    "shard",
]
