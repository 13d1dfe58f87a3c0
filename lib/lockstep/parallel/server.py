"""A parameter server: the weights live in one place, workers hand in gradients and take the newest weights.

Floor 2, room `parallel`. Rank 0 is the server and a worker: what serves the others runs beside its own work. Read
`weights` first, which says what is done with a gradient and who may go on; here is who sends what to whom.

    worker r: header and gradients, in one message        ->  server
    worker r: header and weights, once it may go on       <-  server

Source: Li et al. 2014 (the parameter server); Ho et al. 2013 (bounded staleness).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from threading import Lock
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.comm import CommunicationError, Communicator, Handle
from lockstep.parallel.agreement import check_same_model, copy_from_rank_0
from lockstep.parallel.packet import Packet, PacketLayout
from lockstep.parallel.weights import Gradient, Leave, MakeOptimizer, Weights

_STEP, _FINISH, _LEAVE = range(3)  # the first number of a request


class ParameterServer:
    """Trains `model` with gradients from all ranks of `comm`. Every rank makes one, with its own copy of the model.

        server = ParameterServer(model, lambda parameters: SGD(parameters, lr=0.1), comm, staleness=None)
        with server:
            for images, labels in my_batches:
                loss(model(images), labels).backward()
                server.step()

    staleness: 0 makes one update a round from the mean of all ranks' gradients, added up in rank order; k lets the
    fastest rank be k steps ahead of the slowest; None lets nobody wait. With k and None every gradient is an update.
    make_optimizer: called on rank 0 only, with the server's own parameters (those of `model` that are trained).

    The ranks begin with the parameters and buffers of rank 0, and leave the `with` block together, with the same
    newest parameters; buffers, such as batch norm's statistics, stay each rank's own. A rank may take fewer steps than
    others. One that leaves the block with an exception is not waited for any more. The block may be entered again,
    by all ranks.

    self.staleness, self.leads: for each of this rank's steps, how many updates its gradient came late, and how many
    steps this rank was ahead of the slowest when it went on. self.optimizer: rank 0's; None elsewhere.

    Raises ValueError for a staleness that is none or a model without trained parameters, CommunicationError on
    every rank when their models differ.
    """

    def __init__(
        self, model: nn.Module, make_optimizer: MakeOptimizer, comm: Communicator, staleness: int | None = 0
    ) -> None:
        _check_staleness(staleness)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not self._parameters:
            raise ValueError("the model has no parameter that requires a gradient, so there is nothing to train")
        check_same_model(comm, model, f"staleness={staleness}")
        with torch.no_grad():
            copy_from_rank_0(comm, [*model.parameters(), *model.buffers()])
        self._weights = Weights(self._parameters, make_optimizer, comm.size, staleness) if comm.rank == 0 else None
        self._comm = comm.on_cpu()  # collective: nobody begins before rank 0 has its optimizer
        self._requests = PacketLayout(3 + len(self._parameters), self._parameters)
        self._replies = PacketLayout(3, self._parameters)
        self.staleness: list[int] = []
        self.leads: list[int] = []
        self._version = 0
        self._inside = False
        self._lock = Lock()  # of the books; held by nobody who communicates
        self._beside: Handle | None = None
        self._broken: BaseException | None = None

    @property
    def optimizer(self) -> Optimizer | None:
        """Rank 0's, which makes the updates; None on the other ranks."""
        return self._weights and self._weights.optimizer

    def step(self, samples: int = 1) -> None:
        """Hand in the gradients of `model`, drop them, and put the newest weights in once this rank may go on.

        samples: how many the gradient is the mean over, where ranks differ in that: the synchronous mean is then that
        over all samples. With 0 the gradient does not count.
        """
        if not self._inside:
            raise CommunicationError("step() outside the server's block: write `with server:` around the loop.")
        if isinstance(samples, bool) or not isinstance(samples, Integral) or samples < 0:
            raise ValueError(f"samples is {samples!r}; it must be a whole number of at least 0")
        gradients = [parameter.grad for parameter in self._parameters]
        if self._weights is None:
            leave = self._worker_steps(gradients, samples)
        else:
            leave = self._rank_0_steps(gradients, samples)
        self.staleness.append(leave.staleness)
        self.leads.append(leave.lead)
        for parameter in self._parameters:
            parameter.grad = None

    def __enter__(self) -> Self:
        if self._inside:
            raise CommunicationError("This parameter server is in use already: leave its `with` block first.")
        self._inside = True
        if self._beside is not None:
            self._beside.wait()  # rank 0 may have left before the others were served
        self._comm.barrier()  # nor must a rank that left early send requests to the block before
        if self._weights is not None:
            self._weights.start()
            self._serve_beside()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._inside = False
        if kind is None:
            self._finish()
        elif isinstance(error, Exception) and not isinstance(error, CommunicationError):
            self._leave()

    def _finish(self) -> None:
        """Wait until every rank has no more steps, and take the last weights."""
        if self._weights is None:
            self._comm.send(self._request(_FINISH).buffer, 0)
            self._take_reply()
            return
        self._let_earlier_requests_in()
        with self._lock:
            self._weights.finish(0)
        self._rank_0_waits()
        if self._beside is not None:
            self._beside.wait()

    def _leave(self) -> None:
        """Let the others go on without this rank; rank 0 goes on serving them beside."""
        if self._weights is None:
            self._comm.send(self._request(_LEAVE).buffer, 0)
            return
        with self._lock:
            self._weights.leave(0)
            replies = self._replies_to(self._weights.let_go())
        self._comm.exchange(replies, [])

    # a worker's side

    def _worker_steps(self, gradients: Sequence[Tensor | None], samples: int) -> Leave:
        request = self._request(_STEP, samples)
        for part, gradient, used in zip(request.parts, gradients, request.header[3:], strict=True):
            if gradient is not None:
                part.copy_(gradient)
                used.fill_(1)
        self._comm.send(request.buffer, 0)
        return self._take_reply()

    def _request(self, what: int, samples: int = 0) -> Packet:
        request = self._requests.packet()
        request.header[0], request.header[1], request.header[2] = what, self._version, samples
        return request

    @torch.no_grad()
    def _take_reply(self) -> Leave:
        reply = self._replies.packet()
        self._comm.recv(reply.buffer, 0)
        self._version, staleness, lead = reply.header.tolist()
        for parameter, newest in zip(self._parameters, reply.parts, strict=True):
            parameter.copy_(newest)
        return Leave(staleness, lead)

    # the server's side

    def _rank_0_steps(self, gradients: Sequence[Tensor | None], samples: int) -> Leave:
        self._let_earlier_requests_in()
        if self._broken is not None:
            raise self._broken
        on_cpu = [None if gradient is None else gradient.cpu() for gradient in gradients]
        with self._lock:
            self._weights.hand_in(0, Gradient(on_cpu, self._version, int(samples)))
        return self._rank_0_waits()

    def _serve_beside(self) -> None:
        if self._weights.active - {0}:
            self._beside = self._comm.beside(self._serve)

    def _serve(self, comm: Communicator) -> Leave | None:
        """Serve the others until rank 0, which waits, may go on, or nobody is left; runs beside rank 0's own work."""
        try:
            while True:
                request = self._requests.packet()
                worker = comm.recv(request.buffer)
                with self._lock:
                    self._note(worker, request)
                    freed = self._weights.let_go()
                    replies = self._replies_to(freed)
                    over = 0 in freed or not self._weights.active - {0}
                comm.exchange(replies, [])
                if over:
                    return freed.get(0)
        except BaseException as error:
            self._broken = error
            raise

    def _note(self, worker: int, request: Packet) -> None:
        what, version, samples, *used = request.header.tolist()
        if what == _FINISH:
            self._weights.finish(worker)
        elif what == _LEAVE:
            self._weights.leave(worker)
        else:
            tensors = [part if there else None for part, there in zip(request.parts, used, strict=True)]
            self._weights.hand_in(worker, Gradient(tensors, version, samples))

    @torch.no_grad()
    def _replies_to(self, freed: Mapping[int, Leave]) -> list[tuple[Tensor, int]]:
        replies = []
        for worker, leave in freed.items():
            if worker != 0:
                reply = self._replies.packet()
                reply.header.copy_(torch.tensor([self._weights.version, leave.staleness, leave.lead]))
                for part, parameter in zip(reply.parts, self._weights.parameters, strict=True):
                    part.copy_(parameter)
                replies.append((reply.buffer, worker))
        return replies

    def _rank_0_waits(self) -> Leave:
        """Rank 0 waits until it may go on, and takes the newest weights."""
        with self._lock:
            freed = self._weights.let_go()
            replies = self._replies_to(freed)
            if 0 in freed:
                self._take_newest()
        self._comm.exchange(replies, [])
        if 0 in freed:
            return freed[0]
        leave = self._beside.wait()
        self._take_newest()
        self._serve_beside()
        return leave

    @torch.no_grad()
    def _take_newest(self) -> None:
        self._version = self._weights.version
        for parameter, newest in zip(self._parameters, self._weights.parameters, strict=True):
            parameter.copy_(newest)

    def _let_earlier_requests_in(self) -> None:
        """In the simulated world a rank's own code runs ahead of its second thread, up to its next call."""
        self._comm.exchange([], [])


def _check_staleness(staleness: int | None) -> None:
    if staleness is None:
        return
    if isinstance(staleness, bool) or not isinstance(staleness, Integral) or staleness < 0:
        raise ValueError(
            f"staleness is {staleness!r}; it is 0 (synchronous), a number of steps (bounded) or None (asynchronous)"
        )
