"""The communicator that a rank function gets in the box: every call is one question to the grader and one answer.

Floor 4, room `course`; the grader's side is `sandbox/world.py`. The simulated world is over there: clock, traffic, order
and collectives. Here are only threads, one for each rank, of which one runs at a time, and the tensors.

Legend: a *lane* is a thread of this process that stands for a strand of the grader's simulation.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lockstep.comm import CommunicationError, Communicator, Traffic
from lockstep.comm.callsite import call_site
from lockstep.comm.signature import check_tensor
from lockstep.cost import Cost, LayerCost
from lockstep.trace.events import KINDS
from lockstep.world.charging import Charge
from lockstep.world.handles import Lent
from lockstep.world.transfers import copy

if TYPE_CHECKING:
    from lockstep.course.sandbox.inside.agent import Run

CPU = torch.device("cpu")
IN_PLACE = ("all_reduce", "broadcast", "reduce")


class Stopped(BaseException):
    """The run is over for this thread."""


class Lane:
    """One thread, and what it has to say to its strand."""

    def __init__(self, run: Run, key: int, rank: int) -> None:
        self.run, self.key, self.rank, self.stopped = run, key, rank, False
        self.inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    def ask(self, what: str, comm: int = 0, **said: Any) -> dict[str, Any]:
        """Ask the grader for a call of communicator `comm`; raises what that raises."""
        if threading.get_ident() != self.thread.ident:
            raise CommunicationError(
                f"Rank {self.rank} calls its communicator from another thread than the one it runs in: "
                f"let the rank's own thread communicate, and use async_op=True for what goes on beside it."
            )
        if self.stopped:  # a `finally` of the student's
            raise Stopped
        self.run.say(self.key, ask=what, comm=comm, site=call_site(), **said)
        while True:
            message = self.hear()
            if "work" not in message:
                if "raise" in message:
                    raise self.run.error(*message["raise"])
                return message
            self._work(message)

    def hear(self) -> dict[str, Any]:
        """The next message for this lane; random numbers go on where this rank's were."""
        message = self.inbox.get()
        if "stop" in message:
            self.stopped = True
            raise Stopped
        self.run.generators.install(self.rank)
        return message

    def _live(self) -> None:
        try:
            while True:
                self._work(self.hear())
        except Stopped:
            return

    def _work(self, message: dict[str, Any]) -> None:
        """A rank's function from its beginning, or a piece of work that was handed to the grader before."""
        try:
            said = {"gives": self.run.work(message["work"], BoxedCommunicator(self, **message["as"]))}
        except Stopped:
            raise
        except BaseException as error:  # whatever the student's code raises is an answer
            said = {"raises": self.run.failure(error)}
        self.run.say(self.key, **said)


