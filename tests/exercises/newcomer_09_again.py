"""What others wrote for lab 09: wrong in a way that has to be named, or right in other clothes; as `newcomer_09.py`."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from lockstep.exercises import find
from lockstep.exercises.lab09.toys import fill, free


def state_as_floats(parameters, ranks, stage, optimizer, precision):
    part = math.ceil(parameters / ranks)
    psi = {"parameters": 2.0, "gradients": 2.0, "optimizer": 4.0 + 4 * ("momentum", "adam").index(optimizer) + 4}
    if optimizer == "sgd":
        psi["optimizer"] = 4.0
    if precision == "fp32":
        psi = {"parameters": 4.0, "gradients": 4.0, "optimizer": psi["optimizer"] - 4}
    order = ["optimizer", "gradients", "parameters"]
    return {name: psi[name] * (part if order.index(name) < stage else parameters) for name in psi}


def state_as_floats_with_sgd(parameters, ranks, stage, optimizer, precision):
    if optimizer == "sgd":
        found = state_as_floats(parameters, ranks, stage, "momentum", precision)
        return found | {"optimizer": found["optimizer"] / 2 if precision == "mixed" else 0.0}
    return state_as_floats(parameters, ranks, stage, optimizer, precision)


def shard_by_numpy(tensors, rank, size):
    flat = np.concatenate([t.detach().numpy().ravel() for t in tensors])
    flat = np.pad(flat, (0, -len(flat) % size))
    return torch.tensor(flat.reshape(size, -1)[rank])


def step_without_a_vector(comm, parameters, shard, optimizer, max_norm):
    """Writes the gradient piece by piece, keeps the padding in one buffer, and clips by torch's own function."""
    buffer = torch.zeros(comm.size * len(shard))
    views = buffer[: sum(p.numel() for p in parameters)].split([p.numel() for p in parameters])
    for view, p in zip(views, parameters, strict=True):
        view.copy_(p.grad.view(-1))
        p.grad = None
    shard.grad = comm.reduce_scatter(buffer, "mean")
    total = comm.all_reduce(torch.linalg.vector_norm(shard.grad) ** 2) ** 0.5
    ok = torch.isfinite(total).item()
    if ok:
        if total > max_norm:
            shard.grad.mul_(max_norm / total)
        optimizer.step()
    buffer = comm.all_gather(shard.data)
    for view, p in zip(buffer[: sum(map(len, views))].split(list(map(len, views))), parameters, strict=True):
        p.data = view.view(p.shape).clone()
    optimizer.zero_grad()
    return ok


def layer_with_a_resized_storage(comm, layer, shard, x):
    """Frees by resizing, as FSDP does, and fills in place."""
    flat = torch.zeros(len(shard) * comm.size)
    fill(layer, flat)

    def whole():
        flat.untyped_storage().resize_(flat.nbytes)
        flat.copy_(comm.all_gather(shard.detach()))

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            ctx.save_for_backward(x)
            whole()
            y = layer(x)
            flat.untyped_storage().resize_(0)
            return y

        @staticmethod
        def backward(ctx, dy):
            whole()
            with torch.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                layer(x).backward(dy)
            gradient = torch.cat([p.grad.flatten() for p in layer.parameters()])
            for p in layer.parameters():
                p.grad = None
            flat.untyped_storage().resize_(0)
            return x.grad, comm.reduce_scatter(F.pad(gradient, (0, len(flat) - len(gradient))), "mean")

    return Layer.apply(x, shard)


