"""A model split by layers: each rank, or each device of one process, has some of them.

Floor 2, room `parallel`. Activations travel forward and their gradients back, so backward on one rank goes on where
the next rank's ended. Only one rank computes at a time; `pipeline` is for keeping the others busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator
from lockstep.nn.outputs import map_tensors, tensors_in
from lockstep.parallel.structures import Layout, receive_layout, start_layout, start_receive, start_send


class LayerSplit(nn.Module):
    """`layers`, applied one after the other, of which each rank has those between two `cuts`.

    cuts: index of the first layer of each rank but the first, as `balanced_partition` gives. Each rank's own layers are
    in `stage`, with the parameters that rank 0 had. Collective: to build, to run forward, and backward. ValueError for
    cuts that leave a rank without layers or are not one fewer than ranks.
    """

    def __init__(self, layers: Sequence[nn.Module], cuts: Sequence[int], comm: Communicator) -> None:
        super().__init__()
        parts = stages_between(layers, cuts, comm.size)
        self.comm, self.first, self.last = comm, comm.rank == 0, comm.rank == comm.size - 1
        self.stage = parts[comm.rank]
        _take_over(parts, comm)

    def forward(self, inputs: Any = None) -> Any:
        """On the last rank the model's outputs, on the others a scalar; call `backward()` on all of them.

        inputs: counts on rank 0 alone. On the last rank make a loss of the outputs first. The scalar's `backward()`
        waits for the gradient from the next rank and goes on with it.
        """
        outputs = self.stage(inputs if self.first else receive_forward(self.comm, self.comm.rank - 1))
        return outputs if self.last else send_forward(outputs, self.comm, self.comm.rank + 1)


class DeviceSplit(nn.Module):
    """`layers` cut into one part for each of `devices`, in one process.

    `DeviceSplit(vgg16().stages(), [3], ["cuda:0", "cuda:1"])`: only `to` moves activations, and autograd moves the
    gradients back; the devices may all be "cpu". While one computes, the others wait. ValueError as for `LayerSplit`.
    """

    def __init__(self, layers: Sequence[nn.Module], cuts: Sequence[int], devices: Sequence[torch.device | str]) -> None:
        super().__init__()
        self.devices = [torch.device(device) for device in devices]
        parts = stages_between(layers, cuts, len(self.devices))
        self.stages = nn.ModuleList(part.to(device) for part, device in zip(parts, self.devices, strict=True))

    def forward(self, inputs: Any) -> Any:
        """The model's outputs, on the last device."""
        for stage, device in zip(self.stages, self.devices, strict=True):
            inputs = stage(map_tensors(lambda tensor, device=device: tensor.to(device), inputs))
        return inputs


def stages_between(layers: Sequence[nn.Module], cuts: Sequence[int], parts: int) -> list[nn.Sequential]:
    """The layers of each part; ValueError unless `cuts` are rising indices, one fewer than parts."""
    bounds = [0, *cuts, len(layers)]
    if len(cuts) != parts - 1 or any(a >= b for a, b in zip(bounds, bounds[1:], strict=False)):
        raise ValueError(
            f"cuts are {list(cuts)}: {len(layers)} layers in {parts} parts need {parts - 1} rising indices between 1 and "
            f"{len(layers) - 1}, each of the first layer of a next part."
        )
    return [nn.Sequential(*layers[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]


def send_forward(outputs: Any, comm: Communicator, dst: int) -> Tensor:
    """Send a structure of tensors to rank `dst`; gives a scalar whose `backward()` waits for the gradients and goes on.

    Only floating-point tensors that require grad have one. The value of the scalar is 0.
    """
    tensors = list(tensors_in(outputs))
    learns = [_learns(tensor) for tensor in tensors]
    for handle in [*start_layout(comm, (Layout.of(outputs), learns), dst), *start_send(comm, outputs, dst)]:
        handle.wait()
    return _Leave.apply(comm, dst, *filter(_learns, tensors))


def receive_forward(comm: Communicator, src: int) -> Any:
    """What `src` sends with `send_forward`; backward sends the gradients there, zeros for what was not used."""
    layout, learns = receive_layout(comm, src)
    begin = torch.zeros((), requires_grad=True)  # a function runs backward only when something it takes requires grad
    tensors = iter(_Arrive.apply(begin, comm, src, layout, learns))
    return map_tensors(lambda _: next(tensors), layout.skeleton)


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Communicator, dst: int, *tensors: Tensor) -> Tensor:
        ctx.comm, ctx.dst = comm, dst
        ctx.like = [torch.empty(t.shape, dtype=t.dtype, device="meta") for t in tensors]
        return torch.zeros((), device=comm.device)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Any, ...]:
        gradients = [torch.empty_like(t, device=ctx.comm.device) for t in ctx.like]
        for gradient in gradients:
            ctx.comm.recv(gradient, ctx.dst)
        return None, None, *gradients


class _Arrive(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, begin: Tensor, comm: Communicator, src: int, layout: Layout, learns: list[bool]
    ) -> tuple[Tensor, ...]:
        ctx.comm, ctx.src, ctx.learns = comm, src, learns
        tensors = tuple(tensors_in(layout.empty(comm.device)))
        for handle in start_receive(comm, tensors, src):
            handle.wait()
        ctx.mark_non_differentiable(*(t for t, own in zip(tensors, ctx.learns, strict=True) if not own))
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        for gradient, learns in zip(gradients, ctx.learns, strict=True):
            if learns:
                ctx.comm.send(gradient.contiguous(), ctx.src)
        return None, None, None, None, None


def _learns(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.requires_grad


@torch.no_grad()
def _take_over(parts: Sequence[nn.Module], comm: Communicator) -> None:
    """Every rank's stage gets what rank 0 has of it."""
    if comm.rank == 0:
        for rank in range(1, comm.size):
            for tensor in _state(parts[rank]):
                comm.send(tensor.detach(), rank)
    else:
        for tensor in _state(parts[comm.rank]):
            comm.recv(tensor.detach(), 0)


def _state(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]
