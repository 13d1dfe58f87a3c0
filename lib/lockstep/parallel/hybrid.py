"""Data, pipeline and tensor parallelism at once, over the axes of a mesh.

Floor 2, room `parallel`. Nothing new is computed here. Along the axis `tensor` every chunk of the model is a
`TensorParallel`, along `pipeline` they are a `Pipeline`, and along `data` a `DistributedDataParallel` averages gradients
in its buckets, once a step. Which bytes go along which axis, in a step of m micro-batches:

| axis     | what goes along it                                                                     |
|----------|----------------------------------------------------------------------------------------|
| data     | gradients of this rank's parameters: an all-reduce; how many samples, the loss         |
| pipeline | each micro-batch's activation and its gradient at each cut, by every rank of `tensor`  |
| tensor   | each micro-batch's activations and gradients at the ends of each pair of layers        |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.comm import Exchange, Mesh
from lockstep.cost import Cost
from lockstep.parallel.agreement import check_same_model
from lockstep.parallel.data import DistributedDataParallel
from lockstep.parallel.pipeline.execute import Loss, Pipeline, check_untied
from lockstep.parallel.pipeline.mailbox import even_sizes
from lockstep.parallel.pipeline.schedule import Action, Schedule
from lockstep.parallel.pipeline.schedules import one_f_one_b
from lockstep.parallel.scaling import check_max_norm, clip_factor
from lockstep.parallel.spread import Spread
from lockstep.parallel.structures import start_receive, start_send
from lockstep.parallel.tensor_parallel import TensorParallel
from lockstep.parallel.tensor_plan import copied

AXES = ("data", "pipeline", "tensor")


class Hybrid:
    """This rank's part of a model, trained on `mesh`: any product of the axes data, pipeline and tensor.

        mesh = Mesh(comm, {"data": 2, "pipeline": 2, "tensor": 2})
        hybrid = Hybrid(stages, mesh, F.cross_entropy, one_f_one_b(2, micro_batches=4))
        optimizer = torch.optim.SGD(hybrid.parameters(), lr=0.1)
        for images, labels in batches:  # the part of this rank's place on the data axis
            loss = hybrid.step(images, labels)
            optimizer.step()
            optimizer.zero_grad()

    stages: the model as a list of modules, one for each chunk of the schedule, all of them on every rank; what is
    trained are copies of this rank's, with rank 0's parameters and buffers, in `hybrid.stages` by chunk. An axis that
    the mesh does not have counts as 1. loss(output, target): a mean over samples. schedule: for as many ranks as the
    pipeline axis has; by default 1F1B with as many micro-batches. bucket_bytes, exchange: as in
    `DistributedDataParallel`; checkpoint, cost, ordered: as in `Pipeline`. What `TensorParallel` shares out of a stage
    is in its `plan`.

    Gradients are those of one process with all samples. Batch norm normalises each micro-batch of each data rank by
    itself, and its running statistics are averaged over data ranks, weighted by samples. Parameters may be tied within
    a stage, frozen or unused. Collective: to build, `step`, `full_state_dict`, `gather` and
    `clip_grad_norm_`.

    Raises ValueError or TypeError for axes, stages or a schedule that do not fit each other, CommunicationError when
    ranks have different models, and what `Pipeline` and `TensorParallel` raise.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module],
        mesh: Mesh,
        loss: Loss,
        schedule: Schedule | None = None,
        *,
        bucket_bytes: int = 25 * 2**20,
        exchange: Exchange | None = None,
        checkpoint: bool = False,
        cost: Callable[[Action], Cost | float] | None = None,
        ordered: bool | None = None,
    ) -> None:
        _check_mesh(mesh)
        ranks = mesh.shape.axes.get("pipeline", 1)
        schedule = one_f_one_b(ranks, ranks) if schedule is None else schedule
        _check_stages(stages, ranks, schedule)
        check_same_model(mesh.comm, nn.ModuleList(stages), f"Hybrid over {mesh.shape} with {schedule}")
        self.mesh, self.schedule = mesh, schedule
        alone = mesh.comm if mesh.comm.size == 1 else mesh.comm.split(mesh.comm.rank)
        self._data, self._line, self._tensor = (mesh[a] if a in mesh.shape.axes else alone for a in AXES)
        own = self._take_over(stages)
        if self._tensor.size > 1:
            own = {chunk: TensorParallel(stage, self._tensor) for chunk, stage in own.items()}
        self.stages: dict[int, nn.Module] = own
        self._spread = Spread(stages, own, schedule.placement, self._line, self._data)
        self._weight = 1.0  # of this rank's samples: 1 on average over data ranks
        self.pipeline = Pipeline(
            [own.get(chunk) for chunk in range(schedule.chunks)],
            self._line,
            schedule,
            lambda output, target: loss(output, target) * self._weight,
            checkpoint=checkpoint,
            cost=cost,
            ordered=ordered,
        )
        self._replicas: DistributedDataParallel | None = None
        if self._data.size > 1:
            mine = nn.ModuleList(own.values())
            self._replicas = DistributedDataParallel(mine, self._data, bucket_bytes, overlap=False, exchange=exchange)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those that this rank has, for its optimizer."""
        return self.pipeline.parameters()

    def step(self, inputs: Any = None, targets: Any = None, sizes: Sequence[int] | None = None) -> Tensor | None:
        """Forward, backward and the mean over data ranks; gives the loss of all samples on ranks with the last chunk.

        inputs, targets: the samples of this data rank, the same on all ranks that have this coordinate; who needs which
        is as in `Pipeline.step`. Data ranks may have different numbers of them. sizes: of the micro-batches, where they
        are not to be as equal as may be; a rank whose samples are fewer than micro-batches has empty ones.
        Gradients are added to `grad`. Raises ValueError, on all ranks, for fewer samples than micro-batches on every
        data rank, and none at all.
        """
        samples = self.pipeline.samples(inputs, targets)
        counts = [samples]
        if self._data.size > 1:
            counts = self._data.all_gather(torch.tensor(counts, device=self._data.device)).tolist()
        sizes = self._sizes(counts, samples) if sizes is None else sizes
        self._weight = len(counts) * samples / max(sum(counts), 1)
        if self._replicas is None:
            return self.pipeline.step(inputs, targets, sizes)
        with self._replicas.no_sync():
            loss = self.pipeline.step(inputs, targets, sizes)
        handle = None if loss is None else self._data.all_reduce(loss.double(), op="mean", async_op=True)
        self._replicas.average(self._weight)
        return None if handle is None else handle.wait().to(loss.dtype)

    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Scale the gradients so that the norm of the whole model's is at most `max_norm`; gives the norm.

        Each parameter counts once, whoever has it. Call it before the optimizer's step.
        """
        check_max_norm(max_norm)
        squares = torch.zeros(2, dtype=torch.float64, device=self.mesh.comm.device)  # of split and of whole parameters
        gradients = []
        for _, parameter, shared, _ in self._spread.parameters():
            if parameter.grad is not None:
                gradients.append(parameter.grad)
                squares[1 if shared is None else 0] += parameter.grad.double().square().sum()
        if self._tensor.size > 1:
            squares[0] = self._tensor.all_reduce(squares[:1].clone())
        norm = self._line.all_reduce(squares.sum()).sqrt()
        factor = clip_factor(norm, max_norm)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.dtype))
        return norm

    def full_state_dict(self) -> dict[str, Tensor]:
        """That of the plain model `nn.Sequential(*stages)`, on every rank; buffers are those of data rank 0."""
        return self._spread.state()

    def gather(self, values: Mapping[nn.Parameter, Tensor]) -> dict[str, Tensor]:
        """Collective: what this rank's parameters have beside them, such as momentum, whole on every rank by their names.

        values: tensors of the parameters' shapes, on the ranks of a stage for the same ones of its parameters.
        """
        return self._spread.gather(values)

    def cut(self, whole: Mapping[str, Tensor]) -> dict[nn.Parameter, Tensor]:
        """The other way round: this rank's parts of what `gather` gave."""
        return self._spread.cut(whole)

    def _sizes(self, counts: Sequence[int], samples: int) -> list[int]:
        m = self.schedule.micro_batches
        if max(counts) < m:
            said = f"at most {max(counts)} samples on a data rank" if max(counts) else "no samples on any rank"
            raise ValueError(
                f"{said}: {m} micro-batches need at least one each. Use a larger batch, or another schedule."
            )
        return even_sizes(samples, m)

    def _take_over(self, stages: Sequence[nn.Module]) -> dict[int, nn.Module]:
        """Copies of this rank's stages; on ranks that are first along data and tensor, with the values of rank 0.

        From them the others get theirs, when `TensorParallel` and then `DistributedDataParallel` are made.
        """
        rank = self._line.rank
        own = {c: copied(stages[c]) for c, has in self.schedule.placement.items() if has == rank}
        if self._data.rank or self._tensor.rank:
            return own
        for chunk, has in self.schedule.placement.items():
            handles = []
            if rank == 0 and has:
                handles = start_send(self._line, _filled(stages[chunk]), has)
            elif has == rank and rank:
                handles = start_receive(self._line, _filled(own[chunk]), 0)
            for handle in handles:
                handle.wait()
        return own


