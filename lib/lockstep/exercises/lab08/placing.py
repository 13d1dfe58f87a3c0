"""Exercise 08.4: which axis of a mesh stays inside a node.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

import numpy as np

from lockstep.comm import MeshShape
from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab08.sooner import unless_sooner
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


def place(axes, sent, per_node):
    def between_nodes(order):
        total, stride = 0, 1
        for name in reversed(order):
            for rank in range(math.prod(axes.values())):
                at = rank // stride % axes[name]
                following = rank + ((at + 1) % axes[name] - at) * stride
                if rank // per_node != following // per_node:
                    total += sent[name]
            stride *= axes[name]
        return total

    return min(permutations(axes), key=between_nodes)


def place_with_arrays(axes, sent, per_node):
    best, least = None, math.inf
    for order in permutations(axes):
        sizes = [axes[name] for name in order]
        node = np.arange(math.prod(sizes)).reshape(sizes) // per_node
        crossing = [int((node != np.roll(node, -1, axis)).sum()) for axis in range(len(order))]
        total = sum(many * sent[name] for many, name in zip(crossing, order, strict=True))
        if total < least:
            best, least = list(order), total
    return best


def place_by_mesh_shapes(axes, sent, per_node):
    def price(order):
        shape = MeshShape({name: axes[name] for name in order})
        total = 0
        for rank in range(shape.ranks):
            for name in order:
                there = shape.coordinates(rank)
                there[name] = (there[name] + 1) % axes[name]
                total += sent[name] * (shape.rank(there) // per_node != rank // per_node)
        return total

    return sorted(permutations(axes), key=price)[0]


def place_stub(axes, sent, per_node):
    raise NotImplementedError("return the names of the axes, the one that varies fastest last")


def longest_inside(axes, sent, per_node):
    return sorted(axes, key=lambda name: axes[name])


def most_bytes_inside(axes, sent, per_node):
    return sorted(axes, key=lambda name: sent[name])


def least_bytes_inside(axes, sent, per_node):
    return sorted(axes, key=lambda name: -sent[name])


def fastest_first(axes, sent, per_node):
    return tuple(reversed(place(axes, sent, per_node)))


def as_given(axes, sent, per_node):
    return tuple(axes)


def tensor_always_inside(axes, sent, per_node):
    return tuple(name for name in ("data", "pipeline", "tensor") if name in axes)


def rule_for_three(axes, sent, per_node):
    return "data", "pipeline", "tensor"


def counts_an_axis_once(axes, sent, per_node):
    def price(order):
        total, stride = 0, 1
        for name in reversed(order):
            if stride * axes[name] > per_node:
                total += sent[name]
            stride *= axes[name]
        return total

    return min(permutations(axes), key=price)


def keeps_the_nodes_idle(axes, sent, per_node):
    return max(permutations(axes), key=lambda order: between(order, axes, sent, per_node))


def nodes_of_eight(axes, sent, per_node):
    return place(axes, sent, 8)


def bytes_do_not_count(axes, sent, per_node):
    return place(axes, dict.fromkeys(axes, 1), per_node)


def greedy_by_what_fits(axes, sent, per_node):
    left, order, room = dict(axes), [], per_node
    while left:
        heaviest = max([name for name in left if left[name] <= room] or left, key=sent.get)
        order.insert(0, heaviest)
        room = max(1, room // left.pop(heaviest))
    return tuple(order)


def _only_alike(case: Case, seen: Observation, expected: Observation) -> bool:
    """One wrong order has many causes: only who is alike on every case made this mistake."""
    return False


def _not_the_cheapest(case: Case, seen: Observation, expected: Observation) -> bool:
    found = None if seen.error is not None else as_good_an_order(case, seen, expected)
    return found is not None and found.evidence[0] != "no order"


def _no_order(case: Case, seen: Observation, expected: Observation) -> bool:
    found = None if seen.error is not None else as_good_an_order(case, seen, expected)
    return found is not None and found.evidence[0] == "no order"


def one_name(axes, sent, per_node):
    return place(axes, sent, per_node)[-1]


def between(order: Sequence[str], axes: Mapping[str, int], sent: Mapping[str, int], per_node: int) -> int:
    """Bytes that cross between nodes when every rank sends `sent[name]` to the next one along each axis."""
    shape = MeshShape({name: axes[name] for name in order})
    total = 0
    for rank in range(shape.ranks):
        here = shape.coordinates(rank)
        for name in order:
            there = shape.rank(here | {name: (here[name] + 1) % axes[name]})
            total += sent[name] * (rank // per_node != there // per_node)
    return total


def as_good_an_order(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Any order whose bytes between nodes are the fewest."""
    axes, sent, per_node = case.args
    got, want = seen.value, list(expected.value)
    if not isinstance(got, (list, tuple)) or sorted(map(str, got)) != sorted(axes):
        words = f"The order names each of {', '.join(axes)} once; yours is {short(got)}."
        return Finding(words, short(want), short(got), ("no order", got))
    mine, least = (between(order, axes, sent, per_node) for order in (got, want))
    if mine <= least:
        return None
    words = f"In your order, {short(list(got))}, {mine:,} bytes cross between nodes; {least:,} are possible."
    return Finding(words, f"{short(want)}: {least:,} bytes", f"{short(list(got))}: {mine:,} bytes", list(got))


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
            (
                Mistake(
                    "the axis with most bytes inside, always",
                    most_bytes_inside,
                    "The axis with the most bytes is not always the one to keep inside. If it is longer than a node, its ring "
                    "crosses anyway, and takes a place that two shorter axes could share. Count the bytes of each order.",
                ),
                Mistake(
                    "the longest axis inside",
                    longest_inside,
                    "You look at the sizes alone. What counts are bytes: a short axis that sends much needs the fast links more.",
                ),
                Mistake(
                    "the fewest bytes inside",
                    least_bytes_inside,
                    "You keep the axis inside that sends least, and send the heavy ones across. The other way round.",
                ),
                Mistake(
                    "transposed mesh",
                    fastest_first,
                    "Your order begins with the axis that varies fastest. In a mesh it is the *last* one whose ranks are "
                    "neighbours by number.",
                ),
                Mistake(
                    "the order as given",
                    as_given,
                    "You return the axes as they came. Try the other orders and count.",
                ),
                Mistake(
                    "tensor inside, whatever it sends",
                    tensor_always_inside,
                    "Tensor inside is a good rule for transformers with large hidden layers. The bytes decide, and here they say "
                    "otherwise.",
                ),
                Mistake(
                    "three names, whatever the axes",
                    rule_for_three,
                    "You return three names by heart. `axes` says which there are, and the bytes in which order.",
                ),
                Mistake(
                    "nodes of eight",
                    nodes_of_eight,
                    "You count as if nodes had eight ranks. `per_node` says how many.",
                    symptom=_only_alike,
                ),
                Mistake(
                    "messages, not bytes",
                    bytes_do_not_count,
                    "You count messages that cross. Their bytes count: along each axis a rank sends `sent[name]`.",
                    symptom=_only_alike,
                ),
                Mistake(
                    "counts an axis once",
                    counts_an_axis_once,
                    "You count an axis as crossing or not. Of a long ring that spans two nodes only two links cross, of a ring "
                    "that has one rank in each node all of them do: count each rank's message.",
                ),
                Mistake(
                    "keeps the fast links idle",
                    keeps_the_nodes_idle,
                    "Your order sends as much as possible *between* nodes. The fewest bytes should cross there.",
                ),
                Mistake(
                    "one name only",
                    one_name,
                    "An order of all axes is asked, the one that varies fastest last.",
                    symptom=_no_order,
                ),
                Mistake(
                    "a rule, or not every message",
                    greedy_by_what_fits,
                    "Something is not counted. Find for each rank and axis the next rank, for the last one the first, and add "
                    "`sent[name]` where `rank // per_node` of the two differs. Rules of thumb (what fits inside, what sends most) fail "
                    "where an axis is longer than a node.",
                    symptom=_not_the_cheapest,
                ),
            ),
        ),
    ),
)
