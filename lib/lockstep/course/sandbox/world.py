"""One case of a rank function in a box: the simulated world is here, and only the ranks' code is over there.

Floor 4, room `course`; the other side is `inside/ranks.py`. Each rank of the simulation is a strand here that lets its
lane over there run until that asks for a call of the communicator, makes the call in the world, and answers. So clock,
traffic, order, collectives and deadlocks are seen here, whatever the student's process does or says; what a rank
returns, and numbers that a drive reads off over there, are what that process says.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from types import CodeType
from typing import Any

from torch import Tensor

from lockstep.comm import CommunicationError
from lockstep.cost import Cost
from lockstep.course.sandbox.box import Child
from lockstep.course.sandbox.reading import TimedOut, listen, read_failure
from lockstep.course.sandbox.wire import Garbled, Gone, Late
from lockstep.exercises.exercise import Case
from lockstep.exercises.forbidden import COLLECTIVES
from lockstep.exercises.observe import Failure, Observation, failure
from lockstep.world import simulate
from lockstep.world.run import RankError

MESSAGES = ("send", "recv", "isend", "irecv")
OTHER_LANES = 1000  # their numbers begin here; below are the ranks' own
CELL = re.compile(r"<cell \d{1,6}>")
SPARE = 5.0  # seconds that the simulation's own limit is longer than that of the student's process


class Raised(Exception):
    """What a rank's function raised over there."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def observe_ranks(
    child: Child, asked: Mapping[str, Any], case: Case, forbidden: Sequence[str], deadline: float
) -> Observation:
    """Observe what is asked for on the ranks of `case`; raises Late, Gone and Garbled when the child is lost."""
    seconds = max(0.1, deadline - time.monotonic())
    child.send(deadline, **asked)
    ranks = _Ranks(child, case.ranks, forbidden, deadline + 1)
    error, run = None, None
    try:
        run = simulate(ranks.program, case.ranks, timeout=seconds + SPARE, **case.world)
    except Exception as raised:  # every way in which a run can end badly is an observation
        cause = getattr(raised, "cause", None)
        if isinstance(cause, (Late, Gone, Garbled)):
            raise cause from None
        error = _failed(raised, cause)
    finally:
        ranks.forget()
    child.send(deadline, over=True)
    printed = str(listen(child, "printed", deadline + 2)["printed"])
    called = tuple(ranks.refused)
    if error is not None:
        return Observation(error=error, printed=printed, forbidden=called)
    values, arguments = zip(*run.values, strict=True)
    return Observation(
        value=list(values), arguments=list(arguments), traffic=tuple(run.traffic), trace=run.trace,
        seconds=run.seconds, collectives=tuple(map(tuple, ranks.collectives)), printed=printed, forbidden=called,
    )  # fmt: skip


def _failed(raised: Exception, cause: Any) -> Failure:
    if isinstance(raised, RankError) and isinstance(cause, Raised):
        found = cause.failure
        return Failure(found.type, found.message, found.file, found.line, found.own, raised.rank)
    return failure(raised)


_running: dict[int, _Ranks] = {}
_numbers = itertools.count()


