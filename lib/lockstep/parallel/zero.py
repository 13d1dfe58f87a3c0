"""ZeRO: data parallelism without its redundancy. Ranks share out what each of them used to hold whole.

Floor 2, room `parallel`. Read `sharded` first (a unit and this rank's shard of it), then `gathering` (stage 3) and
`precision`. Legend: N ranks, P parameters. Elements that a rank holds, with an optimizer that keeps k numbers for each
parameter, and sends:

| stage | parameters | gradients | optimizer | sends a step    |
|-------|------------|-----------|-----------|-----------------|
| 1     | P          | P         | k P / N   | 2 P (N - 1) / N |
| 2     | P          | P / N     | k P / N   | 2 P (N - 1) / N |
| 3     | P / N      | P / N     | k P / N   | 3 P (N - 1) / N |

and in stages 2 and 3 two units' gradients on their way. In mixed precision parameters and gradients take 2 bytes each,
also on the wire, and the optimizer k + 1 numbers of 4, the first of them a master copy of the parameter. Source:
Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", sections 5 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator, Handle
from lockstep.parallel.agreement import check_same_model, copy_from_rank_0
from lockstep.parallel.backward import at_end_of_backward, running_backward
from lockstep.parallel.gathering import Gathering
from lockstep.parallel.precision import lower, wide, working_dtypes
from lockstep.parallel.report import StepReport, norms_to_average
from lockstep.parallel.sharded import Unit
from lockstep.parallel.stepping import MakeOptimizer, Stepper
from lockstep.parallel.uneven import at_the_entrance, uneven_batches
from lockstep.parallel.units import share_out


class ZeRO(nn.Module):
    """`model`, trained by all ranks of `comm` on their own parts of the batch, its state shared out by `stage`.

        zero = ZeRO(model, lambda parameters: torch.optim.Adam(parameters, lr=1e-3), comm, stage=3)
        for images, labels in my_batches:
            loss(zero(images), labels).backward()
            zero.step()

    make_optimizer: gets this rank's shards, so any optimizer will do that treats each element by itself (SGD, Adam,
    AdamW, but not LARS, whose norms are those of whole layers). unit_bytes: parameters travel in units, each closed as
    soon as it holds this much; in stage 3 a unit is some modules that follow one another.

    precision: "bf16" or "fp16" for parameters, activations and gradients of two bytes, batch norm apart; the model must
    be in fp32, and takes and gives fp32. In fp16 gradients are scaled by `loss_scale` (a `LossScale`) where they enter
    the model, so parameters may act on the loss through the model's outputs only. offload: keep what the optimizer
    steps and its state in the CPU's memory; on a CPU they are there.

    At first ranks take over the parameters and buffers of rank 0. Gradients are averaged while backward runs, in the
    shards' `grad`; the model's own parameters have none, and one that nobody used counts as 0. Frozen parameters stay
    whole on every rank. Batch norm's running statistics are averaged as in `DistributedDataParallel`.

    Raises CommunicationError when ranks have different models; ValueError for another stage or precision, unit_bytes
    below 1, or a model without parameters to train, or not in fp32 where a lower precision is asked for.
    """

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: MakeOptimizer,
        comm: Communicator,
        stage: int = 1,
        unit_bytes: int = 25 * 2**20,
        precision: str = "fp32",
        offload: bool = False,
    ) -> None:
        super().__init__()
        if stage not in (1, 2, 3) or isinstance(stage, bool):
            raise ValueError(f"stage is {stage!r}: it is 1 (optimizer state), 2 (and gradients) or 3 (and parameters).")
        trained = [p for p in model.parameters() if p.requires_grad and p.numel()]
        if not trained:
            raise ValueError("the model has no parameter to train, so there is nothing to share out.")
        dtypes = working_dtypes(model, precision)
        check_same_model(comm, model, f"stage={stage}, unit_bytes={unit_bytes}, precision={precision}")
        copy_from_rank_0(comm, [*model.parameters(), *model.buffers()])
        self.module, self.comm, self.stage, self.precision = model, comm, stage, precision
        self.units = [
            Unit(i, unit, comm) for i, unit in enumerate(share_out(model, trained, stage, unit_bytes, dtypes))
        ]
        self._stepper = Stepper(self.units, make_optimizer, comm, dtypes, precision == "fp16", offload)
        self.optimizer, self.loss_scale = self._stepper.optimizer, self._stepper.loss_scale
        if precision != "fp32":
            lower(model, precision)
        norms = norms_to_average(model)
        self._report = StepReport(comm, norms, torch.float32, 1.0, alone=True) if norms else None
        self._gathering = Gathering(model, self.units) if stage == 3 else None
        self._hook_parameters()
        self._backward: int | None = None  # the backward that runs
        self._on_their_way: list[tuple[Unit, Handle]] = []
        self._started = 0  # units whose gradient has left
        self._weight = 1.0

    # ------------------------------------------------------------------------------------------------- training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives."""
        if self._backward is not None and running_backward() == -1:
            self._start_anew()  # a backward that raised half-way has not come to its end
        with self._gathering.forward() if self._gathering else nullcontext():
            outputs = self.module(*args, **kwargs)
        factor = self._weight * (self.loss_scale.value if self.loss_scale else 1.0)
        if factor == 1.0 or not torch.is_grad_enabled():
            return outputs
        return at_the_entrance(outputs, lambda gradient: gradient * factor)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of `loader`, until no rank has one left: as `DistributedDataParallel.batches`."""
        try:
            for batch, weight in uneven_batches(self.comm, loader):
                self._weight = weight
                yield batch
        finally:
            self._weight = 1.0

    def step(self) -> bool:
        """Step the optimizer on this rank's shards, forget their gradients, and bring all ranks the new parameters.

        Gives whether it stepped: False when a gradient of any rank has overflowed in fp16, and all ranks go on without.
        """
        stepped = self._stepper.step()
        if stepped:
            self._bring_parameters()
        return stepped

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the shards."""
        self._stepper.zero_grad(set_to_none)

    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Let `step` scale all gradients so that their norm over all ranks and parameters is at most `max_norm`.

        Collective, between backward and `step`; gives the norm as it is, infinite or nan where gradients have
        overflowed. Padding is 0 and adds nothing. Raises ValueError for a max_norm that is not above 0.
        """
        return self._stepper.clip(max_norm)

    # ---------------------------------------------------------------------------------------------------- state

    def bytes(self) -> dict[str, int]:
        """Bytes that this rank holds between steps, by part: parameters, gradients, optimizer (masters and state)."""
        return {
            "parameters": sum(unit.shard.nbytes if unit.flat is None else unit.flat.nbytes for unit in self.units),
            "gradients": sum(unit.gradient_bytes() for unit in self.units),
            "optimizer": self._stepper.bytes(),
        }

    def full_state_dict(self) -> dict[str, Tensor]:
        """Collective: that of the plain model, whole, on every rank; parameters as exact as the optimizer has them."""
        self.make_whole()
        exact = {id(parameter): values for parameter, values in self._stepper.exact().items()}
        state = {
            name: exact[id(tensor)] if id(tensor) in exact else wide(tensor.detach().clone(), self.precision)
            for name, tensor in self.module.state_dict(keep_vars=True).items()
        }
        if self._gathering:
            self._gathering.release_all()
        return state

    @property
    def stepped(self) -> list[nn.Parameter]:
        """What the optimizer steps of each unit: its shard, or the master of it."""
        return self._stepper.stepped

    def shards_changed(self) -> None:
        """Collective: bring the model what somebody else has written into `stepped`."""
        self._stepper.give_values()
        if self._gathering:
            self._gathering.release_all()
        self._bring_parameters()

    def _bring_parameters(self) -> None:
        if self.stage < 3:
            for handle in [unit.start_gather() for unit in self.units]:
                handle.wait()

    def make_whole(self) -> None:
        """Collective: gather all parameters, so that the model can be used as it is until the next forward here."""
        if self._gathering:
            self._gathering.gather_all()

    # ------------------------------------------------------------------------------------------ during backward

    def _hook_parameters(self) -> None:
        for unit in self.units:
            for position, parameter in enumerate(unit.parameters):
                parameter.register_post_accumulate_grad_hook(self._hook(unit, position))

    def _hook(self, unit: Unit, position: int) -> Callable[[Tensor], None]:
        def accumulated(_: Tensor) -> None:
            if self._backward is None:
                self._backward = running_backward()
                at_end_of_backward(self._finish)
            if unit.index < self._started:
                raise RuntimeError(
                    "A gradient arrived twice in one backward, and may have been sent between. Checkpoint with "
                    "use_reentrant=False."
                )
            unit.keep(position)
            while self._started < len(self.units) and not self.units[self._started].waiting:
                self._start_next()

        return accumulated

    def _start_next(self) -> None:
        unit = self.units[self._started]
        self._started += 1
        if self._gathering:
            self._gathering.done(unit)
        while len(self._on_their_way) > 1 and self.stage > 1:  # more would hold more gradients than a stage may
            self._arrive()
        self._on_their_way.append((unit, unit.start_reduce()))

    def _arrive(self) -> None:
        unit, handle = self._on_their_way.pop(0)
        handle.wait()
        unit.reduced(keep_buffer=self.stage == 1)

    def _finish(self) -> None:
        """At the end of backward: average what is left, wait for all of it."""
        self._stepper.gradients_changed()
        while self._started < len(self.units):
            self.units[self._started].fill_gaps()
            self._start_next()
        if self._report:
            self._report.write(False, self._weight)
            self._report.start()
        while self._on_their_way:
            self._arrive()
        if self._report:
            self._report.read()
        self._start_anew()

    def _start_anew(self) -> None:
        while self._on_their_way:
            self._arrive()
        self._backward, self._started = None, 0
        for unit in self.units:
            unit.waiting = set(range(len(unit.parameters)))
        if self._gathering:
            self._gathering.release_all()
