"""What was not sent is kept and sent later.

Floor 2, room `compress`. Sources: Seide et al. 2014, section 3.1; Karimireddy et al. 2019, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.compress.compressor import Compressor, Round
from lockstep.compress.dgc import DGC
from lockstep.compress.payload import Payload
from lockstep.compress.random_k import RandomK
from lockstep.compress.work import of_all, passes, working
from lockstep.cost import Cost


class ErrorFeedback(Compressor):
    """`compressor`, which is given each gradient plus the residual of the steps before.

    So the sum of what a rank sent and its last residual is the sum of its gradients. Where the mean over ranks is not
    that of what each sent (`SignVote`), this holds of what ranks sent, not of what they received. `PowerSGD` and
    `CompressedSensing` need it, `OneBit` and `TopK` nearly so; with compressors whose noise is larger than the gradient,
    such as `QSGD` of few levels and long blocks, residuals grow.

    residuals: by the parameters' names. Raises ValueError for a compressor that has feedback already, or that
    multiplies what it sends (`RandomK(unbiased=True)`), as its residual would only grow.
    """

    def __init__(self, compressor: Compressor) -> None:
        if not isinstance(compressor, Compressor):
            raise TypeError(f"compressor is {compressor!r:.60}: give one of lockstep.compress, such as TopK(0.01).")
        if isinstance(compressor, ErrorFeedback | DGC):
            raise ValueError(f"{compressor!r} keeps what it has not sent already: use it as it is.")
        if isinstance(compressor, RandomK) and compressor.unbiased:
            raise ValueError(
                f"{compressor!r} multiplies what it sends, so with feedback residuals grow from step to step: use "
                f"RandomK({compressor.fraction:g})."
            )
        self.compressor = compressor
        self.residuals: dict[str, Tensor] = {}

    def __repr__(self) -> str:
        return f"ErrorFeedback({self.compressor!r})"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        corrected = self._corrected(tensor, name)
        payload = self.compressor.encode(corrected, name)
        corrected.sub_(self.compressor.decompress(payload))
        return payload

    def decompress(self, payload: Payload) -> Tensor:
        return self.compressor.decompress(payload)

    def wire_bytes(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> int:
        """Those of the compressor."""
        return self.compressor.wire_bytes(shape, ranks, dtype)

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """The compressor's; before it, tensor and residual are read, and their sum is written."""
        return _add_cost(shape, dtype) + self.compressor.compress_cost(shape, dtype)

    def decompress_cost(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> Cost:
        """The compressor's, and what is left is computed."""
        return self.compressor.decompress_cost(shape, ranks, dtype) + self.compressor.residual_cost(shape, dtype)

    def residual_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """That of the compressor."""
        return self.compressor.residual_cost(shape, dtype)

    def begin(self, comm: Communicator, tensors: Sequence[Tensor], names: Sequence[str]) -> Round:
        with working(comm, "compress", of_all(_add_cost, tensors)):
            corrected = [self._corrected(tensor, name) for tensor, name in zip(tensors, names, strict=True)]
        return _FeedbackRound(self.compressor.begin(comm, corrected, names), corrected)

    def _corrected(self, tensor: Tensor, name: str) -> Tensor:
        """The tensor plus its residual, in the residual's memory, where what is left of it will be."""
        residual = self.residuals.get(name)
        if residual is None:
            residual = self.residuals[name] = torch.zeros_like(tensor, memory_format=torch.contiguous_format)
        if residual.shape != tensor.shape or residual.dtype != tensor.dtype:
            raise ValueError(
                f"{name or 'the tensor'} has shape {tuple(tensor.shape)} and dtype {tensor.dtype}, and its residual "
                f"{tuple(residual.shape)} and {residual.dtype}: one ErrorFeedback serves one model, and a tensor of its "
                f"own needs a name of its own."
            )
        return residual.add_(tensor)


def _add_cost(shape: Sequence[int], dtype: torch.dtype) -> Cost:
    return passes(torch.Size(shape).numel(), dtype, 3)


class _FeedbackRound:
    """A round of the compressor's own, after which residuals are what is left."""

    def __init__(self, round_: Round, corrected: Sequence[Tensor]) -> None:
        self._round, self._corrected = round_, corrected

    def finish(self, means: Sequence[Tensor]) -> None:
        """See `Round`."""
        self._round.finish(means)
        self._round.leave_residual(self._corrected)

    def leave_residual(self, tensors: Sequence[Tensor]) -> None:
        """Never asked for: feedback around feedback is refused."""
        raise NotImplementedError
