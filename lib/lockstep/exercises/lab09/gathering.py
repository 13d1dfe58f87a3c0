"""09.5 `zero3`: a layer that is whole only while it computes, forward and backward.

Floor 4, room `exercises`. How it is run and judged; right functions are in `gathering_right.py`, wrong ones in
`gathering_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CellType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab09.flat_right import shard_flat
from lockstep.exercises.lab09.gathering_mistakes import MISTAKES
from lockstep.exercises.lab09.gathering_right import recompute_by_name, saves_places, zero3, zero3_stub
from lockstep.exercises.lab09.toys import Held, Layer, Scaled, chain, free, numbers, sends
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import short

SPARE = 3  # layers that may be whole beside those of the reference
PASSES = ("forward", "backward")


def some_steps(
    fn: Callable[..., Any], comm: Communicator, x: Tensor, seed: int, widths: list[int], steps: int, scaled: bool
) -> dict[str, Any]:
    """Steps of plain SGD: outputs, gradients of `x` and of the shards, bytes sent and held beyond the shards."""
    layers = chain(seed, widths, Scaled if scaled else Layer)
    shards = [nn.Parameter(shard_flat(list(layer.parameters()), comm.rank, comm.size)) for layer in layers]
    for layer in layers:
        free(layer)
    held = Held(*shards)
    held.watch(comm)
    for layer in layers:
        layer.held = held
    found: dict[str, list] = {name: [] for name in ("y", "dx", "gradients", "sent", "peak", "held", "keeps")}
    saved: list[int] = []  # bytes, by autograd

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor.nbytes)
        held.note(tensor)
        return tensor

    def forward() -> Tensor:
        y = x
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            for layer, shard in zip(layers, shards, strict=True):
                y = torch.tanh(fn(comm, layer, shard, y))
        return y

    for _ in range(steps):
        x.grad = None
        saved.clear()
        before = held.restart()
        y, out = sends(comm, forward)
        peak = [held.peak - before]
        held.note(*remembered(y.grad_fn))
        between = held.restart() - before
        found["keeps"].append([_whole(layers), sum(saved)])
        _, back = sends(comm, y.square().sum().backward)
        peak.append(held.peak - before)
        for name, value in (("y", y), ("dx", x.grad), ("gradients", [s.grad for s in shards])):
            found[name].append(value)
        y = y.detach()
        found["sent"].append([out, back])
        found["peak"].append(peak)
        found["held"].append([between, _whole(layers)])
        with torch.no_grad():
            for shard in shards:
                if shard.grad is not None and shard.grad.shape == shard.shape:
                    shard -= 0.1 * shard.grad
                shard.grad = None
    return found


def remembered(node: Any) -> list[Tensor]:
    """Tensors that Functions of a graph keep in their `ctx`, or in variables which their passes see."""
    todo, seen, found = [node], {}, []
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, Tensor):
            found.append(one)
        elif hasattr(one, "next_functions"):
            todo += [before for before, _ in one.next_functions]
            todo += getattr(one, "__dict__", {}).values()
            function = getattr(type(one), "_forward_cls", None)  # torch has no public way from a node to its Function
            todo += [getattr(function, name) for name in PASSES if function is not None]
        elif isinstance(one, FunctionType):
            todo += [cell.cell_contents for cell in one.__closure__ or () if cell != CellType()]
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, (list, tuple, set)):
            todo += one
    return found


def _whole(layers: list[nn.Module]) -> int:
    """Bytes behind the layers' parameters and their gradients."""
    held = [t for layer in layers for p in layer.parameters() for t in (p.data, p.grad) if t is not None]
    return sum({id(s): s.nbytes() for s in (t.untyped_storage() for t in held)}.values())


