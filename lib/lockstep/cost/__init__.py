"""Room `cost`: what work costs, before anything runs, and what it cost when it ran.

Start with `profile`; `training_memory`, `largest_batch`, `checkpointing` and `step_time` take what it gives. Beside
every prediction stands its measurement: `measure_saved_bytes` and `measure_step`.
"""

from lockstep.cost.checkpointing import Checkpointing, best_checkpointing, checkpointing, profile_stages
from lockstep.cost.limits import StepTime, step_time
from lockstep.cost.memory import (
    MemoryByBatch,
    TrainingMemory,
    accumulation_sizes,
    largest_batch,
    memory_by_batch,
    training_memory,
)
from lockstep.cost.peak import StepMemory, measure_saved_bytes, measure_step, peak_memory, replay_step
from lockstep.cost.profile import LayerProfile, Profile, profile
from lockstep.cost.roofline import Cost, LayerCost, check_profile, seconds_of
from lockstep.cost.sharded_state import zero3_estimate, zero_bytes, zero_memory
from lockstep.cost.traffic import (
    data_parallel_bytes,
    layer_split_bytes,
    parameter_server_bytes,
    tensor_parallel_bytes,
    zero_traffic,
)

__all__ = [
    "Checkpointing",
    "Cost",
    "LayerCost",
    "LayerProfile",
    "MemoryByBatch",
    "Profile",
    "StepMemory",
    "StepTime",
    "TrainingMemory",
    "accumulation_sizes",
    "best_checkpointing",
    "check_profile",
    "checkpointing",
    "data_parallel_bytes",
    "largest_batch",
    "layer_split_bytes",
    "measure_saved_bytes",
    "measure_step",
    "parameter_server_bytes",
    "memory_by_batch",
    "peak_memory",
    "profile",
    "profile_stages",
    "replay_step",
    "seconds_of",
    "step_time",
    "tensor_parallel_bytes",
    "training_memory",
    "zero3_estimate",
    "zero_bytes",
    "zero_memory",
    "zero_traffic",
]
