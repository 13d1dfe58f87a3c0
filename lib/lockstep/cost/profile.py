"""What a model costs, layer by layer, before anything runs: parameters, multiply-adds, bytes kept for backward.

Floor 1, room `cost`. `profile` runs a copy of the model that has shapes and no numbers (`stand_in.py`), forward and
backward, and books every operation on its layer (`accountant.py`, `multiply_adds.py`). Legend: N images, MAC = multiply-add = 2 FLOPs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from lockstep.cost.accountant import Accountant, UnfusedAttention
from lockstep.cost.multiply_adds import UnknownOperation
from lockstep.cost.roofline import Cost, LayerCost
from lockstep.cost.stand_in import check_input, shapes_only, stand_in


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One layer of a `Profile`, for the whole batch.

    name, kind: as in `named_modules`, and its class; the name of the model itself is "". shape: of its last output.
    parameters: its own; shared ones are counted where they come first. macs, backward_macs: multiply-adds each way.
    saved_bytes: kept for backward, each piece of memory counted at the layer that keeps it first; `saved_float_bytes`
    of them hold floating-point numbers. workspace: bytes of the gradients of its output and of its input. moved_bytes,
    backward_moved_bytes: read and written each way when every operation takes its tensors from memory and puts them back.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    parameters: int
    macs: int
    backward_macs: int
    saved_bytes: int
    saved_float_bytes: int
    workspace: int
    moved_bytes: int
    backward_moved_bytes: int

    @property
    def label(self) -> str:
        """How it is named to people: "layer1.0.conv1 (Conv2d)"."""
        return f"{self.name} ({self.kind})" if self.name else f"the model itself ({self.kind})"


@dataclass(frozen=True)
class Profile:
    """What one forward and one backward pass of a batch cost. Sums over `layers`, in the order of their first use.

    parameters: numbers, each shared one once; `trainable` of them need a gradient. buffer_bytes: what is neither
    parameter nor activation, such as running statistics. input_shape: of the whole batch.
    """

    model: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    dtype: torch.dtype
    parameters: int
    trainable: int
    buffer_bytes: int
    layers: tuple[LayerProfile, ...] = field(repr=False)

    @property
    def batch(self) -> int:
        return self.input_shape[0]

    @property
    def macs(self) -> int:
        """Multiply-adds of the forward pass."""
        return sum(layer.macs for layer in self.layers)

    @property
    def backward_macs(self) -> int:
        """Multiply-adds of the backward pass, as it is run: about twice those of the forward pass."""
        return sum(layer.backward_macs for layer in self.layers)

    @property
    def flops(self) -> int:
        """Floating-point operations of both passes, two for a multiply-add."""
        return 2 * (self.macs + self.backward_macs)

    @property
    def saved_bytes(self) -> int:
        """Bytes kept for backward as unique pieces of memory, the input included and parameters not."""
        return sum(layer.saved_bytes for layer in self.layers)

    @property
    def saved_float_bytes(self) -> int:
        """Of `saved_bytes`, those that hold floating-point numbers."""
        return sum(layer.saved_float_bytes for layer in self.layers)

    @property
    def moved_bytes(self) -> int:
        """Bytes read from and written to memory by both passes, operation by operation."""
        return sum(layer.moved_bytes + layer.backward_moved_bytes for layer in self.layers)

    @property
    def workspace(self) -> int:
        """Bytes that the hungriest layer needs for the gradients of its output and of its input."""
        return max((layer.workspace for layer in self.layers), default=0)

    def layer_costs(self) -> dict[str, LayerCost]:
        """What each layer costs each way, by its name: what a simulated or paced run is charged with."""
        return {
            layer.name: LayerCost(
                Cost(2 * layer.macs, layer.moved_bytes), Cost(2 * layer.backward_macs, layer.backward_moved_bytes)
            )
            for layer in self.layers
        }


def profile(
    model: nn.Module,
    input_size: Sequence[int],
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
    *,
    input_gradient: bool = False,
) -> Profile:
    """Account for one training step of `model` on `batch` inputs of `input_size`, which is (C, H, W) for images.

    The model is not touched: a copy without numbers runs, in the mode (training or evaluation) that the model is in,
    with floating-point tensors of `dtype`. input_gradient: backward goes on into the input, as for a stage behind
    others; images need none. Takes no memory and well under a second for a usual network.
    Raises ValueError with the layer's name when a layer cannot take its input, when it needs real numbers, or when it
    makes an operation that is not known here: nothing is counted as zero in silence. Also for bad sizes.
    """
    shape = check_input(input_size, batch)
    try:
        counted = _counted(model, shape, dtype, input_gradient, as_on_cpu=False)
    except UnfusedAttention:
        counted = _counted(model, shape, dtype, input_gradient, as_on_cpu=True)
    parameters = list(counted.model.parameters())
    return Profile(
        type(model).__name__,
        shape,
        counted.output_shape,
        dtype,
        parameters=sum(p.numel() for p in parameters),
        trainable=sum(p.numel() for p in parameters if p.requires_grad),
        buffer_bytes=sum(buffer.nbytes for buffer in counted.model.buffers()),
        layers=tuple(LayerProfile(**vars(tally)) for tally in counted.tallies),
    )


def _counted(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, input_gradient: bool, as_on_cpu: bool
) -> Accountant:
    with shapes_only(as_on_cpu):
        accountant = Accountant(stand_in(model, dtype))
        try:
            accountant.run(torch.empty(shape, dtype=dtype, requires_grad=input_gradient))
        except UnknownOperation as error:
            raise ValueError(
                f"{accountant.here} calls the operation {error}, and how many multiply-adds that makes is not known "
                "here; write the layer with operations that are, or leave it out of what you profile"
            ) from None
        except UnfusedAttention:
            raise
        except Exception as error:  # whatever a model raises on shapes without numbers
            raise ValueError(f"{accountant.here} cannot be profiled on an input of shape {shape}: {error}") from error
    return accountant
