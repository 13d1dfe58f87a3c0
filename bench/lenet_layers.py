"""LeNet made of our layers alone: held-out accuracy over seeds; and what is left of it with a wrong gradient.

    python bench/lenet_layers.py                                  mnist5k, 15 epochs, five seeds
    python bench/lenet_layers.py --epochs 3 --wrong               beside it dx with the kernels turned round (lab 02)

Convolution, pooling, linear layers, ReLU, loss and SGD are those of `lockstep.nn`; not one gradient is torch's. 4,000
digits to train, 1,000 held out, equally many of each class; each seed draws other weights and another order. The target
is a median of at least 97 % after 12 to 15 epochs.
"""

from __future__ import annotations

import statistics
import time
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

from lockstep import data
from lockstep.nn import SGD, LeNet, functional, layers, operations, with_layers

BATCH, RATE, MOMENTUM = 32, 0.02, 0.9


class TurnedKernel(operations.Conv2d):
    """A convolution whose gradient for the input uses the kernels turned round."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        _, dweight, dbias = functional.conv2d_backward(grad, x, weight, *ctx.how)
        dx, _, _ = functional.conv2d_backward(grad, x, weight.flip(2, 3), *ctx.how)
        return dx, dweight, dbias, *(None,) * len(ctx.how)


class TurnedConv2d(layers.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return TurnedKernel.apply(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def accuracies(seed: int, epochs: int, table: dict[type[nn.Module], type[nn.Module]]) -> list[float]:
    """Held-out accuracy after each epoch."""
    train, test = data.load("mnist5k", "train"), data.load("mnist5k", "test")
    torch.manual_seed(seed)
    net, loss_of = with_layers(LeNet(), table), layers.CrossEntropyLoss()
    optimizer, order = SGD(net.parameters(), RATE, MOMENTUM), torch.Generator().manual_seed(seed)
    found = []
    for _ in range(epochs):
        for some in torch.randperm(len(train.labels), generator=order).split(BATCH):
            optimizer.zero_grad()
            loss_of(net(train.images[some]), train.labels[some]).backward()
            optimizer.step()
        with torch.no_grad():
            found.append((net(test.images).argmax(dim=1) == test.labels).float().mean().item())
    return found


def main(
    epochs: int = 15,
    seeds: Annotated[int, typer.Option(help="How many, from 0.")] = 5,
    wrong: Annotated[bool, typer.Option("--wrong", help="Train with the wrong gradient beside the right one.")] = False,
) -> None:
    """Train once for each seed and print the accuracy after each epoch; then the median."""
    torch.set_num_threads(1)
    tables = {"right": layers.OURS} | ({"turned": {**layers.OURS, nn.Conv2d: TurnedConv2d}} if wrong else {})
    last: dict[str, list[float]] = {name: [] for name in tables}
    for seed in range(seeds):
        for name, table in tables.items():
            start = time.perf_counter()
            found = accuracies(seed, epochs, table)
            last[name].append(found[-1])
            took = time.perf_counter() - start
            print(f"seed {seed} {name:>6}: {' '.join(f'{one:.1%}' for one in found)}  ({took:.0f} s)", flush=True)
    for name, ends in last.items():
        print(f"{name:>6}: median {statistics.median(ends):.1%}, from {min(ends):.1%} to {max(ends):.1%}")


if __name__ == "__main__":
    typer.run(main)
