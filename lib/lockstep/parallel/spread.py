"""A model spread over ranks, some stages on each and of their layers a part: made whole on every rank, and cut again.

Floor 2, room `parallel`. Used by `hybrid`. Names are those of the plain model `nn.Sequential(*stages)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator
from lockstep.parallel.agreement import copy_from_rank_0
from lockstep.parallel.conjugate import joined, own_part
from lockstep.parallel.tensor_parallel import TensorParallel


class Spread:
    """Whose state is where. given: all stages, whole, as every rank got them. own: this rank's, by chunk.

    placement: the rank of each chunk along the communicator `line`. data: ranks that have the same parts.
    """

    def __init__(
        self,
        given: Sequence[nn.Module],
        own: Mapping[int, nn.Module],
        placement: Mapping[int, int],
        line: Communicator,
        data: Communicator,
    ) -> None:
        self._layouts = [_layout(stage) for stage in given]
        self._own, self._placement, self._line, self._data = own, placement, line, data

    def parameters(self) -> Iterator[tuple[str, nn.Parameter, TensorParallel | None, str]]:
        """(name, parameter, what shares its stage out if it does, its name there) of all that this rank has."""
        for chunk, stage in self._own.items():
            shared = stage if isinstance(stage, TensorParallel) else None
            for name, parameter in plain(stage).named_parameters():
                yield f"{chunk}.{name}", parameter, shared if shared and name in shared.split else None, name

    def state(self) -> dict[str, Tensor]:
        """Collective: parameters and buffers, the latter those of data rank 0."""
        return self._on_all({chunk: self._state_of(stage) for chunk, stage in self._own.items()})

    def gather(self, values: Mapping[nn.Parameter, Tensor]) -> dict[str, Tensor]:
        """Collective: `values`, which have the shapes of this rank's parameters, whole and on every rank."""
        own: dict[int, dict[str, Tensor]] = {chunk: {} for chunk in self._own}
        for name, parameter, shared, inner in self.parameters():
            if parameter in values:
                value = values[parameter].detach().clone()
                chunk = int(name.partition(".")[0])
                own[chunk][inner] = joined(value, shared.comm, *shared.split[inner]) if shared else value
        return self._on_all(own)

    def cut(self, whole: Mapping[str, Tensor]) -> dict[nn.Parameter, Tensor]:
        """Copies of this rank's parts of what has the shapes of the whole parameters."""
        parts = {}
        for name, parameter, shared, inner in self.parameters():
            if name in whole:
                part = own_part(whole[name], shared.comm.rank, *shared.split[inner]) if shared else whole[name]
                parts[parameter] = part.detach().clone()
        return parts

    def _state_of(self, stage: nn.Module) -> dict[str, Tensor]:
        if isinstance(stage, TensorParallel):
            state = stage.full_state_dict()
        else:
            state = {name: tensor.detach().clone() for name, tensor in stage.state_dict().items()}
        if self._data.size > 1:
            copy_from_rank_0(self._data, [state[name] for name, _ in plain(stage).named_buffers() if name in state])
        return state

    def _on_all(self, own: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """From the ranks that have a chunk to those along the line: which of its tensors there are, and those."""
        found = {}
        for chunk, rank in self._placement.items():
            layout, mine = self._layouts[chunk], own.get(chunk, {})
            there = torch.tensor([name in mine for name in layout], dtype=torch.uint8, device=self._line.device)
            if self._line.size > 1 and layout:
                self._line.broadcast(there, src=rank)
            for name, is_there in zip(layout, there.tolist(), strict=True):
                if is_there:
                    tensor = mine[name] if chunk in own else torch.empty_like(layout[name], device=self._line.device)
                    if self._line.size > 1 and tensor.numel():
                        self._line.broadcast(tensor, src=rank)
                    found[f"{chunk}.{name}"] = tensor
        return found


def plain(stage: nn.Module) -> nn.Module:
    """The stage with the names of the plain model."""
    return stage.module if isinstance(stage, TensorParallel) else stage


def _layout(stage: nn.Module) -> dict[str, Tensor]:
    """The tensors of its state_dict without their values."""
    state = stage.state_dict()
    return {name: torch.empty_like(t, device="meta") for name, t in state.items() if isinstance(t, Tensor)}
