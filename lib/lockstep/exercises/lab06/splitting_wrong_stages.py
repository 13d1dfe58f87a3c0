"""Exercise 06.1: wrong stages, and wrong ends, that students write; their sentences are in `splitting_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import torch
from torch import nn

from lockstep.exercises.lab06.splitting_right import split_layers
from lockstep.exercises.lab06.splitting_wrong import run, way


def runs_every_layer_everywhere(comm, layers, cuts, x, loss):
    if comm.rank:
        comm.recv(x, comm.rank - 1)
    elif comm.size > 1:
        comm.send(nn.Sequential(*layers[: cuts[0]])(x), 1)
    value = loss(nn.Sequential(*layers)(x))
    value.backward()
    return value


def leaves_out_the_last_layer(comm, layers, cuts, x, loss):
    return split_layers(comm, layers[:-1], [min(cut, len(layers) - 2) for cut in cuts], x, loss)


def keeps_the_loss_to_itself(comm, layers, cuts, x, loss):
    split_layers(comm, layers, cuts, x, loss)


def takes_the_first_layer_of_the_next(comm, layers, cuts, x, loss):
    bounds = [0, *cuts, len(layers)]
    return run(comm, nn.Sequential(*layers[bounds[comm.rank] : bounds[comm.rank + 1] + 1]), x, loss)


def skips_the_layer_at_the_cut(comm, layers, cuts, x, loss):
    bounds = [-1, *cuts, len(layers)]
    return run(comm, nn.Sequential(*layers[bounds[comm.rank] + 1 : bounds[comm.rank + 1]]), x, loss)


def takes_equally_many_layers(comm, layers, cuts, x, loss):
    edges = [rank * len(layers) // comm.size for rank in range(comm.size + 1)]
    return run(comm, nn.Sequential(*layers[edges[comm.rank] : edges[comm.rank + 1]]), x, loss)


def makes_a_loss_of_its_own(comm, layers, cuts, x, loss):
    first, last, stage = way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
    y = stage(x)
    if not last:
        comm.send(y, comm.rank + 1)
    value = loss(y)
    value.backward()
    return value if last else None


def takes_a_step_as_well(comm, layers, cuts, x, loss):
    value = split_layers(comm, layers, cuts, x, loss)
    with torch.no_grad():
        for p in way(comm, layers, cuts)[2].parameters():
            p -= 0.1 * p.grad
    return value


def gives_a_number_everywhere(comm, layers, cuts, x, loss):
    value = split_layers(comm, layers, cuts, x, loss)
    return 0.0 if value is None else value


def never_calls_backward(comm, layers, cuts, x, loss):
    first, last, stage = way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
    y = stage(x)
    if last:
        return loss(y)
    comm.send(y, comm.rank + 1)
