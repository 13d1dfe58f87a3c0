"""One chunk of the model at work: forward, backward whole or in halves, for several micro-batches at once.

Floor 2, room `parallel`. It knows nothing of ranks and messages; `execute` brings it inputs and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call

from lockstep.nn.outputs import map_tensors, tensors_in
from lockstep.parallel.pipeline.split_backward import DeferWeights, layers_that_split

Weights = Mapping[str, Tensor]
Head = Callable[[Any], Tensor]
"""What the last chunk's output goes through: the loss of a micro-batch."""


@dataclass
class _Kept:
    """What a micro-batch leaves between forward and backward.

    leaves: floating-point tensors of its input, whose gradients are wanted. start: where backward begins; the outputs
    themselves may go. again: with checkpointing, what computes `start`.
    """

    leaves: list[Tensor]
    start: _Start | None
    defer: DeferWeights | None
    again: Callable[[], _Start] | None = None


class Chunk:
    """`module` for many micro-batches. split: those whose backward comes in two halves.

    first: nobody wants the gradient of its input. checkpoint: keep a micro-batch's input alone, and run forward again before its backward, with the same random
    numbers and without counting twice in batch norm.
    """

    def __init__(
        self, module: nn.Module, split: frozenset[int] = frozenset(), first: bool = False, checkpoint: bool = False
    ) -> None:
        self.module, self._split, self._first, self._checkpoint = module, split, first, checkpoint
        self._layers = layers_that_split(module) if split else []
        self._kept: dict[int, _Kept] = {}

    def forward(self, i: int, inputs: Any, head: Head | None = None, weights: Weights = MappingProxyType({})) -> Any:
        """The output for micro-batch `i`, or `head` of it, without history; with `weights` in place of its own."""
        leaves: list[Tensor] = []

        def entered(tensor: Tensor) -> Tensor:
            tensor = tensor.detach()
            if not self._first and tensor.is_floating_point():
                leaves.append(tensor.requires_grad_())
            return tensor

        inputs = map_tensors(entered, inputs)
        defer = DeferWeights(self._layers) if i in self._split else None

        def run(instead: Weights) -> Any:
            with defer or nullcontext(), _explained():
                output = functional_call(self.module, dict(instead), (inputs,)) if instead else self.module(inputs)
                return output if head is None else head(output)

        if not self._checkpoint:
            output = run(weights)
            self._kept[i] = _Kept(leaves, _Start(output), defer)
            return map_tensors(Tensor.detach, output)
        generators = _generators(self.module)
        with torch.no_grad():
            output = run(weights)

        def again() -> _Start:
            buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
            with _drawing(generators), torch.enable_grad():
                return _Start(run({**weights, **buffers}))

        self._kept[i] = _Kept(leaves, None, defer, again)
        return output

    def backward(self, i: int, gradients: list[Tensor]) -> list[Tensor]:
        """Add to the parameters' `grad`; gives the gradients of the input's floating-point tensors.

        Of a micro-batch that is split, the weights of linear layers and convolutions wait for `weight_gradient`.
        """
        kept = self._kept[i]
        start = kept.again() if kept.again else kept.start
        with kept.defer or nullcontext():  # forward may run again inside, in torch.utils.checkpoint
            start.backward(gradients)
        found = [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in kept.leaves]
        if kept.defer is None:
            del self._kept[i]
        else:
            kept.leaves, kept.start, kept.again = [], None, None
        return found

    def weight_gradient(self, i: int) -> None:
        """The second half of backward; nothing is left to do for a micro-batch that was not split."""
        if i in self._split:
            self._kept.pop(i).defer.finish()

    def forget(self) -> None:
        """Drop what an unfinished step left."""
        self._kept.clear()


class _Start:
    """Where backward enters an output: at one number made of all its floating-point tensors, which it does not keep.

    `torch.autograd.backward` with gradients of tensors would do as well, but imports two seconds' worth of modules
    when it is first called, in every rank.
    """

    def __init__(self, output: Any) -> None:
        tensors = [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]
        self._gradients: list[Tensor] = []
        self._root = _Enter.apply(self._gradients, *tensors) if any(t.requires_grad for t in tensors) else None

    def backward(self, gradients: list[Tensor]) -> None:
        """Let a gradient for each of the tensors in."""
        if self._root is not None:
            self._gradients += gradients
            self._root.backward()


class _Enter(Function):
    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return tensors[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gradients


@contextmanager
def _explained() -> Iterator[None]:
    """A sentence for a stage that begins with a layer such as `nn.ReLU(inplace=True)`."""
    try:
        yield
    except RuntimeError as error:
        if "a leaf Variable that requires grad" in str(error):
            raise ValueError(
                "a stage changes its input in place, and the gradient of that goes to the stage before: use inplace=False "
                "in its first layer, or cut the model elsewhere"
            ) from error
        raise


def _generators(module: nn.Module) -> dict[str, Tensor]:
    """States of the random number generators that the module's layers draw from."""
    states = {"cpu": torch.get_rng_state()}
    for device in {p.device for p in module.parameters() if p.is_cuda}:
        states[str(device)] = torch.cuda.get_rng_state(device)
    return states


@contextmanager
def _drawing(generators: Mapping[str, Tensor]) -> Iterator[None]:
    """Random numbers as they were then; afterwards as they are now."""
    with torch.random.fork_rng(devices=[name for name in generators if name != "cpu"]):
        for name, state in generators.items():
            torch.set_rng_state(state) if name == "cpu" else torch.cuda.set_rng_state(state, name)
        yield
