"""Room `parallel`: ways to share one model's training out among ranks."""

from lockstep.parallel.accuracy import distributed_accuracy
from lockstep.parallel.batch_norm import SyncBatchNorm2d
from lockstep.parallel.bucket_plan import (
    BucketPlan,
    ReadyGradient,
    best_bucket_bytes,
    gradients_of,
    plan_buckets,
    profile_of,
    steps_by_bucket_bytes,
)
from lockstep.parallel.buckets import make_buckets
from lockstep.parallel.channels import ChannelParallelConv2d, InputChannelParallelConv2d, own_batch_norm
from lockstep.parallel.checkpoint import CheckpointError, Replicated, load_checkpoint, save_checkpoint
from lockstep.parallel.data import DistributedDataParallel
from lockstep.parallel.hybrid import Hybrid
from lockstep.parallel.layers import DeviceSplit, LayerSplit, receive_forward, send_forward
from lockstep.parallel.predict import Step, measure_profile, predict_step
from lockstep.parallel.priority import arrivals, next_forward, priority_order
from lockstep.parallel.rates import linear_lr, scaled_lr, square_root_lr
from lockstep.parallel.rows import RowParallel2d
from lockstep.parallel.server import ParameterServer
from lockstep.parallel.tensor import ColumnParallelLinear, RowParallelLinear
from lockstep.parallel.tensor_parallel import TensorParallel
from lockstep.parallel.tensor_plan import TensorPlan, plan_tensor
from lockstep.parallel.weird_trick import WeirdTrick, weird_trick_bytes
from lockstep.parallel.zero import ZeRO

__all__ = [
    "BucketPlan",
    "ChannelParallelConv2d",
    "CheckpointError",
    "ColumnParallelLinear",
    "DeviceSplit",
    "DistributedDataParallel",
    "Hybrid",
    "InputChannelParallelConv2d",
    "LayerSplit",
    "ParameterServer",
    "ReadyGradient",
    "Replicated",
    "RowParallel2d",
    "RowParallelLinear",
    "Step",
    "SyncBatchNorm2d",
    "TensorParallel",
    "TensorPlan",
    "WeirdTrick",
    "ZeRO",
    "arrivals",
    "best_bucket_bytes",
    "distributed_accuracy",
    "gradients_of",
    "linear_lr",
    "load_checkpoint",
    "make_buckets",
    "measure_profile",
    "next_forward",
    "own_batch_norm",
    "plan_buckets",
    "plan_tensor",
    "predict_step",
    "priority_order",
    "profile_of",
    "receive_forward",
    "save_checkpoint",
    "scaled_lr",
    "send_forward",
    "square_root_lr",
    "steps_by_bucket_bytes",
    "weird_trick_bytes",
]
