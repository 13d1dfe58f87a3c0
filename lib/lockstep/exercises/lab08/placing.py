"""Exercise 08.4: which axis of a mesh stays inside a node.

Floor 4, room `exercises`; solutions are in `placing_right.py` and `placing_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab08.placing_judge import as_good_an_order
from lockstep.exercises.lab08.placing_mistakes import MISTAKES
from lockstep.exercises.lab08.placing_right import place, place_by_mesh_shapes, place_stub, place_with_arrays
from lockstep.exercises.lab08.sooner import unless_sooner
from lockstep.exercises.observe import Call


def cases(rng: np.random.Generator) -> Iterator[Case]:
    yield from _fixed(rng)
    for _ in range(3):
        sizes = rng.choice([2, 3, 4], 3).tolist()
        axes = dict(zip(rng.permutation(["data", "pipeline", "tensor"]).tolist(), sizes, strict=True))
        yield _case(axes, {name: int(rng.integers(1000, 100_000)) for name in axes}, int(rng.choice([2, 4, 6])))


def _fixed(rng: np.random.Generator) -> Iterator[Case]:
    fixed = [
        ({"data": 2, "tensor": 2}, {"data": 10, "tensor": 90}, 2),
        ({"tensor": 2, "data": 4}, {"data": 10, "tensor": 90}, 4),
        ({"data": 8, "pipeline": 2, "tensor": 2}, {"data": 100, "pipeline": 80, "tensor": 90}, 4),
        ({"tensor": 4, "pipeline": 2, "data": 2}, {"tensor": 20, "pipeline": 70, "data": 30}, 4),
        ({"data": 2, "pipeline": 4, "tensor": 2}, {"data": 60, "pipeline": 30, "tensor": 10}, 8),
        # Neither fits, and rings of three do not fill nodes of two: no rule about sizes and bytes tells what crosses.
        ({"data": 4, "pipeline": 3}, {"data": 70, "pipeline": 90}, 2),
    ]
    for axes, sent, per_node in fixed:
        bytes_sent = {name: int(size * 1000 + rng.integers(0, 1000)) for name, size in sent.items()}
        yield _case(axes, bytes_sent, per_node)


def _case(axes: dict[str, int], sent: dict[str, int], per_node: int) -> Case:
    words = " x ".join(f"{name}={size}" for name, size in axes.items())
    return Case(
        f"{words}, {per_node} in a node, {', '.join(f'{sent[n]:,} B {n}' for n in axes)}", (axes, sent, per_node)
    )


OBSERVE, JUDGE = Call(), as_good_an_order

PLACE = Exercise(
    id="08.4",
    title="Which axis stays inside a node",
    function="place",
    points=2,
    core=False,
    asks=(
        "`axes` maps names to sizes. In a step every rank sends `sent[name]` bytes to the next rank along each axis, the last "
        "one to the first. Ranks are numbered by an order of the axes, the last of which varies fastest, and node n has the "
        "ranks `n * per_node` to `(n + 1) * per_node - 1`. Return the order, a tuple of names, in which the fewest bytes cross "
        "between nodes. Where several are best, return any."
    ),
    reference=place,
    also_right=(place_with_arrays, place_by_mesh_shapes),
    stub=place_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(  # all orders cost as much more; halves of a coordinate cancel; a ring crosses as often both ways
        "line 3: total, stride = (0, 1) -> total, stride = (1, 1)",
        "line 3: total, stride = (0, 1) -> total, stride = (-1, 1)",
        "line 6: at = rank // stride % axes[name] -> at = rank / stride % axes[name]",
        "line 7: following = rank + ((at + 1) % axes[name] - at) * stride -> following = rank + ((at - 1) % axes[name] - at) * stride",
    ),
    hints=(
        "Three axes have six orders. Trying all of them is right; what does one order cost?",
        (
            "For every rank and axis: which rank is next along the axis, and is it in the same node? With `stride`, the "
            "product of the sizes of the axes behind, the neighbour is `stride` further, or back at the start of the ring."
        ),
        "`min(permutations(axes), key=...)` from `itertools` does the rest.",
    ),
    mistakes=unless_sooner(
        OBSERVE,
        JUDGE,
        place,
        tuple(_fixed(np.random.default_rng(0))),
        by_first_failure(
            OBSERVE,
            JUDGE,
            MISTAKES,
        ),
    ),
)
