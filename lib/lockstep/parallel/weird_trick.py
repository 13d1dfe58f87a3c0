"""One weird trick: convolutions data parallel, linear layers shared out, activations switched between them.

Floor 2, room `parallel`. Read `switch` first. Convolutions have few parameters and large activations, linear layers the
other way round, so each kind gets the split that sends less. Legend: K ranks share out the linear layers, n_r images of
rank r, F features of an image where the convolutions end.

All linear layers work on the images of all K ranks, each rank with its own neurons. *When* images are brought together
is a list of turns; turn t takes turns[t][r] of rank r's images forward and back. Section 4 has three such lists, here
for three ranks with three images each:

| scheme | turns                                 | in a turn                                      |
|--------|---------------------------------------|------------------------------------------------|
| (a)    | [3, 3, 3]                             | everybody sends all images to all               |
| (b)    | [3, 0, 0], [0, 3, 0], [0, 0, 3]       | one rank sends all its images to all others     |
| (c)    | [1, 1, 1], [1, 1, 1], [1, 1, 1]       | everybody sends a K-th of its images to all     |

In (b) and (c) the images of the next turn travel while this turn's are computed, and only one turn's are held.

Source: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator, Handle, Mesh
from lockstep.comm.collectives import chunk_sizes
from lockstep.parallel.conjugate import joined
from lockstep.parallel.data import DistributedDataParallel
from lockstep.parallel.shares import hand_out, shares
from lockstep.parallel.switch import elements_of_rows, gather_shared, swap_split
from lockstep.parallel.uneven import at_the_entrance

Turns = list[list[int]]  # [turn][rank]: images
ELEMENTWISE = (nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Dropout, nn.Identity)


def all_at_once(images: Sequence[int]) -> Turns:
    """Scheme (a): one turn. images: of each rank."""
    return [list(images)]


def rank_by_rank(images: Sequence[int]) -> Turns:
    """Scheme (b): in turn t, the images of rank t."""
    return [[n if rank == turn else 0 for rank, n in enumerate(images)] for turn in range(len(images))]


def slice_by_slice(images: Sequence[int]) -> Turns:
    """Scheme (c): in turn t, the t-th slice of every rank's images."""
    return [list(turn) for turn in zip(*(chunk_sizes(n, len(images)) for n in images), strict=True)]


SCHEMES: Mapping[str, Callable[[Sequence[int]], Turns]] = {"a": all_at_once, "b": rank_by_rank, "c": slice_by_slice}


def weird_trick_bytes(convolutions: int, widths: Sequence[int], images: int, ranks: int, itemsize: int = 4) -> float:
    """Bytes that each of K ranks sends in a step when they share out the linear layers; images divide by K.

    convolutions: parameters that are data parallel. widths: F, then the outputs of each linear layer. images: of all
    ranks together. An all-reduce of the convolutions' gradients; forward an all-gather of the input of every linear layer
    and an all-to-all of the last one's outputs; backward the same amounts.
    """
    moved = convolutions + images * (sum(widths[:-1]) + widths[-1] / ranks)
    return 2 * (ranks - 1) / ranks * moved * itemsize


