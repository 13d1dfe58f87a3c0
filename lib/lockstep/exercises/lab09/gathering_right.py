"""Exercise 09.5's reference, other right functions, and the stub.

Floor 4, room `exercises`; the exercise is in `gathering.py`.
"""

from __future__ import annotations

import torch
from torch.func import functional_call
from torch.nn import functional as F

from lockstep.exercises.lab09.toys import fill, free


def zero3(comm, layer, shard, x):
    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            ctx.save_for_backward(x, shard)
            fill(layer, comm.all_gather(shard))
            y = layer(x)
            free(layer)
            return y

        @staticmethod
        def backward(ctx, dy):
            x, shard = ctx.saved_tensors
            fill(layer, comm.all_gather(shard))
            with torch.enable_grad():
                again = x.detach().requires_grad_()
                y = layer(again)
            dx, *gradients = torch.autograd.grad(y, [again, *layer.parameters()], dy)
            free(layer)
            flat = torch.cat([g.flatten() for g in gradients])
            padded = F.pad(flat, (0, shard.numel() * comm.size - len(flat)))
            return dx, comm.reduce_scatter(padded, op="mean")

    return Whole.apply(x, shard)


def recompute_by_name(comm, layer, shard, x):
    """Never touches the layer's own parameters."""
    shapes = {name: p.shape for name, p in layer.named_parameters()}

    def parts(flat):
        pieces = flat[: sum(s.numel() for s in shapes.values())].split([s.numel() for s in shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            ctx.x, ctx.own = x.detach(), shard.detach()
            return functional_call(layer, parts(comm.all_gather(shard)), (x,))

        @staticmethod
        def backward(ctx, dy):
            flat = comm.all_gather(ctx.own)
            with torch.enable_grad():
                flat.requires_grad_()
                x = ctx.x.requires_grad_()
                functional_call(layer, parts(flat), (x,)).backward(dy)
            return x.grad, comm.reduce_scatter(flat.grad) / comm.size

    return Layer.apply(x, shard)


def saves_places(comm, layer, shard, x):
    """Computes nothing twice: autograd saves a weight's place in the flat tensor instead of the weight."""
    whole = {}

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, shard):
            return comm.all_gather(shard.detach())

        @staticmethod
        def backward(ctx, gradient):
            whole.clear()
            return comm.reduce_scatter(gradient.contiguous(), op="mean")

    flat = Gather.apply(shard)
    address = flat.untyped_storage().data_ptr()

    def pack(tensor):
        if tensor.untyped_storage().data_ptr() == address:
            return tensor.shape, tensor.stride(), tensor.storage_offset()
        return tensor

    def unpack(saved):
        if isinstance(saved, torch.Tensor):
            return saved
        if not whole:
            whole["flat"] = comm.all_gather(shard.detach())
        return whole["flat"].as_strided(*saved)

    named, start = {}, 0
    for name, p in layer.named_parameters():
        named[name] = flat[start : start + p.numel()].view(p.shape)
        start += p.numel()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return functional_call(layer, named, (x,))


def zero3_stub(comm, layer, shard, x):
    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard): ...

        @staticmethod
        def backward(ctx, dy): ...

    raise NotImplementedError("gather, compute, let go, in both passes")
