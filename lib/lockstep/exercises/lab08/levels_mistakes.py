"""Exercise 08.2: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `levels.py`, wrong solutions are in `levels_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab08 import levels_wrong as wrong
from lockstep.exercises.lab08.levels_judge import levels_in_order, right_levels
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches, says


def _too_much_across(case: Case, seen: Observation, expected: Observation) -> bool:
    found = None if seen.error is not None else right_levels(case, seen, expected)
    return found is not None and found.evidence[0] == "across"


def _goes_across_first(case: Case, seen: Observation, expected: Observation) -> bool:
    return _too_much_across(case, seen, expected) and levels_in_order(case, seen)[:1] == [False]


def _some_links_are_idle(case: Case, seen: Observation, expected: Observation) -> bool:
    return _too_much_across(case, seen, expected) and any(one["across"] == 0 for one in seen.value)


def _all_links_carry_all(case: Case, seen: Observation, expected: Observation) -> bool:
    if not _chunks_go_too_often(case, seen, expected):
        return False
    per_node, least = case.ranks // case.args[0], max(one["across"] for one in expected.value)
    return max(one["across"] for one in seen.value) > 0.8 * per_node * least


def _chunks_go_too_often(case: Case, seen: Observation, expected: Observation) -> bool:
    too_much = _too_much_across(case, seen, expected) and levels_in_order(case, seen)[:1] == [True]
    return too_much and all(one["across"] for one in seen.value)


def _too_much_inside(case: Case, seen: Observation, expected: Observation) -> bool:
    found = None if seen.error is not None else right_levels(case, seen, expected)
    return found is not None and found.evidence[0] == "inside"


MISTAKES = (
    Mistake(
        "all-reduce across nodes first",
        wrong.across_first,
        "The sum is right, but you go across the nodes first, while every rank still has a whole tensor to send. Add "
        "up inside the node first: m ranks have one sum then, and each need send only an m-th of it.",
        symptom=_goes_across_first,
    ),
    Mistake(
        "whole tensor across",
        wrong.whole_tensor_across,
        "The sum is right and the order, too. But after your all-reduce inside, all m ranks of a node have the same "
        "sum, and each sends all of it across. Leave every rank with one chunk instead: that is half an all-reduce.",
        symptom=_all_links_carry_all,
    ),
    Mistake(
        "only the first of each node talks",
        wrong.first_of_each_node,
        "The sum is right, and no byte crosses twice. But one rank of each node sends the whole tensor while the "
        "other m - 1 links between nodes are idle. Give each rank an m-th to carry.",
        symptom=_some_links_are_idle,
    ),
    Mistake(
        "every node's chunk to every node",
        wrong.whole_chunk_to_every_node,
        "The sum is right, and it is an m-th that each rank takes across. But it goes there more often than it has "
        "to: an all-reduce sends 2 (k - 1)/k of it with k nodes, less than two chunks however many nodes there are.",
        symptom=_chunks_go_too_often,
    ),
    Mistake(
        "all-reduce inside, then chunks",
        wrong.all_reduce_inside_and_gather,
        "The sum is right, but inside the node you send more than one all-reduce does. An all-reduce is a "
        "reduce-scatter and an all-gather: the first before you go across, the second after.",
        symptom=_too_much_inside,
    ),
    Mistake(
        "the next node only",
        wrong.adds_the_next_node_only,
        "You add the chunk of one other node. With three nodes there are two others: an all-reduce over `across` has "
        "all of them.",
    ),
    Mistake(
        "one chunk of a node crosses",
        wrong.first_chunk_crosses_alone,
        "The first rank's chunk is the sum over all nodes; the others keep the sum of their own node. Every rank takes "
        "its chunk across, over its own `across`.",
    ),
    Mistake(
        "nothing where a node has one rank",
        wrong.nothing_where_a_node_has_one,
        "With one rank in a node there is nothing to add up inside, but there are other nodes.",
    ),
    Mistake(
        "lengths of `chunk`",
        wrong.lengths_of_chunk,
        "`tensor.chunk` makes other pieces than `tensor_split`: 49 in 3 are 17, 17, 15 there and 17, 16, 16 here. "
        "`reduce_scatter` has those of `tensor_split`.",
        symptom=says("sizes[", "gives a tensor of"),
    ),
    Mistake(
        "double-counts the tensor group",
        wrong.sums_inside_twice,
        "Each number is too large, m times with m ranks in a node: after the sum across, all ranks of a node have the same "
        "total, and you add it up once more. The last step only tells, it does not add.",
    ),
    Mistake(
        "chunks of its own tensor",
        wrong.chunk_of_its_own_tensor,
        "Each rank takes a chunk of its *own* tensor across, so the rest of what its node has is lost. First add up "
        "inside the node, so that the chunk is of the node's sum.",
    ),
    Mistake(
        "never across",
        wrong.never_across,
        "Each node has its own sum; nothing crosses between them.",
    ),
    Mistake(
        "never inside",
        wrong.never_inside,
        "Ranks at one place of the nodes have their sum; nothing is added up inside a node.",
    ),
    Mistake(
        "mean for sum",
        wrong.takes_means,
        "You average. The sum is asked, and collectives add up unless `op` says otherwise.",
    ),
    Mistake(
        "forgets to gather",
        wrong.forgets_to_gather,
        "Each rank has the total of its own chunk; the rest of its tensor is old. The ranks of a node have all "
        "chunks between them: gather them inside.",
    ),
    Mistake(
        "gathers without sizes",
        wrong.gathers_without_sizes,
        "Where the length does not divide by the ranks of a node, chunks differ by one element, and an all-gather "
        "has to be told: `inside.all_gather(own, sizes)`.",
        symptom=matches("calls all_gather.*calls all_gather"),
    ),
    Mistake(
        "not in place",
        wrong.not_in_place,
        "You compute the sum and bind it to the name `tensor`; the caller's tensor is as it was. Copy into it: "
        "`tensor.copy_(...)`.",
    ),
)