class WeirdTrick(nn.Module):
    """`model` with its convolutions data parallel over `mesh` and its linear layers shared out along `axis`.

    model: one with `stages()`, such as `nn.models.alexnet(10, 32)`: a chain that is linear or elementwise from its first
    linear layer on. Along the mesh's other axes the linear layers are data parallel, too.
    scheme: "a", "b" or "c", for `step`; see the module's table.

    Parameters are those of rank 0. Gradients are of the mean over all images, however many a rank has. Called as a
    module it gives the outputs of this rank's images, by scheme (a); let the loss be a mean over them. Collective: to
    build, to run forward and backward, `step` and `whole_state_dict`.
    Raises ValueError for a model that is no such chain, an unknown scheme, or more ranks than a layer has outputs, and
    KeyError for an axis that the mesh does not have.
    """

    def __init__(self, model: nn.Module, mesh: Mesh, axis: str = "tensor", scheme: str = "c") -> None:
        super().__init__()
        if scheme not in SCHEMES:
            raise ValueError(f"scheme is {scheme!r}: Krizhevsky 2014, section 4, has {', '.join(SCHEMES)}.")
        mesh.shape.check([axis])
        names = {id(tensor): name for name, tensor in model.state_dict(keep_vars=True).items()}
        convolutions, linear = _cut(model)
        self._names = [
            [names[id(one)] for one in part.state_dict(keep_vars=True).values()] for part in (convolutions, linear)
        ]
        self.turns = SCHEMES[scheme]
        self.comm, self.sharing = mesh.comm, mesh[axis]
        self._sharers = mesh.shape.group(mesh.comm.rank, axis)
        replicas = mesh[tuple(name for name in mesh.shape.axes if name != axis)]
        self._replicas = replicas.size
        self.convolutions = DistributedDataParallel(convolutions, mesh.comm)
        shared = _SharedOut(linear, self.sharing)
        self.linear = DistributedDataParallel(shared, replicas) if replicas.size > 1 else shared

    def forward(self, images: Tensor) -> Tensor:
        """The outputs of this rank's images."""
        counts, weight = self._share(len(images))
        features = self.convolutions(images)
        if features.requires_grad:
            features.register_hook(lambda gradient: gradient * self.sharing.size)
        outputs = self.linear(gather_shared(features, self.sharing, 0, counts), counts)
        return at_the_entrance(outputs, lambda gradient: gradient * weight(len(images)))

    def step(self, images: Tensor, labels: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> float:
        """Forward and backward in the scheme's turns; gives the mean loss of this rank's images.

        loss(outputs, labels): the mean over its images. Gradients are added to those that are there, as in `backward()`.
        """
        counts, weight = self._share(len(images))
        features = self.convolutions(images)
        turns = [turn for turn in self.turns(counts) if any(turn)]
        own = [turn[self.sharing.rank] for turn in turns]
        parts, expected = features.detach().split(own), labels.split(own)
        back, total = [], 0.0
        coming = self._start_gather(parts[0], turns[0])
        for t, turn in enumerate(turns):
            whole = coming.wait().requires_grad_()
            if t + 1 < len(turns):
                coming = self._start_gather(parts[t + 1], turns[t + 1])
            with self._averaging_linear(last=t + 1 == len(turns)):
                value = loss(self.linear(whole, turn), expected[t])
                (value * weight(own[t])).backward()
            if own[t]:
                total = total + value.detach() * own[t]
            back.append(self._start_scatter(whole.grad, turn))
        gradient = torch.cat([handle.wait() for handle in back]).view_as(features)
        if features.requires_grad:
            features.backward(gradient * self.sharing.size)
        return float(total) / max(len(images), 1)

    def whole_state_dict(self) -> dict[str, Tensor]:
        """Collective: the state of the model as it would be on one rank, under its own names."""
        shared = self.linear.module if self._replicas > 1 else self.linear
        parts = [self.convolutions.module.state_dict(), shared.whole_state()]
        return {
            name: tensor
            for names, part in zip(self._names, parts, strict=True)
            for name, tensor in zip(names, part.values(), strict=True)
        }

    def _share(self, own: int) -> tuple[list[int], Callable[[int], float]]:
        """Images of each rank that shares the linear layers, and the weight of a mean over n images.

        Gradients are averaged over `_replicas` groups in the end, so the weights of all ranks add up to as many.
        """
        images = self.comm.all_gather(torch.tensor([own], device=self.comm.device)).tolist()
        total = sum(images)
        if not total:
            raise ValueError("no rank has an image: give at least one of them some.")
        return [images[rank] for rank in self._sharers], lambda n: self._replicas * n / total

    def _start_gather(self, part: Tensor, turn: Sequence[int]) -> Handle:
        return self.sharing.all_gather(part.contiguous(), turn, async_op=True)

    def _start_scatter(self, gradient: Tensor, turn: Sequence[int]) -> Handle:
        return self.sharing.reduce_scatter(gradient, sizes=elements_of_rows(gradient, turn), async_op=True)

    def _averaging_linear(self, last: bool) -> AbstractContextManager[None]:
        """Gradients of the linear layers add up over turns; with the last one they are averaged over replicas."""
        return nullcontext() if last or self._replicas == 1 else self.linear.no_sync()


class _SharedOut(nn.Module):
    """The layers of a chain on the images of all ranks, each rank with its own neurons of every linear layer."""

    def __init__(self, layers: nn.Sequential, comm: Communicator) -> None:
        super().__init__()
        self.comm = comm
        self.layers = nn.ModuleList(_own_neurons(one, comm) if isinstance(one, nn.Linear) else one for one in layers)
        self.sizes = [shares(one.out_features, comm.size, "outputs") for one in layers if isinstance(one, nn.Linear)]

    def forward(self, whole: Tensor, images: Sequence[int]) -> Tensor:
        """Features of the images of all ranks, (sum(images), F), to the outputs of this rank's."""
        x, sizes = whole, iter(self.sizes)
        now: list[int] | None = None  # how the features of x are shared out
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                x = x if now is None else gather_shared(x, self.comm, 1, now)
                now = next(sizes)
            x = layer(x)
        return swap_split(x, self.comm, images, now)

    def whole_state(self) -> dict[str, Tensor]:
        """Collective: as `state_dict`, with all neurons."""
        by_layer = {}
        linear = [name for name, one in self.layers.named_children() if isinstance(one, nn.Linear)]
        for name, sizes in zip(linear, self.sizes, strict=True):
            for kind, tensor in self.layers.get_submodule(name).state_dict().items():
                by_layer[f"{name}.{kind}"] = joined(tensor, self.comm, 0, sizes)
        return by_layer


def _own_neurons(layer: nn.Linear, comm: Communicator) -> nn.Linear:
    """Collective: this rank's part of rank 0's `layer`."""
    sizes = shares(layer.out_features, comm.size, "outputs")
    like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
    own = nn.Linear(layer.in_features, sizes[comm.rank], layer.bias is not None, **like)
    for mine, whole in zip(own.parameters(), layer.parameters(), strict=True):
        hand_out(whole, mine, comm, 0, sizes)
        mine.requires_grad_(whole.requires_grad)
    return own


def _cut(model: nn.Module) -> tuple[nn.Sequential, nn.Sequential]:
    """The layers of a chain before its first linear layer, and from there on."""
    if not hasattr(model, "stages"):
        raise ValueError(f"{type(model).__name__} has no stages(): the trick needs a chain, such as alexnet(10, 32).")
    layers = [one for stage in model.stages() for one in (stage if isinstance(stage, nn.Sequential) else [stage])]
    first = next((i for i, layer in enumerate(layers) if isinstance(layer, nn.Linear)), len(layers))
    if not 0 < first < len(layers):
        raise ValueError(f"{type(model).__name__} needs layers before its first linear layer, and a linear layer.")
    for layer in layers[first:]:
        if not isinstance(layer, (nn.Linear, *ELEMENTWISE)):
            raise ValueError(
                f"{type(layer).__name__} comes behind a linear layer, where only linear and elementwise layers can be "
                f"shared out: {', '.join(kind.__name__ for kind in ELEMENTWISE)}."
            )
    weights = [parameter for layer in layers for parameter in layer.parameters()]
    if len({id(one) for one in weights}) < len(weights):
        raise ValueError("two layers have one weight, and their ranks' parts would learn apart: untie them.")
    return nn.Sequential(*layers[:first]), nn.Sequential(*layers[first:])
