"""Exercise 06.1: wrong messages and backward passes that students write; their sentences are in `splitting_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator


def way(comm, layers, cuts):
    """What most of the mistakes share: (first, last, stage)."""
    bounds = [0, *cuts, len(layers)]
    stage = nn.Sequential(*layers[bounds[comm.rank] : bounds[comm.rank + 1]])
    return comm.rank == 0, comm.rank == comm.size - 1, stage


def ahead(
    comm: Communicator,
    stage: Callable[[Tensor], Tensor],
    x: Tensor,
    loss: Callable[[Tensor], Tensor],
    begin: Callable[[Tensor], Tensor] = Tensor.requires_grad_,
) -> Tensor:
    """A right forward pass: y, which was sent on; on the last rank the loss, whose backward has run.

    begin(x): what makes the tensor that arrived learn.
    """
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)
        begin(x)
    y = stage(x)
    if comm.rank == comm.size - 1:
        y = loss(y)
        y.backward()
    else:
        comm.send(y, comm.rank + 1)
    return y


def received(comm: Communicator, like: Tensor) -> Tensor:
    """The gradient that comes from the next rank."""
    gradient = torch.empty_like(like)
    comm.recv(gradient, comm.rank + 1)
    return gradient


def run(
    comm: Communicator,
    stage: Callable[[Tensor], Tensor],
    x: Tensor,
    loss: Callable[[Tensor], Tensor],
    begin: Callable[[Tensor], Tensor] = Tensor.requires_grad_,
    into: Callable[[Tensor, Tensor], Tensor] = lambda x, y: y,
    take: Callable[[Tensor], Tensor] = lambda gradient: gradient,
    back: Callable[[Tensor], Tensor] = lambda x: x.grad,
    before: int = 1,
) -> Tensor | None:
    """A right pass of `stage`, but for what is put in its place.

    begin: as in `ahead`. into(x, y): what the gradient is received into a tensor like. take(gradient): what y's backward
    begins with. back(x): what is sent back, to the rank so many `before`, or to rank 0.
    """
    last = comm.rank == comm.size - 1
    y = ahead(comm, stage, x, loss, begin)
    if not last:
        y.backward(take(received(comm, into(x, y))))
    if comm.rank > 0:
        comm.send(back(x), max(comm.rank - before, 0))
    return y if last else None


def forgets_that_the_input_learns(comm, layers, cuts, x, loss):
    return run(comm, way(comm, layers, cuts)[2], x, loss, begin=lambda x: x)


def detaches_the_activation(comm, layers, cuts, x, loss):
    _, last, stage = way(comm, layers, cuts)
    return run(comm, stage if last else lambda x: stage(x).detach(), x, loss)


def never_sends_a_gradient_back(comm, layers, cuts, x, loss):
    _, last, stage = way(comm, layers, cuts)
    y = ahead(comm, stage, x, loss)
    return y if last else None


def waits_for_a_gradient_that_nobody_sends(comm, layers, cuts, x, loss):
    _, last, stage = way(comm, layers, cuts)
    y = ahead(comm, stage, x, loss)
    if last:
        return y
    y.backward(received(comm, y))


def passes_on_what_it_got(comm, layers, cuts, x, loss):
    first, last, stage = way(comm, layers, cuts)
    y = ahead(comm, stage, x, loss)
    if last:
        gradient = x.grad
    else:
        gradient = received(comm, y)
        y.backward(gradient)
    if not first:
        comm.send(gradient, comm.rank - 1)
    return y if last else None


def sends_before_backward(comm, layers, cuts, x, loss):
    first, last, stage = way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
        x.grad = torch.zeros_like(x)
    y = stage(x)
    gradient = None
    if last:
        y = loss(y)
    else:
        comm.send(y, comm.rank + 1)
        gradient = received(comm, y)
    if not first:
        comm.send(x.grad, comm.rank - 1)
    y.backward(gradient)
    return y if last else None


def receives_before_it_sends(comm, layers, cuts, x, loss):
    first, last, stage = way(comm, layers, cuts)
    if last:
        return run(comm, stage, x, loss)
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    y = stage(x)
    gradient = received(comm, y)
    comm.send(y, comm.rank + 1)
    y.backward(gradient)
    if not first:
        comm.send(x.grad, comm.rank - 1)


def sends_the_activation_back(comm, layers, cuts, x, loss):
    return run(comm, way(comm, layers, cuts)[2], x, loss, back=torch.Tensor.detach)


def begins_backward_with_ones(comm, layers, cuts, x, loss):
    return run(comm, way(comm, layers, cuts)[2], x, loss, take=torch.ones_like)


def receives_into_a_tensor_like_x(comm, layers, cuts, x, loss):
    return run(comm, way(comm, layers, cuts)[2], x, loss, into=lambda x, y: x)


def divides_by_the_ranks(comm, layers, cuts, x, loss):
    return run(comm, way(comm, layers, cuts)[2], x, loss, take=lambda gradient: gradient / comm.size)


def sends_gradients_to_rank_0(comm, layers, cuts, x, loss):
    return run(comm, way(comm, layers, cuts)[2], x, loss, before=comm.size)


def begins_backward_with_nothing(comm, layers, cuts, x, loss):
    first, last, stage = way(comm, layers, cuts)
    if last:
        return run(comm, stage, x, loss)
    if not first:
        comm.recv(x, comm.rank - 1)
    y = stage(x.requires_grad_())
    comm.send(y, comm.rank + 1)
    received(comm, y)
    y.backward()


def takes_what_recv_returns(comm, layers, cuts, x, loss):
    if comm.rank:
        x = comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    return run(comm, way(comm, layers, cuts)[2], x, loss)


def never_receives(comm, layers, cuts, x, loss):
    first, last, stage = way(comm, layers, cuts)
    y = stage(x.requires_grad_())
    if not last:
        comm.send(y, comm.rank + 1)
        received(comm, y)
        return None
    value = loss(y)
    value.backward()
    if not first:
        comm.send(x.grad, comm.rank - 1)
    return value


def runs_backward_twice(comm, layers, cuts, x, loss):
    def twice(y):
        value = loss(y)
        value.backward(retain_graph=True)
        return value

    return run(comm, way(comm, layers, cuts)[2], x, twice)
