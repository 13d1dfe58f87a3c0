"""The executor: runs any valid schedule on real or simulated ranks, with the gradients of one process.

Floor 2, room `parallel`. A rank's part of the schedule with its messages is a list of steps (`program`); `Pipeline`
goes through it, `mailbox` moves what messages carry, `chunk` computes. Read `schedule` first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.comm import CommunicationError, Communicator
from lockstep.cost import Cost
from lockstep.nn.outputs import tensors_in
from lockstep.parallel.pipeline.batch_norm import DeferredBatchNorm2d
from lockstep.parallel.pipeline.chunk import Chunk
from lockstep.parallel.pipeline.mailbox import Mailbox, OrderedMailbox, even_sizes, parts_of
from lockstep.parallel.pipeline.program import Receive, Send, ordered_program, prompt_program
from lockstep.parallel.pipeline.schedule import NAMES, Action, Schedule
from lockstep.parallel.pipeline.transfers import Transfer, Transfers
from lockstep.parallel.pipeline.versions import VersionUse, WeightVersions, planned_versions

Loss = Callable[[Any, Any], Tensor]
Optimizers = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]


class Pipeline:
    """This rank's part of a pipeline over `comm`: `stages[c]` is chunk c of the model, `schedule` who does what when.

    Every rank gives all stages in the order of the model; those of other ranks are not used, and may be None. A stage
    takes and gives a tensor or a structure of tensors; what a later stage needs (a skip connection) passes through those
    between in such a structure. loss(output, target) is a mean over samples: each micro-batch's is scaled by its share
    of the batch, so that gradients add up to those of the whole batch. They are added to `grad`, as `backward` does.

    checkpoint: keep only the inputs of micro-batches, and run forward a second time. optimizer: for schedules with
    updates, what makes a chunk's optimizer from its parameters, such as `lambda p: torch.optim.SGD(p, 0.1)`. cost: of
    an action, charged in the simulated and the paced world. ordered: send and receive in one order of all ranks, one
    by one, which backends need that serialise opposite messages; by default everywhere but on the CPU.

    Collective. Raises InvalidSchedule for a schedule that cannot be run, CommunicationError when ranks differ in the
    schedule or there are too many or too few, ValueError or TypeError for stages that do not fit.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module | None],
        comm: Communicator,
        schedule: Schedule,
        loss: Loss,
        *,
        checkpoint: bool = False,
        optimizer: Optimizers | None = None,
        cost: Callable[[Action], Cost | float] | None = None,
        ordered: bool | None = None,
    ) -> None:
        schedule.prove().require()
        _check(stages, comm, schedule, optimizer)
        self.comm, self.schedule, self.loss = comm, schedule, loss
        self.versions: list[VersionUse] = []
        self.losses: list[Tensor] = []
        self._stages, self._cost = list(stages), cost
        own = [chunk for chunk, rank in schedule.placement.items() if rank == comm.rank]
        parts = schedule.parts(comm.rank)
        split = {chunk: frozenset(_split(parts, chunk)) for chunk in own}
        self._chunks = {c: Chunk(stages[c], split[c], first=c == 0, checkpoint=checkpoint) for c in own}
        self._deferred = [m for c in own for m in stages[c].modules() if isinstance(m, DeferredBatchNorm2d)]
        self._last = schedule.chunks - 1
        transfers = Transfers(schedule)
        ordered = comm.device.type != "cpu" if ordered is None else ordered
        self._program = (
            ordered_program(schedule, transfers, comm.rank) if ordered else prompt_program(transfers, comm.rank)
        )
        self._mailbox = (OrderedMailbox if ordered else Mailbox)(comm, transfers)
        self._transfers, self._samples = transfers, 0
        if schedule.updates:
            plan = planned_versions(schedule)
            self._weights = {
                c: WeightVersions(stages[c], {i: v for (at, i), v in plan.items() if at == c}) for c in own
            }
            self._optimizers = {c: optimizer(stages[c].parameters()) for c in own}

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of this rank's chunks, for its optimizer."""
        for chunk in self._chunks.values():
            yield from chunk.module.parameters()

    def step(self, inputs: Any = None, targets: Any = None, sizes: Sequence[int] | None = None) -> Tensor | None:
        """Forward and backward of one batch; gives its loss on the rank that has the last chunk, None elsewhere.

        inputs, targets: the whole batch, samples along dimension 0, cut into micro-batches as `torch.tensor_split`
        does. Only the rank with the first chunk needs the inputs and the one with the last the targets; the others
        give either so that they know how many samples there are, or nothing when there are as many as before.
        sizes: samples of each micro-batch where they are to be others; one without samples contributes nothing.
        With updates in the schedule the loss is the mean of what each micro-batch met; `versions` says which weights.
        Raises ValueError for too few samples, or without inputs or targets where they are needed.
        """
        samples = self.samples(inputs, targets)
        sizes = self._even(samples) if sizes is None else self._given(list(sizes), samples)
        self._share = [1.0 if self.schedule.updates else size / max(samples, 1) for size in sizes]
        self._inputs = parts_of(inputs, sizes) if 0 in self._chunks else []
        self._targets = parts_of(targets, sizes) if self._last in self._chunks else []
        self.losses = [torch.zeros(())] * len(sizes)
        self._here: dict[tuple[str, int, int], Any] = {}  # what waits for its action, or for its message
        self._begin(sizes)
        for step in self._program:
            if isinstance(step, Send):
                self._mailbox.send(step.transfer, self._here.pop(_place(step.transfer)))
            elif isinstance(step, Receive):
                self._here[_place(step.transfer)] = self._mailbox.receive(step.transfer)
            else:
                with self._span(step):
                    self._act(step)
        self._mailbox.end()
        for layer in self._deferred:
            layer.commit()
        if self._last not in self._chunks:
            return None
        parts = [loss * size for loss, size in zip(self.losses, sizes, strict=True) if size]
        return sum(parts) / samples if parts else torch.zeros_like(self.losses[0])

    def samples(self, inputs: Any = None, targets: Any = None) -> int:
        """How many samples a step with these would take: as many as before without either. Raises as `step`."""
        given = {len(t) if t.dim() else 0 for t in [*tensors_in(inputs), *tensors_in(targets)]}
        if len(given) > 1:
            raise ValueError(f"inputs and targets have {sorted(given)} samples along dimension 0: give as many of each")
        for what, value, chunk in (("inputs", inputs, 0), ("targets", targets, self._last)):
            if value is None and chunk in self._chunks:
                raise ValueError(f"rank {self.comm.rank} has chunk {chunk}, so it needs the {what}")
        self._samples = given.pop() if given else self._samples
        return self._samples

    def copy_to_all(self) -> None:
        """Collective: give every rank the parameters and buffers of all chunks; raises ValueError where one is None."""
        if None in self._stages:
            raise ValueError("a rank that gave None for a stage has no room for its parameters: give the module")
        for chunk, rank in self.schedule.placement.items():
            state = self._stages[chunk].state_dict().values()
            for tensor in state:
                self.comm.broadcast(tensor, src=rank)

    def _begin(self, sizes: Sequence[int]) -> None:
        for chunk in self._chunks.values():
            chunk.forget()
        if self.schedule.updates:
            self.versions = []
            for versions in self._weights.values():
                versions.begin()
        self._mailbox.begin(sizes)

    def _span(self, part: Action) -> AbstractContextManager[None]:
        cost = self._cost(part) if self._cost else None
        return self.comm.span(NAMES[part.kind], micro_batch=part.micro_batch, cost=cost)

    def _act(self, part: Action) -> None:
        c, i, chunk = part.chunk, part.micro_batch, self._chunks[part.chunk]
        if part.kind == "F":
            self._forward(c, i, chunk)
        elif part.kind in "BI":
            if c == self._last:
                gradients = [torch.full_like(self.losses[i], self._share[i])]
            else:
                gradients = self._here.pop(("gradient", c + 1, i))
            found = chunk.backward(i, gradients)
            if c > 0:
                self._here["gradient", c, i] = found
        elif part.kind == "W":
            chunk.weight_gradient(i)
        else:
            self.versions.append(self._weights[c].update(i, c, self._optimizers[c]))

    def _forward(self, c: int, i: int, chunk: Chunk) -> None:
        inputs = self._inputs[i] if c == 0 else self._here.pop(("activation", c - 1, i))
        weights = self._weights[c].leaves(i) if self.schedule.updates else {}
        if c < self._last:
            self._here["activation", c, i] = chunk.forward(i, inputs, None, weights)
        else:
            loss = chunk.forward(i, inputs, lambda output: self.loss(output, self._targets[i]), weights)
            if not isinstance(loss, Tensor) or loss.dim():
                raise ValueError(
                    f"loss gave {loss!r:.60} for micro-batch {i}: it must be one number, a tensor without dimensions"
                )
            self.losses[i] = loss

    def _even(self, samples: int) -> list[int]:
        m = self.schedule.micro_batches
        if samples < m:
            said = f"a batch of {samples} samples" if samples else "no batch, and none before it"
            raise ValueError(f"{said}: {m} micro-batches need at least one sample each")
        return even_sizes(samples, m)

    def _given(self, sizes: list[int], samples: int) -> list[int]:
        m, least = self.schedule.micro_batches, int(self.schedule.updates)
        if len(sizes) != m or min(sizes) < least or sum(sizes) != samples:
            raise ValueError(
                f"sizes are {sizes}: {m} micro-batches of {samples} samples in all are {m} numbers of at least {least} "
                f"that add up to that"
            )
        return sizes