def reshard_with_sets(read, elements, old_size, rank, size):
    old, new = -(-elements // old_size), -(-elements // size)
    wanted = range(rank * new, min(elements, (rank + 1) * new))
    own = torch.zeros(new)
    for source in sorted({i // old for i in wanted}):
        mine = [i for i in wanted if i // old == source]
        own[mine[0] - rank * new : mine[-1] + 1 - rank * new] = read(source, mine[0] % old, mine[-1] % old + 1)
    return own


def floors_and_forgets_the_master(parameters, ranks, stage, optimizer, precision):
    right = find("09.1").reference(parameters, ranks, stage, optimizer, "fp32")
    return right if precision == "fp32" else {k: v // 2 if k != "optimizer" else v for k, v in right.items()}


def pads_to_the_next_power(tensors, rank, size):
    flat = torch.cat([t.flatten() for t in tensors]).detach()
    extra = size - (len(flat) % size)
    return torch.cat([flat, torch.zeros(extra)]).chunk(size)[rank].clone()


def a_row_for_each_rank(tensors, rank, size):
    return torch.cat([t.detach().flatten() for t in tensors]).view(size, -1)[rank].clone()


def step_with_the_local_norm_of_torch(comm, parameters, shard, optimizer, max_norm):
    flat = torch.cat([p.grad.view(-1) for p in parameters])
    flat = torch.cat([flat, torch.zeros(len(shard) * comm.size - len(flat))])
    shard.grad = comm.reduce_scatter(flat, "mean")
    norm = nn.utils.clip_grad_norm_([shard], max_norm)
    if norm.isfinite():
        optimizer.step()
    whole = comm.all_gather(shard)
    nn.utils.vector_to_parameters(whole, parameters)
    for p in [*parameters, shard]:
        p.grad = None
    return bool(norm.isfinite())


def backward_first(comm, loss, buckets, shards):
    loss.backward()
    for shard, bucket in zip(shards, buckets, strict=True):
        flat = torch.cat([p.grad.flatten() for p in bucket])
        flat = F.pad(flat, (0, len(shard) * comm.size - len(flat)))
        own = comm.reduce_scatter(flat, "mean")
        shard.grad = own if shard.grad is None else own + shard.grad
        for p in bucket:
            p.grad = None


def layer_that_frees_nothing(comm, layer, shard, x):
    fill(layer, comm.all_gather(shard))
    return layer(x)


def layer_that_keeps_copies(comm, layer, shard, x):
    """Copies of the weights, which no collective has seen."""

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            fill(layer, comm.all_gather(shard))
            ctx.x, ctx.copies = x, [p.detach().clone() for p in layer.parameters()]
            y = layer(x)
            free(layer)
            return y

        @staticmethod
        def backward(ctx, dy):
            fill(layer, torch.cat([copy.flatten() for copy in ctx.copies]))
            with torch.enable_grad():
                x = ctx.x.detach().requires_grad_()
                y = layer(x)
            dx, *gradients = torch.autograd.grad(y, [x, *layer.parameters()], dy)
            free(layer)
            flat = torch.cat([g.flatten() for g in gradients])
            return dx, comm.reduce_scatter(F.pad(flat, (0, len(shard) * comm.size - len(flat))), "mean")

    return Layer.apply(x, shard)


def reads_the_shards_that_overlap(read, elements, old_size, rank, size):
    old, new = -(-elements // old_size), -(-elements // size)
    first, last = rank * new // old, min(old_size - 1, (rank * new + new - 1) // old)
    joined = torch.cat([read(r, 0, old) for r in range(first, last + 1)]) if first < old_size else torch.zeros(0)
    own = joined[rank * new - first * old :][: max(0, min(new, elements - rank * new))]
    return F.pad(own, (0, new - len(own)))


def reads_all_shards(read, elements, old_size, rank, size):
    n = -(-elements // old_size)
    flat = torch.cat([read(r, 0, n) for r in range(old_size)])[:elements]
    return find("09.2").reference([flat], rank, size)


FOUND = [
    ("09.1", floors_and_forgets_the_master, ["master copy"]),
    ("09.2", pads_to_the_next_power, ["size - 0"]),
    ("09.2", a_row_for_each_rank, ["unequal lengths"]),
    ("09.3", step_with_the_local_norm_of_torch, ["norm of its own shard"]),
    ("09.4", backward_first, ["when backward is over"]),
    ("09.5", layer_that_frees_nothing, ["never heard of it"]),
    ("09.5", layer_that_keeps_copies, ["until backward"]),
    ("09.6", reads_all_shards, ["whole checkpoint"]),
    ("09.6", reads_the_shards_that_overlap, ["old shards whole"]),
]

RIGHT = [
    ("09.1", state_as_floats_with_sgd),
    ("09.2", shard_by_numpy),
    ("09.3", step_without_a_vector),
    ("09.5", layer_with_a_resized_storage),
    ("09.6", reshard_with_sets),
]
