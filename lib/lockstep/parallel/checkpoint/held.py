"""What a rank holds of a training run, by name and place: the same names whatever the number of ranks.

Floor 2, room `parallel`. A trained parameter is a row of numbers in the order that they have in memory; so is what an
elementwise optimizer keeps for each of them. A rank holds some stretch of each row: of a flat shard, or all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.comm import Communicator
from lockstep.parallel.checkpoint.errors import CheckpointError
from lockstep.parallel.scaling import LossScale
from lockstep.parallel.zero import ZeRO


@dataclass(frozen=True, eq=False)
class Replicated:
    """A model and its optimizer that every rank has whole, as in data parallelism, or the one process there is.

    comm: None in a process of its own.
    """

    model: nn.Module
    optimizer: Optimizer
    comm: Communicator | None = None


@dataclass(frozen=True, eq=False)
class Piece:
    """`values` (1-D) are the elements from `first` on of a row of `total` elements with that name."""

    name: str
    values: Tensor
    first: int
    total: int


@dataclass(frozen=True, eq=False)
class Stretch:
    """The elements `where` of a stepped tensor are those of the parameter `name` from `first` on, out of `total`."""

    name: str
    first: int
    where: slice
    total: int


@dataclass(frozen=True, eq=False)
class Stepped:
    """What the optimizer steps as one tensor here: parts of the parameters `names`, of which it holds `stretches`.

    order: its dimensions as they follow one another in memory.
    """

    parameter: nn.Parameter
    order: tuple[int, ...]
    names: tuple[str, ...]
    stretches: tuple[Stretch, ...]

    def row(self, tensor: Tensor) -> Tensor:
        """A tensor of its shape as a row: a view."""
        return tensor.detach().permute(self.order).view(-1)


@dataclass(frozen=True, eq=False)
class Held:
    """All that a rank holds. whole: buffers and parameters that are not trained, by name. layouts: (shape, order)."""

    comm: Communicator | None
    optimizer: Optimizer
    stepped: list[Stepped]
    whole: dict[str, Tensor]
    layouts: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    loss_scale: LossScale | None
    changed: Callable[[], None]

    def pieces(self) -> Iterator[Piece]:
        """Views of everything."""
        for one in self.stepped:
            rows = {"parameter": one.row(one.parameter)}
            for key, value in elementwise(self.optimizer, one.parameter).items():
                rows[f"optimizer/{key}"] = one.row(value)
            for kind, row in rows.items():
                for part in one.stretches:
                    yield Piece(f"{kind}/{part.name}", row[part.where], part.first, part.total)
        for name, tensor in self.whole.items():
            if tensor.numel():
                row = tensor.detach().permute(_all_in_order(tensor)).view(-1)
                yield Piece(f"whole/{name}", row, 0, tensor.numel())


def held_by(training: ZeRO | Replicated) -> Held:
    """What this rank holds of `training`. Raises CheckpointError for what is neither `ZeRO` nor `Replicated`."""
    if isinstance(training, ZeRO):
        return _of_shards(training)
    if isinstance(training, Replicated):
        return _of_copies(training)
    raise CheckpointError(
        f"a {type(training).__name__} cannot be checkpointed: give a ZeRO, or Replicated(model, optimizer, comm) for a "
        f"model that every rank has whole."
    )


def elementwise(optimizer: Optimizer, parameter: nn.Parameter) -> dict[str, Tensor]:
    """What the optimizer keeps for each element of `parameter`; raises CheckpointError for what is not of its kind."""
    kept = {key: value for key, value in optimizer.state.get(parameter, {}).items() if value is not None}
    for key, value in kept.items():
        if not isinstance(value, Tensor) or value.dim() and value.shape != parameter.shape:
            kind = (
                f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            )
            raise CheckpointError(
                f"{type(optimizer).__name__} keeps {kind} as {key!r} for a parameter of shape {tuple(parameter.shape)}: "
                f"only what it keeps for each element, or one number, can be cut anew."
            )
    return {key: value for key, value in kept.items() if value.shape == parameter.shape}


def single(optimizer: Optimizer, parameter: nn.Parameter) -> dict[str, Tensor]:
    """The tensors of one number that the optimizer keeps for `parameter`, such as how often it was stepped."""
    kept = optimizer.state.get(parameter, {})
    return {key: value for key, value in kept.items() if isinstance(value, Tensor) and value.shape != parameter.shape}


def _of_shards(zero: ZeRO) -> Held:
    names = {id(parameter): name for name, parameter in zero.module.named_parameters()}
    stepped, layouts, trained = [], {}, set()
    for unit, parameter in zip(zero.units, zero.stepped, strict=True):
        own = [Stretch(names[id(p)], first, where, p.numel()) for p, first, where in unit.own_ranges()]
        stepped.append(Stepped(parameter, (0,), tuple(names[id(p)] for p in unit.parameters), tuple(own)))
        for p, (shape, stride) in zip(unit.parameters, unit.layouts, strict=True):
            layouts[names[id(p)]] = tuple(shape), _order(shape, stride)
            trained.add(id(p))
    whole = {names[id(p)]: p for p in zero.module.parameters() if id(p) not in trained}
    whole |= _saved_buffers(zero.module)
    layouts |= {name: (tuple(t.shape), _order(t.shape, t.stride())) for name, t in whole.items()}
    return Held(zero.comm, zero.optimizer, stepped, whole, layouts, zero.loss_scale, zero.shards_changed)


def _of_copies(training: Replicated) -> Held:
    parameters = dict(training.model.named_parameters())
    stepped, whole = [], _saved_buffers(training.model)
    for name, p in parameters.items():
        if p.requires_grad and p.numel():
            all_of_it = Stretch(name, 0, slice(0, p.numel()), p.numel())
            stepped.append(Stepped(p, _all_in_order(p), (name,), (all_of_it,)))
        else:
            whole[name] = p
    layouts = {name: (tuple(t.shape), _order(t.shape, t.stride())) for name, t in (parameters | whole).items()}
    return Held(training.comm, training.optimizer, stepped, whole, layouts, None, lambda: None)


def _saved_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Those that `state_dict` has."""
    kept = model.state_dict(keep_vars=True)
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def _all_in_order(tensor: Tensor) -> tuple[int, ...]:
    return tuple(sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim)))


def _order(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of more than one element, as they follow one another in memory."""
    return tuple(sorted((dim for dim in range(len(shape)) if shape[dim] > 1), key=lambda dim: -stride[dim]))