def _split(parts: Sequence[Action], chunk: int) -> Iterator[int]:
    """The micro-batches whose backward comes in two halves.

    Not on chunk 0 when one half follows the other: nobody waits for the first, and the whole takes less time.
    """
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        if (part.kind, part.chunk) == ("I", chunk):
            if chunk or after != Action("W", chunk, part.micro_batch):
                yield part.micro_batch


def _place(transfer: Transfer) -> tuple[str, int, int]:
    return transfer.kind, transfer.chunk, transfer.micro_batch


def _check(
    stages: Sequence[nn.Module | None], comm: Communicator, schedule: Schedule, optimizer: Optimizers | None
) -> None:
    if not isinstance(comm, Communicator):
        raise TypeError(f"comm is {comm!r:.60}: give the communicator that the rank function gets")
    if comm.size != schedule.ranks:
        raise CommunicationError(f"{schedule.name} is for {schedule.ranks} ranks, and there are {comm.size}")
    if len(stages) != schedule.chunks:
        raise ValueError(f"{schedule.name} has {schedule.chunks} chunks, and stages holds {len(stages)} modules")
    if bool(optimizer) != schedule.updates:
        raise ValueError(
            f"{schedule.name} updates weights between micro-batches: give optimizer=, what makes one from parameters"
            if schedule.updates
            else f"{schedule.name} has no updates: make one optimizer of pipeline.parameters(), and step it yourself"
        )
    for chunk, rank in schedule.placement.items():
        if rank == comm.rank and not isinstance(stages[chunk], nn.Module):
            raise TypeError(f"stage {chunk} is {stages[chunk]!r:.60}: rank {rank} has it, and needs a torch.nn.Module")
    check_untied(stages)
    mark = int.from_bytes(hashlib.sha256(f"{schedule}{schedule.vertical_sync}".encode()).digest()[:7], "little")
    marks = comm.all_gather(torch.tensor([mark], device=comm.device)).tolist()
    other = next((rank for rank, theirs in enumerate(marks) if theirs != marks[0]), None)
    if other is not None:
        raise CommunicationError(f"rank {other} has another schedule than rank 0: make the same one on every rank")


def check_untied(stages: Sequence[nn.Module | None]) -> None:
    """ValueError when two stages share a parameter."""
    owner: dict[int, int] = {}
    for chunk, stage in enumerate(stages):
        for name, parameter in stage.named_parameters() if stage is not None else ():
            first = owner.setdefault(id(parameter), chunk)
            if first != chunk:
                raise ValueError(
                    f"stages {first} and {chunk} share the parameter {name}: each would update a copy of its own. "
                    f"Cut the model so that both are in one stage."
                )
