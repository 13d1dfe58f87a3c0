"""Exercise 05.2: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `averaging.py`.
"""

from __future__ import annotations

import torch

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab05.averaging_right import average_gradients
from lockstep.exercises.observe import Observation


def adds_up(model, comm, samples):
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            comm.all_reduce(parameter.grad)


def weights_ranks_alike(model, comm, samples):
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            comm.all_reduce(parameter.grad, op="mean")


def divides_twice(model, comm, samples):
    total = comm.all_reduce(torch.tensor(float(samples)))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad *= samples / total
            comm.all_reduce(parameter.grad, op="mean")


def takes_the_loss_for_a_sum(model, comm, samples):
    total = comm.all_reduce(torch.tensor(float(samples)))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            comm.all_reduce(parameter.grad)
            parameter.grad /= total


def forgets_to_divide_by_the_total(model, comm, samples):
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad *= samples
            comm.all_reduce(parameter.grad)


def keeps_the_result_to_itself(model, comm, samples):
    total = comm.all_reduce(torch.tensor(float(samples)))
    for parameter in model.parameters():
        if parameter.requires_grad:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradient = gradient * samples / total
            comm.all_reduce(gradient)


def skips_missing_gradients(model, comm, samples):
    total = comm.all_reduce(torch.tensor(float(samples)))
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad *= samples / total
            comm.all_reduce(parameter.grad)


def expects_a_gradient_everywhere(model, comm, samples):
    total = comm.all_reduce(torch.tensor(float(samples)))
    for parameter in model.parameters():
        parameter.grad *= samples / total
        comm.all_reduce(parameter.grad)


def reduces_to_rank_0(model, comm, samples):
    total = comm.all_reduce(torch.tensor(float(samples)))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad *= samples / total
            comm.reduce(parameter.grad, dst=0)


def leaves_out_empty_ranks(model, comm, samples):
    if samples == 0:
        return
    average_gradients(model, comm, samples)


def gives_frozen_ones_a_gradient(model, comm, samples):
    total = comm.all_reduce(torch.tensor(float(samples)))
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad *= samples / total
        comm.all_reduce(parameter.grad)


def is_deadlock(case: Case, seen: Observation, expected: Observation) -> bool:
    """Ranks wait for each other, or make different calls, where all have samples."""
    stuck = seen.error is not None and seen.error.type in ("Deadlock", "CommunicationError")
    return stuck and case.ranks > 1 and "only tensors travel" not in seen.error.message and not has_empty_rank(case)


def leaves_early(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is not None and seen.error.type == "Deadlock" and has_empty_rank(case)


def has_empty_rank(case: Case) -> bool:
    return any(len(x) == 0 for x, _ in case.each)


def misses_a_gradient(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is not None and "NoneType" in seen.error.message


MISTAKES = (
    Mistake(
        "sum for mean",
        adds_up,
        "You add up the ranks' gradients, but each is already a mean over its own samples: the result is too large. "
        "Weight each rank's gradient before the sum.",
    ),
    Mistake(
        "weights each rank alike though shards differ",
        weights_ranks_alike,
        "That is the mean over ranks, a mean of means. It is right only when all ranks have equally many samples: "
        "a rank with 4 samples has to count four times as much as one with 1.",
    ),
    Mistake(
        "divides the loss and averages",
        divides_twice,
        'It is divided twice: the weights `samples / total` already make a mean, and `op="mean"` divides by the '
        "number of ranks once more.",
    ),
    Mistake(
        "takes the loss for a sum",
        takes_the_loss_for_a_sum,
        "Dividing by all samples would be right if each loss were a sum. It is a mean over the rank's own samples: "
        "multiply by `samples` to make it a sum again, then divide by the total.",
    ),
    Mistake(
        "forgets to divide by the total",
        forgets_to_divide_by_the_total,
        "Times `samples`, each rank's mean becomes a sum, and you add up the sums. The mean over all samples still "
        "needs a division by how many there are.",
    ),
    Mistake(
        "keeps the result to itself",
        keeps_the_result_to_itself,
        "`.grad` still holds what this rank had before. The average, if you made one, is in a new tensor, but "
        "the optimizer reads `.grad` and nothing else.",
    ),
    Mistake(
        "leaves out ranks without samples",
        leaves_out_empty_ranks,
        "A rank without samples leaves early, and the others wait for it for ever. It has nothing to add, but it "
        "has to make the same calls, and it needs the average too.",
        symptom=leaves_early,
    ),
    Mistake(
        "skips missing gradients",
        skips_missing_gradients,
        "Whether a gradient is missing differs from rank to rank, so the ranks make different calls: some wait for "
        "ever, or add up gradients of different layers. Put zeros where a gradient is missing and make the call "
        "anyway.",
        symptom=is_deadlock,
    ),
    Mistake(
        "expects a gradient everywhere",
        expects_a_gradient_everywhere,
        "`.grad` is None for a frozen parameter, for a layer that this rank did not use, and on a rank without "
        "samples. Leave out the frozen ones; for the others a missing gradient means zeros.",
        symptom=misses_a_gradient,
    ),
    Mistake(
        "gives frozen parameters a gradient",
        gives_frozen_ones_a_gradient,
        "A frozen parameter gets a gradient of zeros from you, and an optimizer with weight decay then moves it: "
        "only None makes an optimizer leave a parameter alone. Pass over those whose `requires_grad` is False.",
    ),
    Mistake(
        "averages on rank 0 only",
        reduces_to_rank_0,
        "Only rank 0 has the average; the others still hold their own part. Every rank takes its own step, so all "
        "of them need it.",
    ),
)
