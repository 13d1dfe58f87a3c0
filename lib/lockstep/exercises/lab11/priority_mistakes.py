"""What goes wrong in exercise 11.3, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `priority.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab11.told import changes_an_argument, never_ends
from lockstep.exercises.observe import Observation


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


def as_if_never_busy(ready, seconds):
    """The time after a transfer is counted from when its gradient was ready."""
    order, free, left = [], 0.0, set(range(len(ready)))
    while left:
        there = [layer for layer in left if ready[layer] <= free] or [min(left, key=lambda layer: ready[layer])]
        first = min(there)
        free = ready[first] + seconds[first]
        left.remove(first)
        order.append(first)
    return order


def ready_before(ready, seconds):
    """What becomes ready at the very moment does not count yet, unless nothing else is there."""
    order, free, left = [], 0.0, set(range(len(ready)))
    while left:
        there = [layer for layer in left if ready[layer] < free] or [min(left, key=lambda layer: (ready[layer], layer))]
        first = min(there)
        free = max(free, ready[first]) + seconds[first]
        left.remove(first)
        order.append(first)
    return order


def time_stands_still(ready, seconds):
    """While nothing is ready the time is not moved on, and the lowest layer goes."""
    order, free, left = [], 0.0, set(range(len(ready)))
    while left:
        first = min(left, key=lambda layer: (ready[layer] > free, layer))
        free += seconds[first]
        left.remove(first)
        order.append(first)
    return order


def ready_when_sent(ready, seconds):
    return ordered([when + lasts for when, lasts in zip(ready, seconds, strict=True)], seconds)


def ready_when_it_ends(ready, seconds):
    """Waits for a lower layer that becomes ready while the transfer would go on."""
    order, free, left = [], min(ready), set(range(len(ready)))
    while left:
        first = min(left, key=lambda layer: (ready[layer] > free + seconds[layer], layer))
        free = max(free, ready[first]) + seconds[first]
        left.remove(first)
        order.append(first)
    return order


def uses_up_the_list(ready, seconds):
    """Marks in `ready` what has been sent."""
    order, free = [], 0.0
    while len(order) < len(ready):
        free = max(free, min(ready))
        first = min(layer for layer, when in enumerate(ready) if when <= free)
        ready[first] = float("inf")
        free += seconds[first]
        order.append(first)
    return order


def changes_a_list(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is None and changes_an_argument(case, seen) is not None


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
    Mistake(
        "the link is never busy",
        as_if_never_busy,
        "After a transfer you count on from when its gradient was *ready*. It may have waited for the link: count on from when "
        "the transfer began, the later of the two.",
    ),
    Mistake(
        "ready at that very moment",
        ready_before,
        "What becomes ready at the very moment at which the link is free is ready, too: `<=`, not `<`.",
    ),
    Mistake(
        "time stands still",
        time_stands_still,
        "When nothing is ready your time stands still: the loop has nothing to send for ever, or sends what is not there. The "
        "link waits: move the time to when the next gradient is ready.",
        symptom=never_ends,
    ),
    Mistake(
        "ready when it has been sent",
        ready_when_sent,
        "You add `seconds` to the time of being ready before you choose. Whether a gradient is ready does not depend on how "
        "long it will travel.",
    ),
    Mistake(
        "waits for what is ready soon",
        ready_when_it_ends,
        "You leave the link idle for a gradient that is ready only while its transfer would already go on. Choose among those "
        "that are ready when the link is free.",
    ),
    Mistake(
        "uses up its argument",
        uses_up_the_list,
        "You write into a list that you were given. Keep a list or set of your own of what is left.",
        symptom=changes_a_list,
    ),
)
