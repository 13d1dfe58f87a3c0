"""07.8 `micro_batch_gradients`: the gradients of a batch from its micro-batches.

Floor 4, room `exercises`. Every pipeline that flushes depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab07.sharing_mistakes import MISTAKES
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


def micro_batch_gradients(model, loss, inputs, targets, micro_batches):
    parts = zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True)
    for x, y in parts:
        share = len(x) / len(inputs)
        (share * loss(model(x), y)).backward()


def by_sums(model, loss, inputs, targets, micro_batches):
    cut = [len(inputs) * k // micro_batches for k in range(micro_batches + 1)]
    for a, b in zip(cut, cut[1:], strict=False):
        value = loss(model(inputs[a:b]), targets[a:b])
        value.backward(torch.full_like(value, b - a) / len(inputs))


def divided_afterwards(model, loss, inputs, targets, micro_batches):
    """Works because `grad` begins empty, which it need not: what was there before is set aside."""
    before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = None
    for x, y in zip(torch.tensor_split(inputs, micro_batches), torch.tensor_split(targets, micro_batches), strict=True):
        (loss(model(x), y) * len(x)).backward()
    for p, old in zip(model.parameters(), before, strict=True):
        p.grad /= len(targets)
        if old is not None:
            p.grad += old


def micro_batch_gradients_stub(model, loss, inputs, targets, micro_batches):
    raise NotImplementedError("forward and backward of each micro-batch, its loss scaled")


def smoothed(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss of the cases: a mean over samples that nobody takes by chance."""
    return F.cross_entropy(outputs, targets, label_smoothing=0.3)


def watched(fn: Callable[..., Any], seed: int, inputs: Any, targets: Any, micro_batches: int) -> dict[str, Any]:
    """Run it on a small network whose gradients are not empty; what it leaves there, and what went through."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    first = [torch.randn_like(p) for p in model.parameters()]
    weights = [p.detach().clone() for p in model.parameters()]
    for p, grad in zip(model.parameters(), first, strict=True):
        p.grad = grad.clone()
    sizes, alive = [], [0, 0]  # forwards that are waiting for their backward: now, at most

    def forward(_module: Any, args: Any, output: Any) -> None:
        sizes.append(len(args[0]))
        alive[0] += 1
        alive[1] = max(alive)
        output.register_hook(lambda grad: alive.__setitem__(0, alive[0] - 1))

    model.register_forward_hook(forward)
    fn(model, smoothed, inputs, targets, micro_batches)
    left = [None if p.grad is None else p.grad - was for p, was in zip(model.parameters(), first, strict=True)]
    moved = any(not torch.equal(p, was) for p, was in zip(model.parameters(), weights, strict=True))
    return {"gradients": left, "sizes": sizes, "waiting": alive[1], "moved": moved, "training": model.training}


def same_gradients(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """What was added to `grad` is the whole batch's gradient, and it came in micro-batches, one after the other."""
    got, want, m = seen.value, expected.value, case.args[-1]
    rows = len(case.args[1])
    for name, mine, theirs in zip(("weight", "bias") * 2, got["gradients"], want["gradients"], strict=True):
        difference = differs(mine, theirs)  # a share in 32 bits is exact enough
        if difference:
            return Finding(
                f"What is added to the gradient of a {name} is not that of the whole batch: {difference}.",
                short(theirs), short(mine), (got["gradients"],),
            )  # fmt: skip
    sizes, most = got["sizes"], math.ceil(rows / m)
    if len(sizes) > m:
        return Finding(
            f"The gradients are right, but there are {len(sizes)} forwards where {m} micro-batch{'es' * (m > 1)} "
            f"need{'s' * (m == 1)} {m}.",
            f"{m} forward{'s' * (m > 1)}", f"{len(sizes)}, of {short(sizes)} samples", ("forwards", sizes),
        )  # fmt: skip
    if max(sizes) > most:
        return Finding(
            f"The gradients are right, but {max(sizes)} samples go through the model at once; in {m} "
            f"micro-batches of {rows} samples there are at most {most}.",
            f"at most {most} samples at once", f"forwards of {short(sizes)} samples", ("sizes", sizes),
        )  # fmt: skip
    if got["waiting"] > 1:
        return Finding(
            f"The gradients are right, but {got['waiting']} micro-batches are held at once: the next goes forward before "
            "the one before it has gone back.",
            "one micro-batch held at a time", f"{got['waiting']} held", ("waiting", got["waiting"]),
        )  # fmt: skip
    if got["moved"]:
        return Finding("The gradients are right, but the weights have changed.", "the same weights", "others", "moved")
    if not got["training"]:
        return Finding(
            "The gradients are right, but the model is left in evaluation mode.", "training mode", "eval", "mode"
        )  # fmt: skip
    return None


def batches(rng: np.random.Generator) -> Iterator[Case]:
    """Sizes that do not divide, and sizes that do; with those, or one part, many mistakes are alike."""
    for rows, m in ((5, 2), (4, 2), (4, 1), (7, 3), (11, 4), (3, 3)):
        inputs = torch.tensor(rng.normal(size=(rows, 3)))
        targets = torch.tensor(rng.integers(0, 3, rows))
        words = f"{rows} samples, {m} micro-batch{'es' * (m > 1)}"
        yield Case(words, (int(rng.integers(1000)), inputs, targets, m))


SHARES = Exercise(
    id="07.8",
    title="Gradients from micro-batches",
    function="micro_batch_gradients",
    asks=(
        "Cut the batch into `micro_batches` parts as `tensor_split` does, and run forward and backward of one after the "
        "other, so that what is added to the gradients is that of `loss(model(inputs), targets)`. `loss` is a mean over "
        "samples; the parts may be of unequal size."
    ),
    reference=micro_batch_gradients,
    also_right=(by_sums, divided_afterwards),
    stub=micro_batch_gradients_stub,
    cases=batches,
    observe=Call(watched),
    judge=same_gradients,
    equivalent_mutants=(
        "line 2: parts = zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True) -> "
        "parts = zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=False)",
    ),  # both have as many parts
    core=False,
    hints=(
        "`backward()` adds to `grad`. What would be there after two halves of a batch, compared with the whole?",
        "The mean over all samples is a weighted sum of the parts' means. What is the weight of a part of 3 samples out "
        "of 7?",
        "Multiply each micro-batch's loss by `len(x) / len(inputs)` before `backward()`.",
    ),
    mistakes=by_first_failure(Call(watched), same_gradients, MISTAKES),
)
