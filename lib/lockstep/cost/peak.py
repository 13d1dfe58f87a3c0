"""The peak of a training step's memory: predicted by replaying it without numbers, and measured on a real second step.

Floor 1, room `cost`; read `step.py` and `live.py` first. The sum of the parts is not the peak: while gradients come,
activations go, and an optimizer makes temporaries when no activation is left. So the step is replayed, tensor by tensor.
The second step counts, since the first one makes the optimizer's state.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lockstep.cost.live import LiveMemory
from lockstep.cost.stand_in import check_input, shapes_only, stand_in
from lockstep.cost.step import check_optimizer, make_optimizer, training_step


@dataclass(frozen=True)
class StepMemory:
    """Memory of one training step, in bytes.

    peak: the most alive at one time. curve: alive after each operation ([] where that cannot be seen); marks: (part,
    place in the curve) where forward, backward and update begin. Parts: parameters with buffers, gradients, optimizer
    state, and the inputs with their labels.
    """

    peak: int
    parameters: int
    gradients: int
    optimizer_state: int
    inputs: int
    curve: tuple[int, ...] = field(default=(), repr=False)
    marks: tuple[tuple[str, int], ...] = ()


def peak_memory(
    model: nn.Module,
    input_size: Sequence[int],
    batch: int = 1,
    optimizer: str = "sgd",
    dtype: torch.dtype = torch.float32,
) -> int:
    """Predict the most bytes of tensors alive at one time in a training step, without running it.

    optimizer: "sgd", "momentum", "adam" or "adamw". Raises as `replay_step` does.
    """
    return replay_step(model, input_size, batch, optimizer, dtype).peak


def replay_step(
    model: nn.Module,
    input_size: Sequence[int],
    batch: int = 1,
    optimizer: str = "sgd",
    dtype: torch.dtype = torch.float32,
) -> StepMemory:
    """Predict the memory of a training step: two steps of a copy of the model that has shapes and no numbers.

    input_size: (C, H, W) for images. Raises ValueError for bad sizes, for an unknown optimizer, and for a model that
    cannot run without numbers; TypeError for one that does not return logits (N, K).
    """
    shape = check_input(input_size, batch)
    check_optimizer(optimizer)
    with shapes_only():
        twin = stand_in(model, dtype)
        images, labels = torch.empty(shape, dtype=dtype), torch.empty(batch, dtype=torch.int64)
        try:
            return _watched(twin, images, labels, optimizer)
        except (NotImplementedError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"{type(model).__name__} cannot take a training step on inputs of shape {shape} without numbers: {error}"
            ) from error


def measure_step(model: nn.Module, images: Tensor, labels: Tensor, optimizer: str = "sgd") -> StepMemory:
    """Measure the memory of a real training step, the second of two, on the device where `model` and `images` are.

    On the CPU the unique tensors alive are counted; on CUDA the peak is the allocator's, which sees the workspace of
    the libraries as well. The model stays as it is: a copy is trained. Raises ValueError for an unknown optimizer or
    labels that do not fit, TypeError for a model that does not return logits (N, K).
    """
    check_optimizer(optimizer)
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{len(images)} images need as many labels, not a tensor of shape {list(labels.shape)}")
    return _watched(copy.deepcopy(model), images, labels, optimizer)


def _watched(model: nn.Module, images: Tensor, labels: Tensor, name: str) -> StepMemory:
    optimizer = make_optimizer(name, model.parameters())
    own = [*model.parameters(), *model.buffers()]
    on_cuda = images.device.type == "cuda"
    with LiveMemory([*own, images, labels]) as memory:
        training_step(model, optimizer, images, labels, memory.mark)
        memory.restart()
        if on_cuda:
            torch.cuda.reset_peak_memory_stats(images.device)
        training_step(model, optimizer, images, labels, memory.mark)
    state = [t for one in optimizer.state.values() for t in one.values() if isinstance(t, Tensor)]
    return StepMemory(
        peak=torch.cuda.max_memory_allocated(images.device) if on_cuda else memory.peak,
        parameters=_unique_bytes(own),
        gradients=_unique_bytes([p.grad for p in model.parameters() if p.grad is not None]),
        optimizer_state=_unique_bytes(state),
        inputs=_unique_bytes([images, labels]),
        curve=tuple(memory.curve),
        marks=tuple(memory.marks),
    )


def _unique_bytes(tensors: Sequence[Tensor]) -> int:
    return sum({id(s): s.nbytes() for s in (t.untyped_storage() for t in tensors)}.values())


def measure_saved_bytes(model: nn.Module, *inputs: Tensor) -> int:
    """Bytes that the forward pass keeps for backward, each piece of memory once, parameters and buffers left out.

    The model really runs, so running statistics of batch norm move.
    """
    own = {id(t.untyped_storage()) for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if id(storage) not in own:
            kept[id(storage)] = storage
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(*inputs)
        return sum(storage.nbytes() for storage in kept.values())
