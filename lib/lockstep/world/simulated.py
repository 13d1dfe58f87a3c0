"""The communicator of the simulated world.

Floor 1, room `world`. Nothing but send and receive exists here: collectives are the algorithms of `comm`,
run on a lane of their own. Read `scheduler` (whose turn it is), `transfers` (when a message moves) and
`lane` first; `simulate` makes these communicators.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from lockstep.comm import CommunicationError, Communicator
from lockstep.comm.errors import never_waited
from lockstep.comm.signature import check_rank, check_tensor, describe
from lockstep.cost import Cost, LayerCost, seconds_of
from lockstep.trace import Span
from lockstep.trace.events import KINDS
from lockstep.world.beside import Job, OwnWork
from lockstep.world.calls import Call, CostSpan
from lockstep.world.charging import Charge
from lockstep.world.groups import Group, Meeting
from lockstep.world.handles import Lent, SimulatedHandle, job_handle, lend, receive_handle, send_handle
from lockstep.world.lane import CPU, Lane
from lockstep.world.scheduler import Strand
from lockstep.world.transfers import Post

if TYPE_CHECKING:
    from lockstep.world.simulate import Simulation


class SimulatedCommunicator(Communicator):
    """Rank `strand.rank` of `simulation`, in `group`. See the table in `lockstep.comm.communicator`."""

    def __init__(
        self, simulation: Simulation, group: Group, strand: Strand, parent: SimulatedCommunicator | None = None
    ) -> None:
        self.rank, self.size, self.device = group.rank_of[strand.rank], len(group.ranks), CPU
        self.traffic = simulation.network.traffic[strand.rank]
        self.simulation, self.group, self.strand = simulation, group, strand
        self._lane = self._lane_on(group.space, strand)
        # What concerns the rank and not the communicator is shared with the one this was split from.
        self.unfinished: list[SimulatedHandle] = parent.unfinished if parent else []
        self.open_spans: list[bool] = parent.open_spans if parent else []  # whether costs were charged inside

    # point to point

    def send(self, tensor: Tensor, dst: int) -> None:
        peer = self._peer(dst, "dst")
        check_tensor(tensor, CPU)
        with self.call("send", "send", tensor.nbytes, dst=peer):
            self._lane.send(tensor, dst)

    def recv(self, tensor: Tensor, src: int | None = None) -> int:
        if src is not None:
            self._peer(src, "src")
        check_tensor(tensor, CPU)
        with self.call("recv", "recv", tensor.nbytes) as call:
            source = self._lane.recv(tensor, src)
            call.detail = {"src": self.group.ranks[source]}
        return source

    def isend(self, tensor: Tensor, dst: int) -> SimulatedHandle:
        self._peer(dst, "dst")
        check_tensor(tensor, CPU)
        with self.call("send", ""):
            self.simulation.scheduler.yield_to_earlier(self.strand)
            buffer = Lent(tensor)
            post = self._lane.post_send(buffer.before, dst)
            return send_handle(self, post, f"isend of {describe(tensor)} to rank {dst}", buffer)

    def irecv(self, tensor: Tensor, src: int) -> SimulatedHandle:
        self._peer(src, "src")
        check_tensor(tensor, CPU)
        with self.call("recv", ""):
            self.simulation.scheduler.yield_to_earlier(self.strand)
            post = self._lane.post_receive(tensor, src, late=True)
            return receive_handle(self, post, f"irecv of {describe(tensor)} from rank {src}", Lent(tensor))

    def exchange(self, sends: Sequence[tuple[Tensor, int]], recvs: Sequence[tuple[Tensor, int]]) -> None:
        sends, recvs = list(sends), list(recvs)
        for role, pairs in (("dst", sends), ("src", recvs)):
            for tensor, other in pairs:
                self._peer(other, role)
                check_tensor(tensor, CPU)
        name = "exchange" if sends or recvs else ""
        with self.call("send" if sends else "recv", name, sum(tensor.nbytes for tensor, _ in sends)):
            self._lane.exchange(sends, recvs)

    # collectives

    def run_collective(
        self, name: str, signature: str, algorithm: Callable[[Communicator], Any], async_op: bool = False
    ) -> Any:
        with self.call("collective", ""):
            self.simulation.scheduler.yield_to_earlier(self.strand)
            meeting = self.group.enter(self.strand.rank, signature)
            if not async_op:
                return self._perform(name, meeting, algorithm, self.strand)
            job = Job(meeting, self.strand.clock, lambda strand: self._perform(name, meeting, algorithm, strand))
            self.simulation.second_streams[self.strand.rank].launch(job)
            return job_handle(self, job)

    def all_reduce(self, tensor: Tensor, op: str = "sum", async_op: bool = False) -> Any:
        return self._on_a_copy(super().all_reduce, tensor, True, async_op, op=op)

    def reduce_scatter(
        self, tensor: Tensor, op: str = "sum", sizes: Sequence[int] | None = None, async_op: bool = False
    ) -> Any:
        return self._on_a_copy(super().reduce_scatter, tensor, False, async_op, op=op, sizes=sizes)

    def all_gather(self, tensor: Tensor, sizes: Sequence[int] | None = None, async_op: bool = False) -> Any:
        return self._on_a_copy(super().all_gather, tensor, False, async_op, sizes=sizes)

    def all_to_all(
        self,
        tensor: Tensor,
        send_sizes: Sequence[int] | None = None,
        recv_sizes: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> Any:
        return self._on_a_copy(
            super().all_to_all, tensor, False, async_op, send_sizes=send_sizes, recv_sizes=recv_sizes
        )

    def broadcast(self, tensor: Tensor, src: int = 0, async_op: bool = False) -> Any:
        return self._on_a_copy(super().broadcast, tensor, True, async_op, src=src)

    def reduce(self, tensor: Tensor, dst: int = 0, op: str = "sum", async_op: bool = False) -> Any:
        return self._on_a_copy(super().reduce, tensor, True, async_op, dst=dst, op=op)

    def split(self, color: int | None, key: int = 0) -> SimulatedCommunicator | None:
        """Moves no bytes: every rank goes on at the time the last one called."""
        for what, value in (("color", color), ("key", key)):
            if not (isinstance(value, int) or (value is None and what == "color")):
                raise CommunicationError(f"split: {what} is {value!r}; it must be an integer.")
        scheduler, rank = self.simulation.scheduler, self.strand.rank
        with self.call("wait", "split"):
            scheduler.yield_to_earlier(self.strand)
            meeting = self.group.enter(rank, "split")
            meeting.choices[rank] = (color, key, self.strand)
            if meeting.absent:
                scheduler.block(self.strand, meeting)
            else:
                meeting.form_groups()
                for _, _, strand in meeting.choices.values():
                    if strand is not self.strand:
                        scheduler.wake(strand, self.strand.clock)
            self.group.leave(meeting)
        return (
            None if color is None else SimulatedCommunicator(self.simulation, meeting.groups[color], self.strand, self)
        )

    def on_cpu(self) -> SimulatedCommunicator:
        return self.split(0)

    def beside(self, work: Callable[[Communicator], Any]) -> SimulatedHandle:
        def run(strand: Strand) -> Any:
            return work(SimulatedCommunicator(self.simulation, self.group, strand))

        with self.call("compute", ""):
            self.simulation.scheduler.yield_to_earlier(self.strand)
            job = Job(OwnWork(), self.strand.clock, run)
            self.simulation.second_streams[self.strand.rank].launch(job)
            return job_handle(self, job)

    # time

    def now(self) -> float:
        return self.strand.clock

    def span(
        self, name: str, *, kind: str = "compute", micro_batch: int | None = None, cost: Cost | float | None = None
    ) -> CostSpan:
        if kind not in KINDS:
            raise ValueError(f"the kind of a span is one of {', '.join(KINDS)}, not {kind!r}")
        return CostSpan(self, kind, name, micro_batch, None if cost is None else self._seconds(cost))

    def charge(self, model: nn.Module, profile: Mapping[str, LayerCost]) -> Charge:
        return Charge(model, profile, self._seconds, self._spend)

    # for the parts of the room

    def call(self, kind: str, name: str, nbytes: int | None = None, **detail: object) -> Call:
        """A `with` block around every call that may hand the baton on; without a `name` it leaves no span."""
        return Call(self, kind, name, nbytes, detail)

    def record(self, kind: str, name: str, start: float, strand: Strand, **fields: Any) -> None:
        """Add a span that ends now."""
        self.simulation.spans.append(Span(strand.rank, kind, name, start, strand.clock, stream=strand.stream, **fields))

    def wait_for(self, post: Post) -> None:
        """Move this rank to the end of a message."""
        self.simulation.scheduler.yield_to_earlier(self.strand)
        self.simulation.network.wait(self.strand, (post,), f"wait() for {'isend' if post.sends else 'irecv'}")

    def wait_for_job(self, job: Job) -> None:
        """Move this rank to the end of an asynchronous collective."""
        self.simulation.scheduler.yield_to_earlier(self.strand)
        self.simulation.second_streams[self.strand.rank].wait(job, self.strand)

    def finish(self) -> None:
        """At the rank's return: what it did not wait for ends too, with its own error first; then that is the error."""
        forgotten = list(self.unfinished)
        for handle in forgotten:
            self.strand.returned = handle
            handle.wait()
        self.strand.returned = None
        wrong = [handle for handle in forgotten if not handle.may_be_left]
        if wrong:
            raise never_waited(self.strand.rank, wrong[0].text, (wrong[0].site.file, wrong[0].site.line))

    def check_thread(self) -> None:
        """Raise CommunicationError in a thread that is not the rank's."""
        if threading.get_ident() != self.strand.thread.ident:
            raise CommunicationError(
                f"Rank {self.strand.rank} calls its communicator from another thread than the one it runs in: "
                f"let the rank's own thread communicate, and use async_op=True for what goes on beside it."
            )

    def _lane_on(self, space: Any, strand: Strand) -> Lane:
        return Lane(self.simulation.scheduler, self.simulation.network, self.group, space, strand)

    def _perform(self, name: str, meeting: Meeting, algorithm: Callable[[Any], Any], strand: Strand) -> Any:
        strand.collective, start = meeting, strand.clock
        result = algorithm(self._lane_on(meeting.space, strand))
        strand.collective = None
        self.group.leave(meeting)
        self.record("collective", name, start, strand, detail={"group": self.group.ranks, "sequence": meeting.number})
        return result

    def _on_a_copy(
        self, collective: Callable[..., Any], tensor: Tensor, in_place: bool, async_op: bool, **arguments: Any
    ) -> Any:
        """Asynchronous collectives work on a copy, so that the buffer changes at `wait()` and at no other time."""
        if not async_op:
            return collective(tensor, **arguments)
        check_tensor(tensor, CPU)
        private = tensor.detach().clone()
        handle = collective(private, async_op=True, **arguments)

        def write_back(_: Any) -> Tensor:
            tensor.detach().copy_(private)
            return tensor

        return lend(handle, Lent(tensor), write_back if in_place else lambda result: result)

    def _peer(self, rank: int, role: str) -> int:
        """The number in the whole run of the rank that a message goes to or comes from."""
        check_rank(rank, self.size, role)
        if rank == self.rank:
            raise CommunicationError(f"Rank {rank} has itself as {role}: copy the tensor instead of sending it.")
        return self.group.ranks[rank]

    def _seconds(self, cost: Cost | float) -> float:
        return seconds_of(cost, self.simulation.cluster.device) / self.simulation.speeds[self.strand.rank]

    def _spend(self, name: str, seconds: float) -> None:
        """A piece of work that takes `seconds`, now."""
        with self.call("compute", name):
            self.simulation.scheduler.yield_to_earlier(self.strand)
            self.strand.clock += seconds
            if self.open_spans:
                self.open_spans[-1] = True
