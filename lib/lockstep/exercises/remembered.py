"""What a function of ours does on a case, run once for all who ask.

Floor 4, room `exercises`. A symptom may compare with what a wrong function does: every verdict on that case asks again,
and the answer is the same. Nothing of a student's is kept here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lockstep.exercises.exercise import Case
from lockstep.exercises.observe import Observation

KEPT = 500  # observations; a lab asks for fewer

_seen: OrderedDict[tuple[Any, ...], tuple[Case, Observation]] = OrderedDict()


def remembered(
    observe: Callable[[Callable[..., Any], Case], Observation], fn: Callable[..., Any], case: Case
) -> Observation:
    """`observe(fn, case)`, of the last time if `case` is the same object."""
    key = observe, fn, id(case)  # a case holds tensors, which cannot be looked up; it is kept, so its id stays its own
    if key in _seen:
        _seen.move_to_end(key)
        return _seen[key][1]
    seen = observe(fn, case)
    if seen.error is None or seen.error.type != "Timeout":  # which says more of a busy machine than of the function
        _seen[key] = case, seen
        if len(_seen) > KEPT:
            _seen.popitem(last=False)
    return seen
