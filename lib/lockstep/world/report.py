"""What the reader is told when a run does not end well: one error, root cause first.

Floor 1. `supervise.py` collects what it knows of each rank in a `RankState`; the functions here turn
that into `RankError`, `DeadlockError` and `RunTimeout`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lockstep.world.copies import HomeUnpickler
from lockstep.world.rank import Failure
from lockstep.world.run import DeadlockError, RankError, RunTimeout
from lockstep.world.stacks import Frame, format_stack, place, users, without_start

# What the backend says in a rank whose partner has gone: never the root cause.
KNOCK_ON = re.compile(
    r"connection (closed|reset|refused)|broken pipe|connectFullMesh|socket closed|NCCL (communicator|error).*abort"
    r"|remote process exited|rank \d+ (has )?(left|gone|died)",
    re.IGNORECASE,
)
SIGNALS = {
    "SIGKILL": "usually the system's out-of-memory killer; try fewer ranks, a smaller model or a smaller batch",
    "SIGSEGV": "a crash in native code, or a recursion without end",
    "SIGBUS": "a crash in native code, often because shared memory (/dev/shm) is full",
    "SIGABRT": "a library gave up",
    "SIGFPE": "an arithmetic error in native code",
    "SIGILL": "an instruction this processor does not have",
}
MOST_FRAMES = 12

E = TypeVar("E", bound=BaseException)


@dataclass
class RankState:
    """What the kernel knows of one rank; `phase` is "starting", "ready", "running", "finished", "failed" or "died"."""

    rank: int
    phase: str = "starting"
    pid: int | None = None
    main_thread: int = 0
    seconds: float = 0.0
    record: Any = None
    value: bytearray | None = None
    failure: Failure | None = None
    exception: bytearray | None = None
    exit_code: int | None = None
    ended: float = 0.0
    threads: dict[int, list[Frame]] = field(default_factory=dict)
    waiting: str = ""
    waiting_at: tuple[str, int] | None = None

    @property
    def over(self) -> bool:
        return self.phase in ("finished", "failed", "died")

    @property
    def broken(self) -> bool:
        return self.phase in ("failed", "died")

    @property
    def knock_on(self) -> bool:
        """Whether it failed only because another rank had gone."""
        return self.failure is not None and (
            self.failure.kind == "PeerLost" or bool(KNOCK_ON.search(self.failure.text))
        )

    @property
    def stack(self) -> list[Frame]:
        """The main thread's frames, innermost first."""
        return self.threads.get(self.main_thread) or next(iter(self.threads.values()), [])


def rank_error(states: Sequence[RankState]) -> RankError:
    """The first rank that broke by itself, with its own lines; the others in one line each."""
    broken = [state for state in states if state.broken]
    root = min(broken, key=lambda state: (state.knock_on, state.ended))
    lines = [f"rank {root.rank} {_what_broke(root)}", *_own_lines(root)]
    others = [state for state in states if state is not root]
    if others:
        lines += ["The other ranks:", *_fold({s.rank: _in_one_line(s, root) for s in others})]
    return shown_alone(RankError("\n".join(lines), root.rank, _cause(root)))


def deadlock_error(states: Sequence[RankState], certain: bool) -> DeadlockError:
    """Every rank's call and line; `certain` is False when it was concluded from idle ranks and their stacks."""
    waiting = {s.rank: whereabouts(s) for s in states if not s.over}
    head = (
        "The ranks wait for each other, and none can ever go on:"
        if certain
        else "This looks like a deadlock: no rank has computed for 2 s, and each waits inside torch.distributed:"
    )
    everyone = {state.rank: waiting.get(state.rank) or _in_one_line(state) for state in states}
    return shown_alone(DeadlockError("\n".join([head, *_fold(everyone)]), waiting))


def timeout_error(states: Sequence[RankState], timeout: float, phase: str) -> RunTimeout:
    """Where every rank was when the time was up; `phase` is "run" or "start"."""
    what = "The run was stopped" if phase == "run" else "The ranks were stopped before they had all started,"
    deep = ", and below it what called that" if any(len(users(state.stack)) > 1 for state in states) else ""
    lines = [f"{what} after {timeout:g} s (`timeout={timeout:g}`). Where each rank was{deep}:"]
    for state in states:
        lines.append(f"  rank {state.rank}: {_in_one_line(state)}")
        lines += [f"    {line}" for line in _fold_frames(users(state.stack)[1:][::-1])]
    stacks = {state.rank: format_stack(state.stack) for state in states if not state.over}
    running = {state.rank: str(users(state.stack)[0]) for state in states if not state.over and users(state.stack)}
    return shown_alone(RunTimeout("\n".join(lines), stacks, running))


