"""Training over a mesh: the model is cut into stages, or its layers are, and data ranks average gradients.

Floor 4. Read `lockstep.parallel.hybrid` first. Stages are cut where `plan.balanced_partition` says, by the
multiply-adds of each of the model's own `stages()`, forward and backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from lockstep.comm import Communicator, Mesh
from lockstep.cost import profile_stages
from lockstep.parallel import Hybrid, Replicated
from lockstep.parallel.hybrid import AXES
from lockstep.parallel.layers import stages_between
from lockstep.parallel.pipeline import SCHEDULES, Schedule
from lockstep.parallel.pipeline.mailbox import even_sizes
from lockstep.plan import balanced_partition
from lockstep.train.step import Step, Strategy, add_up, span, step_alone

SYNCHRONOUS = {name: make for name, make in SCHEDULES.items() if name != "pipedream"}
"""The schedules that update once a batch, as one process does. PipeDream's is not."""


def split(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
    """Ranks have layers one after the other, and each batch goes through whole: one rank computes at a time."""
    return _step(comm, model, optimizer, lambda ranks: {"pipeline": ranks}, "naive", 1)


def tensor(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
    """Every rank has some neurons or channels of each layer, and sees every image."""
    return _step(comm, model, optimizer, lambda ranks: {"tensor": ranks}, "naive", 1)


def pipeline(schedule: str = "1f1b", micro_batches: int | None = None) -> Strategy:
    """Ranks have layers one after the other, and a batch goes through in micro-batches, by a name in `SYNCHRONOUS`.

    micro_batches: by default two for each rank.
    """
    _check(schedule, micro_batches)

    def strategy(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
        return _step(comm, model, optimizer, lambda ranks: {"pipeline": ranks}, schedule, micro_batches)

    strategy.__name__ = f"pipeline(schedule={schedule!r}, micro_batches={micro_batches})"
    return strategy


def hybrid(
    mesh: Mapping[str, int] | str | None = None, schedule: str = "1f1b", micro_batches: int | None = None
) -> Strategy:
    """Ranks on a mesh such as {"data": 2, "pipeline": 2}, or "data=2,pipeline=2"; the rest as in `pipeline`."""
    _check(schedule, micro_batches)
    axes = axes_of(mesh) if isinstance(mesh, str) else mesh
    for name in axes or ():
        if name not in AXES:
            raise ValueError(f"the mesh {dict(axes)} has an axis {name!r}: there are {', '.join(AXES)}")

    def on(ranks: int) -> Mapping[str, int]:
        if axes is None:
            raise ValueError(
                "strategy 'hybrid' needs a mesh, such as hybrid('data=2,pipeline=2'), or --mesh data=2,pipeline=2"
            )
        return axes

    def strategy(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
        return _step(comm, model, optimizer, on, schedule, micro_batches)

    strategy.__name__ = f"hybrid({mesh!r}, schedule={schedule!r}, micro_batches={micro_batches})"
    return strategy


def axes_of(text: str) -> dict[str, int]:
    """The axes that a text such as "data=2,pipeline=2" names, in its order. ValueError for another text."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = (piece.strip() for piece in part.partition("="))
        if name not in AXES or name in axes or not size.isdecimal() or int(size) < 1:
            raise ValueError(
                f"the mesh {text!r} has {part!r}: write each of {', '.join(AXES)} at most once, with a whole number of "
                f"ranks, such as data=2,pipeline=2"
            )
        axes[name] = int(size)
    return axes


def _check(schedule: str, micro_batches: int | None) -> None:
    if schedule not in SYNCHRONOUS:
        why = " that updates once a batch" if schedule in SCHEDULES else ""
        raise ValueError(f"there is no schedule {schedule!r}{why}; there are {', '.join(SYNCHRONOUS)}")
    if micro_batches is not None and (not isinstance(micro_batches, int) or micro_batches < 1):
        raise ValueError(f"micro_batches must be a whole number of at least 1, not {micro_batches!r}")


def _step(
    comm: Communicator | None,
    model: nn.Module,
    optimizer: Optimizer,
    axes_for: Callable[[int], Mapping[str, int]],
    schedule: str,
    micro_batches: int | None,
) -> Step:
    if comm is None:
        return step_alone(None, model, optimizer)
    axes = axes_for(comm.size)
    if math.prod(axes.values()) != comm.size:
        said = ",".join(f"{name}={size}" for name, size in axes.items())
        raise ValueError(f"the mesh {said} has {math.prod(axes.values())} ranks, and there are {comm.size}")
    ranks = axes.get("pipeline", 1)
    plan = SYNCHRONOUS[schedule](ranks, micro_batches or (2 * ranks if ranks > 1 else 1))
    return _MeshStep(Mesh(comm, axes), plan, model, optimizer)


def _layers_of(model: nn.Module) -> list[nn.Module]:
    """What a model can be cut between."""
    if hasattr(model, "stages"):
        return model.stages()
    return list(model) if isinstance(model, nn.Sequential) else [model]


class _MeshStep:
    """A step of `Hybrid`; see `step.Apart`, `step.Placed` and `step.Kept`.

    The given model and optimizer are what a checkpoint is made of. They are whole again only when ranks settle, and in
    the first step ranks take over their parts of what is in them.
    """

    def __init__(self, mesh: Mesh, schedule: Schedule, model: nn.Module, optimizer: Optimizer) -> None:
        self.part, self.parts = mesh.coordinates.get("data", 0), mesh.shape.axes.get("data", 1)
        self._mesh, self._schedule, self._model, self._given = mesh, schedule, model, optimizer
        self._layers = _layers_of(model) if schedule.chunks > 1 else [model]
        if len(self._layers) < schedule.chunks:
            raise ValueError(
                f"{schedule.name} on {schedule.ranks} ranks needs {schedule.chunks} stages, and "
                f"{type(model).__name__} can be cut into {len(self._layers)} at most: use fewer pipeline ranks"
            )
        self._hybrid: Hybrid | None = None
        self._losses: list[float] = []
        self.kept = Replicated(model, optimizer, mesh.comm)

    def __call__(self, images: Tensor, labels: Tensor, batch: int) -> None:
        if self._hybrid is None:
            self._build(images, batch)
        self._optimizer.zero_grad(set_to_none=True)
        sizes = even_sizes(len(labels), self._schedule.micro_batches)  # the last batch may have fewer than one each
        loss = self._hybrid.step(images, labels, sizes)
        with span(self._mesh.comm, "update"):
            for group in self._optimizer.param_groups:
                group["lr"] = self._given.param_groups[0]["lr"]
            self._optimizer.step()
        self._given.step()  # finds no gradients; the schedule of its learning rate wants to see steps
        self._losses.append(0.0 if loss is None else loss.item())

    def settle(self) -> list[float]:
        if self._hybrid is not None:
            self._whole.load_state_dict(self._hybrid.full_state_dict())
            self._gather_momentum()
        losses, self._losses = torch.tensor(self._losses, dtype=torch.float64), []
        losses = losses.to(self._mesh.comm.device)  # those of the rank with the last chunk; 0 on the others
        if "pipeline" in self._mesh.shape.axes and self._schedule.ranks > 1:
            add_up(self._mesh["pipeline"], losses)
        return losses.tolist()

    def _gather_momentum(self) -> None:
        """What the optimizer keeps for each element; SGD keeps nothing else."""
        own = {p: state["momentum_buffer"] for p, state in self._optimizer.state.items()}
        whole = self._hybrid.gather({p: buffer for p, buffer in own.items() if buffer is not None})
        for name, parameter in self._whole.named_parameters():
            if name in whole:
                self._given.state[parameter]["momentum_buffer"] = whole[name]

    def _cut_momentum(self) -> None:
        """What a checkpoint has put into the given optimizer."""
        states = ((name, self._given.state.get(p, {})) for name, p in self._whole.named_parameters())
        whole = {name: state["momentum_buffer"] for name, state in states if state.get("momentum_buffer") is not None}
        for parameter, buffer in self._hybrid.cut(whole).items():
            self._optimizer.state[parameter]["momentum_buffer"] = buffer

    def _build(self, images: Tensor, batch: int) -> None:
        """Once the images are known: cuts go by what the stages cost for their shape."""
        m, chunks = self._schedule.micro_batches, self._schedule.chunks
        if batch < m * self.parts:
            raise ValueError(
                f"batch={batch} is shared out to {self.parts} data ranks with {m} micro-batches each: choose a batch of "
                f"at least {m * self.parts}, or fewer micro-batches"
            )
        cuts: list[int] = []
        if chunks > 1:
            profiles = profile_stages(self._layers, images.shape[1:], -(-len(images) // m), images.dtype)
            cuts = balanced_partition([each.macs + each.backward_macs for each in profiles], chunks)
        stages = stages_between(self._layers, cuts, chunks)
        self._whole = nn.Sequential(*stages)  # shares its layers with the model
        with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):  # a layer is made with numbers
            self._hybrid = Hybrid(stages, self._mesh, F.cross_entropy, self._schedule)
        self._optimizer = type(self._given)(list(self._hybrid.parameters()), **self._given.defaults)
        self._cut_momentum()
