"""What the exercises on shared-out layers have in common: both passes through a function, judged in numbers and bytes.

Floor 4, room `exercises`, used by 06.3, 06.4 and 06.5. Legend: x inputs, y outputs, dy the gradient that backward
begins with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case
from lockstep.exercises.judge import Finding
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import kind, short

PASSES = ("forward", "backward")


def both_passes(
    forward: Callable[..., Tensor], comm: Communicator, x: Tensor, dy: Tensor, learning: dict[str, Tensor]
) -> dict[str, Any]:
    """y of `forward(x)`, the gradients of x and of `learning` after `y.backward(dy)`, and bytes sent by pass.

    A y that is no tensor has no backward. "written" names the tensors whose numbers were changed, if any.
    """
    given = {"x": x, **learning}
    held = {name: tensor.detach().clone() for name, tensor in given.items()}
    for parameter in learning.values():
        parameter.requires_grad_()
    before = comm.traffic.bytes_sent
    y = forward(x)
    between = comm.traffic.bytes_sent
    if y is ...:
        return y  # the skeleton's: nobody has tried yet
    if isinstance(y, Tensor):
        # Not y.backward(dy): with a gradient given, torch imports sympy first, in every new process for seconds.
        (y * (dy if dy.shape == y.shape else torch.ones_like(y))).sum().backward()
    after = comm.traffic.bytes_sent
    gradients = {f"the gradient of {name}": tensor.grad for name, tensor in given.items()}
    written = [name for name, tensor in given.items() if not torch.equal(tensor.detach(), held[name])]
    seen = {"y": y, **gradients, "forward": between - before, "backward": after - between}
    return seen | ({"written": written} if written else {})


def right_passes(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Outputs and gradients are those of one process, on every rank; no pass sends more than it needs."""
    for rank, one in enumerate(seen.value):
        if not isinstance(one["y"], Tensor):
            words = f"Rank {rank} returns {kind(one['y'])}, and one tensor is asked: y."
            if one["y"] is None:
                words = f"Rank {rank} returns None: is there a `return`?"
            return Finding(words, short(expected.value[rank]["y"]), short(one["y"]), ("no tensor", rank))
    for name in expected.value[0]:
        if name not in PASSES and (found := _differing(name, seen.value, expected.value)):
            return found
    for rank, one in enumerate(seen.value):
        if names := one.get("written"):
            words = (
                f"Rank {rank}: the numbers of {' and '.join(names)} are others than before, and nobody asked for that."
            )
            return Finding(words, "unchanged", "changed", ("written", names))
    sent = [sum(one[name] for one in seen.value) for name in PASSES]
    for got, name in zip(sent, PASSES, strict=True):
        least = sum(one[name] for one in expected.value)
        if got > least:
            enough = f"{least:,} are enough" if least else "nothing has to be sent"
            words = f"The numbers are right, but together the ranks send {got:,} bytes {name} where {enough}."
            return Finding(words, f"{least:,} bytes", f"{got:,} bytes", ("bytes", sent))
    return None


def _differing(name: str, got: Sequence[dict[str, Any]], want: Sequence[dict[str, Any]]) -> Finding | None:
    """The evidence is that tensor on every rank: what goes wrong behind it is another fault, or follows from it."""
    for rank, (mine, right) in enumerate(zip(got, want, strict=True)):
        difference = differs(mine[name], right[name], 1e-4, 1e-5)
        if difference is None:
            continue
        said = f"Rank {rank}: {name} is not that of one process: {difference}."
        if mine[name] is None:
            said = f"Rank {rank}: {name} is None after backward."
        return Finding(said, short(right[name]), short(mine[name]), (name, [one[name] for one in got]))
    return None


def numbers(rng: np.random.Generator, *shape: int) -> Tensor:
    """Normal numbers of that shape."""
    return torch.tensor(rng.normal(size=shape), dtype=torch.float32)


def even_shares(n: int, ranks: int) -> list[int]:
    """How many of `n` each rank has, the first ones one more when they do not divide."""
    return [n // ranks + (rank < n % ranks) for rank in range(ranks)]
