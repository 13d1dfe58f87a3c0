"""How a simulation ended, in the same words as a run of processes.

Floor 1, room `world`. Looks at every rank's thread where it stopped, and hands what it finds to `report`.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.comm.errors import NeverWaited
from lockstep.comm.signature import describe
from lockstep.world.beside import Job, OwnWork
from lockstep.world.groups import Meeting
from lockstep.world.rank import Failure
from lockstep.world.report import RankState, deadlock_error, name_ranks, rank_error, timeout_error
from lockstep.world.run import DeadlockError, RankError, RunTimeout
from lockstep.world.scheduler import Strand
from lockstep.world.stacks import Frame, is_users
from lockstep.world.transfers import Post

if TYPE_CHECKING:
    from lockstep.world.simulate import Simulation

_HERE = str(Path(__file__).parent)
_MACHINERY = (_HERE, str(Path(__file__).parents[1] / "comm"), "<frozen")


def rank_failed(simulation: Simulation, strand: Strand, raised: BaseException, cause: BaseException) -> RankError:
    """`strand`'s rank raised `raised`, which the caller knows as `cause`."""
    states = _states(simulation)
    frames = _trim([Frame(*where) for where in _places(raised)])
    while frames and frames[0].file.startswith(_MACHINERY):
        del frames[0]  # the reader's line says which call was wrong, the message why
    if strand.collective is not None and not any(is_users(frame.file) for frame in frames):
        frames.append(Frame(*strand.collective.entered[strand.rank], ""))  # launched there, ran beside
    if isinstance(raised, NeverWaited):
        frames.append(Frame(*raised.site, ""))  # seen at the end, done at the call
    root = states[strand.rank]
    root.phase = "failed"
    root.failure = Failure(
        type(raised).__name__,
        str(raised),
        tuple((frame.file, frame.line, frame.function) for frame in reversed(frames)),
        time.monotonic(),
        "raised",
    )
    error = rank_error(states)
    error.cause = cause
    return error


def deadlocked(simulation: Simulation) -> DeadlockError:
    """No strand can run, and not every rank has returned."""
    return deadlock_error(_states(simulation), certain=True)


def timed_out(simulation: Simulation, timeout: float) -> RunTimeout:
    """The run took `timeout` real seconds."""
    return timeout_error(_states(simulation), timeout, "run")


def _states(simulation: Simulation) -> list[RankState]:
    threads = sys._current_frames()
    gone = {strand.rank for strand in simulation.own if strand.done}
    states = []
    for strand in simulation.own:
        state = RankState(strand.rank, "finished" if strand.done else "running")
        if strand.thread.ident is None:
            state.phase = "ready"
        elif not strand.done:
            frames = _trim(_stack(threads.get(strand.thread.ident)))
            state.threads = {state.main_thread: frames}
            state.waiting = _waits(simulation, strand, gone)
            users = [frame for frame in frames if is_users(frame.file)] or frames
            if strand.returned is not None:
                state.waiting_at = (strand.returned.site.file, strand.returned.site.line)
            elif users:
                state.waiting_at = (users[0].file, users[0].line)
        states.append(state)
    return states


def _stack(frame: object) -> list[Frame]:
    """Innermost first."""
    return [Frame(f.f_code.co_filename, line, f.f_code.co_name) for f, line in traceback.walk_stack(frame)]


def _places(error: BaseException) -> Iterable[tuple[str, int, str]]:
    """Innermost first."""
    frames = [(f.f_code.co_filename, line, f.f_code.co_name) for f, line in traceback.walk_tb(error.__traceback__)]
    return reversed(frames)


def _trim(frames: Sequence[Frame]) -> list[Frame]:
    """Without the frames that started the rank, and without our machinery where the reader wrote none of the rest."""
    started = [i for i, frame in enumerate(frames) if frame.function == "live" and frame.file.startswith(_HERE)]
    kept = list(frames[: started[-1]]) if started else list(frames)
    if any(is_users(frame.file) for frame in kept):
        return kept
    return [frame for frame in kept if not frame.file.startswith(_MACHINERY)]


def _waits(simulation: Simulation, strand: Strand, gone: set[int]) -> str:
    """What a blocked rank waits for, on both its streams; "" when it is not blocked."""
    if strand.waits is None:
        return ""
    words = _words(strand, gone)
    if strand.returned is not None:
        words = f"its return, for what it did not wait for: {words.removeprefix('wait() for ')}"
    beside = simulation.second_streams[strand.rank].strand
    in_it = isinstance(strand.waits, Job) and not isinstance(strand.waits.meeting, OwnWork)
    if beside is not None and beside.waits is not None and not in_it:
        words += f"; and beside it in {_words(beside, gone)}"
    return words


def _words(strand: Strand, gone: set[int]) -> str:
    waits = strand.waits
    if isinstance(waits, Job):
        return f"wait() for {_meeting(waits.meeting, gone)}"
    if isinstance(waits, Meeting):
        return _meeting(waits, gone)
    verb, posts = waits
    missing = [post for post in posts if post.end is None] or posts
    if strand.collective is not None:
        return _meeting(strand.collective, gone) or f"{strand.collective}"
    return f"{verb} of {', '.join(_side(post) for post in missing)}"


def _side(post: Post) -> str:
    if post.sends:
        return f"{describe(post.buffer)} to rank {post.peer}"
    return f"{describe(post.buffer)} from {'any rank' if post.peer is None else f'rank {post.peer}'}"


def _meeting(meeting: Meeting, gone: set[int]) -> str:
    absent = meeting.absent
    if not absent:
        return str(meeting)
    verb = "has" if len(absent) == 1 else "have"
    never = [rank for rank in absent if rank in gone]
    if not never:
        return f"{meeting}, which {name_ranks(absent)} {verb} not called"
    if never == absent:
        return f"{meeting}, which {name_ranks(absent)} finished without calling"
    return f"{meeting}, which {name_ranks(absent)} {verb} not called ({name_ranks(never)} had finished)"
