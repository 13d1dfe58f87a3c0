"""Exercise 08.2: an all-reduce that knows which links are slow.

Floor 4, room `exercises`. Legend: k nodes of m ranks, n elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.comm import Communicator, Mesh
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, Mistake, on_ranks
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import short
from lockstep.exercises.symptoms import matches, says


def hierarchical_all_reduce(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor)
    across.all_reduce(own)
    tensor.copy_(inside.all_gather(own, sizes))


def by_scattering_twice(inside, across, tensor):
    mine = inside.reduce_scatter(tensor)
    parts = [len(piece) for piece in mine.tensor_split(across.size)]
    summed = across.all_gather(across.reduce_scatter(mine), parts)
    lengths = inside.all_gather(torch.tensor([len(summed)])).tolist()
    tensor[:] = inside.all_gather(summed, sizes=lengths)


def with_padding(inside, across, tensor):
    n, m = len(tensor), inside.size
    chunk = (n + m - 1) // m
    padded = torch.zeros(chunk * m)
    padded[:n] = tensor
    own = inside.reduce_scatter(padded)
    own = across.all_reduce(own)
    tensor.copy_(inside.all_gather(own)[:n])


def hierarchical_stub(inside, across, tensor):
    raise NotImplementedError("sum up inside the node, then across, then tell the node")


def across_first(inside, across, tensor):
    across.all_reduce(tensor)
    inside.all_reduce(tensor)


def whole_tensor_across(inside, across, tensor):
    inside.all_reduce(tensor)
    across.all_reduce(tensor)


def first_of_each_node(inside, across, tensor):
    inside.reduce(tensor, dst=0)
    if inside.rank == 0:
        across.all_reduce(tensor)
    inside.broadcast(tensor, src=0)


def sums_inside_twice(inside, across, tensor):
    inside.all_reduce(tensor)
    across.all_reduce(tensor)
    inside.all_reduce(tensor)


def chunk_of_its_own_tensor(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = tensor.tensor_split(inside.size)[inside.rank].clone()
    across.all_reduce(own)
    tensor.copy_(inside.all_gather(own, sizes))


def never_across(inside, across, tensor):
    inside.all_reduce(tensor)


def never_inside(inside, across, tensor):
    across.all_reduce(tensor)


def takes_means(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor, op="mean")
    across.all_reduce(own, op="mean")
    tensor.copy_(inside.all_gather(own, sizes))


def forgets_to_gather(inside, across, tensor):
    parts = tensor.tensor_split(inside.size)
    own = inside.reduce_scatter(tensor)
    across.all_reduce(own)
    parts[inside.rank].copy_(own)


def gathers_without_sizes(inside, across, tensor):
    own = inside.reduce_scatter(tensor)
    across.all_reduce(own)
    tensor.copy_(inside.all_gather(own))


def not_in_place(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor)
    across.all_reduce(own)
    tensor = inside.all_gather(own, sizes)
    return tensor


def whole_chunk_to_every_node(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor)
    own = across.all_gather(own).view(across.size, -1).sum(0)
    tensor.copy_(inside.all_gather(own, sizes))


def all_reduce_inside_and_gather(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    inside.all_reduce(tensor)
    own = tensor.tensor_split(inside.size)[inside.rank].clone()
    across.all_reduce(own)
    tensor.copy_(inside.all_gather(own, sizes))


def adds_the_next_node_only(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor)
    k, r = across.size, across.rank
    if k > 1:
        other = torch.empty_like(own)
        across.exchange([(own.clone(), (r + 1) % k)], [(other, (r - 1) % k)])
        own += other
    tensor.copy_(inside.all_gather(own, sizes))


def first_chunk_crosses_alone(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor)
    if inside.rank == 0:
        across.all_reduce(own)
    tensor.copy_(inside.all_gather(own, sizes))


def nothing_where_a_node_has_one(inside, across, tensor):
    if inside.size > 1:
        hierarchical_all_reduce(inside, across, tensor)


def lengths_of_chunk(inside, across, tensor):
    own = inside.reduce_scatter(tensor)
    across.all_reduce(own)
    tensor.copy_(inside.all_gather(own, [len(chunk) for chunk in tensor.chunk(inside.size)]))


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


def right_levels(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The sum, on every rank; then what crosses between nodes; then what is sent inside."""
    for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
        difference = differs(got["sum"], want["sum"], 1e-4, 1e-5)
        if difference is not None:
            words = f"Rank {rank}: `tensor` does not hold the sum of all ranks' tensors: {difference}."
            return Finding(words, short(want["sum"]), short(got["sum"]), [one["sum"] for one in seen.value])
    for level, slack in (("across", 2 * case.args[0]), ("inside", 2 * case.ranks // case.args[0])):
        got, want = ([one[level] for one in who.value] for who in (seen, expected))
        most = max(want) + 4 * slack  # an element a message, for those who pad
        if max(got) > most:
            where = "to other nodes" if level == "across" else "inside its node"
            rank = got.index(max(got))
            words = (
                f"The sum is right, but rank {rank} sends {max(got):,} bytes {where}, where {max(want):,} are enough."
            )
            evidence = (level, got, _levels_in_order(case, seen))
            return Finding(words, f"{max(want):,} bytes", f"{max(got):,} bytes", evidence)
    return None


def _levels_in_order(case: Case, seen: Observation) -> list[bool]:
    """For each collective of rank 0, in order of time, whether its group is inside a node."""
    per_node = case.ranks // case.args[0]
    calls = [span for span in seen.trace.spans if span.kind == "collective" and span.rank == 0]
    return [max(span.detail["group"]) < per_node for span in sorted(calls, key=lambda span: span.start)]


def _too_much_across(case: Case, seen: Observation, expected: Observation) -> bool:
    found = None if seen.error is not None else right_levels(case, seen, expected)
    return found is not None and found.evidence[0] == "across"


def _goes_across_first(case: Case, seen: Observation, expected: Observation) -> bool:
    return _too_much_across(case, seen, expected) and _levels_in_order(case, seen)[:1] == [False]


def _some_links_are_idle(case: Case, seen: Observation, expected: Observation) -> bool:
    return _too_much_across(case, seen, expected) and any(one["across"] == 0 for one in seen.value)


def _all_links_carry_all(case: Case, seen: Observation, expected: Observation) -> bool:
    if not _chunks_go_too_often(case, seen, expected):
        return False
    per_node, least = case.ranks // case.args[0], max(one["across"] for one in expected.value)
    return max(one["across"] for one in seen.value) > 0.8 * per_node * least


def _chunks_go_too_often(case: Case, seen: Observation, expected: Observation) -> bool:
    too_much = _too_much_across(case, seen, expected) and _levels_in_order(case, seen)[:1] == [True]
    return too_much and all(one["across"] for one in seen.value)


def _too_much_inside(case: Case, seen: Observation, expected: Observation) -> bool:
    found = None if seen.error is not None else right_levels(case, seen, expected)
    return found is not None and found.evidence[0] == "inside"


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
        (
            Mistake(
                "all-reduce across nodes first",
                across_first,
                "The sum is right, but you go across the nodes first, while every rank still has a whole tensor to send. Add "
                "up inside the node first: m ranks have one sum then, and each need send only an m-th of it.",
                symptom=_goes_across_first,
            ),
            Mistake(
                "whole tensor across",
                whole_tensor_across,
                "The sum is right and the order, too. But after your all-reduce inside, all m ranks of a node have the same "
                "sum, and each sends all of it across. Leave every rank with one chunk instead: that is half an all-reduce.",
                symptom=_all_links_carry_all,
            ),
            Mistake(
                "only the first of each node talks",
                first_of_each_node,
                "The sum is right, and no byte crosses twice. But one rank of each node sends the whole tensor while the "
                "other m - 1 links between nodes are idle. Give each rank an m-th to carry.",
                symptom=_some_links_are_idle,
            ),
            Mistake(
                "every node's chunk to every node",
                whole_chunk_to_every_node,
                "The sum is right, and it is an m-th that each rank takes across. But it goes there more often than it has "
                "to: an all-reduce sends 2 (k - 1)/k of it with k nodes, less than two chunks however many nodes there are.",
                symptom=_chunks_go_too_often,
            ),
            Mistake(
                "all-reduce inside, then chunks",
                all_reduce_inside_and_gather,
                "The sum is right, but inside the node you send more than one all-reduce does. An all-reduce is a "
                "reduce-scatter and an all-gather: the first before you go across, the second after.",
                symptom=_too_much_inside,
            ),
            Mistake(
                "the next node only",
                adds_the_next_node_only,
                "You add the chunk of one other node. With three nodes there are two others: an all-reduce over `across` has "
                "all of them.",
            ),
            Mistake(
                "one chunk of a node crosses",
                first_chunk_crosses_alone,
                "The first rank's chunk is the sum over all nodes; the others keep the sum of their own node. Every rank takes "
                "its chunk across, over its own `across`.",
            ),
            Mistake(
                "nothing where a node has one rank",
                nothing_where_a_node_has_one,
                "With one rank in a node there is nothing to add up inside, but there are other nodes.",
            ),
            Mistake(
                "lengths of `chunk`",
                lengths_of_chunk,
                "`tensor.chunk` makes other pieces than `tensor_split`: 49 in 3 are 17, 17, 15 there and 17, 16, 16 here. "
                "`reduce_scatter` has those of `tensor_split`.",
                symptom=says("sizes[", "gives a tensor of"),
            ),
            Mistake(
                "double-counts the tensor group",
                sums_inside_twice,
                "Each number is too large, m times with m ranks in a node: after the sum across, all ranks of a node have the same "
                "total, and you add it up once more. The last step only tells, it does not add.",
            ),
            Mistake(
                "chunks of its own tensor",
                chunk_of_its_own_tensor,
                "Each rank takes a chunk of its *own* tensor across, so the rest of what its node has is lost. First add up "
                "inside the node, so that the chunk is of the node's sum.",
            ),
            Mistake(
                "never across",
                never_across,
                "Each node has its own sum; nothing crosses between them.",
            ),
            Mistake(
                "never inside",
                never_inside,
                "Ranks at one place of the nodes have their sum; nothing is added up inside a node.",
            ),
            Mistake(
                "mean for sum",
                takes_means,
                "You average. The sum is asked, and collectives add up unless `op` says otherwise.",
            ),
            Mistake(
                "forgets to gather",
                forgets_to_gather,
                "Each rank has the total of its own chunk; the rest of its tensor is old. The ranks of a node have all "
                "chunks between them: gather them inside.",
            ),
            Mistake(
                "gathers without sizes",
                gathers_without_sizes,
                "Where the length does not divide by the ranks of a node, chunks differ by one element, and an all-gather "
                "has to be told: `inside.all_gather(own, sizes)`.",
                symptom=matches("calls all_gather.*calls all_gather"),
            ),
            Mistake(
                "not in place",
                not_in_place,
                "You compute the sum and bind it to the name `tensor`; the caller's tensor is as it was. Copy into it: "
                "`tensor.copy_(...)`.",
            ),
        ),
    ),
)
