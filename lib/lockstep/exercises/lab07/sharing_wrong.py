"""Exercise 07.8: what students write in place of the right thing; `sharing_mistakes.py` says what it is.

Floor 4, room `exercises`; the exercise is in `sharing.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F


def shared(model, loss, inputs, targets, micro_batches, weight=lambda x, inputs: len(x) / len(inputs)):
    """What most of the mistakes share: the right way, with the weight of a micro-batch."""
    for x, y in zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True):
        (weight(x, inputs) * loss(model(x), y)).backward()


def unscaled(model, loss, inputs, targets, micro_batches):
    for x, y in zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True):
        loss(model(x), y).backward()


def divides_by_the_count(model, loss, inputs, targets, micro_batches):
    for x, y in zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True):
        (loss(model(x), y) / micro_batches).backward()


def times_the_size(model, loss, inputs, targets, micro_batches):
    for x, y in zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True):
        (loss(model(x), y) * len(x)).backward()


def divides_by_the_size(model, loss, inputs, targets, micro_batches):
    for x, y in zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True):
        (loss(model(x), y) / len(x)).backward()


def clears_in_between(model, loss, inputs, targets, micro_batches):
    for x, y in zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True):
        model.zero_grad()
        (len(x) / len(inputs) * loss(model(x), y)).backward()


def clears_first(model, loss, inputs, targets, micro_batches):
    model.zero_grad()
    shared(model, loss, inputs, targets, micro_batches)


def all_at_once(model, loss, inputs, targets, micro_batches):
    loss(model(inputs), targets).backward()


def one_backward_at_the_end(model, loss, inputs, targets, micro_batches):
    total = 0
    for x, y in zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True):
        total = total + len(x) / len(inputs) * loss(model(x), y)
    total.backward()


def drops_the_rest(model, loss, inputs, targets, micro_batches):
    size = len(inputs) // micro_batches
    for k in range(micro_batches):
        part = slice(k * size, (k + 1) * size)
        (loss(model(inputs[part]), targets[part]) / micro_batches).backward()


def sizes_of_chunks(model, loss, inputs, targets, micro_batches):
    for x, y in zip(inputs.split(micro_batches), targets.split(micro_batches), strict=True):
        (len(x) / len(inputs) * loss(model(x), y)).backward()


def no_backward(model, loss, inputs, targets, micro_batches):
    return loss(model(inputs.tensor_split(micro_batches)[0]), targets.tensor_split(micro_batches)[0])


def scales_all_at_the_end(model, loss, inputs, targets, micro_batches):
    unscaled(model, loss, inputs, targets, micro_batches)
    for p in model.parameters():
        p.grad /= micro_batches


def the_first_ones_share(model, loss, inputs, targets, micro_batches):
    first = -(-len(inputs) // micro_batches)
    shared(model, loss, inputs, targets, micro_batches, lambda x, inputs: first / len(inputs))


def another_loss(model, loss, inputs, targets, micro_batches):
    shared(model, F.cross_entropy, inputs, targets, micro_batches)


def one_sample_at_a_time(model, loss, inputs, targets, micro_batches):
    shared(model, loss, inputs, targets, len(inputs))


def two_parts(model, loss, inputs, targets, micro_batches):
    shared(model, loss, inputs, targets, 2)


def the_rest_in_the_last_part(model, loss, inputs, targets, micro_batches):
    size = len(inputs) // micro_batches
    for k in range(micro_batches):
        part = slice(k * size, None if k == micro_batches - 1 else (k + 1) * size)
        (len(inputs[part]) / len(inputs) * loss(model(inputs[part]), targets[part])).backward()


def makes_a_step(model, loss, inputs, targets, micro_batches):
    shared(model, loss, inputs, targets, micro_batches)
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad


def in_evaluation_mode(model, loss, inputs, targets, micro_batches):
    model.eval()
    shared(model, loss, inputs, targets, micro_batches)