class BoxedCommunicator(Communicator):
    """A rank's communicator; see the table in `lockstep.comm.communicator`."""

    def __init__(self, lane: Lane, key: int, rank: int, size: int, unfinished: list[BoxedHandle] | None = None) -> None:
        self.rank, self.size, self.device = rank, size, CPU
        self._lane, self._key = lane, key
        self.unfinished: list[BoxedHandle] = unfinished if unfinished is not None else lane.run.unfinished(lane.rank)

    def _ask(self, what: str, **said: Any) -> Any:
        return self._lane.ask(what, self._key, **said)

    @property
    def traffic(self) -> Traffic:
        return Traffic(**self._ask("traffic")["gives"])

    # point to point

    def send(self, tensor: Tensor, dst: int) -> None:
        check_tensor(tensor, CPU)
        self._ask("send", tensor=_bare(tensor), dst=dst)

    def recv(self, tensor: Tensor, src: int | None = None) -> int:
        check_tensor(tensor, CPU)
        answer = self._ask("recv", tensor=_bare(tensor), src=src)
        copy(answer["left"], tensor.detach())
        return answer["gives"]

    def isend(self, tensor: Tensor, dst: int) -> BoxedHandle:
        check_tensor(tensor, CPU)
        answer = self._ask("isend", tensor=_bare(tensor), dst=dst)
        return BoxedHandle(self, answer["handle"], Lent(tensor), lambda _: None)

    def irecv(self, tensor: Tensor, src: int) -> BoxedHandle:
        check_tensor(tensor, CPU)
        answer = self._ask("irecv", tensor=_bare(tensor), src=src)

        def fill(result: dict[str, Any]) -> Tensor:
            copy(result["gives"], tensor.detach())
            return tensor

        return BoxedHandle(self, answer["handle"], Lent(tensor), fill)

    def exchange(self, sends: Sequence[tuple[Tensor, int]], recvs: Sequence[tuple[Tensor, int]]) -> None:
        sends, recvs = list(sends), list(recvs)
        for tensor, _ in [*sends, *recvs]:
            check_tensor(tensor, CPU)
        bare = [[[_bare(tensor), other] for tensor, other in pairs] for pairs in (sends, recvs)]
        answer = self._ask("exchange", sends=bare[0], recvs=bare[1])
        for (tensor, _), arrived in zip(recvs, answer["left"], strict=True):
            copy(arrived, tensor.detach())

    # collectives

    def run_collective(
        self, name: str, signature: str, algorithm: Callable[[Communicator], Any], async_op: bool = False
    ) -> Any:
        work = self._lane.run.keep(algorithm)
        answer = self._ask("run_collective", name=name, signature=signature, work=work, async_op=async_op)
        if async_op:
            return BoxedHandle(self, answer["handle"], None, lambda _: self._lane.run.result(work))
        return self._lane.run.result(work)

    def all_reduce(self, tensor: Tensor, op: str = "sum", async_op: bool = False) -> Any:
        return self._collective("all_reduce", tensor, async_op, op=op)

    def reduce_scatter(
        self, tensor: Tensor, op: str = "sum", sizes: Sequence[int] | None = None, async_op: bool = False
    ) -> Any:
        return self._collective("reduce_scatter", tensor, async_op, op=op, sizes=_listed(sizes))

    def all_gather(self, tensor: Tensor, sizes: Sequence[int] | None = None, async_op: bool = False) -> Any:
        return self._collective("all_gather", tensor, async_op, sizes=_listed(sizes))

    def all_to_all(
        self,
        tensor: Tensor,
        send_sizes: Sequence[int] | None = None,
        recv_sizes: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> Any:
        sizes = {"send_sizes": _listed(send_sizes), "recv_sizes": _listed(recv_sizes)}
        return self._collective("all_to_all", tensor, async_op, **sizes)

    def broadcast(self, tensor: Tensor, src: int = 0, async_op: bool = False) -> Any:
        return self._collective("broadcast", tensor, async_op, src=src)

    def reduce(self, tensor: Tensor, dst: int = 0, op: str = "sum", async_op: bool = False) -> Any:
        return self._collective("reduce", tensor, async_op, dst=dst, op=op)

    def gather(self, tensor: Tensor, dst: int = 0, sizes: Sequence[int] | None = None) -> list[Tensor] | None:
        check_tensor(tensor, CPU)
        return self._ask("gather", tensor=_bare(tensor), dst=dst, sizes=_listed(sizes))["gives"]

    def scatter(self, tensor: Tensor, tensors: Sequence[Tensor] | None = None, src: int = 0) -> Tensor:
        for each in (tensor, *(tensors or ())):
            check_tensor(each, CPU)
        given = None if tensors is None else [_bare(each) for each in tensors]
        answer = self._ask("scatter", tensor=_bare(tensor), tensors=given, src=src)
        copy(answer["left"], tensor.detach())
        return tensor

    def barrier(self) -> None:
        self._ask("barrier")

    def split(self, color: int | None, key: int = 0) -> BoxedCommunicator | None:
        made = self._ask("split", color=color, key=key)["gives"]
        return None if made is None else BoxedCommunicator(self._lane, **made, unfinished=self.unfinished)

    def on_cpu(self) -> BoxedCommunicator:
        return self.split(0)

    def beside(self, work: Callable[[Communicator], Any]) -> BoxedHandle:
        kept = self._lane.run.keep(work)
        answer = self._ask("beside", work=kept)
        return BoxedHandle(self, answer["handle"], None, lambda _: self._lane.run.result(kept))

    # time

    def now(self) -> float:
        return self._ask("now")["gives"]

    def span(
        self, name: str, *, kind: str = "compute", micro_batch: int | None = None, cost: Cost | float | None = None
    ) -> Any:
        if kind not in KINDS:
            raise ValueError(f"the kind of a span is one of {', '.join(KINDS)}, not {kind!r}")
        made = self._ask("span", name=name, kind=kind, micro_batch=micro_batch, cost=_costs(cost))
        return self._span(made["span"])

    @contextmanager
    def _span(self, span: int) -> Any:
        self._ask("enter", span=span)
        try:
            yield
        except Stopped:
            raise
        except BaseException:
            self._ask("leave", span=span, failed=True)
            raise
        self._ask("leave", span=span, failed=False)

    def charge(self, model: torch.nn.Module, profile: Mapping[str, LayerCost]) -> Charge:
        def cost_of(cost: Any) -> Any:
            return 0.0 if isinstance(cost, Cost) and not cost.flops and not cost.bytes else cost

        self._ask("charge", layers=[name or type(model).__name__ for name in profile])
        return Charge(model, profile, cost_of, lambda name, cost: self._ask("spend", name=name, cost=_costs(cost)))

    def _collective(self, name: str, tensor: Tensor, async_op: bool, **said: Any) -> Any:
        check_tensor(tensor, CPU)
        answer = self._ask(name, tensor=_bare(tensor), async_op=bool(async_op), **said)

        def finish(result: dict[str, Any]) -> Tensor:
            if name not in IN_PLACE:
                return result["gives"]
            copy(result["left"], tensor.detach())
            return tensor

        return BoxedHandle(self, answer["handle"], Lent(tensor), finish) if async_op else finish(answer)


class BoxedHandle:
    """What `isend`, `irecv` and `async_op=True` give; `wait()` gives the result, again when called again."""

    def __init__(
        self, comm: BoxedCommunicator, key: int, buffer: Lent | None, finish: Callable[[dict[str, Any]], Any]
    ) -> None:
        self._comm, self.key, self.buffer, self._finish = comm, key, buffer, finish
        self._waited, self._result = False, None
        comm.unfinished.append(self)

    @property
    def changed(self) -> bool:
        """Whether the program wrote into the buffer that the call has until `wait()`."""
        return self.buffer is not None and self.buffer.changed()

    def wait(self) -> Any:
        if not self._waited:
            self._comm.unfinished.remove(self)
            answer = self._comm._ask("wait", handle=self.key, changed=self.changed)
            self._waited, self._result = True, self._finish(answer)
        return self._result


def _bare(tensor: Tensor) -> Tensor:
    """Its numbers alone: a subclass, a parameter and a history stay here."""
    return tensor.detach().as_subclass(Tensor)


def _listed(sizes: Sequence[int] | None) -> Any:
    return None if sizes is None else [int(size) for size in sizes]


def _costs(cost: Any) -> Any:
    return [float(cost.flops), float(cost.bytes)] if isinstance(cost, Cost) else cost
