"""Room `parallel`: ways to share one model's training out among ranks."""

from lockstep.parallel.batch_norm import SyncBatchNorm2d
from lockstep.parallel.buckets import make_buckets
from lockstep.parallel.data import DistributedDataParallel
from lockstep.parallel.server import ParameterServer

__all__ = ["DistributedDataParallel", "ParameterServer", "SyncBatchNorm2d", "make_buckets"]
