"""The optimizer's part of a step of ZeRO: what it is given of each unit, and whether it steps at all.

Floor 2, room `parallel`. Read `masters` and `scaling` first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.comm import Communicator
from lockstep.parallel.masters import masters_of
from lockstep.parallel.scaling import LossScale, all_finite, check_max_norm, clip_factor, global_norm
from lockstep.parallel.sharded import Unit

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


class Stepper:
    """Steps the shards of `units`, or their masters.

    dtypes: what each parameter computes in, by its id. scaled: whether gradients come multiplied by `loss_scale`.
    stepped: what the optimizer steps, for each unit.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        make_optimizer: MakeOptimizer,
        comm: Communicator,
        dtypes: Mapping[int, torch.dtype],
        scaled: bool,
        offload: bool,
    ) -> None:
        self._units, self._comm = units, comm
        self.masters = masters_of(units, dtypes, offload)
        self.stepped = [self.masters[u.index].parameter if u.index in self.masters else u.shard for u in units]
        self.optimizer = make_optimizer(self.stepped)
        self.loss_scale = LossScale() if scaled else None
        self._clip: Tensor | None = None  # what gradients are to be multiplied by
        self._finite: bool | None = None  # whether all ranks' gradients are, where that is known

    def step(self) -> bool:
        """Step, unless a gradient of any rank has overflowed; forget the gradients; gives whether it stepped."""
        if self.loss_scale and not self._all_finite():
            self.zero_grad()
            self.loss_scale.overflowed()
            return False
        for unit, parameter in zip(self._units, self.stepped, strict=True):
            if unit.index in self.masters:
                self.masters[unit.index].take_gradient()
            if parameter.grad is not None:
                self._finish_gradient(parameter.grad)
        self.optimizer.step()
        self.give_values()
        self.zero_grad()
        if self.loss_scale:
            self.loss_scale.stepped()
        return True

    def give_values(self) -> None:
        """Round what masters hold to the shards."""
        for master in self.masters.values():
            master.give_values()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self.optimizer.zero_grad(set_to_none)
        for index in self.masters:
            grad = self._units[index].shard.grad
            if set_to_none or grad is None:
                self._units[index].shard.grad = None
            else:
                grad.zero_()
        self.gradients_changed()

    def gradients_changed(self) -> None:
        """What was found out about them holds no longer."""
        self._clip = self._finite = None

    def clip(self, max_norm: float) -> Tensor:
        """Collective: let the next step scale gradients to a norm of at most `max_norm`; gives the norm now."""
        check_max_norm(max_norm)
        norm = global_norm(self._comm, self._gradients())
        if self.loss_scale:
            norm /= self.loss_scale.value
            self._finite = bool(norm.isfinite())
        self._clip = clip_factor(norm, max_norm)
        return norm

    def bytes(self) -> int:
        """Of masters and of the tensors that the optimizer keeps."""
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        kept += [master.parameter for master in self.masters.values()]
        return sum(value.nbytes for value in kept if isinstance(value, Tensor))

    def exact(self) -> dict[nn.Parameter, Tensor]:
        """Collective: the values of those parameters that have a master."""
        return {p: value for master in self.masters.values() for p, value in master.whole().items()}

    def _gradients(self) -> list[Tensor]:
        return [unit.shard.grad for unit in self._units if unit.shard.grad is not None]

    def _all_finite(self) -> bool:
        return all_finite(self._comm, self._gradients()) if self._finite is None else self._finite

    def _finish_gradient(self, gradient: Tensor) -> None:
        """Clip it, and take the scale of the loss away."""
        if self._clip is not None:
            gradient.mul_(self._clip.to(gradient.device, gradient.dtype))
        if self.loss_scale:
            gradient.div_(self.loss_scale.value)