def whereabouts(state: RankState) -> str:
    """The call a rank is in and the reader's line that made it."""
    if state.waiting:
        file, line = state.waiting_at or ("", 0)
        return state.waiting + (f", {Frame(file, line, '')}" if file else "")
    own = users(state.stack)
    if own:
        return str(own[0])
    return {"starting": "was being set up", "ready": "had not begun"}.get(state.phase, "running")


def _in_one_line(state: RankState, root: RankState | None = None) -> str:
    if state.phase == "finished":
        return "had finished"
    if state.phase == "died":
        return _what_broke(state)
    if state.failure is None:
        return whereabouts(state)
    if root is not None and root.failure and _same(state.failure, root.failure):
        return "failed in the same way"
    if state.knock_on:
        return "lost the connection because of that"
    lines = _own_lines(state)
    return f"{_what_broke(state).splitlines()[0]}" + (f" ({lines[-1].strip()})" if lines else "")


def _same(one: Failure, other: Failure) -> bool:
    return (one.kind, one.frames[-1:]) == (other.kind, other.frames[-1:])


def _what_broke(state: RankState) -> str:
    if state.failure is None:
        return _how_it_died(state.exit_code or 0)
    failure = state.failure
    text = f": {failure.text}" if failure.text else ""
    if failure.doing == "raised" and failure.kind == "SystemExit":
        return f"called sys.exit({failure.text}): a rank function must return"
    if failure.doing == "raised":
        return f"raised {failure.kind}{text}"
    return f"{failure.doing}: {failure.kind}{text}"


def _how_it_died(code: int) -> str:
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = SIGNALS.get(name)
        return f"was killed by {name}" + (f" ({hint})" if hint else "")
    shown = hex(code) if code > 255 else code
    return f"ended its process with exit code {shown} before its function returned (os._exit, or a crash in a library)"


def _own_lines(state: RankState) -> list[str]:
    """The reader's lines that led to the error, innermost last, and where below them it happened."""
    if state.failure is None:
        return [f"  {line}" for line in _fold_frames(users(state.stack)[::-1])]
    if state.failure.doing != "raised":
        return []
    frames = without_start(Frame(*frame) for frame in reversed(state.failure.frames))
    own = users(frames)
    lines = [f"  {line}" for line in _fold_frames(own[::-1])]
    if own and frames[0] != own[0]:
        lines.append(f"  inside {place(frames[0].file, frames[0].line)}, in {frames[0].function}")
    return lines


def _fold_frames(frames: Sequence[Frame]) -> list[str]:
    """A recursion's thousand frames as its first and last."""
    shown = [str(frame) for frame in frames]
    if len(shown) <= MOST_FRAMES:
        return shown
    half = MOST_FRAMES // 2
    return [*shown[:half], f"... {len(shown) - 2 * half} more calls ...", *shown[-half:]]


def _fold(texts: Mapping[int, str]) -> list[str]:
    """One line per rank; ranks of which the same is said share one."""
    ranks: dict[str, list[int]] = {}
    for rank, text in texts.items():
        ranks.setdefault(text, []).append(rank)
    return [f"  {name_ranks(those)}: {text}" for text, those in ranks.items()]


def name_ranks(ranks: Sequence[int]) -> str:
    """ "rank 2"; "ranks 0, 1 and 3"; "ranks 0 to 7"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _cause(state: RankState) -> BaseException | None:
    """The rank's own exception; one of ours with its words when it could not be sent; None when it was killed."""
    if state.failure is None:
        return None
    try:
        cause = HomeUnpickler(state.exception or b"").load()
    except Exception:
        cause = None
    if isinstance(cause, BaseException):
        return cause
    return RuntimeError(f"{state.failure.kind}: {state.failure.text}")


def shown_alone(error: E) -> E:
    """Let IPython show the message alone: the frames of `launch` say nothing about the reader's cell."""
    error._render_traceback_ = lambda: [f"{type(error).__name__}: {error}"]
    return error
