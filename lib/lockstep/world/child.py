"""Run one function in one fresh process, without a process group: how a check tries a student's code.

Floor 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.world.launch import Settings, run_processes, seconds_limit, start_method_name, value_of


def run_child(fn: Callable[..., Any], *args: Any, timeout: float = 10) -> Any:
    """`fn(*args)` in a process of its own, seeded as rank 0; its value, as a copy.

    Raises RankError when it raises, leaves or is killed, and RunTimeout (`.lines[0]` is the running line
    of the reader's code, `.stacks[0]` the whole stack) after `timeout` seconds.
    """
    settings = Settings(timeout=seconds_limit(timeout), method=start_method_name(None))
    (state,) = run_processes(fn, args, {}, 1, settings, group=False)
    return value_of(state)