def _filled(stage: nn.Module) -> list[Tensor]:
    """The stage's tensors that hold anything."""
    return [tensor.detach() for tensor in [*stage.parameters(), *stage.buffers()] if tensor.numel()]


def _check_mesh(mesh: Mesh) -> None:
    if not isinstance(mesh, Mesh):
        raise TypeError(f'mesh is {mesh!r:.60}: give Mesh(comm, {{"data": 2, "pipeline": 2}})')
    for name in mesh.shape.axes:
        if name not in AXES:
            raise ValueError(f"the mesh has an axis {name!r}: there are data, pipeline and tensor")


def _check_stages(stages: Sequence[nn.Module], ranks: int, schedule: Schedule) -> None:
    """Whether stages and schedule fit a pipeline axis of so many ranks."""
    if not isinstance(stages, (Sequence, nn.Sequential, nn.ModuleList)):
        raise TypeError(f"stages is {stages!r:.60}: give a list of modules, such as [model] or model.stages()")
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule is {schedule!r:.60}: give a Schedule, such as gpipe({ranks}, micro_batches=4)")
    for number, stage in enumerate(stages):
        if not isinstance(stage, nn.Module):
            raise TypeError(f"stage {number} is {stage!r:.60}: give every rank all stages, each a torch.nn.Module")
    if len(stages) < ranks:
        raise ValueError(
            f"{len(stages)} stages cannot be shared out to {ranks} pipeline ranks: each needs at least one. "
            f"Cut the model into more stages, or make the pipeline axis shorter."
        )
    if schedule.ranks != ranks:
        raise ValueError(f"{schedule.name} is for {schedule.ranks} ranks, and the mesh has {ranks} along its pipeline")
    if schedule.chunks != len(stages):
        raise ValueError(
            f"{schedule.name} has {schedule.chunks} chunks, and there are {len(stages)} stages: give one for each chunk, "
            f"such as nn.Sequential(*stages[:2])"
        )
    if schedule.updates:
        raise ValueError(
            f"{schedule.name} updates weights between micro-batches, and data ranks average gradients after all of them: "
            f"use 1F1B"
        )
    check_untied(stages)
