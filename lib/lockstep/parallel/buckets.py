"""Which gradients travel together, and the one flat tensor that they live in.

Floor 2, room `parallel`. A parameter's gradient is a view into its bucket, so that what backward computes is written
once and reduced where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.comm import Bucket

FIRST_BYTES = 2**20  # the first bucket is small, as torch's is, so that communication begins early


def make_buckets(parameters: Sequence[Tensor], bucket_bytes: int, first_bytes: int | None = None) -> list[list[int]]:
    """Share out the positions of `parameters`, last first, since their gradients are ready in about that order.

    A bucket has one dtype and is closed as soon as it holds `bucket_bytes`, so a larger parameter closes its bucket
    at once; the first one already at `first_bytes`, if that is less. Buckets are in the order in which their last
    gradient is ready. ValueError for a cap below 1 byte.
    """
    if not isinstance(bucket_bytes, int) or isinstance(bucket_bytes, bool) or bucket_bytes < 1:
        raise ValueError(f"bucket_bytes is {bucket_bytes!r}: it is a whole number of bytes, at least 1.")
    closed: list[list[int]] = []
    filling: dict[torch.dtype, list[int]] = {}
    held: dict[torch.dtype, int] = {}
    for position in reversed(range(len(parameters))):
        parameter = parameters[position]
        filling.setdefault(parameter.dtype, []).append(position)
        held[parameter.dtype] = held.get(parameter.dtype, 0) + parameter.nbytes
        cap = bucket_bytes if closed or first_bytes is None else min(first_bytes, bucket_bytes)
        if held[parameter.dtype] >= cap:
            closed.append(filling.pop(parameter.dtype))
            held[parameter.dtype] = 0
    return sorted(closed + list(filling.values()), key=lambda positions: -positions[-1])


class GradientBucket:
    """A bucket and the parameters whose gradients it holds.

    waiting: positions of those whose gradient is still to come. after: `more` elements behind the gradients, in the
    same tensor, for what travels with them. share: what gradients are multiplied by before they are sent, for `keep`.
    names: of the parameters.
    """

    def __init__(
        self, index: int, parameters: Sequence[Tensor], more: int = 0, share: float = 1.0, names: Sequence[str] = ()
    ) -> None:
        self.parameters = tuple(parameters)
        sizes = [parameter.numel() for parameter in parameters]
        flat = torch.zeros(sum(sizes) + more, dtype=parameters[0].dtype, device=parameters[0].device)
        *chunks, self.after = flat.split([*sizes, more])
        parts = (shaped_like(parameter, chunk) for parameter, chunk in zip(parameters, chunks, strict=True))
        self.content = Bucket(index, flat, tuple(parts), tuple(names))
        precise = flat.dtype in (torch.float64, torch.complex128)
        # A tensor, since torch takes twice as long to multiply a small gradient by a Python number.
        self.share = torch.tensor(share, dtype=torch.float64 if precise else torch.float32) if share != 1.0 else None
        self.waiting: set[int] = set()
        self.expect_all()

    def expect_all(self) -> None:
        """Wait for every gradient anew."""
        self.waiting.update(range(len(self.parameters)))

    def fill_gaps(self) -> list[int]:
        """Put in what waits still, zeros for a parameter without gradient; gives the positions of those."""
        without = []
        for position in self.waiting:
            parameter, part = self.parameters[position], self.content.parts[position]
            if parameter.grad is None:
                part.zero_()
                without.append(position)
            else:
                keep(parameter, part, self.share)
        return without


def keep(parameter: Tensor, part: Tensor, share: Tensor | None) -> None:
    """Write `share` times the parameter's gradient to its part of the bucket, which is the gradient from now on.

    share: a number as a tensor on the CPU; None for the whole.
    """
    gradient = parameter.grad
    if gradient is part:
        if share is not None:
            part.mul_(share)
        return
    if gradient.requires_grad:  # backward(create_graph=True)
        gradient = gradient.detach()
    if share is None:
        part.copy_(gradient)
    else:
        torch.mul(gradient, share, out=part)
    parameter.grad = part


def shaped_like(parameter: Tensor, chunk: Tensor) -> Tensor:
    """View 1-D `chunk` in the parameter's shape and, where its elements are dense, in its order in memory."""
    order = sorted(range(parameter.dim()), key=lambda dim: -parameter.stride(dim))
    in_memory = chunk.view([parameter.shape[dim] for dim in order])
    view = in_memory.permute([order.index(dim) for dim in range(parameter.dim())])
    return view if view.stride() == parameter.stride() else chunk.view(parameter.shape)
