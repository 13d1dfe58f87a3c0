"""Held-out accuracy of LeNet over several seeds, by strategy.

    python bench/train_lenet.py                                           mnist5k, 15 epochs, five seeds
    python bench/train_lenet.py --strategy naive --ranks 2 --seeds 1      the same steps, shared by two ranks
    python bench/train_lenet.py --data shapes32 --epochs 5             the figure in lockstep.data.shapes

Each seed draws other weights and another order of the images; the split into training and held-out stays.
"""

from __future__ import annotations

import statistics
from typing import Annotated

import torch
import typer

from lockstep.train import TrainResult, train
from lockstep.world import launch


def main(
    data: str = "mnist5k",
    epochs: int = 15,
    lr: Annotated[float, typer.Option(help="Learning rate; by default the trainer's.")] = 0.02,
    strategy: str = "none",
    ranks: Annotated[int, typer.Option(help="With more than one, each is a process with one thread.")] = 1,
    seeds: Annotated[int, typer.Option(help="How many, from 0.")] = 5,
) -> None:
    """Train once for each seed and print accuracy, seconds and images a second; then the median."""
    torch.set_num_threads(1)
    arguments = {"strategy": strategy, "data": data, "epochs": epochs, "lr": lr, "verbose": False}
    results: list[TrainResult] = []
    print(f"{'seed':>4} {'after 5':>8} {'after ' + str(epochs):>9} {'seconds':>8} {'images/s':>9}")
    for seed in range(seeds):
        if ranks == 1:
            result = train(seed=seed, **arguments)
        else:
            result = launch(train, ranks, seed=seed, timeout=3600, **arguments).values[0]
        results.append(result)
        early = f"{result.accuracies[4]:.1%}" if epochs >= 5 else "-"
        print(f"{seed:>4} {early:>8} {result.accuracy:>9.1%} {result.seconds:>8.1f} {result.images_per_second:>9,.0f}")
    accuracies = [result.accuracy for result in results]
    print(f"median {statistics.median(accuracies):.1%}, from {min(accuracies):.1%} to {max(accuracies):.1%}")


if __name__ == "__main__":
    typer.run(main)
