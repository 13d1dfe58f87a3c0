"""Exercise 09.3's reference, other right functions, and the stub.

Floor 4, room `exercises`; the exercise is in `stepping.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F


def zero1_step(comm, parameters, shard, optimizer, max_norm):
    flat = torch.cat([p.grad.flatten() for p in parameters])
    padded = F.pad(flat, (0, shard.numel() * comm.size - len(flat)))
    shard.grad = comm.reduce_scatter(padded, op="mean")
    norm = comm.all_reduce(shard.grad.square().sum()).sqrt()
    finite = bool(norm.isfinite())
    if finite:
        shard.grad *= (max_norm / norm).clamp(max=1)
        optimizer.step()
    parts = comm.all_gather(shard)[: len(flat)].split([p.numel() for p in parameters])
    for p, part in zip(parameters, parts, strict=True):
        p.data.copy_(part.view_as(p))
        p.grad = None
    shard.grad = None
    return finite


def with_flags(comm, parameters, shard, optimizer, max_norm):
    """Agrees on the overflow apart from the norm, and brings home nothing when there was one."""
    n = sum(p.numel() for p in parameters)
    gradient = shard.new_zeros(shard.numel() * comm.size)
    torch.cat([p.grad.reshape(-1) for p in parameters], out=gradient[:n])
    for p in parameters:
        p.grad = None
    mean = comm.reduce_scatter(gradient) / comm.size
    broken = comm.all_reduce((~mean.isfinite()).any().float(), op="max")
    if broken:
        return False
    norm = float(comm.all_reduce((mean.double() ** 2).sum())) ** 0.5
    shard.grad = mean if norm <= max_norm else mean * (max_norm / norm)
    optimizer.step()
    shard.grad = None
    parts = comm.all_gather(shard.detach())[:n].split([p.numel() for p in parameters])
    with torch.no_grad():
        for p, part in zip(parameters, parts, strict=True):
            p.copy_(part.view(p.shape))
    return True


def with_sizes(comm, parameters, shard, optimizer, max_norm):
    """Lets the collective cut, and scales by hand."""
    pieces = [p.grad.ravel() for p in parameters]
    missing = len(shard) * comm.size - sum(len(piece) for piece in pieces)
    own = comm.reduce_scatter(torch.cat([*pieces, torch.zeros(missing)]) / comm.size, sizes=[len(shard)] * comm.size)
    squares = torch.stack([own.dot(own), torch.isfinite(own).all().logical_not().float()])
    total, broken = comm.all_reduce(squares).tolist()
    ok = not broken
    if ok:
        shard.grad = own.mul_(min(1.0, max_norm / (total**0.5 + 1e-6)))
        optimizer.step()
        optimizer.zero_grad()
    torch.nn.utils.vector_to_parameters(comm.all_gather(shard, [len(shard)] * comm.size), parameters)
    for p in parameters:
        p.grad = None
    return ok


def zero1_step_stub(comm, parameters, shard, optimizer, max_norm):
    flat = ...
    raise NotImplementedError("average into the shard's gradient, agree, step, gather", flat)
