"""Exercise 08.4: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `placing.py`.
"""

from __future__ import annotations

from itertools import permutations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab08.placing_judge import as_good_an_order, between
from lockstep.exercises.lab08.placing_right import place
from lockstep.exercises.observe import Observation


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


MISTAKES = (
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
)
