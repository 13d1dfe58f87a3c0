"""Exercise 06.1: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `splitting.py`.
"""

from __future__ import annotations

import torch
from torch import nn

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab06.splitting_right import split_layers
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches, says


def _way(comm, layers, cuts):
    """What most of the mistakes share: (first, last, stage)."""
    bounds = [0, *cuts, len(layers)]
    stage = nn.Sequential(*layers[bounds[comm.rank] : bounds[comm.rank + 1]])
    return comm.rank == 0, comm.rank == comm.size - 1, stage


def forgets_that_the_input_learns(comm, layers, cuts, x, loss):
    first, last, stage = _way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
    y = stage(x)
    if last:
        y = loss(y)
        y.backward()
    else:
        comm.send(y, comm.rank + 1)
        gradient = torch.empty_like(y)
        comm.recv(gradient, comm.rank + 1)
        y.backward(gradient)
    if not first:
        comm.send(x.grad, comm.rank - 1)
    return y if last else None


def detaches_the_activation(comm, layers, cuts, x, loss):
    first, last, stage = _way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    y = stage(x)
    if last:
        y = loss(y)
        y.backward()
    else:
        y = y.detach()
        comm.send(y, comm.rank + 1)
        gradient = torch.empty_like(y)
        comm.recv(gradient, comm.rank + 1)
        y.backward(gradient)
    if not first:
        comm.send(x.grad, comm.rank - 1)
    return y if last else None


def never_sends_a_gradient_back(comm, layers, cuts, x, loss):
    first, last, stage = _way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    y = stage(x)
    if not last:
        comm.send(y, comm.rank + 1)
        return None
    value = loss(y)
    value.backward()
    return value


def waits_for_a_gradient_that_nobody_sends(comm, layers, cuts, x, loss):
    first, last, stage = _way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    y = stage(x)
    if last:
        value = loss(y)
        value.backward()
        return value
    comm.send(y, comm.rank + 1)
    gradient = torch.empty_like(y)
    comm.recv(gradient, comm.rank + 1)
    y.backward(gradient)


def begins_backward_with_ones(comm, layers, cuts, x, loss):
    first, last, stage = _way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    y = stage(x)
    if last:
        y = loss(y)
        y.backward()
        return y
    comm.send(y, comm.rank + 1)
    y.sum().backward()


def passes_on_what_it_got(comm, layers, cuts, x, loss):
    first, last, stage = _way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    y = stage(x)
    if last:
        value = loss(y)
        value.backward()
        gradient = x.grad
    else:
        comm.send(y, comm.rank + 1)
        gradient = torch.empty_like(y)
        comm.recv(gradient, comm.rank + 1)
        y.backward(gradient)
    if not first:
        comm.send(gradient, comm.rank - 1)
    return value if last else None


def sends_before_backward(comm, layers, cuts, x, loss):
    first, last, stage = _way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
        x.grad = torch.zeros_like(x)
    y = stage(x)
    if last:
        value = loss(y)
        comm.send(x.grad, comm.rank - 1) if not first else None
        value.backward()
        return value
    comm.send(y, comm.rank + 1)
    gradient = torch.empty_like(y)
    comm.recv(gradient, comm.rank + 1)
    if not first:
        comm.send(x.grad, comm.rank - 1)
    y.backward(gradient)


def sends_the_activation_back(comm, layers, cuts, x, loss):
    first, last, stage = _way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    y = stage(x)
    if last:
        value = loss(y)
        value.backward()
    else:
        comm.send(y, comm.rank + 1)
        gradient = torch.empty_like(y)
        comm.recv(gradient, comm.rank + 1)
        y.backward(gradient)
    if not first:
        comm.send(x.detach(), comm.rank - 1)
    return value if last else None


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


def receives_before_it_sends(comm, layers, cuts, x, loss):
    first, last, stage = _way(comm, layers, cuts)
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    y = stage(x)
    if last:
        value = loss(y)
        value.backward()
    else:
        gradient = torch.empty_like(y)
        comm.recv(gradient, comm.rank + 1)
        comm.send(y, comm.rank + 1)
        y.backward(gradient)
    if not first:
        comm.send(x.grad, comm.rank - 1)
    return value if last else None


