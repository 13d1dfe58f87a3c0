"""Exercise 06.2: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `balancing.py`, the wrong solutions are in `balancing_wrong.py`. Cuts say
little about how they were found, and two faults often agree on one case: a mistake without a symptom is recognised
only where it gives the same cuts on every case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.lab06 import balancing_wrong as wrong
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import says


def _whole(cuts: Any) -> bool:
    return isinstance(cuts, list) and all(type(cut) is int for cut in cuts)


def cuts_are(like: Callable[[Case, list[int]], bool]) -> Symptom:
    """A list of cuts on the failing case that is `like(case, cuts)`."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        cuts = seen.value
        return seen.error is None and _whole(cuts) and like(case, cuts)

    return symptom


def without_messages(function: Callable[..., Sequence[int]]) -> Symptom:
    """The cuts of a known mistake on a failing case whose messages cost nothing, so that they are no part of the fault."""
    return cuts_are(lambda case, cuts: not any(case.args[2]) and cuts == list(function(*case.args)))


def _even_counts(case: Case, cuts: list[int]) -> bool:
    costs, parts, communication = case.args
    sizes = [b - a for a, b in pairwise([0, *cuts, len(costs)])]
    return len(sizes) == parts and not any(communication) and max(sizes) - min(sizes) <= 1


def _one_too_low(case: Case, cuts: list[int]) -> bool:
    return cuts[:1] == [0] and cuts == list(wrong.gives_the_last_layer_of_each_part(*case.args))


def _sizes(case: Case, cuts: list[int]) -> bool:
    return len(cuts) == case.args[1] and sum(cuts) == len(case.args[0])


def _empty_parts(case: Case, cuts: list[int]) -> bool:
    costs, parts, _ = case.args
    return len(cuts) < parts - 1 or len(set(cuts)) < len(cuts) or cuts[-1:] == [len(costs)]


def _finds_nothing_when_large(case: Case, seen: Observation, expected: Observation) -> bool:
    """None for two parts, of which smaller cases passed, where the costs are large."""
    return seen.error is None and seen.value is None and case.args[1] == 2 and max(case.args[0]) > 99


def _outer_bounds(case: Case, cuts: list[int]) -> bool:
    costs, parts, _ = case.args
    return len(cuts) >= parts and (cuts[:1] == [0] or cuts[-1:] == [len(costs)])


