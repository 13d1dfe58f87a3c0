"""PowerSGD: a gradient as the product of two thin matrices.

Floor 2, room `compress`. Source: Vogels, Karimireddy and Jaggi 2019, algorithm 1; made to be used with error feedback.
Legend: M gradient [n, m] of a parameter whose first dimension is n; r rank; P [n, r] and Q [m, r] with M near P Q^T.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.comm import Communicator, Handle
from lockstep.compress.compressor import Compressor, check_count
from lockstep.compress.drawing import Draws
from lockstep.compress.finite import scale_dtype
from lockstep.compress.orthonormal import orthonormalise
from lockstep.compress.payload import Payload
from lockstep.compress.work import of_all, passes, working
from lockstep.cost import Cost


class PowerSGD(Compressor):
    """One step of power iteration: P = mean of M Q, made orthonormal; then Q = mean of M^T P, which the next step
    starts from.

    Both products are linear in M, so rings add them up: (n+m)r numbers in place of nm. A tensor that would not become
    at least `LEAST_GAIN` times smaller, biases among them, is sent as it is. rank: r. seed: of the first Q, the same on
    every rank. Raises ValueError for a rank that is not a whole number of at least 1.
    """

    LEAST_GAIN = 2

    def __init__(self, rank: int = 1, seed: int = 0) -> None:
        self.rank = check_count(rank, "rank")
        self.seed = seed
        self._draws = Draws(seed)
        self._qs: dict[str, Tensor] = {}

    def __repr__(self) -> str:
        return f"PowerSGD({self.rank})"

    def compresses(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of `shape` is sent as two thin matrices."""
        n, m = matrix_shape(shape)
        return (n + m) * self.rank * self.LEAST_GAIN < n * m

    def payload_elements(self, shape: Sequence[int]) -> int:
        """Numbers that stand for a tensor of `shape`."""
        return sum(matrix_shape(shape)) * self.rank if self.compresses(shape) else torch.Size(shape).numel()

    def wire_bytes(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> int:
        """2(p-1) payloads: two ring all-reduces, one of P and one of Q."""
        return 2 * (ranks - 1) * self.payload_elements(shape) * scale_dtype(dtype).itemsize

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """M Q, Gram and Schmidt's r(r+1)/2 updates of a column, and M^T P; a tensor that is sent as it is, is copied."""
        return self.first_cost(shape, dtype) + self.second_cost(shape, dtype)

    def decompress_cost(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> Cost:
        """P Q^T, or a copy."""
        return self.first_cost(shape, dtype)

    def residual_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """P Q^T is taken from the tensor, which is read and written; or zeros are written."""
        n = torch.Size(shape).numel()
        return passes(n, dtype) + self.first_cost(shape, dtype) if self.compresses(shape) else passes(n, dtype)

    def first_cost(self, shape: Sequence[int], dtype: torch.dtype) -> Cost:
        """Of the product of M or of P Q^T with one thin matrix for another, or of a copy."""
        elements = torch.Size(shape).numel()
        thin = passes(self.payload_elements(shape), scale_dtype(dtype))
        return passes(elements, dtype) + thin + Cost(flops=2 * elements * self.rank * self.compresses(shape))

    def second_cost(self, shape: Sequence[int], dtype: torch.dtype) -> Cost:
        """Of what is done between the two all-reduces."""
        if not self.compresses(shape):
            return Cost()
        updates, column = self.rank * (self.rank + 1) // 2, matrix_shape(shape)[0]
        return self.first_cost(shape, dtype) + passes(column, scale_dtype(dtype), 3 * updates)

    def encode(self, tensor: Tensor, name: str) -> Payload:
        dtype = scale_dtype(tensor.dtype)
        if not self.compresses(tensor.shape):
            return Payload(tensor.reshape(-1).to(dtype, copy=True), tensor.shape, tensor.dtype)
        m = as_matrix(tensor).to(dtype)
        (p,), alive = orthonormalise([m @ self.take_q(name, m)])
        q = m.t() @ p
        self.keep_q(name, start_from(q), alive)
        return Payload(torch.cat([p.reshape(-1), q.view(-1)]), tensor.shape, tensor.dtype)

    def decompress(self, payload: Payload) -> Tensor:
        if not self.compresses(payload.shape):
            return payload.wire.view(payload.shape).to(payload.dtype)
        n, m = matrix_shape(payload.shape)
        p, q = payload.wire.split([n * self.rank, m * self.rank])
        return (p.view(n, -1) @ q.view(m, -1).t()).view(payload.shape).to(payload.dtype)

    def begin(self, comm: Communicator, tensors: Sequence[Tensor], names: Sequence[str]) -> _PowerRound:
        return _PowerRound(self, comm, tensors, names)

    def take_q(self, name: str, matrix: Tensor) -> Tensor:
        """Q to start from: that of the step before, or a random one that all ranks draw alike."""
        q = self._qs.get(name)
        if q is None or q.shape[0] != matrix.shape[1] or q.dtype != matrix.dtype:
            q = torch.randn(matrix.shape[1], self.rank, generator=self._draws.next(name)).to(matrix)
        return q

    def keep_q(self, name: str, q: Tensor, alive: bool) -> None:
        """Start from `q` next time. alive: whether no column of P was zero, as a zero gradient's are."""
        if not alive:
            # A column of zeros would stay one for ever.
            fresh = torch.randn(q.shape, generator=self._draws.next(name)).to(q)
            q = torch.where(q.abs().amax(0) > 0, q, fresh)
        self._qs[name] = q


class _PowerRound:
    """Two all-reduces: of M Q beside what is sent as it is, and of M^T P."""

    def __init__(self, method: PowerSGD, comm: Communicator, tensors: Sequence[Tensor], names: Sequence[str]) -> None:
        self._method, self._comm, self._tensors = method, comm, tensors
        thin = [method.compresses(tensor.shape) for tensor in tensors]
        self._thin = [at for at, is_thin in enumerate(thin) if is_thin]
        self._whole = [at for at, is_thin in enumerate(thin) if not is_thin]
        dtype = scale_dtype(tensors[0].dtype)
        self._ms = [as_matrix(tensors[at]).to(dtype) for at in self._thin]
        self._names = [names[at] for at in self._thin]
        r = method.rank
        self._p_sizes = [m.shape[0] * r for m in self._ms]
        self._whole_sizes = [tensors[at].numel() for at in self._whole]
        first = torch.empty(sum(self._whole_sizes) + sum(self._p_sizes), dtype=dtype, device=comm.device)
        self._first = first.split([*self._whole_sizes, *self._p_sizes])
        with working(comm, "compress", of_all(method.first_cost, tensors)):
            for at, place in zip(self._whole, self._first, strict=False):
                place.view(tensors[at].shape).copy_(tensors[at])
            for m, name, place in zip(self._ms, self._names, self._first[len(self._whole) :], strict=True):
                torch.mm(m, method.take_q(name, m), out=place.view(-1, r))
        self._handle: Handle = comm.all_reduce(first, op="mean", async_op=True)
        self._ps: list[Tensor] = []
        self._own_qs: list[Tensor] = []
        self._q_sizes: list[int] = []

    def finish(self, means: Sequence[Tensor]) -> None:
        """See `Round`."""
        self._handle.wait()
        if self._ms:
            with working(self._comm, "compress", of_all(self._method.second_cost, self._tensors)):
                own, alive = self._project()
            mean_q = self._comm.all_reduce(own, op="mean")
        with working(self._comm, "decompress", of_all(self._method.first_cost, self._tensors)):
            for at, place in zip(self._whole, self._first, strict=False):
                means[at].copy_(place.view(means[at].shape))
            if self._ms:
                self._multiply(mean_q, means, alive)

    def _project(self) -> tuple[Tensor, bool]:
        """All M^T P side by side, of which `_own_qs` are a copy, and whether no column of a P is zero."""
        r = self._method.rank
        self._ps, alive = orthonormalise([place.view(-1, r) for place in self._first[len(self._whole) :]])
        self._q_sizes = [m.shape[1] * r for m in self._ms]
        own = torch.empty(sum(self._q_sizes), dtype=self._ms[0].dtype, device=self._comm.device)
        self._own_qs = [q.view(-1, r) for q in own.split(self._q_sizes)]
        for m, p, q in zip(self._ms, self._ps, self._own_qs, strict=True):
            torch.mm(m.t(), p, out=q)
        return own.clone(), alive

    def _multiply(self, mean_q: Tensor, means: Sequence[Tensor], alive: bool) -> None:
        """Write the means P Q^T, and keep Q."""
        r = self._method.rank
        for at, p, q in zip(self._thin, self._ps, mean_q.split(self._q_sizes), strict=True):
            _write_product(p, q.view(-1, r), means[at])
        for name, q in zip(self._names, start_from(mean_q).split(self._q_sizes), strict=True):
            self._method.keep_q(name, q.view(-1, r), alive)

    def leave_residual(self, tensors: Sequence[Tensor]) -> None:
        """See `Round`. This rank sent P times its own Q."""
        with working(self._comm, "decompress", of_all(self._method.residual_cost, tensors)):
            for at in self._whole:
                tensors[at].zero_()
            for at, p, q in zip(self._thin, self._ps, self._own_qs, strict=True):
                matrix = tensors[at].view(p.shape[0], -1)
                if matrix.dtype is p.dtype:
                    matrix.addmm_(p, q.t(), alpha=-1)
                else:
                    matrix.sub_(p @ q.t())


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """(n, m) of a tensor seen as a matrix: its first dimension by all others; one of no or one dimension is a column."""
    shape = torch.Size(shape)
    if not shape.numel():
        return 0, 0
    n = shape[0] if shape else 1
    return n, shape.numel() // n


def as_matrix(tensor: Tensor) -> Tensor:
    """The tensor as [n, m]."""
    return tensor.reshape(tensor.shape[0], -1)


def start_from(q: Tensor) -> Tensor:
    """Q with the same span, of size about one: the product with a small gradient's own would vanish in float32."""
    most = q.abs().amax()
    return q / most.where(most > 0, 1)


def _write_product(p: Tensor, q: Tensor, into: Tensor) -> None:
    """P Q^T to `into`, of any layout."""
    if into.is_contiguous() and into.dtype is p.dtype:
        torch.mm(p, q.t(), out=into.view(p.shape[0], -1))
    else:
        into.copy_((p @ q.t()).view(into.shape))