def nobody_waits_and_nobody_learns(case: Case, seen: Observation, expected: Observation) -> bool:
    """Only the last rank has gradients."""
    if seen.error is not None or case.ranks < 2:
        return False
    having = [any(g is not None for g in gradients.values()) for _, gradients in seen.value]
    return having[-1] and not any(having[:-1])


def waits_for_the_last(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank but the last is in a receive from the next one, and the last has returned."""
    if seen.error is None or seen.error.type != "Deadlock":
        return False
    waits = dict(seen.error.waits)
    return sorted(waits) == list(range(case.ranks - 1)) and all("recv" in what for what in waits.values())


def waits_crosswise(case: Case, seen: Observation, expected: Observation) -> bool:
    if seen.error is None or seen.error.type != "Deadlock":
        return False
    waits = dict(seen.error.waits)
    return len(waits) == case.ranks and all("recv" in what for what in waits.values())


MISTAKES = (
    Mistake(
        "the input does not require a gradient",
        forgets_that_the_input_learns,
        "`x.grad` is None after backward. What arrived is numbers without a history, and autograd keeps no gradient "
        "for such a tensor unless you ask: call `requires_grad_()` on it before the stage runs.",
        symptom=says("only tensors travel"),
    ),
    Mistake(
        "detaches the activation",
        detaches_the_activation,
        "You call backward on a tensor that was detached: it has the numbers of `y`, but no way back into the "
        "stage. Send the numbers, and keep the attached `y` for its backward.",
        symptom=matches("does not require grad"),
    ),
    Mistake(
        "gradient not sent back",
        never_sends_a_gradient_back,
        "Only the last rank has gradients. Backward ends where the graph ends, at the tensor that arrived; the rank "
        "before cannot know what its `y` did to the loss until you send it that gradient.",
        symptom=nobody_waits_and_nobody_learns,
    ),
    Mistake(
        "waits for a gradient that nobody sends",
        waits_for_a_gradient_that_nobody_sends,
        "The ranks before the last wait for a gradient, and the last one has already returned. Whoever received an "
        "activation owes its sender the gradient of it.",
        symptom=waits_for_the_last,
    ),
    Mistake(
        "receives the gradient before it has sent",
        receives_before_it_sends,
        "You wait for the gradient of an activation that you have not sent yet, and the next rank waits for that "
        "activation. Forward comes first: send `y`, then receive.",
        symptom=waits_crosswise,
    ),
    Mistake(
        "begins backward with ones",
        begins_backward_with_ones,
        "Your stage makes up its own gradient: `y.sum().backward()` differentiates the sum of the activation, not the "
        "loss. The loss is on the last rank, and its gradient comes to you through the ranks behind you.",
    ),
    Mistake(
        "passes on what it got",
        passes_on_what_it_got,
        "You send back the gradient of your *output*, as it came. The rank before needs the gradient of *its* output, "
        "which is your input: it is in `x.grad` after backward.",
    ),
    Mistake(
        "sends back before backward",
        sends_before_backward,
        "The gradient that you send back is still zero: `x.grad` is filled by your own backward, so that has to run "
        "first. Backward goes through the ranks one after the other, from the last to the first.",
    ),
    Mistake(
        "sends the activation back",
        sends_the_activation_back,
        "What goes back is the activation itself. The rank before waits for the *gradient* of it, which has the same "
        "shape: `x.grad`.",
    ),
    Mistake(
        "runs every layer on every rank",
        runs_every_layer_everywhere,
        "Each rank has only the layers between two cuts: rank r those from `bounds[r]` to `bounds[r + 1]`, with "
        "bounds `[0, *cuts, len(layers)]`. Yours runs them all.",
    ),
    Mistake(
        "leaves out the last layer",
        leaves_out_the_last_layer,
        "The last layer is missing. A slice ends before its second bound, so the last rank's bound is "
        "`len(layers)`, not one less.",
    ),
    Mistake(
        "does not return the loss",
        keeps_the_loss_to_itself,
        "Every gradient is right. Only the loss is missing: the last rank returns it, the others None.",
    ),
)
