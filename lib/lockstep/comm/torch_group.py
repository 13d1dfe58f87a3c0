"""The communicator of real processes: a torch process group, with gloo on CPUs or NCCL on GPUs.

Floor 1, room `comm`. Read `communicator` first. Here are point to point, `split` and the clock; the collectives are
in `torch_collectives`, the wire under both in `torch_wire`, and `from_torch` in `torch_open`.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.comm.board import Board, Need
from lockstep.comm.board.board import ANY_SEND, COLLECTIVE, EVERYONE, THEIR_RECV, THEIR_SEND
from lockstep.comm.board.posts import checksum
from lockstep.comm.callsite import call_site
from lockstep.comm.communicator import Communicator, Handle
from lockstep.comm.errors import CommunicationError, PeerLost, never_waited
from lockstep.comm.recorder import LayerSpans, Recorder, SpanTimer
from lockstep.comm.signature import check_rank, check_tensor, describe
from lockstep.comm.torch_collectives import BackendCollectives
from lockstep.comm.torch_handles import Call, CollectiveThread, ThreadHandle, WorkHandle
from lockstep.comm.torch_wire import CollectiveWire, Wire, incoming, message_tag, outgoing
from lockstep.comm.traffic import Traffic
from lockstep.cost import Cost, LayerCost
from lockstep.trace.events import KINDS

_counting = threading.Lock()  # asynchronous collectives of ours count in a thread of their own


class TorchCommunicator(BackendCollectives):
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
    _groups_made = 0  # of this process: process groups made by `split`
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

    # ------------------------------------------------------------------------------------------ point to point

    def send(self, tensor: Tensor, dst: int) -> None:
        """Return when the data is out of `tensor`; waits for the receiver."""
        self._start_send(tensor, dst, "send").wait_as("send")

    def recv(self, tensor: Tensor, src: int | None = None) -> int:
        """Fill `tensor` with the next message from `src`, or from whoever sends first; gives the source rank."""
        if src is None:
            return self._recv_any(tensor)
        self._start_recv(tensor, src, "recv").wait_as("recv")
        return src

    def isend(self, tensor: Tensor, dst: int) -> Handle:
        """Start to send; leave `tensor` alone until `wait()`."""
        return self._kept(self._start_send(tensor, dst, "isend"))

    def irecv(self, tensor: Tensor, src: int) -> Handle:
        """Start to receive; `wait()` gives `tensor`, full."""
        return self._kept(self._start_recv(tensor, src, "irecv"))

    def exchange(self, sends: Sequence[tuple[Tensor, int]], recvs: Sequence[tuple[Tensor, int]]) -> None:
        """One batch: all sends and receives start together, and it returns when all are done."""
        for tensor, rank in [*sends, *recvs]:
            self._check_message(tensor, rank)
        if not sends and not recvs:
            return
        started = self.now()
        said, heard = [[describe(tensor) for tensor, _ in messages] for messages in (sends, recvs)]
        needs = [self._post_send(words, dst) for words, (_, dst) in zip(said, sends, strict=True)]
        needs += [self._post_recv(words, src) for words, (_, src) in zip(heard, recvs, strict=True)]
        # Messages of one channel meet in order, so the last one stands for those before it.
        needs = list({(need.rank, need.kind): need for need in needs}.values())
        outs = [(outgoing(tensor), dst, message_tag(words)) for words, (tensor, dst) in zip(said, sends, strict=True)]
        slots = [incoming(tensor) for tensor, _ in recvs]
        ins = [
            (slot.buffer, src, message_tag(words)) for words, slot, (_, src) in zip(heard, slots, recvs, strict=True)
        ]
        works = self._wire.batch(outs, ins, started)
        for buffer, dst, _ in outs:
            self.count_sent(dst, self._next(self._sends, dst), buffer.nbytes, started)
        indices = [self._next(self._recvs, src) for _, src in recvs]

        def finish() -> None:
            del outs[:]  # until now they keep copies of non-contiguous tensors alive
            times = self._wire.moved(works, len(recvs), started, self.now())
            for slot, (_, src), index, (began, there) in zip(slots, recvs, indices, times, strict=True):
                slot.copy_back()
                self.count_received(src, index, slot.buffer.nbytes, began, there)

        parts = [f"{words} to rank {dst}" for words, (_, dst) in zip(said, sends, strict=True)]
        parts += [f"{words} from rank {src}" for words, (_, src) in zip(heard, recvs, strict=True)]
        kind = "send" if sends else "recv"
        call = Call("exchange", kind, f"exchange of {', '.join(parts) or 'nothing'}", needs, self._mark(started))
        WorkHandle(self, call, works, finish).wait_as(kind)

    def _start_send(self, tensor: Tensor, dst: int, verb: str) -> WorkHandle:
        started = self.now()
        self._check_message(tensor, dst)
        words, buffer = describe(tensor), outgoing(tensor)
        need = self._post_send(words, dst)
        works = self._wire.batch([(buffer, dst, message_tag(words))], [], started)
        self.count_sent(dst, self._next(self._sends, dst), buffer.nbytes, started)
        detail = {"dst": self._in_run[dst]}
        call = Call(
            verb, "send", f"{verb} of {words} to rank {dst}", (need,), self._mark(started), buffer.nbytes, detail=detail
        )
        return WorkHandle(self, call, works, lambda: None)

    def _start_recv(self, tensor: Tensor, src: int, verb: str) -> WorkHandle:
        started = self.now()
        self._check_message(tensor, src)
        words, slot = describe(tensor), incoming(tensor)
        need = self._post_recv(words, src)
        works = self._wire.batch([], [(slot.buffer, src, message_tag(words))], started)
        index = self._next(self._recvs, src)

        def finish() -> Tensor:
            slot.copy_back()
            ((began, there),) = self._wire.moved(works, 1, started, self.now())
            self.count_received(src, index, slot.buffer.nbytes, began, there)
            return tensor

        words = f"{verb} of {words} from rank {src}"
        detail = {"src": self._in_run[src]}
        call = Call(verb, "recv", words, (need,), self._mark(started), slot.buffer.nbytes, detail=detail)
        return WorkHandle(self, call, works, finish)

    def _recv_any(self, tensor: Tensor) -> int:
        check_tensor(tensor, self.device)
        if not self.gloo:
            raise CommunicationError("NCCL cannot receive from just anyone: name the source, recv(tensor, src).")
        if self.size == 1:
            raise CommunicationError("recv from any rank waits for ever: this communicator has no other rank.")
        started, words, slot = self.now(), describe(tensor), incoming(tensor)
        others = [rank for rank in range(self.size) if rank != self.rank]
        needs = [Need(rank, ANY_SEND, checksum(words), 0) for rank in others]
        call = Call("recv", "recv", f"recv of {words} from any rank", needs, started, slot.buffer.nbytes, mode="any")
        src = self.block(call, "recv", lambda: self._wire.recv_any(slot.buffer, message_tag(words), started))
        if self.board:
            self.board.post_recv(src, words)
        slot.copy_back()
        self.count_received(src, self._next(self._recvs, src), slot.buffer.nbytes, started, self.now())
        return src

    def _check_message(self, tensor: Tensor, peer: int) -> None:
        check_tensor(tensor, self.device)
        check_rank(peer, self.size, "The other rank")
        if peer == self.rank:
            raise CommunicationError(
                f"Rank {peer} sends to or receives from itself, which waits for ever: copy the tensor instead."
            )

    def _post_send(self, words: str, dst: int) -> Need:
        index = self.board.post_send(dst, words) if self.board else 0
        return Need(dst, THEIR_RECV, checksum(words), index)

    def _post_recv(self, words: str, src: int) -> Need:
        index = self.board.post_recv(src, words) if self.board else 0
        return Need(src, THEIR_SEND, checksum(words), index)

    @staticmethod
    def _next(counts: list[int], peer: int) -> int:
        counts[peer] += 1
        return counts[peer] - 1

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

    # --------------------------------------------------------------------------------------------------- split

    def split(self, color: int | None, key: int = 0) -> Self | None:
        """Collective: one communicator for each `color`, its ranks in order of (key, rank); None for `color=None`."""
        if not (color is None or isinstance(color, int)) or not isinstance(key, int):
            raise CommunicationError(f"split(color={color!r}, key={key!r}): both are whole numbers; color may be None.")
        call = self.post_collective("split", "split")
        return self.block(call, "collective", lambda: self._split(color, key))

    def on_cpu(self) -> Self:
        """Collective: the same ranks, for messages of CPU tensors; CommunicationError when the group has no gloo."""
        if "gloo" not in dist.get_backend_config(self.group):
            raise CommunicationError(
                f"Messages of CPU tensors need gloo, and this group has {dist.get_backend_config(self.group)}: "
                f'open it with init_process_group("cpu:gloo,cuda:nccl").'
            )
        twin = self.split(0)
        twin.device = torch.device("cpu")
        twin._set_up(twin._peers, twin._name)
        return twin

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

    def _split(self, color: int | None, key: int) -> Self | None:
        number, self._splits = self._splits, self._splits + 1
        mine = torch.tensor([color is not None, color or 0, key, TorchCommunicator._groups_made])
        table = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(table, mine, group=self._control)
        rows = [table[peer].tolist() for peer in self._peers]  # in order of our ranks
        self._even_out(max(row[3] for row in rows))
        if color is None:
            self._make_group([self.rank])
            return None
        colors = sorted({row[1] for row in rows if row[0]})
        members = sorted((r for r, row in enumerate(rows) if row[0] and row[1] == color), key=lambda r: (rows[r][2], r))
        name = f"{self._name}.{number}-{colors.index(color)}".removeprefix(".")
        return self._part(members, self._make_group(members), name)

    def _even_out(self, groups_made: int) -> None:
        """Make groups of one until this process has made as many as the others.

        torch names a group after its ranks and a count of the groups its process made: where the counts differ,
        because only some ranks were in an earlier split, members would wait under different names for ever.
        """
        while TorchCommunicator._groups_made < groups_made:
            self._make_group([self.rank])

    def _make_group(self, members: Sequence[int]) -> dist.ProcessGroup:
        TorchCommunicator._groups_made += 1
        everywhere = sorted(dist.get_global_rank(self.group, self._peers[member]) for member in members)
        backend = dist.get_backend_config(self.group)
        return dist.new_group(everywhere, backend=backend, use_local_synchronization=True)

    def _part(self, members: Sequence[int], group: dist.ProcessGroup, name: str) -> Self:
        """The communicator of `members` (ranks of this one, in their new order) on `group`."""
        part = copy.copy(self)  # what concerns the rank and not the communicator is shared
        part.group, part._control = group, group
        part.rank, part.size, part.device = members.index(self.rank), len(members), self.device
        part._in_run = tuple(self._in_run[member] for member in members)
        part.board = self.board and self._board_of(part, name)
        # torch numbers the ranks of a group by their order in the whole run, whatever the key says.
        in_group = sorted(dist.get_global_rank(self.group, self._peers[member]) for member in members)
        peers = [in_group.index(dist.get_global_rank(self.group, self._peers[member])) for member in members]
        part._set_up(peers, name)
        return part

    def _board_of(self, part: Self, name: str) -> Board:
        path = self.board.child_path(name)
        if part.rank == 0:
            Board.create(path, part.size, members=part._in_run).close()
        dist.barrier(group=part._control)
        board = self.board.child(name, part.size, part.rank)
        dist.barrier(group=part._control)
        if part.rank == 0 and not self.board.root.path.exists():  # its readers are all here: leave no file behind
            path.unlink()
        return board

    # ---------------------------------------------------------------------------------------------------- time

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
