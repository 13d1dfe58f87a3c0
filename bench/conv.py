"""Convolution by im2col and GEMM beside torch's, forward and backward, one thread; and beside plain loops.

    python bench/conv.py                   the shapes of ResNet-18 on 32x32 images, batch 64
    python bench/conv.py --pairs 20        more pairs

Both take the same tensors in turn: the output, then the gradients for input and weight. A pair is one call of each, in
random order; printed is the median of the paired ratios, ours by torch's, with the quarter and three quarter points,
and the same for all convolutions of the network together. The target is at most 4.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from torch import Tensor
from torch.nn import functional as theirs

from lockstep.nn import functional
from lockstep.nn.models import resnet18

BATCH = 64


def shapes() -> dict[tuple[int, ...], int]:
    """Of every convolution of ResNet-18 on 32x32 images: channels, side, kernels, kernel, stride, padding; how many."""
    found: dict[tuple[int, ...], int] = {}

    def note(layer: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        key = (*inputs[0].shape[1:3], layer.out_channels, layer.kernel_size[0], layer.stride[0], layer.padding[0])
        found[key] = found.get(key, 0) + 1

    net = resnet18(10, image_size=32)
    for layer in net.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_pre_hook(note)
    with torch.no_grad():
        net(torch.zeros(1, 3, 32, 32))
    return found


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def by_torch(x: Tensor, weight: Tensor, stride: int, padding: int) -> None:
    y = theirs.conv2d(x, weight, None, stride, padding)
    torch.autograd.grad(y, (x, weight), torch.ones_like(y))


@torch.no_grad()
def by_us(x: Tensor, weight: Tensor, stride: int, padding: int) -> None:
    y = functional.conv2d(x, weight, None, stride, padding)
    functional.conv2d_backward(torch.ones_like(y), x, weight, stride, padding)


def main(pairs: Annotated[int, typer.Option(help="Of each shape.")] = 9, seed: int = 0) -> None:
    """Compare shape by shape, then print the whole network and the loops."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    order, whole = random.Random(seed), {"ours": 0.0, "torch": 0.0}
    print(f"{'channels':>8} {'side':>4} {'kernels':>7} {'size':>4} {'stride':>6} {'ours':>9} {'torch':>9}   ratio")
    for (c, side, o, k, stride, padding), many in shapes().items():
        x = torch.randn(BATCH, c, side, side, requires_grad=True)
        weight = torch.randn(o, c, k, k, requires_grad=True)
        ways = {"ours": lambda *given: by_us(*given), "torch": lambda *given: by_torch(*given)}
        taken: dict[str, list[float]] = {"ours": [], "torch": []}
        for turn in range(pairs + 1):
            for name in order.sample(list(ways), 2):
                one = seconds(lambda way=ways[name], x=x, w=weight, s=stride, p=padding: way(x, w, s, p))
                if turn:
                    taken[name].append(one)
        ratios = [a / b for a, b in zip(taken["ours"], taken["torch"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        ours, torchs = (statistics.median(taken[name]) for name in ways)
        whole["ours"] += many * ours
        whole["torch"] += many * torchs
        row = f"{c:>8} {side:>4} {o:>7} {k:>4} {stride:>6} {1e3 * ours:>6.0f} ms {1e3 * torchs:>6.0f} ms"
        print(f"{row}   {middle:.2f} ({low:.2f} to {high:.2f})", flush=True)
    print(
        f"all 20 convolutions: {whole['ours']:.2f} s and {whole['torch']:.2f} s, {whole['ours'] / whole['torch']:.2f}"
    )
    loops()


def loops() -> None:
    """LeNet's second convolution on one image, forward."""
    x, weight = torch.randn(1, 6, 14, 14), torch.randn(16, 6, 5, 5)
    multiply_adds = 16 * 6 * 5 * 5 * 10 * 10
    ways = {"loops": functional.conv2d_loops, "im2col": functional.conv2d, "torch": theirs.conv2d}
    for name, way in ways.items():
        one = statistics.median(seconds(lambda way=way: way(x, weight)) for _ in range(3 if name == "loops" else 30))
        print(f"{name:>8}: {1e3 * one:9.3f} ms, {1e9 * one / multiply_adds:9.2f} ns for each multiply-add")


if __name__ == "__main__":
    typer.run(main)
