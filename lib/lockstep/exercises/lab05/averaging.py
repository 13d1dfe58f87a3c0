"""Exercise 05.2: after backward, give every rank the gradient of the whole batch.

Floor 4, room `exercises`; the models are in `toys.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, Mistake, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab05.sending import sends_at_least
from lockstep.exercises.lab05.toys import build, first_that_differs, in_words, named_first, shards
from lockstep.exercises.observe import Observation, Simulate


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


def after_backward(fn: Callable[..., Any], comm: Communicator, x: Tensor, y: Tensor, kind: str, seed: int) -> Any:
    """Trained parameters' gradients after one backward pass and `fn` (None: zeros); names of frozen ones with any."""
    model = build(kind, seed)
    model.both = comm.rank == 0
    if len(x):
        F.mse_loss(model(x), y).backward()
    fn(model, comm, len(x))
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    frozen = [name for name, p in model.named_parameters() if name not in trained and p.grad is not None]
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in trained.items()}, frozen


def right_gradients(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The gradients are those of the mean over all samples, on every rank; frozen parameters have none."""
    for rank, ((got, frozen), (want, _)) in enumerate(zip(seen.value, expected.value, strict=True)):
        difference = differs(got, want, 1e-4, 1e-6)
        if difference is not None:
            sentence = named_first(f"Rank {rank}: {difference}.", "the gradient of {}")
            return Finding(sentence, *first_that_differs(got, want), (seen.value,))
        if frozen:
            return Finding(
                f"Rank {rank}: the frozen parameter `{frozen[0]}` has a gradient now.", "its `.grad` stays None",
                "a tensor", ("frozen", frozen),
            )  # fmt: skip
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = (
        ((4,), "plain", ""),
        ((2, 2), "plain", ""),
        ((1, 3), "plain", ""),
        ((2, 3), "heads", ", a layer that rank 1 does not use"),
        ((2, 0, 1), "tied", ", a tied and a frozen parameter"),
    )
    for sizes, model, words in drawn:
        named = f"{in_words(sizes)} sample{'' if sizes == (1,) else 's'}{words}"
        yield on_ranks(len(sizes), model, int(rng.integers(100)), each=shards(rng, sizes), name=named)


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


def its_gradients(case: Case, expected: Observation, rank: int) -> int:
    """Bytes of the gradients that this rank's own samples have: they count in everybody's mean."""
    gradients, _ = expected.value[rank]
    used = [one for name, one in gradients.items() if rank == 0 or not name.startswith("other.")]
    return sum(one.nbytes for one in used) if len(case.each[rank][0]) else 0


OBSERVE, JUDGE = Simulate(after_backward), all_of(right_gradients, sends_at_least(its_gradients))

AVERAGE = Exercise(
    id="05.2",
    title="The gradient of the big batch",
    function="average_gradients",
    points=2,
    asks=(
        "Each rank's loss was the mean over its own `samples`, and backward has run. Change every trained parameter's "
        "`.grad`, on every rank, into the gradient of the mean over all samples of all ranks. A gradient that is None "
        "counts as zeros. A frozen parameter's `.grad` stays None. A rank may have no samples; in all there is "
        "at least one."
    ),
    reference=average_gradients,
    also_right=(average_in_one_message, average_with_handles, average_through_rank_0),
    stub=average_gradients_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "Rank 0 has 1 sample and rank 1 has 4. In the mean over all five, how much does each sample count? So how "
            "much does rank 0's gradient count, and how much rank 1's?"
        ),
        (
            "A rank's gradient counts `samples / total`, where `total` is the sum of everybody's `samples`: one "
            "all-reduce of a tensor with one number. Weight first, then add up over the ranks."
        ),
        (
            "Every rank has to make the same calls, also for a parameter that has no gradient here: put zeros in "
            "its place. Only frozen ones (`requires_grad` is False) may be left out, since they are frozen on all ranks."
        ),
        "Inside the loop: `parameter.grad *= samples / total`, then `comm.all_reduce(parameter.grad)`.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
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
        ),
    ),
)