MISTAKES = (
    Mistake(
        "equal layer counts for equal work",
        wrong.cuts_equal_counts,
        "Your parts have equally many layers, and layers cost unequally. It is the sum of a part's costs that "
        "has to be small, however many layers make it.",
        symptom=cuts_are(_even_counts),
    ),
    Mistake(
        "ignores the communication",
        wrong.ignores_the_communication,
        "Your parts balance the layers alone. A cut behind a layer with a large activation costs both its neighbours "
        "time: add `communication[i]` for a cut behind layer i.",
    ),
    Mistake(
        "counts messages of senders only",
        wrong.counts_messages_of_senders_only,
        "You add a message to the part that sends it only. The part that receives it is busy with it as well: a "
        "cut costs the part before it and the part behind it.",
    ),
    Mistake(
        "counts messages of receivers only",
        wrong.counts_messages_of_receivers_only,
        "You add a message to the part that receives it only. The part that sends it is busy with it as well: a cut costs "
        "the part before it and the part behind it.",
    ),
    Mistake(
        "takes the next cut's message",
        wrong.takes_the_next_cuts_message,
        "You charge each cut with the message of the next one. A cut at c lies behind layer c - 1, so it costs "
        "`communication[c - 1]`.",
    ),
    Mistake(
        "reads beyond the ends",
        wrong.reads_beyond_the_ends,
        "`communication` has one entry fewer than there are layers: before the first part and behind the last one nothing "
        "is sent. A 0 at both ends, `[0, *communication, 0]`, makes all parts alike.",
        symptom=says("list index out of range"),
    ),
    Mistake(
        "takes the larger of both",
        wrong.takes_the_larger_of_both,
        "You take the larger of a part's layers and its messages. A device does one after the other: add them.",
    ),
    Mistake(
        "doubles the messages",
        wrong.doubles_the_messages,
        "You count each message twice for the same part. `communication[i]` already holds both ways, the activation and its "
        "gradient.",
    ),
    Mistake(
        "fills parts up to the average",
        wrong.fills_up_to_the_average,
        "You fill one part after the other up to the average, and the last one takes what is left, which can be a "
        "lot. Going from left to right cannot know what comes; compare whole lists of cuts.",
        symptom=without_messages(wrong.fills_up_to_the_average),
    ),
    Mistake(
        "cuts where the running sum passes",
        wrong.cuts_where_the_running_sum_passes,
        "You cut where the running sum passes equal shares of the whole. The layer that passes them may be a large one, and "
        "its part gets more than its share; compare whole lists of cuts.",
        symptom=without_messages(wrong.cuts_where_the_running_sum_passes),
    ),
    Mistake(
        "fills up to a limit",
        wrong.fills_up_to_a_limit,
        "You fill each part as far as a limit allows. Without messages that is enough; here the longest part may end at a "
        "dear cut, which its neighbour pays too, and a shorter one at a cheap cut.",
    ),
    Mistake(
        "moves cuts while that helps",
        wrong.moves_cuts_while_that_helps,
        "You move one cut at a time, while that helps. There are lists that no single step makes better and that are not "
        "the best: try all, or build up from shorter chains.",
    ),
    Mistake(
        "adds the parts up",
        wrong.adds_the_parts_up,
        "Your cuts make the sum over all parts small, so they lie where the messages are smallest. Every layer is "
        "somewhere, whatever you do; what decides is the slowest part: the maximum over the parts, then the least of "
        "that over the cuts.",
    ),
    Mistake(
        "evens the parts out",
        wrong.evens_the_parts_out,
        "You make the parts alike: the difference between the slowest and the fastest is small. They can be alike and all "
        "slow, with a dear message each; what counts is the slowest alone.",
    ),
    Mistake(
        "makes the squares small",
        wrong.makes_the_squares_small,
        "You make the spread of all parts small. They can be alike and all slow, with a dear message each; what counts is "
        "the slowest alone.",
    ),
    Mistake(
        "never cuts behind the first layer",
        wrong.never_cuts_behind_the_first_layer,
        "You never cut behind the first layer, so that it is never alone. Cuts begin at 1.",
    ),
    Mistake(
        "never cuts before the last layer",
        wrong.never_cuts_before_the_last_layer,
        "You never cut before the last layer, so that it is never alone. The last cut is `len(costs) - 1`, and a range ends "
        "before its second bound.",
    ),
    Mistake(
        "rounds to whole seconds",
        wrong.rounds_to_whole_seconds,
        "You round the costs. They are seconds, and a layer takes far less than one: all of them become 0.",
    ),
    Mistake(
        "begins with a best that is too small",
        wrong.begins_with_a_best_that_is_too_small,
        "Your search finds nothing: it begins with a best time that no list of cuts beats. Begin with `math.inf`.",
        symptom=_finds_nothing_when_large,
    ),
    Mistake(
        "writes into its arguments",
        wrong.writes_into_its_arguments,
        "You write into a list that you were given. Whoever called you goes on with it: work on a copy, such as "
        "`[0, *communication, 0]`.",
        symptom=lambda case, seen, expected: seen.error is None and seen.arguments != list(case.args),
    ),
    Mistake(
        "gives the last layer of each part",
        wrong.gives_the_last_layer_of_each_part,
        "Your cuts are one too low: each is the index of the *first* layer of the next part, not of the last layer "
        "before it.",
        symptom=cuts_are(_one_too_low),
    ),
    Mistake(
        "gives the sizes of the parts",
        wrong.gives_the_sizes,
        "You return how many layers each part has. The cuts are places: where each part but the first begins.",
        symptom=cuts_are(_sizes),
    ),
    Mistake(
        "gives the outer bounds too",
        wrong.gives_the_outer_bounds_too,
        "Leave out 0 and the number of layers: only cuts between two parts are asked.",
        symptom=cuts_are(_outer_bounds),
    ),
    Mistake(
        "leaves parts empty",
        wrong.leaves_parts_empty,
        "A part of yours has no layer. That can even look faster, because a cut fewer means a message fewer, but a "
        "device would stand idle: every part needs a layer.",
        symptom=cuts_are(_empty_parts),
    ),
)
