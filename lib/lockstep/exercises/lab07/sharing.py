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
from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
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
    micro_batch_gradients(model, loss, inputs, targets, micro_batches)


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


def watched(fn: Callable[..., Any], seed: int, inputs: Any, targets: Any, micro_batches: int) -> dict[str, Any]:
    """Run it on a small network whose gradients are not empty; what it leaves there, and what went through."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    first = [torch.randn_like(p) for p in model.parameters()]
    for p, grad in zip(model.parameters(), first, strict=True):
        p.grad = grad.clone()
    sizes, alive = [], [0, 0]  # forwards that are waiting for their backward: now, at most

    def forward(_module: Any, args: Any, output: Any) -> None:
        sizes.append(len(args[0]))
        alive[0] += 1
        alive[1] = max(alive)
        output.register_hook(lambda grad: alive.__setitem__(0, alive[0] - 1))

    model.register_forward_hook(forward)
    fn(model, F.cross_entropy, inputs, targets, micro_batches)
    left = [None if p.grad is None else p.grad - was for p, was in zip(model.parameters(), first, strict=True)]
    return {"gradients": left, "sizes": sizes, "waiting": alive[1]}


def same_gradients(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """What was added to `grad` is the whole batch's gradient, and it came in micro-batches, one after the other."""
    got, want, m = seen.value, expected.value, case.args[-1]
    rows = len(case.args[1])
    for name, mine, theirs in zip(("weight", "bias") * 2, got["gradients"], want["gradients"], strict=True):
        difference = differs(mine, theirs, rtol=1e-9, atol=1e-12)
        if difference:
            return Finding(
                f"What is added to the gradient of a {name} is not that of the whole batch: {difference}.",
                short(theirs), short(mine), (got["gradients"],),
            )  # fmt: skip
    most = math.ceil(rows / m)
    if max(got["sizes"]) > most:
        return Finding(
            f"The gradients are right, but {max(got['sizes'])} samples go through the model at once; in {m} "
            f"micro-batches of {rows} samples there are at most {most}.",
            f"at most {most} samples at once", f"forwards of {short(got['sizes'])} samples", ("sizes", got["sizes"]),
        )  # fmt: skip
    if got["waiting"] > 1:
        return Finding(
            f"The gradients are right, but {got['waiting']} micro-batches are held at once: backward comes after all "
            "forwards.",
            "one micro-batch held at a time", f"{got['waiting']} held", ("waiting", got["waiting"]),
        )  # fmt: skip
    return None


def batches(rng: np.random.Generator) -> Iterator[Case]:
    """Sizes that divide, and sizes that do not."""
    for rows, m in ((4, 1), (4, 2), (5, 2), (7, 3), (9, 4), (3, 3)):
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
    mistakes=by_first_failure(
        Call(watched),
        same_gradients,
        (
            Mistake(
                "un-scaled micro-batch loss",
                unscaled,
                "Each micro-batch's loss is a mean over its own samples, and `backward` adds up: the gradient is about m "
                "times too large. Scale each loss by its share of the batch.",
            ),
            Mistake(
                "divides by the number of micro-batches",
                divides_by_the_count,
                "Every micro-batch counts alike. When they are not of the same size, samples of a small one count more: "
                "the share is its samples out of all.",
            ),
            Mistake(
                "times the size",
                times_the_size,
                "The mean times the size is the sum over samples. It has to be divided by the samples of the whole batch.",
            ),
            Mistake(
                "divides by the micro-batch's size",
                divides_by_the_size,
                "The loss is a mean over the micro-batch already, and you divide by its size again.",
            ),
            Mistake(
                "clears the gradients in between",
                clears_in_between,
                "`zero_grad` between the micro-batches throws away what the earlier ones have added.",
            ),
            Mistake(
                "clears the gradients first",
                clears_first,
                "You clear the gradients at the start. They are to be added to, as `backward` does: whoever calls this "
                "clears them when it is time.",
            ),
            Mistake(
                "the whole batch at once",
                all_at_once,
                "The gradient is right, but the whole batch goes through the model at once: no stage could start before "
                "the one before it has done everything.",
            ),
            Mistake(
                "one backward at the end",
                one_backward_at_the_end,
                "The gradient is right, but all micro-batches are held until one backward at the end: that saves no "
                "memory. Call `backward` for each.",
            ),
            Mistake(
                "drops the rest",
                drops_the_rest,
                "The samples that are left over after dividing are never seen. `tensor_split` makes the first parts "
                "longer by one.",
            ),
            Mistake(
                "micro-batches of m samples",
                sizes_of_chunks,
                "`split(m)` makes parts of m samples; m parts are what is asked for, which is `tensor_split(m)`.",
            ),
        ),
    ),
)
