"""Exercise 08.5: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `links.py`.
"""

from __future__ import annotations

import math

from lockstep.comm import MeshShape
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab08.links_right import bytes_by_link
from lockstep.exercises.observe import Observation


def _counted(axes, per_node, gradients, activations, boundary, ring=None, neighbours=None, inside=None):
    """The reference in pieces: bytes round a ring, neighbours in a pipeline, and which links are inside."""
    ring = ring or (lambda name, k: 2 * (k - 1) / k * {"data": gradients, "tensor": activations}[name])
    neighbours = neighbours or (lambda at, k: [to for to in (at - 1, at + 1) if 0 <= to < k])
    inside = inside or (lambda name, a, b: a // per_node == b // per_node)
    shape, found = MeshShape(axes), {"within": 0, "between": 0}
    for rank in range(shape.ranks):
        here = shape.coordinates(rank)
        for name, k in axes.items():
            pipeline = name == "pipeline"
            targets = neighbours(here[name], k) if pipeline else [(here[name] + 1) % k]
            for to in targets:
                same = inside(name, rank, shape.rank(here | {name: to}))
                found["within" if same else "between"] += boundary if pipeline else ring(name, k)
    return found


def transposed(axes, per_node, gradients, activations, boundary):
    return _counted(dict(reversed(axes.items())), per_node, gradients, activations, boundary)


def pipeline_as_a_ring(axes, per_node, gradients, activations, boundary):
    return _counted(
        axes, per_node, gradients, activations, boundary,
        neighbours=lambda at, k: [(at + 1) % k, (at - 1) % k] if k > 1 else [],
    )  # fmt: skip


def forward_only(axes, per_node, gradients, activations, boundary):
    return _counted(
        axes, per_node, gradients, activations, boundary, neighbours=lambda at, k: [at + 1] if at + 1 < k else []
    )


def half_an_all_reduce(axes, per_node, gradients, activations, boundary):
    return _counted(axes, per_node, gradients / 2, activations / 2, boundary)


def whole_tensor_round(axes, per_node, gradients, activations, boundary):
    return _counted(
        axes, per_node, gradients, activations, boundary,
        ring=lambda name, k: 2 * (k > 1) * {"data": gradients, "tensor": activations}[name],
    )  # fmt: skip


def averages_over_the_wrong_axis(axes, per_node, gradients, activations, boundary):
    return _counted(axes, per_node, activations, gradients, boundary)


def double_counts_the_tensor_group(axes, per_node, gradients, activations, boundary):
    group = axes["data"] * axes["tensor"]

    def ring(name, k):
        if name == "data":
            return 2 * (group - 1) / group * gradients
        return 2 * (k - 1) / k * activations

    return _counted(axes, per_node, gradients, activations, boundary, ring=ring)


def tensor_is_inside(axes, per_node, gradients, activations, boundary):
    return _counted(axes, per_node, gradients, activations, boundary, inside=lambda name, a, b: name == list(axes)[-1])


def of_one_rank(axes, per_node, gradients, activations, boundary):
    found = bytes_by_link(axes, per_node, gradients, activations, boundary)
    return {link: size / math.prod(axes.values()) for link, size in found.items()}


def swapped_links(axes, per_node, gradients, activations, boundary):
    found = bytes_by_link(axes, per_node, gradients, activations, boundary)
    return {"within": found["between"], "between": found["within"]}


def nodes_in_turn(axes, per_node, gradients, activations, boundary):
    nodes = max(math.prod(axes.values()) // per_node, 1)
    return _counted(axes, per_node, gradients, activations, boundary, inside=lambda name, a, b: a % nodes == b % nodes)


def an_axis_whole(axes, per_node, gradients, activations, boundary):
    stride = {name: math.prod(list(axes.values())[i + 1 :]) for i, name in enumerate(axes)}
    inside = lambda name, a, b: stride[name] * axes[name] <= per_node  # noqa: E731
    return _counted(axes, per_node, gradients, activations, boundary, inside=inside)


def remainders(axes, per_node, gradients, activations, boundary):
    inside = lambda name, a, b: a % per_node == b % per_node  # noqa: E731
    return _counted(axes, per_node, gradients, activations, boundary, inside=inside)


def divides_once_more(axes, per_node, gradients, activations, boundary):
    ring = lambda name, k: 2 * (k - 1) / k**2 * {"data": gradients, "tensor": activations}[name]  # noqa: E731
    return _counted(axes, per_node, gradients, activations, boundary, ring=ring)


def rings_of_two(axes, per_node, gradients, activations, boundary):
    ring = lambda name, k: (k > 1) * {"data": gradients, "tensor": activations}[name]  # noqa: E731
    return _counted(axes, per_node, gradients, activations, boundary, ring=ring)


def nobody_closes_the_ring(axes, per_node, gradients, activations, boundary):
    of_each = {"data": gradients, "tensor": activations, "pipeline": boundary}
    shape, found = MeshShape(axes), {"within": 0, "between": 0}
    for rank in range(shape.ranks):
        here = shape.coordinates(rank)
        for name, k in axes.items():
            if here[name] + 1 < k:
                other = shape.rank(here | {name: here[name] + 1})
                each = 2 * of_each[name] * (1 if name == "pipeline" else (k - 1) / k)
                found["within" if rank // per_node == other // per_node else "between"] += each
    return found


def _right_together(case: Case, seen: Observation, expected: Observation) -> bool:
    if seen.error is not None or not isinstance(seen.value, dict) or set(seen.value) != {"within", "between"}:
        return False
    if not all(type(one) in (int, float) for one in seen.value.values()):
        return False
    return differs(float(sum(seen.value.values())), float(sum(expected.value.values())), 1e-6, 0.5) is None


MISTAKES = (
    Mistake(
        "transposed mesh",
        transposed,
        "Your mesh is transposed: you let the first axis vary fastest, so the wrong ranks share a node. It is the last.",
    ),
    Mistake(
        "averages over the wrong axis",
        averages_over_the_wrong_axis,
        "You send gradients along the tensor axis and activations along the data axis. Ranks of a data group have the "
        "same weights and average gradients; ranks of a tensor group work on the same images and add up activations.",
    ),
    Mistake(
        "double-counts the tensor group",
        double_counts_the_tensor_group,
        "You let gradients go round a ring of data times tensor ranks. Ranks of a tensor group have *different* "
        "weights; only the data group has the same ones.",
    ),
    Mistake(
        "the pipeline as a ring",
        pipeline_as_a_ring,
        "You send from the last stage to the first. A pipeline is a line: nothing goes round.",
    ),
    Mistake(
        "forward only",
        forward_only,
        "You count activations and no gradients: what goes to the next stage has a gradient that comes back.",
    ),
    Mistake(
        "half an all-reduce",
        half_an_all_reduce,
        "You count an all-reduce as one trip round the ring. It is a reduce-scatter and an all-gather.",
    ),
    Mistake(
        "leaves out what a rank keeps",
        whole_tensor_round,
        "You let whole tensors go round twice. A rank does not send its own chunk to itself: the factor is 2 (k - 1)/k.",
    ),
    Mistake(
        "the last axis is inside, all others across",
        tensor_is_inside,
        "You take the last axis for inside and all others for across. A node may hold more than the last axis, or "
        "less: look at the two ranks of each message.",
    ),
    Mistake(
        "one rank's bytes",
        of_one_rank,
        "That is the mean over ranks. Asked are all ranks together.",
    ),
    Mistake(
        "links swapped",
        swapped_links,
        "You have them the other way round: ranks of one node have the same `rank // per_node`.",
    ),
    Mistake(
        "nodes dealt out in turn",
        nodes_in_turn,
        "You deal ranks out to nodes like cards. Nodes have consecutive ranks: `rank // per_node`.",
    ),
    Mistake(
        "remainders compared",
        remainders,
        "You compare `rank % per_node`, the place in the node. The node is `rank // per_node`.",
    ),
    Mistake(
        "divides once more",
        divides_once_more,
        "You divide by the ranks of a ring once more. *Each* rank sends 2 (k - 1)/k of the bytes, and all of them count.",
    ),
    Mistake(
        "every ring as one of two",
        rings_of_two,
        "You count the whole tensor once for each rank, which is 2 (k - 1)/k for two ranks only.",
    ),
    Mistake(
        "nobody closes the ring",
        nobody_closes_the_ring,
        "The last of a ring sends to the first, as much as all others do. Only a pipeline ends there.",
    ),
    Mistake(
        "an axis inside or across as a whole",
        an_axis_whole,
        "Together they are right, but some bytes are on the wrong link. Of one ring some links may cross and others not: "
        "look at both ranks of each message, numbered in the order of `axes`; they share a node when "
        "`rank // per_node` is the same.",
        symptom=_right_together,
    ),
)
