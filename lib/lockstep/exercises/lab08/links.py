"""Exercise 08.5: the bytes of a three-dimensional plan, by the link that they take.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lockstep.comm import MeshShape
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab08.sooner import unless_sooner
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


def bytes_by_link(axes, per_node, gradients, activations, boundary):
    found, stride = {"within": 0, "between": 0}, 1
    reduced = {"data": gradients, "tensor": activations}
    for name in reversed(axes):
        k = axes[name]
        for rank in range(math.prod(axes.values())):
            at = rank // stride % k
            if name == "pipeline":
                size, targets = boundary, [to for to in (at - 1, at + 1) if to in range(k)]
            else:
                size, targets = 2 * (k - 1) / k * reduced[name], [(at + 1) % k]
            for to in targets:
                other = rank + (to - at) * stride
                found["within" if rank // per_node == other // per_node else "between"] += size
        stride *= k
    return found


def links_with_arrays(axes, per_node, gradients, activations, boundary):
    node = np.arange(math.prod(axes.values())).reshape(list(axes.values())) // per_node
    between = total = 0.0
    for axis, (name, k) in enumerate(axes.items()):
        crossing = node != np.roll(node, -1, axis)
        if name == "pipeline":
            links = np.delete(crossing, -1, axis)
            between += 2 * boundary * float(links.sum())
            total += 2 * boundary * links.size
        else:
            each = 2 * (k - 1) / k * (gradients if name == "data" else activations)
            between += each * float(crossing.sum())
            total += each * node.size
    return {"between": between, "within": total - between}


def links_by_messages(axes, per_node, gradients, activations, boundary):
    shape, messages = MeshShape(axes), []
    for rank in range(shape.ranks):
        for name, k in axes.items():
            here = shape.coordinates(rank)
            if name == "pipeline":
                for to in (here[name] - 1, here[name] + 1):
                    if 0 <= to <= k - 1:
                        messages.append((rank, shape.rank(here | {name: to}), boundary))
            elif k > 1:
                whole = gradients if name == "data" else activations
                for _ in range(2 * (k - 1)):  # as many messages as a ring all-reduce has, each of a k-th
                    messages.append((rank, shape.rank(here | {name: (here[name] + 1) % k}), whole / k))
    crossed = sum(size for a, b, size in messages if a // per_node != b // per_node)
    return {"within": sum(size for _, _, size in messages) - crossed, "between": crossed}


def bytes_by_link_stub(axes, per_node, gradients, activations, boundary):
    raise NotImplementedError("count the bytes of every rank along every axis")


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


def as_numbers(fn: Callable[..., Any], *args: Any) -> Any:
    """What `fn` returns, its bytes as Python numbers where they are numbers of another kind."""
    found = fn(*args)
    return {link: _number(size) for link, size in found.items()} if isinstance(found, dict) else found


def _number(size: Any) -> Any:
    try:
        return size if isinstance(size, (bool, str)) else float(size)
    except (TypeError, ValueError, RuntimeError):
        return size


def right_links(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Both numbers; the evidence is both, in units of what is right together."""
    if not isinstance(seen.value, dict) or set(seen.value) != {"within", "between"}:
        words = f"Return a dictionary with 'within' and 'between'; this is {short(seen.value)}."
        return Finding(words, short(expected.value), short(seen.value), "no dictionary")
    for link in ("within", "between"):
        got, want = seen.value[link], expected.value[link]
        if isinstance(got, bool) or not isinstance(got, (int, float)):
            return Finding(f"{link!r} should be a number.", short(want), short(got), "no number")
        if differs(float(got), float(want), rtol=1e-6, atol=0.5) is not None:
            where = "inside nodes" if link == "within" else "between nodes"
            words = f"{want:,.0f} bytes travel {where}, and you count {got:,.0f}."
            return Finding(words, f"{want:,.0f}", f"{got:,.0f}", [float(one) for one in seen.value.values()])
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn: list[tuple[dict[str, int], int]] = [
        ({"data": 2, "pipeline": 1, "tensor": 2}, 2),
        ({"data": 1, "pipeline": 3, "tensor": 2}, 2),
        ({"data": 2, "pipeline": 2, "tensor": 2}, 4),
        ({"tensor": 2, "pipeline": 2, "data": 4}, 4),
        ({"data": 3, "tensor": 2, "pipeline": 4}, 8),
        ({"pipeline": 2, "data": 2, "tensor": 4}, int(rng.choice([4, 8]))),
        ({"data": 1, "pipeline": 2, "tensor": 6}, 4),  # of one ring some links cross, others do not
    ]
    for axes, per_node in drawn:
        sizes = [int(rng.integers(10, 100)) * 1200 for _ in range(3)]  # parts are whole bytes: `//` is as good as `/`
        words = " x ".join(f"{name}={size}" for name, size in axes.items())
        yield Case(f"{words}, {per_node} in a node", (axes, per_node, *sizes))


OBSERVE, JUDGE = Call(as_numbers), right_links

BYTES_BY_LINK = Exercise(
    id="08.5",
    title="Bytes by link",
    function="bytes_by_link",
    points=2,
    core=False,
    asks=(
        '`axes` has the sizes of "data", "pipeline" and "tensor" in some order, the last varying fastest; nodes have `per_node` '
        "consecutive ranks. In a step every data group all-reduces `gradients` bytes and every tensor group `activations` bytes, "
        "by rings: of n bytes over k ranks each rank sends 2 (k - 1)/k n to the next one along the axis. A pipeline is a line, not "
        "a ring: each rank sends `boundary` bytes to the next stage, and as many back to the one before. Return the bytes of all "
        'ranks together as {"within": ..., "between": ...}, inside nodes and between them.'
    ),
    reference=bytes_by_link,
    also_right=(links_with_arrays, links_by_messages),
    stub=bytes_by_link_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(  # as many bytes cross in one direction as in the other
        "line 9: size, targets = (boundary, [to for to in (at - 1, at + 1) if to in range(k)]) -> size, targets = (boundary, [to for to in (at + 1, at + 1) if to in range(k)])",
        "line 9: size, targets = (boundary, [to for to in (at - 1, at + 1) if to in range(k)]) -> size, targets = (boundary, [to for to in (at - 1, at - 1) if to in range(k)])",
        "line 11: size, targets = (2 * (k - 1) / k * reduced[name], [(at + 1) % k]) -> size, targets = (2 * (k - 1) / k * reduced[name], [(at - 1) % k])",
    ),
    hints=(
        "A loop over axes, and in it one over ranks. Whom does this rank send to along this axis, and how much?",
        (
            "With `stride`, the product of the sizes behind the axis, the rank is at `rank // stride % size`, and the one at "
            "`to` is `(to - at) * stride` further. Two ranks are in one node when `rank // per_node` is the same."
        ),
        (
            "Data and tensor: one target, the next on the ring, and 2 (k - 1)/k of the bytes. Pipeline: the stages before "
            "and behind, as far as there are such, each `boundary`."
        ),
    ),
    mistakes=unless_sooner(
        OBSERVE,
        JUDGE,
        bytes_by_link,
        tuple(cases(np.random.default_rng(0))),
        by_first_failure(OBSERVE, JUDGE, (
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
        )),
    ),
)  # fmt: skip
