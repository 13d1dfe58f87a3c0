"""Checkpoints that any number of ranks can load, whatever number saved them, through `torch.distributed.checkpoint`.

Floor 2, room `parallel`. Read `saving` first, then `held` (what is saved, by name), `storage` (torch's planner and
files), `folders` (how a checkpoint is whole or not there) and `loading`.

    save_checkpoint("runs/a", zero, step=120, extra={"epoch": 3})       # every rank; writes runs/a/step-000000120
    at = load_checkpoint("runs/a", zero)                                # every rank, of any number; the latest one
    at.step, at.extra
"""

from lockstep.parallel.checkpoint.errors import CheckpointError
from lockstep.parallel.checkpoint.folders import all_checkpoints, latest_checkpoint
from lockstep.parallel.checkpoint.held import Replicated
from lockstep.parallel.checkpoint.loading import Checkpoint, load_checkpoint
from lockstep.parallel.checkpoint.saving import save_checkpoint

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Replicated",
    "all_checkpoints",
    "latest_checkpoint",
    "load_checkpoint",
    "save_checkpoint",
]