def computes_the_same(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    names = {"y": "the output", "dx": "the gradient of `x`", "gradients": "the gradient of the shards"}
    for key, name in names.items():
        for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
            for step, (mine, right) in enumerate(zip(got[key], want[key], strict=True), 1):
                difference = differs(mine, right, 1e-4, 1e-6)
                if difference is not None:
                    said = f"Rank {rank}, step {step}: {name} is not that of one process: {difference}."
                    numbers = [{k: one[k] for k in names} for one in seen.value]
                    return Finding(said, short(right), short(mine), numbers)
    return None


def is_free_when_idle(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Between the passes and after them no layer is whole, and within them few are."""
    widths = case.args[1]
    layer = 4 * max(a * b + b for a, b in zip(widths, widths[1:], strict=False))
    got, want = seen.value[0], expected.value[0]
    moments = ("between forward and backward", "after backward")
    for which, moment in enumerate(moments):
        mine, least = (max(held[which] for held in one["held"]) for one in (got, want))
        if mine > least + layer:
            said = (
                f"The numbers are right, but {moment} rank 0 still holds {mine:,} bytes beyond its shards, where {least:,} "
                f"are enough: whole layers have stayed."
            )
            kept = tuple(one > other + layer for one, other in zip(got["keeps"][0], want["keeps"][0], strict=True))
            return Finding(said, f"{least:,} bytes", f"{mine:,} bytes", ("held", which, kept))
    for which, name in enumerate(PASSES):
        mine, least = (max(peak[which] for peak in one["peak"]) for one in (got, want))
        if mine > least + SPARE * layer:
            said = (
                f"The numbers are right, but during {name} rank 0 holds up to {mine:,} bytes beyond its shards, where "
                f"{least:,} are enough: more than a few layers are whole at once."
            )
            return Finding(said, f"{least:,} bytes", f"{mine:,} bytes", ("peak", which))
    return None


def gathers_once_each_way(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
        for which, name in enumerate(PASSES):
            mine, least = (sum(sent[which] for sent in one["sent"]) for one in (got, want))
            if mine > least:
                said = f"The numbers are right, but rank {rank} sends {mine:,} bytes {name} where {least:,} are enough."
                return Finding(said, f"{least:,} bytes", f"{mine:,} bytes", ("sent", which, mine))
    got, want = (sum(sent[1] for sent in one.value[0]["sent"]) for one in (seen, expected))
    if got < want:
        said = (
            f"The numbers are right, but in backward rank 0 sends {got:,} bytes; to gather each layer anew takes {want:,}. "
            "So something whole has stayed since forward."
        )
        return Finding(said, f"{want:,} bytes", f"{got:,} bytes", ("too little", got))
    counts = [len(one.collectives[0]) for one in (seen, expected)]
    if counts[0] > counts[1]:
        said = f"The numbers are right, but there are {counts[0]} collectives where {counts[1]} are enough."
        return Finding(said, f"{counts[1]}", f"{counts[0]}", ("collectives", counts[0]))
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, widths, steps, words in (
        (1, [2, 3], 2, "one layer"),
        (3, [2, 3, 2], 1, "two layers, padded"),
        (2, [3, 2, 3], 1, "layers with a layer inside"),
        (2, [9] * 9, 1, "eight layers"),
    ):
        each = [(numbers(rng, 2, widths[0]).requires_grad_(),) for _ in range(ranks)]
        yield on_ranks(ranks, int(rng.integers(1, 100)), widths, steps, "inside" in words, each=each, name=words)


OBSERVE = Simulate(some_steps)
JUDGE = all_of(computes_the_same, is_free_when_idle, gathers_once_each_way)

ZERO3 = Exercise(
    id="09.5",
    title="Whole only while it computes",
    function="zero3",
    points=3,
    asks=(
        "Return `layer(x)`, whatever module `layer` is. The parameters of `layer` have no memory; `shard` is this rank's shard of them, cut as in 09.2. "
        "Gather, compute, let go; in backward gather once more, and let go again. `shard.grad` gets the mean over the ranks "
        "of this rank's part of the gradient, `x` its own gradient. Beside what an ordinary layer keeps of its inputs, "
        "nothing whole stays between forward and backward."
    ),
    reference=zero3,
    also_right=(recompute_by_name, saves_places),
    stub=zero3_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "Forward: `comm.all_gather(shard)` gives the whole layer, flat. `fill`, compute, `free`. Then ask what autograd would "
        "keep if you did just that: the weights, for backward. So forward has to go past autograd.",
        "An `autograd.Function` with `x` and `shard` as inputs: inside `forward` nothing is recorded. It saves `x` and "
        "`shard`, no weights. `backward` gets the gradient of the output and returns two gradients, of `x` and of `shard`.",
        "In `backward`: gather and fill, compute `layer` once more under `torch.enable_grad()`, from a detached copy of `x` "
        "that requires a gradient, and ask `torch.autograd.grad` for the gradients of that copy and of the layer's "
        "parameters. Free. Join the latter, pad, reduce-scatter with the mean: that is the gradient of `shard`.",
        "`dx, *gradients = torch.autograd.grad(y, [again, *layer.parameters()], dy)`, and in the end "
        "`return Whole.apply(x, shard)`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
