"""Exercise 05.2: right ways to give every rank the gradient of the whole batch, and the skeleton.

Floor 4, room `exercises`; the exercise is in `averaging.py`.
"""

from __future__ import annotations

import torch


def average_gradients(model, comm, samples):
    total = comm.all_reduce(torch.tensor(float(samples)))
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad *= samples / total
            comm.all_reduce(parameter.grad)


def average_in_one_message(model, comm, samples):
    trained = [p for p in model.parameters() if p.requires_grad]
    pieces = [torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() * samples for p in trained]
    flat = comm.all_reduce(torch.cat([*pieces, torch.tensor([float(samples)])]))
    parts = (flat[:-1] / flat[-1]).split([p.numel() for p in trained])
    for parameter, part in zip(trained, parts, strict=True):
        parameter.grad = part.view_as(parameter).clone()


def average_with_handles(model, comm, samples):
    count = torch.tensor([samples])
    waiting = [(None, count, comm.all_reduce(count, async_op=True))]
    for p in model.parameters():
        if p.requires_grad:
            weighted = torch.zeros_like(p) if p.grad is None else p.grad * samples
            waiting.append((p, weighted, comm.all_reduce(weighted, async_op=True)))
    for parameter, tensor, handle in waiting:
        handle.wait()
        if parameter is not None:
            parameter.grad = tensor / count


def average_through_rank_0(model, comm, samples):
    total = sum(int(n) for n in comm.all_gather(torch.tensor([samples])))
    for _, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        share = torch.zeros_like(parameter.data)
        if parameter.grad is not None:
            share += parameter.grad * (samples / total)
        comm.reduce(share, dst=0)
        parameter.grad = comm.broadcast(share, src=0)


def average_gradients_stub(model, comm, samples):
    total = ...  # noqa: F841 - the skeleton, as students get it
    for parameter in model.parameters():  # noqa: B007
        ...
    raise NotImplementedError("make every gradient that of the mean over all samples")
