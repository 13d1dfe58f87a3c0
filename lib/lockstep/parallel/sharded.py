"""Some parameters side by side in one flat tensor, of which every rank looks after one shard.

Floor 2, room `parallel`. The flat tensor is padded with zeros, so that it divides by the number of ranks and a
collective is a ring over its chunks, in place. Legend: N ranks, n elements, ceil(n / N) of them in a shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator, Handle
from lockstep.comm.collectives.ring import all_gather_chunks, reduce_scatter_chunks
from lockstep.comm.signature import describe
from lockstep.parallel.buckets import shaped_like


class Unit:
    """`parameters`, of one dtype and device, which are gathered, used and reduced together.

    shard: this rank's chunk of them as a parameter of its own, which the optimizer steps. flat: all of them, while they
    are whole here. gradient: of all of them, while it is being collected. Both are None otherwise.
    """

    def __init__(self, index: int, parameters: Sequence[nn.Parameter], comm: Communicator) -> None:
        self.index, self.parameters, self._comm = index, tuple(parameters), comm
        self._sizes = [parameter.numel() for parameter in parameters]
        self.elements = sum(self._sizes)
        self.shard_size = -(-self.elements // comm.size)
        self.padded = self.shard_size * comm.size
        self._like = torch.empty(0, dtype=parameters[0].dtype, device=parameters[0].device)
        self.flat: Tensor | None = self._like.new_zeros(self.padded)
        self.gradient: Tensor | None = None
        *chunks, _ = self.flat.split([*self._sizes, self.padded - self.elements])
        views = [shaped_like(parameter, chunk) for parameter, chunk in zip(parameters, chunks, strict=True)]
        self._views = [(view.shape, view.stride(), view.storage_offset()) for view in views]
        for parameter, part in zip(self.parameters, self.parts(self.flat), strict=True):
            part.copy_(parameter.detach())
        self.waiting = set(range(len(self.parameters)))
        self._use_whole()

    @property
    def bytes(self) -> int:
        """Of the flat tensor, with its padding."""
        return self.padded * self._like.element_size()

    @property
    def layouts(self) -> list[tuple[torch.Size, tuple[int, ...]]]:
        """(shape, stride) of each parameter while it is whole."""
        return [(shape, stride) for shape, stride, _ in self._views]

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Views of the parameters' shapes into a flat tensor."""
        return [flat.as_strided(*view) for view in self._views]

    def lower(self, dtype: torch.dtype) -> Tensor:
        """Hold all values in `dtype` from now on; gives this rank's chunk of them as they were. Not once released."""
        before = self.shard.detach().clone()
        self._like, self.flat = self._like.to(dtype), self.flat.to(dtype)
        self._use_whole()
        return before

    def own_ranges(self) -> Iterator[tuple[nn.Parameter, int, slice]]:
        """(parameter, its first element here, where in the shard) for each that this rank's chunk has a part of.

        Elements are counted in the parameter's order in memory.
        """
        first, start = self._comm.rank * self.shard_size, 0
        for parameter, size in zip(self.parameters, self._sizes, strict=True):
            begin, end = max(start, first), min(start + size, first + self.shard_size)
            if begin < end:
                yield parameter, begin - start, slice(begin - first, end - first)
            start += size

    def release(self) -> None:
        """Let go of all but this rank's shard. The parameters keep their shapes and have no memory."""
        if self.flat is None:
            return
        if self.shard.untyped_storage().data_ptr() == self.flat.untyped_storage().data_ptr():
            self.shard.data = self.shard.data.clone()
        self.flat = None
        for parameter, placeholder in zip(self.parameters, self._placeholders, strict=True):
            parameter.data = placeholder

    def start_gather(self) -> Handle:
        """Start to make the parameters whole; they may be used once `wait()` of the handle has returned."""
        if self.flat is None:
            self.flat = self._like.new_empty(self.padded)
            self._own(self.flat).copy_(self.shard.detach())
            self._use_parts()
        return self._start_gather(self.flat)

    def gathered(self, chunk: Tensor) -> Tensor:
        """Collective: a flat tensor of every rank's `chunk`, of the size of a shard, in the order of ranks."""
        flat = chunk.new_empty(self.padded, device=self._like.device)
        self._own(flat).copy_(chunk)
        self._start_gather(flat).wait()
        return flat

    def _start_gather(self, flat: Tensor) -> Handle:
        chunks = flat.split(self.shard_size)
        signature = f"all_gather of unit {self.index}, {describe(flat)}"
        return self._comm.run_collective("all_gather", signature, lambda wire: all_gather_chunks(wire, chunks), True)

    def keep(self, position: int) -> None:
        """Move the gradient of a parameter to its part of `gradient`."""
        parameter, part = self.parameters[position], self._part_of_gradient(position)
        if position in self.waiting:
            part.copy_(parameter.grad.detach())
        else:  # a parameter that several layers share, in a backward that accumulates at once for each
            part.add_(parameter.grad.detach())
        parameter.grad = None
        self.waiting.discard(position)

    def fill_gaps(self) -> None:
        """Zeros for the gradients that did not come."""
        for position in self.waiting:
            self._part_of_gradient(position).zero_()
        self.waiting.clear()

    def _part_of_gradient(self, position: int) -> Tensor:
        if self.gradient is None:
            self.gradient = self._like.new_empty(self.padded)
            self.gradient[self.elements :] = 0
        elif self._shard_grad_inside():  # of a backward before: this one adds to it
            self.shard.grad = self.shard.grad.clone()
        return self.gradient.as_strided(*self._views[position])

    def start_reduce(self) -> Handle:
        """Start to average `gradient` over ranks; once `wait()` has returned, this rank's chunk of it is the mean."""
        gradient = self.gradient
        chunks = gradient.split(self.shard_size)
        signature = f"reduce_scatter(mean) of unit {self.index}, {describe(gradient)}"
        return self._comm.run_collective(
            "reduce_scatter", signature, lambda wire: reduce_scatter_chunks(wire, chunks, "mean"), True
        )

    def reduced(self, keep_buffer: bool) -> None:
        """Add this rank's chunk to the gradient of its shard. keep_buffer: the memory is for the next step, too."""
        own = self._own(self.gradient)
        if self.shard.grad is None:
            self.shard.grad = own if keep_buffer else own.clone()
        else:
            self.shard.grad.add_(own)
        if not keep_buffer:
            self.gradient = None
        self.waiting = set(range(len(self.parameters)))

    def gradient_bytes(self) -> int:
        """Of all gradients that are held here."""
        held = [self.gradient, None if self._shard_grad_inside() else self.shard.grad]
        return sum(gradient.nbytes for gradient in held if gradient is not None)

    def _shard_grad_inside(self) -> bool:
        """Whether the shard's gradient lies in `gradient`."""
        if self.shard.grad is None or self.gradient is None:
            return False
        return self.shard.grad.untyped_storage().data_ptr() == self.gradient.untyped_storage().data_ptr()

    def _use_whole(self) -> None:
        """Take the shard and the parameters from `flat`."""
        self.shard = nn.Parameter(self._own(self.flat))
        place = self._like.new_empty(1)
        self._placeholders = [place.as_strided(p.shape, [0] * p.dim()) for p in self.parameters]
        self._use_parts()

    def _use_parts(self) -> None:
        for parameter, part in zip(self.parameters, self.parts(self.flat), strict=True):
            parameter.data = part

    def _own(self, flat: Tensor) -> Tensor:
        return flat.narrow(0, self._comm.rank * self.shard_size, self.shard_size)
