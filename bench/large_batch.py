"""What a large batch costs, over several starts: the claims of lab 05, section 6.

    python bench/large_batch.py              six starts, a minute or two

The small CNN of the lab on mnist5k, SGD with momentum 0.9. Printed: epochs until 80 % of the held-out digits are right
with batches of 16 and of 256 at one learning rate, and the share that is right after three epochs with batches of 256
at that rate, at 16 times the rate, at that with a warm-up of two epochs, and with LARS.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import torch
import typer
from torch import nn
from torch.nn import functional as F

from lockstep.data import Normalize, load, permutation
from lockstep.nn import LARS
from lockstep.parallel.rates import scaled_lr

BASE_LR, WANTED = 0.015, 0.8


def small_cnn() -> nn.Module:
    """As in the lab: two convolutions and two linear layers, initialised as He et al. (2015) propose."""
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    for layer in net:
        if hasattr(layer, "weight"):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return net


def accuracies(batch: int, epochs: int, lr: Callable[[int], float], seed: int, lars: bool = False) -> list[float]:
    """The share of held-out digits that are right, four times an epoch."""
    training, held_out = load("mnist5k", "train", verbose=False), load("mnist5k", "test", verbose=False)
    normalize = Normalize.of(training.images)
    x, y, x_held_out = normalize(training.images), training.labels, normalize(held_out.images)
    torch.manual_seed(seed)
    net = small_cnn()
    optimizer = (
        LARS(net.parameters(), lr=1.0, momentum=0.9, trust=0.01)
        if lars
        else torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9)
    )
    steps, found = len(y) // batch, []
    for step in range(epochs * steps):
        chosen = permutation(len(y), seed, step // steps)[batch * (step % steps) : batch * (step % steps + 1)]
        optimizer.param_groups[0]["lr"] = lr(step)
        optimizer.zero_grad()
        F.cross_entropy(net(x[chosen]), y[chosen]).backward()
        optimizer.step()
        if (step + 1) % max(1, steps // 4) == 0:
            with torch.no_grad():
                found.append((net(x_held_out).argmax(dim=1) == held_out.labels).double().mean().item())
    return found


def epochs_to(curve: list[float]) -> float:
    """Epochs until WANTED for the first time."""
    return next(((k + 1) / 4 for k, right in enumerate(curve) if right >= WANTED), math.inf)


def main(starts: int = 6) -> None:
    """Print one line for each start, then means."""
    torch.set_num_threads(1)
    per_epoch = 4000 // 256
    ways = {
        "small rate": (lambda step: BASE_LR, False),
        "16 times": (lambda step: 16 * BASE_LR, False),
        "with warm-up": (lambda step: scaled_lr(step, BASE_LR, 16, 256, 2 * per_epoch), False),
        "LARS": (lambda step: 1.0, True),
    }
    print(f"{'start':>5} {'16: epochs to 80 %':>19} {'256':>6}   right after 3 epochs: {', '.join(ways)}")
    ratios, ends = [], {way: [] for way in ways}
    for seed in range(starts):
        small = epochs_to(accuracies(16, 1, lambda step: BASE_LR, seed))
        curves = {way: accuracies(256, 3, lr, seed, lars) for way, (lr, lars) in ways.items()}
        large = epochs_to(curves["small rate"])
        ratios.append(large / small)
        for way, curve in curves.items():
            ends[way].append(curve[-1])
        print(f"{seed:5} {small:19.2f} {large:6.2f}   {', '.join(f'{c[-1]:.1%}' for c in curves.values())}", flush=True)
    print(f"images until 80 %, 256 over 16: {min(ratios):.1f} to {max(ratios):.1f}")
    print("means: " + ", ".join(f"{way} {statistics.mean(found):.1%}" for way, found in ends.items()))


if __name__ == "__main__":
    typer.run(main)
