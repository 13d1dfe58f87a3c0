"""A copy of a model that has shapes and no numbers, so that it can be run without memory and almost without time.

Floor 1, room `cost`. Its tensors lie on the meta device, where every operation gives a tensor of the right shape and
type and nothing is computed. Read `profile.py` next, which counts while such a copy runs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

HOW = "give the size of one image, such as (3, 224, 224), and the number of images as batch="


def check_input(input_size: Sequence[int], batch: int) -> tuple[int, ...]:
    """The shape of the whole batch; raises ValueError for what is no size."""
    whole = isinstance(input_size, (tuple, list, torch.Size)) and len(input_size) > 0
    if not whole or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in input_size):
        raise ValueError(f"input_size is {input_size!r}; {HOW}")
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise ValueError(f"batch is {batch!r}; it must be a whole number of at least 1")
    return (batch, *input_size)


@contextmanager
def shapes_only(as_on_cpu: bool = False) -> Iterator[None]:
    """Inside, tensors that a model makes have no memory.

    as_on_cpu: choose the kernels that the CPU would, which matters for fused attention and takes several times as long.
    """
    with _fake_tensors() if as_on_cpu else torch.device("meta"):
        yield


def _fake_tensors() -> AbstractContextManager:
    # Documented under "Fake tensor", but without a public name; imported late, since every rank imports this room.
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def stand_in(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy of `model` without numbers, to be made inside `shapes_only`; floating-point tensors get `dtype`.

    Tied parameters stay tied, frozen ones frozen, and the copy is in the mode (training or not) of the original.
    Raises ValueError for a `dtype` that is no floating-point type.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"dtype is {dtype}; gradients need a floating-point type such as torch.float32")
    twins: dict[int, Tensor] = {}
    for module in model.modules():
        held = [*module._parameters.values(), *module._buffers.values(), *vars(module).values()]
        for tensor in (one for one in held if isinstance(one, Tensor)):
            twins[id(tensor)] = _twin(tensor, dtype)
    return copy.deepcopy(model, twins)


def _twin(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    own = dtype if tensor.is_floating_point() else tensor.dtype
    twin = torch.empty(tensor.shape, dtype=own)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(twin, requires_grad=tensor.requires_grad)
    return twin
