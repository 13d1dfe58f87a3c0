"""Mixed precision: a model computes in two bytes a number, while the optimizer keeps and steps four.

Floor 2, room `parallel`. Read `masters` next, then `scaling`. Batch norm stays in fp32, parameters and statistics: sums
over a whole batch do not fit into two bytes, and neither does a running mean that moves by a tenth of a small
difference. Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lockstep.nn.outputs import map_tensors

PRECISIONS: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What parameters, activations and gradients are in, by name."""

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def working_dtypes(model: nn.Module, precision: str) -> dict[int, torch.dtype]:
    """The dtype that each parameter of `model`, by its id, is to compute in; with "fp32" the one it has.

    Raises ValueError for another precision, and for "bf16" or "fp16" when a parameter is not in fp32.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}: it is one of {', '.join(PRECISIONS)}.")
    if precision == "fp32":
        return {id(parameter): parameter.dtype for parameter in model.parameters()}
    for name, parameter in model.named_parameters():
        if parameter.dtype is not torch.float32:
            raise ValueError(
                f"precision={precision!r} makes a model of fp32 compute in {precision}, but its parameter {name} is in "
                f"{parameter.dtype}: hand over the model in fp32, model.float()."
            )
    wide = {id(p) for module in model.modules() if isinstance(module, _BATCH_NORMS) for p in module.parameters()}
    return {id(p): p.dtype if id(p) in wide else PRECISIONS[precision] for p in model.parameters()}


def wide(tensor: Tensor, precision: str) -> Tensor:
    """The tensor in fp32, where it is in the lower `precision`."""
    return tensor.float() if tensor.dtype is PRECISIONS[precision] else tensor


def lower(model: nn.Module, precision: str) -> None:
    """Let `model` compute in `precision`, taking and giving fp32 as before; parameters to train are left to their units.

    Lowers frozen parameters and floating-point buffers, except batch norm's, and casts on the way in and out.
    """
    dtype = PRECISIONS[precision]
    for module in model.modules():
        if isinstance(module, _BATCH_NORMS):
            continue
        for parameter in module.parameters(recurse=False):
            if not parameter.requires_grad or not parameter.numel():
                parameter.data = parameter.data.to(dtype)
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point():
                module._buffers[name] = buffer.to(dtype)

    def on_the_way_in(_: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return map_tensors(down, args), map_tensors(down, kwargs)

    def down(tensor: Tensor) -> Tensor:
        return tensor.to(dtype) if tensor.dtype in (torch.float32, torch.float64) else tensor

    model.register_forward_pre_hook(on_the_way_in, with_kwargs=True)
    model.register_forward_hook(lambda _, __, outputs: map_tensors(lambda tensor: wide(tensor, precision), outputs))
