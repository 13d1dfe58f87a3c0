"""What ranks tell each other once a step beside their gradients.

Floor 2, room `parallel`. Whether a rank lacks a gradient, and batch norm's running statistics: as these change with
each rank's own images, evaluation and checkpoints would differ by rank. They travel behind the gradients in the last
bucket, since a collective of their own would cost a small model more than its gradients do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator, Handle
from lockstep.parallel.batch_norm import SyncBatchNorm2d

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def norms_to_average(model: nn.Module) -> list[nn.Module]:
    """The batch norms of `model` whose running statistics come from this rank's images alone."""
    norms = [module for module in model.modules() if isinstance(module, _BATCH_NORMS)]
    return [norm for norm in norms if not isinstance(norm, SyncBatchNorm2d) and norm.running_mean is not None]


class StepReport:
    """[how many ranks lack a gradient, running statistics ...], as the mean over ranks.

    alone: whether it must have a collective of its own; it also has one when its dtype is not the last bucket's.
    riding: elements that it needs behind the gradients, 0 when alone. share: what gradients are multiplied by before
    they are sent, and with them what rides.
    """

    def __init__(
        self, comm: Communicator, norms: Sequence[nn.Module], dtype: torch.dtype, share: float, alone: bool
    ) -> None:
        self._comm, self._norms = comm, norms
        dtypes = {statistic.dtype for norm in norms for statistic in (norm.running_mean, norm.running_var)}
        self._size = 1 + sum(2 * norm.num_features for norm in norms)
        self.riding = 0 if alone or dtypes - {dtype} else self._size
        self._share = share if self.riding else 1.0
        own_dtype = torch.float64 if torch.float64 in dtypes else torch.float32
        self._values = torch.zeros(0 if self.riding else self._size, dtype=own_dtype, device=comm.device)
        self._handle: Handle | None = None
        self._flag = self._values[:1]
        self._raised = False  # whether the flag is up: it is mostly down and stays so when averaged

    def ride(self, place: Tensor) -> None:
        """Travel in `place`, of `riding` elements."""
        if self.riding:
            self._values, self._flag = place, place[:1]

    def write(self, lacks: bool, weight: float) -> None:
        """Put in what this rank has to say; `weight` is that of its statistics, on average 1."""
        if lacks or self._raised:
            self._flag.fill_(lacks)
        for statistic, place in self._places():
            torch.mul(statistic, weight * self._share, out=place)

    def start(self) -> None:
        """Send it, where it travels alone."""
        if not self.riding:
            self._handle = self._comm.all_reduce(self._values, op="mean", async_op=True)

    def read(self) -> bool:
        """Take over the statistics; gives whether some rank lacks a gradient."""
        if self._handle is not None:
            self._handle.wait()
            self._handle = None
        for statistic, place in self._places():
            statistic.copy_(place)
        self._raised = self._flag.item() > 0
        return self._raised

    def _places(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(statistic, its place) of every norm that trains; one in evaluation mode does not change its statistics."""
        at = 1
        for norm in self._norms:
            n = norm.num_features
            if norm.training:
                yield norm.running_mean, self._values[at : at + n]
                yield norm.running_var, self._values[at + n : at + 2 * n]
            at += 2 * n
