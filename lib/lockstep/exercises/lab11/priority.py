"""11.3 `priority_order`: send first what the next forward pass needs first.

Floor 4, room `exercises`. Right functions are in `priority_right.py`, wrong ones in `priority_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab11.priority_mistakes import MISTAKES
from lockstep.exercises.lab11.priority_right import priority_order, priority_order_stub, recursively, with_a_heap
from lockstep.exercises.lab11.told import NO_RETURN, by_what_it_alone_does, changes_an_argument
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import kind, short


def sends_by_rule(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The order of the rule, with a sentence for the first step that breaks it."""
    got, want, (ready, seconds) = seen.value, list(expected.value), case.args
    if hasattr(got, "tolist"):
        got = got.tolist()
    if got is None:
        return Finding(NO_RETURN, short(want), "None", ("type", "None"))
    if not isinstance(got, (list, tuple)) or not all(isinstance(one, int) and not isinstance(one, bool) for one in got):
        return Finding("A list of layers, whole numbers, is asked for.", short(want), kind(got), ("type", str(got)))
    got = list(got)
    if got == want:
        place = changes_an_argument(case, seen)
        if place is None:
            return None
        given, left = case.args[place], seen.arguments[place]
        return Finding(
            f"The order is right, but the list `{('ready', 'seconds')[place]}` is not left as it was: whoever called the "
            "function still needs it.",
            short(given), short(left), ("changed", place),
        )  # fmt: skip
    return Finding(_fault(got, ready, seconds), short(want), short(got), got)


def _fault(got: list[int], ready: list[float], seconds: list[float]) -> str:
    if sorted(got) != list(range(len(ready))):
        missing = sorted(set(range(len(ready))) - set(got))
        return (
            f"Layer {missing[0]} is never sent." if missing else "There is a layer that does not exist, or comes twice."
        )
    free, left = 0.0, set(got)
    for layer in got:
        free = max(free, min(ready[other] for other in left))
        there = sorted(other for other in left if ready[other] <= free)
        if layer not in there:
            return (
                f"At {free:g} ms the link is free and layer {there[0]} is ready, but it waits for layer {layer}, which is "
                f"ready at {ready[layer]:g} ms."
            )
        if layer != there[0]:
            return f"At {free:g} ms layer {there[0]} is ready, too, and forward needs it before layer {layer}."
        left.remove(layer)
        free += seconds[layer]
    raise AssertionError("two orders that both keep the rule")  # it leaves no choice


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Milliseconds. The last layer is ready first, where the network is a chain; idle links, busy ones, and ties."""
    yield _case([1.0], [2.0])
    yield _case([3.0, 2.0, 1.0], [1.0, 1.0, 1.0])
    yield _case([1.0, 0.5, 0.25], [1.0, 1.0, 0.5])
    yield _case([4.0, 3.0, 2.0, 1.0], [2.0, 1.0, 1.5, 2.5])
    yield _case([5.0, 2.5, 4.0, 1.0, 3.0], [1.0, 2.0, 1.5, 2.5, 1.0])
    yield _case([6.0, 5.0, 3.0, 2.0, 1.0], [1.0, 2.0, 4.0, 1.0, 1.0])
    yield _case([20.0, 9.0, 8.0, 2.0, 1.0], [1.0, 1.5, 1.0, 1.0, 0.5])
    yield _case([9.0, 9.0, 5.0, 5.0, 1.0, 1.0], [1.0, 3.0, 2.0, 1.0, 2.0, 3.0])
    yield _case([7.0, 6.0, 5.5, 4.0, 2.5, 1.0], [2.0, 0.5, 3.0, 1.0, 2.0, 2.5])
    for layers in (6, 9, 14):
        ready = np.cumsum(rng.integers(1, 16, layers)) / 4
        seconds = rng.integers(2, 24, layers) / 4
        yield _case((ready[::-1] if layers == 6 else rng.permutation(ready)).tolist(), seconds.tolist())


def _case(ready: list[float], seconds: list[float]) -> Case:
    layers = f"{len(ready)} layer{'s' * (len(ready) > 1)}"
    return Case(f"{layers}, ready at {short(ready)} ms", (ready, seconds))


OBSERVE, JUDGE = Call(), sends_by_rule

PRIORITY_ORDER = Exercise(
    id="11.3",
    title="What forward needs first",
    function="priority_order",
    asks=(
        "Return the layers in the order in which their gradients are sent over one link. Layer i's gradient is ready at "
        "`ready[i]` and takes `seconds[i]`. Whenever the link is free, the lowest layer of those that are ready goes next; "
        "when none is ready, the link waits for the next one. A transfer that has begun is not interrupted. Both lists "
        "are left as they are."
    ),
    reference=priority_order,
    also_right=(with_a_heap, recursively),
    stub=priority_order_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    core=False,
    hints=(
        "Play it through: keep the time at which the link is free, and the layers that have not been sent.",
        "In each turn: which of the layers left are ready at that time? If none is, move the time to when the next one is. "
        "Then choose, send, and move the time to the end of the transfer.",
        "`first = min(layer for layer in left if ready[layer] <= free)`",
    ),
    mistakes=by_what_it_alone_does(OBSERVE, JUDGE, MISTAKES),
    equivalent_mutants=(
        "line 2: order, free, left = ([], 0.0, set(range(len(ready)))) -> order, free, left = ([], -1.0, set(range(len(ready))))",
    ),
)
