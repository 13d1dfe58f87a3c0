"""The communicator of real processes: a torch process group, with gloo on CPUs or NCCL on GPUs.

Floor 1, room `comm`. Read `communicator` first. Here are its state, how a call waits, and the clock. Point to point is
in `torch_messages`, the collectives are in `torch_collectives`, the wire under both in `torch_wire`, `split` in
`torch_split`, and `from_torch` in `torch_open`.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from lockstep.comm.board import Board, Need
from lockstep.comm.board.board import COLLECTIVE, EVERYONE
from lockstep.comm.board.posts import checksum
from lockstep.comm.callsite import call_site
from lockstep.comm.communicator import Communicator
from lockstep.comm.errors import CommunicationError, PeerLost, never_waited
from lockstep.comm.recorder import LayerSpans, Recorder, SpanTimer
from lockstep.comm.torch_collectives import BackendCollectives
from lockstep.comm.torch_handles import Call, CollectiveThread, ThreadHandle, WorkHandle
from lockstep.comm.torch_messages import Messages
from lockstep.comm.torch_split import Splits
from lockstep.comm.torch_wire import CollectiveWire, Wire
from lockstep.comm.traffic import Traffic
from lockstep.cost import Cost, LayerCost
from lockstep.trace.events import KINDS

_counting = threading.Lock()  # asynchronous collectives of ours count in a thread of their own


class TorchCommunicator(Messages, Splits, BackendCollectives):
    """Ranks of `group` (default: all). See the table in `communicator`.

    device: where tensors live, by default this rank's GPU if the group has NCCL, else the CPU.
    board: lets ranks of one host see each other's calls; without it, ranks that disagree wait until the group's
    timeout. clock: seconds since the run began, shared by the ranks; by default since this object was made.
    control: a group with gloo for the few messages that are not data, by default `group` itself.

    While one rank uses communicators from several threads at once, the board calls it running: nobody can say
    that it is stuck. A buffer changed between `isend` and `wait` sends one of the two contents; processes cannot
    notice that, the simulated world does.
    """

    _threads_seen: set[int] = set()  # of this process: threads that have waited in any communicator
    _stream = 0  # of the rank: where spans of blocking calls go

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        device: torch.device | str | None = None,
        board: Board | None = None,
        clock: Callable[[], float] | None = None,
        control: dist.ProcessGroup | None = None,
    ) -> None:
        if not dist.is_initialized():
            raise CommunicationError(
                "There is no process group yet: call torch.distributed.init_process_group first, or start the program "
                "with lockstep.world.launch or torchrun."
            )
        self.group = group or dist.group.WORLD
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.device = torch.device(device) if device is not None else default_device(self.group)
        self.board = board
        self._control = control or self.group
        origin = time.perf_counter()
        self._clock = clock or (lambda: time.perf_counter() - origin)
        self.recorder = Recorder(self.rank, self._clock)
        self.traffic = Traffic()
        self._in_run = tuple(range(self.size))  # the rank in the whole run of each rank
        # Handles nobody has waited for, of all this rank's communicators. torch drops a message with its handle.
        self.not_waited: dict[WorkHandle | ThreadHandle, tuple[str, int]] = {}
        self._set_up(peers=range(self.size), name="")

    def _set_up(self, peers: Sequence[int], name: str) -> None:
        """The state of every communicator, whole or split off. `peers[r]` is the group's number for rank r."""
        self.gloo = self.device.type == "cpu"
        self.in_order = list(peers) == list(range(self.size))
        self._peers, self._name = peers, name
        self._wire = self._make_wire()
        self._sends, self._recvs = [0] * self.size, [0] * self.size
        self._collectives = self._splits = 0
        self._pending: list[WorkHandle | ThreadHandle] = []
        self._beside_until = 0.0  # when the collective that ran last in the thread ended
        self._thread: CollectiveThread | None = None

    def _make_wire(self) -> Wire:
        """What carries this communicator's messages."""
        return Wire(self.group, self._peers, tags=self.gloo)

    # --------------------------------------------------------------------------------------------- collectives

    def run_collective(
        self,
        name: str,
        signature: str,
        algorithm: Callable[[Communicator], Any],
        async_op: bool = False,
        needs: Sequence[int] = (EVERYONE,),
    ) -> Any:
        """Run one of our own collectives, on messages apart from the user's; see `Communicator.run_collective`.

        needs: the ranks without which this rank cannot finish.
        """
        call = self.post_collective(name, signature, needs)

        def run() -> Any:
            post = self._wire.first_post(self.begins_beside(call) if async_op else call.started)
            wire = CollectiveWire(self, self._wire, call.index, post)
            result = algorithm(wire)
            if async_op:
                self._beside_until = self.now() if wire.post is None else wire.post
            return result

        if not async_op:
            return self.block(call, "collective", run)
        handle = ThreadHandle(self, call, run)
        self._thread = self._thread or CollectiveThread()
        self._thread.submit(handle)
        self._pending.append(handle)
        return self._kept(handle)

    def post_collective(
        self, name: str, signature: str, needs: Sequence[int] = (EVERYONE,), size: int | None = None
    ) -> Call:
        """Count this rank's next collective and show it to the others; raises CommunicationError if one differs."""
        if self._pending:
            self._collect_spans()
        index = self._collectives
        self._collectives += 1
        if self.board:
            self.board.post_collective(signature)
        mark = checksum(signature)
        wanted = [Need(rank, COLLECTIVE, mark, index) for rank in needs]
        detail = {"group": self._in_run, "sequence": index}
        return Call(name, "collective", signature, wanted, self._mark(self.now()), size, index, detail=detail)

    def start(self, call: Call, works: Sequence[dist.Work], finish: Callable[[], Any], async_op: bool) -> Any:
        """Wait for a collective of the backend, or give its handle."""
        handle = WorkHandle(self, call, works, finish)
        if not async_op:
            return handle.wait_as("collective")
        self._pending.append(handle)
        return self._kept(handle)

    def _kept(self, handle: WorkHandle | ThreadHandle) -> WorkHandle | ThreadHandle:
        self.not_waited[handle] = call_site()
        return handle

    def check_all_waited(self) -> None:
        """At the end of the rank's function: raise NeverWaited when it left a handle without `wait()`."""
        if self.not_waited:
            handle, site = next(iter(self.not_waited.items()))
            raise never_waited(self._in_run[self.rank], handle.call.text, site)

    def begins_beside(self, call: Call) -> float:
        """When an asynchronous collective of ours begins: at its launch, or at the end of the one before it."""
        return max(call.started, self._beside_until) if self.gloo else self.now()

    def ended_beside(self, begun: float) -> float:
        """When what began beside the rank's work at `begun` ended: now, or when its link says."""
        return self._beside_until if self._beside_until > begun else self.now()

    def hold(self, works: Sequence[dist.Work]) -> None:
        """Return when what this rank has waited for may be seen: at once, where nothing is paced."""

    def _collect_spans(self) -> None:
        """Asynchronous collectives that are done become spans beside the rank's own work.

        Looked at whenever the rank communicates: an end of the backend's may be seen late, never early.
        """
        for handle in [handle for handle in self._pending if handle.done()]:
            self._pending.remove(handle)
            call = handle.call
            if isinstance(handle, ThreadHandle) and self.gloo:
                self.recorder.add_span("collective", call.name, *handle.times, None, 1, call.bytes, call.detail)
            else:
                self._record("collective", call, call.started, stream=1)

    def _mark(self, now: float) -> float | torch.cuda.Event:
        """Where a span starts: the time, or on a GPU an event."""
        return now if self.gloo else self.recorder.gpu_event()

    def _record(self, kind: str, call: Call, start: float | torch.cuda.Event, stream: int = 0) -> None:
        """The span of a call, from `start` until now."""
        detail = {} if kind == "wait" else call.detail
        if self.gloo:
            self.recorder.add_span(kind, call.name, start, self._clock(), None, stream, call.bytes, detail)
        else:
            facts = {"kind": kind, "name": call.name, "stream": stream, "bytes": call.bytes, "detail": detail}
            self.recorder.add_gpu_span(facts, start, self.recorder.gpu_event())

    def block(self, call: Call, kind: str, wait: Callable[[], Any]) -> Any:
        """Run `wait`, which may wait for other ranks, with this rank's status on the board, and record the span."""
        started = self._mark(self.now()) if kind == "wait" else call.started
        board = self.board if self.gloo else None
        if board:
            self._threads_seen.add(threading.get_ident())
            if len(self._threads_seen) == 1:
                board.waiting(call.text, *call_site(), call.needs, call.mode)
            else:
                board.running()
        try:
            return wait()
        except CommunicationError:
            raise
        except RuntimeError as error:
            raise self._explained(call, error) from error
        finally:
            if board:
                board.running()
            self._record(kind, call, started, self._stream)
            if self._pending:
                self._collect_spans()

    def _explained(self, call: Call, error: RuntimeError) -> CommunicationError:
        """A backend's error in words: ranks disagree, or one has left."""
        if self.board and call.index is not None:
            mismatch = self.board.collective_mismatch(call.index, call.text)
            if mismatch:
                return CommunicationError(mismatch)
        if not any(word in str(error).lower() for word in ("connection", "peer", "timed out", "timeout", "closed")):
            return CommunicationError(f"Rank {self.rank}: {call.text} failed. The backend says: {error}")
        gone = self.board.finished_ranks() if self.board else []
        left = f"rank {', '.join(map(str, gone))} has finished"
        why = left if gone else "another rank has left, or the time limit was reached"
        return PeerLost(f"Rank {self.rank}: {call.text} broke off, because {why}. The backend says: {error}")

    def count_sent(self, dst: int, index: Hashable, size: int, posted: float) -> None:
        """Count and record one message that this rank sends."""
        with _counting:
            self.traffic.count_sent(self._in_run[dst], size)
            self.recorder.add_sent(self._in_run[dst], (self._name, index), size, posted)

    def count_received(self, src: int, index: Hashable, size: int, posted: float, arrived: float) -> None:
        """Count and record one message that has arrived."""
        with _counting:
            self.traffic.count_received(size)
            self.recorder.add_received(self._in_run[src], (self._name, index), size, posted, arrived)

    # ---------------------------------------------------------------------------------------------------- time

    def beside(self, work: Callable[[Communicator], Any]) -> ThreadHandle:
        """Start `work(comm)` in a second thread of this rank, which does not keep the process alive."""
        twin = copy.copy(self)
        twin._stream = 1
        call = Call("beside", "wait", "what runs beside it", (), self._mark(self.now()))
        handle = ThreadHandle(self, call, lambda: work(twin))

        def run() -> None:
            handle()
            self._threads_seen.discard(threading.get_ident())  # the board may speak for the rank again

        threading.Thread(target=run, name="lockstep beside", daemon=True).start()
        return handle

    def now(self) -> float:
        """Seconds since the run began, by the wall clock."""
        return self._clock()

    def span(
        self, name: str, *, kind: str = "compute", micro_batch: int | None = None, cost: Cost | float | None = None
    ) -> SpanTimer:
        """Record what this rank does in a `with` block; `cost` is for the other worlds, here the time is real."""
        if kind not in KINDS:
            raise ValueError(f"the kind of a span is one of {', '.join(KINDS)}, not {kind!r}")
        return SpanTimer(self.recorder, self._clock, not self.gloo, kind, name, micro_batch)

    def charge(self, model: torch.nn.Module, profile: Mapping[str, LayerCost]) -> LayerSpans:
        """Record a span around the forward of each module that `profile` names; its costs are for the other worlds."""
        return LayerSpans(model, profile, self.span)


def default_device(group: dist.ProcessGroup) -> torch.device:
    """This rank's GPU where the group has NCCL and there is one, else the CPU."""
    if "nccl" in dist.get_backend_config(group) and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
