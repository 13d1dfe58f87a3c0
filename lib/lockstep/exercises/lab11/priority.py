"""11.3 `priority_order`: send first what the next forward pass needs first.

Floor 4, room `exercises`. Right functions are in `priority_right.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab11.priority_right import priority_order, priority_order_stub, recursively, with_a_heap
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import kind, short


def ordered(ready, seconds, choose=min, wait=min, starts=0.0):
    """The right function, in which one thing can be another."""
    order, free, left = [], starts, set(range(len(ready)))
    while left:
        free = max(free, wait(ready[layer] for layer in left))
        first = choose([layer for layer in left if ready[layer] <= free])
        free += seconds[first]
        left.remove(first)
        order.append(first)
    return order


def reversed_priority(ready, seconds):
    return ordered(ready, seconds, choose=max)


def first_come(ready, seconds):
    return sorted(range(len(ready)), key=lambda layer: (ready[layer], layer))


def by_layer(ready, seconds):
    return list(range(len(ready)))


def from_the_last_layer(ready, seconds):
    return list(range(len(ready)))[::-1]


def after_backward(ready, seconds):
    return ordered(ready, seconds, starts=max(ready) / 2)


def shortest_first(ready, seconds):
    return ordered(ready, seconds, choose=lambda there: min(there, key=lambda layer: (seconds[layer], layer)))


def longest_first(ready, seconds):
    return ordered(ready, seconds, choose=lambda there: max(there, key=lambda layer: (seconds[layer], -layer)))


def oldest_first(ready, seconds):
    return ordered(ready, seconds, choose=lambda there: min(there, key=lambda layer: (ready[layer], -layer)))


def interrupts(ready, seconds):
    """Sends pieces: a more urgent one stops what is on its way. In the order in which they end."""
    left, now, order = dict(enumerate(seconds)), 0.0, []
    while left:
        there = [layer for layer in left if ready[layer] <= now]
        coming = [ready[layer] for layer in left if ready[layer] > now]
        if not there:
            now = min(coming)
            continue
        first = min(there)
        step = min([left[first], *(when - now for when in coming)])
        now, left[first] = now + step, left[first] - step
        if left[first] <= 1e-12:
            del left[first]
            order.append(first)
    return order


def gives_up_when_idle(ready, seconds):
    order, free = [], min(ready)
    while there := [layer for layer in range(len(ready)) if layer not in order and ready[layer] <= free]:
        order.append(there[0])
        free += seconds[there[0]]
    return order


def arrivals(ready, seconds):
    """When each arrives, by layer."""
    free, at = 0.0, [0.0] * len(ready)
    for layer in ordered(ready, seconds):
        free = max(free, ready[layer]) + seconds[layer]
        at[layer] = free
    return at


def places(ready, seconds):
    order = ordered(ready, seconds)
    return [order.index(layer) for layer in range(len(order))]


def sends_by_rule(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The order of the rule, with a sentence for the first step that breaks it."""
    got, want, (ready, seconds) = seen.value, list(expected.value), case.args
    if hasattr(got, "tolist"):
        got = got.tolist()
    if not isinstance(got, (list, tuple)) or not all(isinstance(one, int) and not isinstance(one, bool) for one in got):
        return Finding("A list of layers, whole numbers, is asked for.", short(want), kind(got), ("type", str(got)))
    got = list(got)
    if got == want:
        return None
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

MISTAKES = (
    Mistake(
        "priority reversed",
        reversed_priority,
        "Of the gradients that are ready you send that of the *last* layer. The next forward pass begins with layer 0: the "
        "lowest number is the most urgent.",
    ),
    Mistake(
        "first come, first served",
        first_come,
        "You send in the order in which gradients become ready: without priorities, or as if transfers took no time. While "
        "one travels, others become ready; go on `seconds` later, and ask anew which of them is the lowest layer.",
    ),
    Mistake(
        "by layer, ready or not",
        by_layer,
        "You begin with layer 0, whose gradient is ready last of all; until then the link has nothing to do. Choose among "
        "those that are ready.",
    ),
    Mistake(
        "from the last layer",
        from_the_last_layer,
        "You send from the last layer to the first. Where several are ready, the first layer's is more urgent.",
    ),
    Mistake(
        "begins too late",
        after_backward,
        "You let time pass before the first transfer. The link begins as soon as any gradient is ready.",
    ),
    Mistake(
        "the shortest first",
        shortest_first,
        "You send the shortest of those that are ready. That makes many arrive early, but not the one that forward needs "
        "first.",
    ),
    Mistake(
        "the longest first",
        longest_first,
        "You send the longest of those that are ready. What is urgent does not depend on its size.",
    ),
    Mistake(
        "the oldest first",
        oldest_first,
        "Of those that are ready you send the one that has been ready longest. That is the last layer, and forward needs it "
        "last.",
    ),
    Mistake(
        "interrupts a transfer",
        interrupts,
        "You let a more urgent gradient interrupt one that is on its way. A transfer that has begun ends first. (To "
        "interrupt it one has to cut it into pieces, and each pays a latency.)",
    ),
    Mistake(
        "gives up when nothing is ready",
        gives_up_when_idle,
        "You stop when nothing is ready. The link then waits for the next gradient; it is done when all are sent.",
    ),
    Mistake(
        "when they arrive",
        arrivals,
        "Those are times. Return the numbers of the layers, in the order in which they are sent.",
    ),
    Mistake(
        "the place of each",
        places,
        "You return the place of each layer in the order. Return the order: first the layer that is sent first.",
    ),
)

PRIORITY_ORDER = Exercise(
    id="11.3",
    title="What forward needs first",
    function="priority_order",
    asks=(
        "Return the layers in the order in which their gradients are sent over one link. Layer i's gradient is ready at "
        "`ready[i]` and takes `seconds[i]`. Whenever the link is free, the lowest layer of those that are ready goes next; "
        "when none is ready, the link waits for the next one. A transfer that has begun is not interrupted."
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
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
    equivalent_mutants=(
        "line 2: order, free, left = ([], 0.0, set(range(len(ready)))) -> order, free, left = ([], -1.0, set(range(len(ready))))",
    ),
)
