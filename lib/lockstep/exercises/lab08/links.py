"""Exercise 08.5: the bytes of a three-dimensional plan, by the link that they take.

Floor 4, room `exercises`; solutions are in `links_right.py` and `links_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab08.links_mistakes import MISTAKES
from lockstep.exercises.lab08.links_right import bytes_by_link, bytes_by_link_stub, links_by_messages, links_with_arrays
from lockstep.exercises.lab08.sooner import unless_sooner
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


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
        by_first_failure(OBSERVE, JUDGE, MISTAKES),
    ),
)  # fmt: skip
