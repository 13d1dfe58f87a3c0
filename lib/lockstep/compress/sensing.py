"""Compressed sensing: a few random sums of a gradient's values, and the sparse gradient that fits them.

Floor 2, room `compress`. Sources: Candes, Romberg and Tao 2006; Blumensath and Davies 2010 (normalised iterative hard
thresholding). Legend: x a block of N values, k of them not zero; y = Phi x, m measurements; Phi = sqrt(N/m) S H D with
random signs D, the Hadamard transform H (orthonormal) and a random choice S of m of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from lockstep.compress.compressor import check_count, check_fraction
from lockstep.compress.drawing import Draws
from lockstep.compress.finite import scale_dtype
from lockstep.compress.payload import Payload
from lockstep.compress.summed import Summed
from lockstep.compress.work import passes
from lockstep.cost import Cost


class CompressedSensing(Summed):
    """m = fraction*N random sums of each block, which rings add up; everyone recovers the sparse mean from them.

    Exact for a mean with up to about m / (3 ln(N/k)) values that are not zero, and no better than its largest values for
    a dense one, such as a convolution's gradient. The measurements are linear, the recovery is not. block: most values
    that are measured together. iterations: of the recovery. seed: the same on every rank. Raises ValueError for other
    settings.
    """

    def __init__(self, fraction: float = 0.1, block: int = 4096, iterations: int = 50, seed: int = 0) -> None:
        self.fraction, self.iterations = check_fraction(fraction, "fraction"), check_count(iterations, "iterations")
        self.block = check_count(block, "block")
        self._draws = Draws(seed)

    def __repr__(self) -> str:
        return f"CompressedSensing({self.fraction:g})"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        sensing = _Sensing.draw(*self._layout(tensor.numel()), self._draws.next(name), tensor.device)
        rows = tensor.reshape(-1).to(scale_dtype(tensor.dtype))
        y = sensing.measure(sensing.as_rows(rows)) if tensor.numel() else rows
        return Payload(y.reshape(-1), tensor.shape, tensor.dtype, sensing)

    def decompress(self, payload: Payload) -> Tensor:
        n, sensing = payload.shape.numel(), payload.known
        blocks, length, m = self._layout(n)
        x = (
            recover(payload.wire.view(blocks, m), sensing, recoverable(m, length), self.iterations)
            if n
            else payload.wire
        )
        return sensing.as_flat(x, n).view(payload.shape).to(payload.dtype)

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """The tensor is read, each block is transformed where it lies, and m numbers of it are written."""
        return self._transform_cost(shape, dtype, 1)

    def decompress_cost(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> Cost:
        """m numbers of each block are read and its values written; three transforms in each of all iterations, which
        end earlier where the mean is sparse enough."""
        return self._transform_cost(shape, dtype, 1 + 3 * self.iterations)

    def _transform_cost(self, shape: Sequence[int], dtype: torch.dtype, times: int) -> Cost:
        n = torch.Size(shape).numel()
        blocks, length, m = self._layout(n)
        size = 1 << max(length - 1, 0).bit_length()
        flops = 2 * blocks * size * sum(hadamard_factors(size))
        return Cost(flops=times * flops) + passes(n, dtype) + passes(blocks * m, scale_dtype(dtype))

    def payload_elements(self, shape: Sequence[int]) -> int:
        """m for each block."""
        blocks, _, m = self._layout(torch.Size(shape).numel())
        return blocks * m

    def _layout(self, n: int) -> tuple[int, int, int]:
        """(blocks, values of a block, measurements of a block) for n values."""
        blocks = -(-n // self.block)
        length = -(-n // blocks) if n else 0
        return blocks, length, max(1, round(self.fraction * length)) if n else 0


class _Sensing:
    """Phi, for blocks of `length` values, filled up with zeros to a power of two."""

    def __init__(self, blocks: int, length: int, signs: Tensor, chosen: Tensor) -> None:
        self.blocks, self.length, self.signs, self.chosen = blocks, length, signs, chosen

    @classmethod
    def draw(cls, blocks: int, length: int, m: int, generator: torch.Generator, device: torch.device) -> _Sensing:
        """A random one."""
        size = 1 << max(length - 1, 0).bit_length()
        signs = torch.randint(2, (size,), generator=generator).mul_(2).sub_(1)
        return cls(blocks, length, signs.to(device), torch.randperm(size, generator=generator)[:m].to(device))

    def as_rows(self, flat: Tensor) -> Tensor:
        """Values as [blocks, N]."""
        rows = flat.new_zeros(self.blocks * self.length)
        rows[: flat.numel()] = flat
        return torch.nn.functional.pad(rows.view(self.blocks, -1), (0, len(self.signs) - self.length))

    def as_flat(self, rows: Tensor, n: int) -> Tensor:
        """The n values of [blocks, N]."""
        return rows[:, : self.length].reshape(-1)[:n] if n else rows

    def measure(self, x: Tensor) -> Tensor:
        """Phi x of each row: [blocks, m]."""
        return hadamard(x * self.signs)[:, self.chosen] * self._gain

    def back(self, y: Tensor) -> Tensor:
        """Phi^T y of each row: [blocks, N], without what is known to be zero."""
        spread = y.new_zeros(y.shape[0], len(self.signs))
        spread[:, self.chosen] = y
        x = hadamard(spread) * (self.signs * self._gain)
        x[:, self.length :] = 0
        return x

    @property
    def _gain(self) -> float:
        """What keeps lengths: |Phi x| is |x| on average."""
        return math.sqrt(len(self.signs) / len(self.chosen))


def recover(y: Tensor, sensing: _Sensing, k: int, iterations: int) -> Tensor:
    """x [blocks, N] with k values that are not zero in each row, such that Phi x is near y [blocks, m].

    Each step goes down the slope of |y - Phi x|^2 as far as is best on the values in use, and keeps the k largest;
    rows that it would not bring nearer go a step so short that it cannot lead away (the paper's section 3 shortens by
    trial). It ends early when all rows fit.
    """
    size = y.abs().amax(1, keepdim=True)
    y = y / size.where(size > 0, 1)  # squares of what is measured neither overflow nor vanish
    slope = sensing.back(y)
    support = keep_largest(slope, k) != 0
    x, left = torch.zeros_like(slope), _squares(y)
    enough = left * torch.finfo(y.dtype).eps
    for _ in range(iterations):
        direction = slope * support
        along = _squares(sensing.measure(direction))
        best = _squares(direction) / along.where(along > 0, 1)
        ahead = keep_largest(x + slope * best, k)
        misfit = y - sensing.measure(ahead)
        away = _squares(misfit) >= left
        if away.any():
            shortest = len(sensing.chosen) / len(sensing.signs)  # one by the largest eigenvalue of Phi^T Phi
            ahead = torch.where(away, keep_largest(x + slope * shortest, k), ahead)
            misfit = y - sensing.measure(ahead)
        x, left, support = ahead, _squares(misfit), ahead != 0
        if (left <= enough).all():
            break
        slope = sensing.back(misfit)
    return x * size


def _squares(rows: Tensor) -> Tensor:
    """The squared length of each row, [rows, 1]."""
    return rows.square().sum(1, keepdim=True)


def keep_largest(x: Tensor, k: int) -> Tensor:
    """x with zeros in place of all but the k values of largest magnitude of each row."""
    places = torch.topk(x.abs(), min(k, x.shape[1]), dim=1, sorted=False).indices
    return torch.zeros_like(x).scatter_(1, places, x.gather(1, places))


@lru_cache
def recoverable(m: int, n: int) -> int:
    """The largest k of n values that m measurements suffice for in practice: 3 k ln(n/k) at most m; at least 1."""
    k = 1
    while k + 1 <= m // 3 and 3 * (k + 1) * math.log(n / (k + 1)) <= m:
        k += 1
    return k


def hadamard(x: Tensor) -> Tensor:
    """The orthonormal Hadamard transform of each row, of a power of two values; it is its own inverse.

    H of ab values is H of a times H of b (Kronecker), so a row seen as a matrix is multiplied from both sides.
    """
    a, b = hadamard_factors(x.shape[1])
    left, right = _hadamard_matrix(a).to(x), _hadamard_matrix(b).to(x)
    return (left @ x.view(-1, a, b) @ right).view(x.shape)


def hadamard_factors(n: int) -> tuple[int, int]:
    """(a, b), about equal, with ab = n, a power of two."""
    a = 1 << (n.bit_length() - 1) // 2
    return a, n // a


@lru_cache
def _hadamard_matrix(n: int) -> Tensor:
    """[n, n], orthonormal and symmetric (Sylvester's construction)."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < n:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(n)
