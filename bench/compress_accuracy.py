"""What compressed gradients cost in accuracy at equal steps, over several starts, and the bytes that they save.

    python bench/compress_accuracy.py                 five starts, some minutes of one core
    python bench/compress_accuracy.py --starts 1 --steps 300

A small CNN on shapes32, 2,000 steps of 8 images, plain SGD. Each of two ranks has half of the batch and a compressor of
its own, and the net learns from the mean of what they send. Printed for each start: the share of 2,000
held-out images that are right; then means over starts, and the bytes that two simulated ranks of
`DistributedDataParallel` send in a step, from the traffic counters.

Few images a rank are what makes feedback matter to the 1-bit compressor with two means a column. Behind a ReLU the
gradient is zero for every input that none of a rank's four images turns on; `OneBit` sends the mean of all values that
are at least zero for each of these zeros, so they move, the same way at every step, and only feedback takes it back.
With dozens of images a rank, gradients have few zeros, and 1 bit without feedback loses little. Momentum is left out:
behind top-k with feedback a value waits some hundred steps and then comes at once, and momentum 0.9 makes ten times of
it, so that training lags; DGC's momentum correction is the answer to that.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.compress import Compressor, ErrorFeedback, OneBit, TopK
from lockstep.data import Normalize, load, permutation
from lockstep.parallel import DistributedDataParallel
from lockstep.world import simulate

RANKS = 2
Method = Callable[[], Compressor] | None  # None: nothing is compressed


BATCH, LR, STEPS = 8, 0.02, 2000
METHODS: dict[str, Method] = {
    "dense": None,
    "1 bit, feedback": lambda: ErrorFeedback(OneBit()),
    "1 bit": OneBit,
    "top 1 %, feedback": lambda: ErrorFeedback(TopK(0.01)),
    "top 1 %": lambda: TopK(0.01),
}


def small_cnn() -> nn.Module:
    """One convolution, of 49 patches of 8x8, then two linear layers: 28,538 parameters."""
    net = nn.Sequential(
        nn.Conv2d(3, 16, 8, stride=4), nn.ReLU(), nn.Flatten(),
        nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    for layer in net:
        if hasattr(layer, "weight"):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return net


def images() -> tuple[Tensor, ...]:
    """Images and labels to train on, and those held out."""
    training, held_out = load("shapes32", "train", verbose=False), load("shapes32", "test", verbose=False)
    normalize = Normalize.of(training.images)
    return normalize(training.images), training.labels, normalize(held_out.images), held_out.labels


def train(data: tuple[Tensor, ...], make: Method, seed: int, steps: int) -> float:
    """The share of held-out images that are right, when the mean of what the ranks' compressors send is learnt from."""
    x, y, x_held_out, y_held_out = data
    torch.manual_seed(seed)
    net = small_cnn()
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    compressors = [make() for _ in range(RANKS)] if make else []
    epoch = len(y) // BATCH
    for step in range(steps):
        if step % epoch == 0:
            batches = permutation(len(y), seed, step // epoch).split(BATCH)
        batch = batches[step % epoch]
        if compressors:
            shares = [gradients(net, x[own], y[own]) for own in batch.chunk(RANKS)]
            for (name, parameter), *of_ranks in zip(net.named_parameters(), *shares, strict=True):
                sent = [
                    each.decompress(each.compress(own, name)) for each, own in zip(compressors, of_ranks, strict=True)
                ]
                parameter.grad = torch.stack(sent).mean(0)
        else:  # the mean over ranks of their means
            for parameter, own in zip(net.parameters(), gradients(net, x[batch], y[batch]), strict=True):
                parameter.grad = own
        optimizer.step()
    with torch.no_grad():
        return (net(x_held_out).argmax(1) == y_held_out).double().mean().item()


def gradients(net: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))


def bytes_of_a_step(comm: Communicator, make: Method) -> int:
    """That this rank sends, by the traffic counters."""
    model = DistributedDataParallel(small_cnn(), comm, exchange=make() if make else None)
    before = comm.traffic.bytes_sent
    share = BATCH // comm.size
    F.cross_entropy(model(torch.randn(share, 3, 32, 32)), torch.randint(10, (share,))).backward()
    return comm.traffic.bytes_sent - before


def main() -> None:
    """Print one line for each start, then means and bytes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = images()
    print(f"{options.steps} steps of {BATCH} images on {RANKS} ranks, lr {LR}")
    print("start  " + "".join(f"{method:>20}" for method in METHODS))
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    for seed in range(options.starts):
        print(f"{seed:<7}", end="", flush=True)
        for method, make in METHODS.items():
            found[method].append(100 * train(data, make, seed, options.steps))
            print(f"{found[method][-1]:>19.1f}%", end="", flush=True)
        print()
    sent = [sum(simulate(bytes_of_a_step, RANKS, make).values) for make in METHODS.values()]
    print("mean   " + "".join(f"{statistics.mean(of_method):>19.1f}%" for of_method in found.values()))
    print("bytes  " + "".join(f"{each:>20,}" for each in sent))
    print("fewer  " + "".join(f"{1 - each / sent[0]:>20.1%}" for each in sent))


if __name__ == "__main__":
    main()
