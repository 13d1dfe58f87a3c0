"""Where a run of the trainer stands, kept in checkpoints: a run that goes on from one has the losses of one that never
stopped, also on another number of ranks or with another strategy.

Floor 4. Read `lockstep.parallel.checkpoint` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lockstep.comm import Communicator
from lockstep.parallel import CheckpointError, Replicated, ZeRO, load_checkpoint, save_checkpoint
from lockstep.parallel.checkpoint import all_checkpoints
from lockstep.parallel.checkpoint.together import on_rank_0
from lockstep.train.step import Apart, Kept, Step


@dataclass(eq=False)
class Went:
    """How the training went so far."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0


class Checkpoints:
    """The checkpoints of one run in `folder`; without a folder, none.

    every: steps from one to the next; by default one for each epoch. settings: what a run that goes on must have in
    common with the one that it goes on from. seed: what this rank's random numbers go on from where the checkpoint has
    none for it, because there were not as many ranks.
    """

    def __init__(
        self,
        folder: str | Path | None,
        every: int | None,
        kept: ZeRO | Replicated | None,
        decay: LRScheduler,
        settings: Mapping[str, Any],
        seed: int,
    ) -> None:
        self._folder, self._every = None if folder is None else Path(folder), every
        self._kept, self._decay, self._settings, self._seed = kept, decay, dict(settings), seed
        self.went = Went()

    def begin(self, resume: bool) -> None:
        """Collective: make everything as it was where the last run came to; where there is none, nothing.

        Raises CheckpointError when there is one and `resume` is False, when it cannot be loaded, or when its settings
        are others.
        """
        if self._folder is None or not on_rank_0(self._kept.comm, lambda: all_checkpoints(self._folder)):
            return
        if not resume:
            raise CheckpointError(
                f"{self._folder} has checkpoints of an earlier run: go on from the last with resume=True or --resume, or "
                f"choose another folder"
            )
        at = load_checkpoint(self._folder, self._kept)
        for name, value in self._settings.items():
            if at.extra["settings"].get(name) != value:
                raise CheckpointError(
                    f"{at.path} is of a run with {name}={at.extra['settings'].get(name)!r}, and this one has {value!r}: "
                    f"only the same run can go on"
                )
        self._decay.load_state_dict(at.extra["decay"])
        for group, lr in zip(self._decay.optimizer.param_groups, self._decay.get_last_lr(), strict=True):
            group["lr"] = lr
        self._restore_generators(at.of_rank, at.step)
        self.went = Went(**at.extra["went"])

    def stretches(self, last: int) -> list[tuple[int, int]]:
        """(first step, end) of what can be trained from here on to step `last` without a checkpoint between."""
        first = len(self.went.losses)
        inside = [] if self._folder is None or not self._every else range(0, last, self._every)
        ends = [step for step in inside if first < step] + [last]
        return list(zip([first, *ends], ends, strict=False))

    def save(self, due: bool = False) -> None:
        """Collective: a checkpoint, where one is due."""
        step = len(self.went.losses)
        if self._folder is None or not (due or (step % self._every == 0 if self._every else True)):
            return
        extra = {"settings": self._settings, "went": vars(self.went), "decay": self._decay.state_dict()}
        save_checkpoint(self._folder, self._kept, step, extra, _generators())

    def _restore_generators(self, states: Mapping[str, Tensor], step: int) -> None:
        if not states:
            seed = (self._seed + step) % 2**63
            torch.default_generator.manual_seed(seed)
            torch.cuda.manual_seed(seed)  # waits until a GPU is used, if ever
            return
        torch.set_rng_state(states["cpu"])
        if "cuda" in states and torch.cuda.is_available():
            torch.cuda.set_rng_state(states["cuda"])


def kept_by(step: Step, comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> ZeRO | Replicated:
    """What a checkpoint of a run with this step is made of. Raises CheckpointError where that would not be all of it."""
    if isinstance(step, Kept):
        if step.kept is None:
            raise CheckpointError(
                "what a compressor carries from step to step (residuals, bases, its random numbers) is in no checkpoint: "
                "train without compress, or without checkpoint_dir"
            )
        return step.kept
    if isinstance(step, Apart):
        raise CheckpointError(
            "this strategy leaves its ranks apart between steps, so there is no one state to save: checkpoints are for "
            "none, naive, ddp, central, zero1 to zero3, split, tensor, pipeline and hybrid"
        )
    return Replicated(model, optimizer, comm)


def _generators() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states