class _Program:
    """The rank function of the simulation, which makes copies of it: a number that leads to the one `_Ranks`."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, comm: Any) -> Any:
        return _running[self.number].live(comm)


class _Ranks:
    """The strands' side of one run. `collectives` are those that each rank called; `refused` what it may not."""

    def __init__(self, child: Child, ranks: int, forbidden: Sequence[str], deadline: float) -> None:
        self.child, self.deadline = child, deadline
        self.forbidden = {name.removeprefix("comm.") for name in forbidden if name.startswith("comm.")}
        self.collectives: list[list[str]] = [[] for _ in range(ranks)]
        self.refused: list[str] = []
        self._comms: dict[int, Any] = {}
        self._handles: dict[int, tuple[Any, Tensor | None]] = {}
        self._spans: dict[int, Any] = {}
        self._charged: set[str] = set()
        self._keys = itertools.count(1)
        self._lanes = itertools.count(OTHER_LANES)
        self.program = _Program(next(_numbers))
        _running[self.program.number] = self

    def forget(self) -> None:
        _running.pop(self.program.number, None)

    def live(self, comm: Any) -> tuple[Any, Any]:
        """A rank from its beginning to its end; gives what it returned, and its arguments as it left them."""
        told = self._let(comm.rank, comm.rank, comm, 0)
        if type(told) is not tuple or len(told) != 3:
            raise Garbled("a rank does not end as ranks do")
        value, arguments, changed = told
        for key in changed:
            self._touch(key)
        return value, arguments

    def _let(self, lane: int, rank: int, comm: Any, work: int) -> Any:
        """Let a lane do a piece of work, and answer what it asks meanwhile."""
        made = self._keep(self._comms, comm)
        said: dict[str, Any] = {"work": work, "as": {"key": made, "rank": comm.rank, "size": comm.size}}
        while True:
            self.child.send(self.deadline, to=lane, rank=rank, **said)
            message = self.child.receive(self.deadline)
            if "late" in message:
                raise TimedOut(message["late"])
            if message.get("from") != lane:
                raise Garbled("a rank speaks out of turn")
            if "gives" in message:
                return message["gives"]
            if "raises" in message:
                raise Raised(read_failure(message["raises"]))
            said = self._answered(lane, rank, message)

    def _answered(self, lane: int, rank: int, message: Mapping[str, Any]) -> dict[str, Any]:
        name, comm = message.get("ask"), self._comms.get(message.get("comm"))
        if comm is None or name not in ASKED:
            raise Garbled("a rank asks for what there is not")
        if name in self.forbidden:
            self.refused.append(f"comm.{name}")
            return {"raise": ["ForbiddenCall", f"comm.{name} may not be called in this exercise"]}
        if name in COLLECTIVES:
            self.collectives[rank].append(name)
        try:
            return _seen_at(message.get("site"), lambda: ASKED[name](self, comm, message, lane, rank))
        except (Late, Gone, Garbled):
            raise
        except Exception as error:  # the call's own, which the rank may catch over there
            kind = "CommunicationError" if isinstance(error, CommunicationError) else type(error).__name__
            return {"raise": [kind, str(error)[:2000]]}

    def _keep(self, where: dict[int, Any], what: Any) -> int:
        key = next(self._keys)
        where[key] = what
        return key

    def _touch(self, key: int) -> None:
        """Do to our copy of a buffer what the rank says it did to its own: write to it before `wait()`."""
        tensor = self._handles.get(key, (None, None))[1]
        if tensor is not None:
            tensor.copy_(tensor.clone())

    # what a rank may ask for; each gives the answer

    def message(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        name, tensor = said["ask"], _tensor(said["tensor"])
        if name in ("isend", "irecv"):
            handle = comm.isend(tensor, said["dst"]) if name == "isend" else comm.irecv(tensor, said["src"])
            return {"handle": self._keep(self._handles, (handle, tensor))}
        given = comm.send(tensor, said["dst"]) if name == "send" else comm.recv(tensor, said["src"])
        return {"gives": given, "left": tensor}

    def exchange(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        sends, recvs = ([(_tensor(t), other) for t, other in said[which]] for which in ("sends", "recvs"))
        comm.exchange(sends, recvs)
        return {"left": [tensor for tensor, _ in recvs]}

    def collective(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        name, tensor = said["ask"], _tensor(said["tensor"])
        known = {key: said[key] for key in COLLECTIVE_ARGUMENTS[name] if key in said}
        result = getattr(comm, name)(tensor, **known)
        if known.get("async_op"):
            return {"handle": self._keep(self._handles, (result, tensor))}
        return {"gives": result, "left": tensor}

    def barrier(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        comm.barrier()
        return {}

    def wait(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        if said["changed"]:
            self._touch(said["handle"])
        handle, tensor = self._handles.pop(said["handle"])
        return {"gives": handle.wait(), "left": tensor}

    def run_collective(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        """An algorithm of the program's own: it runs over there, in this lane, or beside it in another."""
        work, beside = said["work"], bool(said["async_op"])
        where = next(self._lanes) if beside else lane
        name, signature = str(said["name"])[:100], str(said["signature"])[:200]
        handle = comm.run_collective(name, signature, lambda wire: self._let(where, rank, wire, work), beside)
        return {"handle": self._keep(self._handles, (handle, None))} if beside else {}

    def beside(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        where, work = next(self._lanes), said["work"]
        handle = comm.beside(lambda own: self._let(where, rank, own, work))
        return {"handle": self._keep(self._handles, (handle, None))}

    def split(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        made = comm.split(said["color"], said["key"])
        if made is None:
            return {"gives": None}
        return {"gives": {"key": self._keep(self._comms, made), "rank": made.rank, "size": made.size}}

    def now(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        return {"gives": comm.now()}

    def traffic(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        return {"gives": asdict(comm.traffic)}

    def span(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        known = {"kind": said["kind"], "micro_batch": said["micro_batch"], "cost": _cost(said["cost"])}
        name = str(said["name"])[:200]
        name = f"own {name}" if name in self._charged else name
        return {"span": self._keep(self._spans, comm.span(name, **known))}

    def charge(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        """Spans of these layers come from the model's hooks from now on; the program's own are told apart from them."""
        self._charged |= {f"{way} {layer}" for way in ("forward", "backward") for layer in said["layers"]}
        return {}

    def enter(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        self._spans[said["span"]].__enter__()
        return {}

    def leave(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        self._spans.pop(said["span"]).__exit__(RuntimeError if said["failed"] else None, None, None)
        return {}

    def spend(self, comm: Any, said: Mapping[str, Any], lane: int, rank: int) -> dict[str, Any]:
        with comm.span(str(said["name"])[:200], cost=_cost(said["cost"])):
            return {}


COLLECTIVE_ARGUMENTS = {
    "all_reduce": ("op", "async_op"),
    "reduce_scatter": ("op", "sizes", "async_op"),
    "all_gather": ("sizes", "async_op"),
    "all_to_all": ("send_sizes", "recv_sizes", "async_op"),
    "broadcast": ("src", "async_op"),
    "reduce": ("dst", "op", "async_op"),
    "gather": ("dst", "sizes"),
    "scatter": ("tensors", "src"),
}
_OTHERS = (
    "exchange", "barrier", "wait", "run_collective", "beside", "split", "now", "traffic", "span", "enter", "leave",
    "charge", "spend",
)  # fmt: skip
ASKED: Mapping[str, Callable[..., dict[str, Any]]] = {
    **dict.fromkeys(MESSAGES, _Ranks.message),
    **dict.fromkeys(COLLECTIVE_ARGUMENTS, _Ranks.collective),
    **{name: getattr(_Ranks, name) for name in _OTHERS},
}


def _tensor(value: Any) -> Tensor:
    if type(value) is not Tensor:
        raise Garbled("a rank sends what is no tensor")
    return value


def _cost(value: Any) -> Any:
    return Cost(*value) if type(value) is list and len(value) == 2 else value


def _seen_at(site: Any, work: Callable[[], Any]) -> Any:
    """Call `work` from a frame that says it is the student's line, so that the world's reports name that."""
    if type(site) is not tuple or len(site) != 2 or not CELL.fullmatch(str(site[0])) or type(site[1]) is not int:
        return work()
    names: dict[str, Any] = {"work": work}
    exec(_call_at(site[0], min(max(site[1], 1), 20_000)), names)
    return names["answer"]


@lru_cache(maxsize=1024)
def _call_at(file: str, line: int) -> CodeType:
    return compile("\n" * (line - 1) + "answer = work()", file, "exec")
