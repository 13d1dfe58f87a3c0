"""Local SGD: ranks train apart and average their weights now and then.

Floor 2, room `compress`. Sources: Stich 2019 (local SGD); Lin et al. 2020, "Don't Use Large Mini-Batches, Use Local SGD"
(post-local: every step at first).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator
from lockstep.compress.compressor import check_count
from lockstep.compress.finite import check_finite


class LocalSGD:
    """Averages the weights and floating-point buffers of `model` over ranks every `every` steps.

    Wrap nothing else: backward is each rank's own, and after `optimizer.step()` comes `step()`. In the first `post`
    steps it averages each time (post-local SGD). One rank's bytes per step are 1/every of a dense exchange's; momentum
    stays each rank's own. Collective; ranks start from equal weights, which the caller sees to or a first `average()`.
    Raises ValueError for other settings.
    """

    def __init__(self, comm: Communicator, model: nn.Module, every: int, post: int = 0) -> None:
        self.every, self.post = check_count(every, "every"), check_count(post, "post", least=0)
        self._comm, self._model = comm, model
        self._steps = 0

    def step(self) -> bool:
        """After each of the optimizer's steps; gives whether the ranks were averaged."""
        self._steps += 1
        due = self._steps <= self.post or (self._steps - self.post) % self.every == 0
        if due:
            self.average()
        return due

    @torch.no_grad()
    def average(self) -> None:
        """Replace weights and buffers by their mean over ranks; NotFinite names one that has NaN in it."""
        state = {
            name: tensor
            for name, tensor in [*self._model.named_parameters(), *self._model.named_buffers()]
            if tensor.is_floating_point()
        }
        for name, tensor in state.items():
            check_finite([tensor], [name], self._comm.rank)
        for dtype in dict.fromkeys(tensor.dtype for tensor in state.values()):
            self._average([tensor for tensor in state.values() if tensor.dtype is dtype])

    def wire_bytes(self, model_bytes: int) -> float:
        """Bytes a step, on average over `every` steps, that all ranks together send of `model_bytes` of state."""
        return 2 * (self._comm.size - 1) * model_bytes / self.every

    def _average(self, tensors: list[Tensor]) -> None:
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._comm.all_reduce(flat, op="mean")
        for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(mean.view(tensor.shape))
