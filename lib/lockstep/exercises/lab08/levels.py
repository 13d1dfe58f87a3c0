"""Exercise 08.2: an all-reduce that knows which links are slow.

Floor 4, room `exercises`; solutions are in `levels_right.py` and `levels_mistakes.py`. Legend: k nodes of m ranks, n elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.comm import Communicator, Mesh
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab08.levels_judge import right_levels
from lockstep.exercises.lab08.levels_mistakes import MISTAKES
from lockstep.exercises.lab08.levels_right import (
    by_scattering_twice,
    hierarchical_all_reduce,
    hierarchical_stub,
    with_padding,
)
from lockstep.exercises.observe import Simulate


def on_two_levels(fn: Callable[..., Any], comm: Communicator, tensor: Tensor, nodes: int) -> dict[str, Any]:
    """The sum that `fn` leaves in the memory of `tensor`, and what this rank sent inside its node and across."""
    per_node = comm.size // nodes
    levels = Mesh(comm, {"node": nodes, "gpu": per_node})
    held = tensor.view(-1)  # whoever else has this memory must see the sum: `tensor.data = ...` is not in place
    fn(levels["gpu"], levels["node"], tensor)
    sent = {"inside": 0, "across": 0}
    for dst, (_, size) in comm.traffic.sent_to.items():
        sent["inside" if dst // per_node == comm.rank // per_node else "across"] += size
    return {"sum": held.detach().clone(), **sent}


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for nodes, per_node, n in ((1, 2, 5), (2, 1, 7), (2, 2, 40), (2, 3, 49), (2, 3, 2), (3, 2, 61)):
        each = [(torch.tensor(rng.normal(size=n), dtype=torch.float32),) for _ in range(nodes * per_node)]
        # 49 over 3: `chunk` has other pieces than `tensor_split`. 2 over 3: somebody has nothing.
        name = f"{nodes} node{'s' * (nodes > 1)} of {per_node}, {n} numbers"
        yield on_ranks(nodes * per_node, nodes, each=each, name=name)


OBSERVE, JUDGE = Simulate(on_two_levels), right_levels

HIERARCHICAL = Exercise(
    id="08.2",
    title="All-reduce on two levels",
    function="hierarchical_all_reduce",
    points=3,
    asks=(
        "`inside` is a communicator of the ranks of this node, `across` one of the ranks that have this rank's place in all "
        "nodes. Afterwards `tensor`, 1-D and of any length, holds on every rank the sum of all ranks' tensors, in place. "
        "Links between nodes are slow: with m ranks in a node, each rank sends no more across than an all-reduce of an "
        "m-th of the tensor does, and inside no more than an all-reduce of the whole tensor."
    ),
    reference=hierarchical_all_reduce,
    also_right=(by_scattering_twice, with_padding),
    stub=hierarchical_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "After which collective inside the node does each of its m ranks have another m-th of the node's sum, and no rank "
            "more than that?"
        ),
        "Then the ranks at one place have the same m-th of different nodes' sums. What do they do with them, over `across`?",
        (
            "Three collectives: a reduce-scatter inside, an all-reduce of the own chunk across, an all-gather inside. Where the "
            "length does not divide by m, `all_gather(own, sizes)` needs the chunks' lengths, which are those of "
            "`tensor.tensor_split(m)`."
        ),
        "The last line is `tensor.copy_(inside.all_gather(own, sizes))`.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        MISTAKES,
    ),
)
