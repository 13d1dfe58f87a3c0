"""The kernel's watch over the ranks of one run, from their job to their end.

Floor 1. One loop in the calling thread, so that Interrupt works: it sends jobs, collects reports, shows
output, and ends the run at the first failure, deadlock, or at the time limit. Whatever happens, no
rank is alive when it returns.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from lockstep.comm.board import Board, stuck
from lockstep.world.idle import IdleWatch
from lockstep.world.output import Output
from lockstep.world.rank import Job
from lockstep.world.report import RankState, deadlock_error, rank_error, timeout_error
from lockstep.world.stacks import parse, waits_in_communication
from lockstep.world.wire import Channel, Stream

TICK = 0.05  # seconds at most between two looks at ranks whose end does not wake the loop
HEARTBEAT = 0.5  # seconds at most without Python code: an interrupt that another thread received waits for it
BOARD_EVERY = 0.25  # seconds between two looks at the board
IDLE_EVERY = 0.5  # seconds between two looks at processor times
IDLE_FOR = 2.0  # seconds without work after which a run of torch.distributed calls looks like a deadlock
SETTLE = 0.1  # seconds that other ranks get to report, too, after the first failure
SETTLE_KNOCK_ON = 0.6  # the same when that failure is the consequence of another, not seen yet
STACKS_WITHIN = 0.5  # seconds
DRAIN_WITHIN = 0.5  # seconds
LEAST_START = 60.0  # seconds for all ranks to be set up
WARM_START = 300.0  # seconds for the warm parent to import torch on a slow disk, before there is any rank


class Processes(Protocol):
    """The processes of a run, forked or spawned."""

    pids: dict[int, int]
    channels: list[Channel]
    outputs: list[Stream]
    waitable: list[Any]

    def exits(self) -> list[tuple[int, int]]: ...
    def signal(self, number: int) -> None: ...
    def end(self) -> None: ...
    def close(self) -> None: ...


class Supervisor:
    """Runs one job on every rank of `processes`. `board` is None for a lone child."""

    def __init__(
        self, processes: Processes, jobs: Sequence[Job], call: memoryview, timeout: float, board: Board | None
    ) -> None:
        self.processes, self.jobs, self.call, self.timeout, self.board = processes, jobs, call, timeout, board
        self.states = [RankState(rank) for rank in range(len(jobs))]
        self.output = [Output(rank, label=board is not None) for rank in range(len(jobs))]
        self.stack_files = [Path(job.scratch, f"stacks.{job.rank}") for job in jobs]
        self.stacks_read = [0] * len(jobs)
        self.started = time.monotonic()
        self.origin: float | None = None
        self.broke_at: float | None = None
        self.idle: IdleWatch | None = None
        self.next_board = self.next_idle = float("inf")
        self.versions: list[int] = []
        self.selector = selectors.DefaultSelector()

    def run(self) -> list[RankState]:
        """The ranks' results; RunError says why there are none. No rank is alive afterwards."""
        try:
            self._register()
            while not all(state.over for state in self.states) or self.broke_at is not None:
                for key, _ in self.selector.select(self._pause()):
                    key.data(key)
                self._look()
            return self.states
        finally:
            self.processes.end()
            self._drain()
            self.processes.close()
            self.selector.close()

    def _register(self) -> None:
        for rank, channel in enumerate(self.processes.channels):
            channel.post(self.jobs[rank])
            channel.post("call", body=self.call)
            self.selector.register(channel, selectors.EVENT_READ, self._on_channel(rank))
            self._send(rank)
        for rank, stream in enumerate(self.processes.outputs):
            self.selector.register(stream, selectors.EVENT_READ, self._on_output(rank))
        for waitable in self.processes.waitable:
            self.selector.register(waitable, selectors.EVENT_READ, lambda key: None)

    def _pause(self) -> float:
        now = time.monotonic()
        due = min(self._deadline(), self.next_board, self.next_idle, self._settled_at())
        return max(0.0, min(due - now, HEARTBEAT if self.processes.waitable else TICK))

    # what arrives

    def _send(self, rank: int) -> None:
        channel = self.processes.channels[rank]
        done = channel.flush()
        events = selectors.EVENT_READ if done else selectors.EVENT_READ | selectors.EVENT_WRITE
        if not channel.closed:
            key = self.selector.get_key(channel)
            if key.events != events:
                self.selector.modify(channel, events, key.data)

    def _on_channel(self, rank: int) -> Any:
        channel = self.processes.channels[rank]

        def read(key: selectors.SelectorKey) -> None:
            self._send(rank)
            for header, body in channel.arrivals():
                self._on_message(self.states[rank], header, body)
            if channel.closed:
                self.selector.unregister(channel)

        return read

    def _on_output(self, rank: int) -> Any:
        stream = self.processes.outputs[rank]

        def read(key: selectors.SelectorKey) -> None:
            data = stream.read()
            if data:
                self.output[rank].feed(data)
            elif data == b"":
                self.selector.unregister(stream)

        return read

    def _on_message(self, state: RankState, header: tuple[Any, ...], body: bytearray) -> None:
        kind, *rest = header
        if kind == "ready":
            state.phase, state.main_thread = "ready", rest[0]
            if all(each.phase == "ready" for each in self.states):
                self._go()
        elif kind == "value":
            state.phase, state.value = "finished", body
            state.seconds, state.record = rest
        else:
            state.phase, state.failure, state.exception = "failed", rest[0], body
            self._broke(state, rest[0].when)

    def _go(self) -> None:
        self.origin = time.perf_counter()
        self.started = time.monotonic()
        for state in self.states:
            state.phase = "running"
            self.processes.channels[state.rank].post("go", self.origin)
            self._send(state.rank)
        if self.board is not None:
            self.next_board, self.next_idle = self.started + BOARD_EVERY, self.started + IDLE_EVERY

    # what is looked at

    def _look(self) -> None:
        now = time.monotonic()
        unborn = not self.processes.pids
        for rank, code in self.processes.exits():
            self._on_exit(self.states[rank], code)
        if unborn and self.processes.pids:
            self.started = time.monotonic()
        if self.broke_at is not None:
            if now >= self._settled_at() or all(state.over for state in self.states):
                self._read_stacks()
                self._read_board()
                raise rank_error(self.states)
            return
        if all(state.over for state in self.states):
            return
        if now >= self._deadline():
            self._ask_for_stacks()
            self._read_stacks()
            self._read_board()
            raise timeout_error(self.states, self.timeout, "start" if self.origin is None else "run")
        if now >= self.next_board:
            self.next_board = now + BOARD_EVERY
            self._look_at_board()
        if now >= self.next_idle:
            self.next_idle = now + IDLE_EVERY
            self._look_for_idleness()

    def _deadline(self) -> float:
        if self.origin is not None:
            return self.started + self.timeout
        return self.started + (max(self.timeout, LEAST_START) if self.processes.pids else WARM_START)

    def _settled_at(self) -> float:
        if self.broke_at is None:
            return float("inf")
        only_knock_on = all(state.knock_on for state in self.states if state.broken)
        return self.broke_at + (SETTLE_KNOCK_ON if only_knock_on else SETTLE)

    def _on_exit(self, state: RankState, code: int) -> None:
        self._finish_reading(state.rank)
        self._read_crash(state)
        if not state.broken:
            # A rank that has given its value stays until the run is over: to end before is to break it.
            state.phase, state.exit_code = "died", code
            self._broke(state, time.monotonic())

    def _finish_reading(self, rank: int) -> None:
        """A rank's last words may still lie in its channel and pipe when its end is known."""
        channel = self.processes.channels[rank]
        for header, body in channel.arrivals():
            self._on_message(self.states[rank], header, body)

    def _read_crash(self, state: RankState) -> None:
        """Where native code crashed: faulthandler writes it when the signal comes."""
        file = self.stack_files[state.rank]
        text = file.read_bytes().decode(errors="replace") if file.exists() else ""
        crash = max(text.rfind("Fatal Python error"), text.rfind("Windows fatal exception"))
        if crash >= 0:
            state.threads = parse(text[crash:])

    def _broke(self, state: RankState, when: float) -> None:
        state.ended = when
        if self.broke_at is None:
            self.broke_at = time.monotonic()
            self._ask_for_stacks()

    def _look_at_board(self) -> None:
        """A deadlock is certain when the same ranks are stuck at two looks, and nothing changed between."""
        ranks = stuck(self.board)
        versions = [s.version for s in self.board.statuses() if s.rank in ranks]
        if ranks and versions == self.versions:
            self._read_board()
            if any(not state.over and not state.waiting for state in self.states):
                self._ask_for_stacks()
                self._read_stacks()
            raise deadlock_error(self.states, certain=True)
        self.versions = versions

    def _look_for_idleness(self) -> None:
        if self.idle is None:
            self.idle = IdleWatch(self.processes.pids)
        if self.idle.seconds() < IDLE_FOR:
            return
        self._ask_for_stacks()
        self._read_stacks()
        unfinished = [state for state in self.states if not state.over]
        if all(waits_in_communication(state.threads, state.main_thread) for state in unfinished):
            self._read_board()
            raise deadlock_error(self.states, certain=False)
        self.idle.restart()

    def _read_board(self) -> None:
        if self.board is None:
            return
        for status in self.board.statuses():
            if status.state == "waiting":
                state = self.states[status.rank]
                state.waiting, state.waiting_at = status.text, (status.file, status.line)

    # stacks

    def _ask_for_stacks(self) -> None:
        for rank, file in enumerate(self.stack_files):
            self.stacks_read[rank] = file.stat().st_size if file.exists() else 0
        if self.jobs[0].stacks_by_signal:
            self.processes.signal(signal.SIGUSR1)
            return
        for channel in self.processes.channels:
            if not channel.closed:
                channel.post("stacks")
                channel.flush()

    def _read_stacks(self) -> None:
        """Wait until every rank that is alive has written its stacks, or shows no sign of it."""
        deadline = time.monotonic() + STACKS_WITHIN
        texts = list(self._stack_texts())
        while time.monotonic() < deadline:
            time.sleep(0.02)
            before, texts = texts, list(self._stack_texts())
            silent = [s for s in self.states if not s.over and not texts[s.rank]]
            if texts == before and not silent:
                break
        for state, text in zip(self.states, texts, strict=True):
            if not state.over:
                state.threads = parse(text)

    def _stack_texts(self) -> Iterator[str]:
        for file, start in zip(self.stack_files, self.stacks_read, strict=True):
            yield file.read_bytes()[start:].decode(errors="replace") if file.exists() else ""

    def _drain(self) -> None:
        """Show what the ranks had printed when they ended; a process that has left its rank may print for ever."""
        deadline = time.monotonic() + DRAIN_WITHIN
        for rank, stream in enumerate(self.processes.outputs):
            while time.monotonic() < deadline and (data := stream.read()):
                self.output[rank].feed(data)
            self.output[rank].finish()
