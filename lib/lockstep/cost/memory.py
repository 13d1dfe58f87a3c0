"""The memory of a training step by part, and the largest batch that fits into a memory.

Floor 1, room `cost`; read `profile.py` first. Legend: P numbers in the parameters. In fp32 a parameter takes 4 bytes,
its gradient 4, and each number that the optimizer keeps for it 4. Mixed precision is that of Micikevicius et al. 2018:
parameters, gradients and activations in 2 bytes, a master copy of the parameters and the optimizer's state in 4.

| optimizer    | numbers it keeps per parameter          | fp32 | mixed |
|--------------|-----------------------------------------|-----:|------:|
| sgd          | none                                    |   8P |    8P |
| momentum     | the velocity                            |  12P |   12P |
| adam, adamw  | means of the gradient and of its square |  16P |   16P |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import nn

from lockstep.cost.profile import Profile, profile
from lockstep.cost.step import check_optimizer
from lockstep.trace.units import show_bytes

STATE = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}  # numbers kept per parameter
PRECISIONS = ("fp32", "mixed")


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes of a training step by part. parameters: with the buffers. workspace: gradients on their way back.

    The sum is what a step needs if all parts are there at once; `peak_memory` says how much that is in fact.
    """

    parameters: int
    gradients: int
    master_weights: int
    optimizer_state: int
    activations: int
    workspace: int

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """Name and bytes of each part, in order."""
        return asdict(self)


def training_memory(profile: Profile, optimizer: str = "sgd", precision: str = "fp32") -> TrainingMemory:
    """Bytes by part for "sgd", "momentum", "adam" or "adamw", in "fp32" or "mixed" precision.

    profile: made in float32; in mixed precision its floating-point activations take half, masks and indices as much.
    Frozen parameters have no gradient, no master copy and no state. Raises ValueError for unknown names.
    """
    check_optimizer(optimizer)
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}; known are {', '.join(PRECISIONS)}")
    if profile.dtype != torch.float32:
        raise ValueError(f"the profile was made in {profile.dtype}; make it in float32, precision= says the rest")
    mixed = precision == "mixed"
    width = 2 if mixed else 4
    return TrainingMemory(
        parameters=width * profile.parameters + profile.buffer_bytes,
        gradients=width * profile.trainable,
        master_weights=4 * profile.trainable if mixed else 0,
        optimizer_state=4 * STATE[optimizer] * profile.trainable,
        activations=profile.saved_bytes - (profile.saved_float_bytes // 2 if mixed else 0),
        workspace=profile.workspace // (2 if mixed else 1),
    )


@dataclass(frozen=True)
class MemoryByBatch:
    """`training_memory` of any batch, from those of two batches: every part grows evenly. `each` holds bytes per input."""

    optimizer: str
    precision: str
    fixed: TrainingMemory
    each: TrainingMemory

    def __call__(self, batch: int) -> TrainingMemory:
        """The parts for a batch of that many inputs."""
        each = self.each.parts
        return TrainingMemory(**{part: size + batch * each[part] for part, size in self.fixed.parts.items()})


def memory_by_batch(few: Profile, more: Profile, optimizer: str = "sgd", precision: str = "fp32") -> MemoryByBatch:
    """`training_memory` as a function of the batch, from the profiles of one model with two batches.

    Raises ValueError for profiles of the same batch or of different models, and as `training_memory` does.
    """
    apart = more.batch - few.batch
    if apart < 1 or (few.model, few.parameters) != (more.model, more.parameters):
        raise ValueError(f"two profiles of one model are needed, the second of a larger batch, not {few} and {more}")
    first, second = (training_memory(one, optimizer, precision).parts for one in (few, more))
    each = {part: (second[part] - first[part]) // apart for part in first}
    fixed = {part: first[part] - few.batch * each[part] for part in first}
    return MemoryByBatch(optimizer, precision, TrainingMemory(**fixed), TrainingMemory(**each))


def largest_batch(
    model: nn.Module, input_size: Sequence[int], memory: int, optimizer: str = "sgd", precision: str = "fp32"
) -> int:
    """The largest batch whose `training_memory` fits into `memory` bytes.

    Raises ValueError when not even one input fits, and as `profile` and `training_memory` do.
    """
    # Batch norm over a single pixel needs at least two inputs.
    few, more = (profile(model, input_size, batch) for batch in (2, 4))
    needed = memory_by_batch(few, more, optimizer, precision)
    fixed, each = needed.fixed.total, needed.each.total
    if each <= 0:
        raise ValueError("nothing grows with the batch: does any parameter need a gradient?")
    fits = (memory - fixed) // each
    if fits < 1:
        raise ValueError(
            f"not even one input fits: {show_bytes(fixed)} do not depend on the batch and each input takes "
            f"{show_bytes(each)}, where there are {show_bytes(memory)}"
        )
    return fits


def accumulation_sizes(batch: int, fits: int) -> list[int]:
    """How to cut a batch for gradient accumulation: the fewest parts of at most `fits` inputs, as equal as can be.

    Each part's mean loss has to be weighted with its size / batch. Raises ValueError for numbers below 1.
    """
    if batch < 1 or fits < 1:
        raise ValueError(f"a batch of {batch} in parts of {fits}: both must be at least 1")
    parts = math.ceil(batch / fits)
    return [batch // parts + (part < batch % parts) for part in range(parts)]
