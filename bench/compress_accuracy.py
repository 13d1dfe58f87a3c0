"""What compressed gradients cost in accuracy at equal steps, over several starts, and the bytes that they save.

    python bench/compress_accuracy.py                 both settings, five starts, half an hour of one core
    python bench/compress_accuracy.py --only topk     top 1 %; or 1bit

CNNs on shapes32, plain SGD. Each of two ranks has half of the batch and a compressor of its own, and the net learns
from the mean of what they send. Printed for each start: the share of 2,000 held-out images that are right; then means
over starts, and the bytes that two simulated ranks of `DistributedDataParallel` send in a step, from the traffic
counters.

Behind top 1 % with feedback a value waits some hundred steps, so training has to be long beside that, and steps not so
large that hundreds of them lead astray: LeNet, batches of 64, twelve epochs, a rate that falls to zero along half a
cosine. Three starts gave 87.3, 77.6 and 88.6 % dense and 86.1, 66.9 and 86.7 % with feedback: a start that takes long
to get going has not caught up by the end. Momentum is left out: what was waited for comes at once, and momentum 0.9
makes ten times of it; DGC's momentum correction is the answer to that.

Few images a rank are what makes feedback matter to the 1-bit compressor with two means a column. Behind a ReLU the
gradient is zero for every input that none of a rank's four images turns on; `OneBit` sends the mean of all values that
are at least zero for each of these zeros, so they move, the same way at every step, and only feedback takes it back.
With dozens of images a rank, gradients have few zeros, and 1 bit without feedback loses little. So its setting is a
small CNN and batches of 8.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.compress import Compressor, ErrorFeedback, OneBit, TopK
from lockstep.data import Normalize, load, permutation
from lockstep.nn.models import lenet
from lockstep.parallel import DistributedDataParallel
from lockstep.world import simulate

RANKS = 2
Method = Callable[[], Compressor] | None  # None: nothing is compressed


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


@dataclass(frozen=True)
class Setting:
    """What is trained, and how: `lr` is the first rate, which may fall to zero, `batch` of all ranks together."""

    net: Callable[[], nn.Module]
    batch: int
    lr: float
    steps: int
    methods: Mapping[str, Method]
    falls: bool = False


SETTINGS = {
    "topk": Setting(
        lambda: lenet(10, 32, 3),
        64,
        0.1,
        1500,
        {"dense": None, "top 1 %, feedback": lambda: ErrorFeedback(TopK(0.01)), "top 1 %": lambda: TopK(0.01)},
        falls=True,
    ),
    "1bit": Setting(
        small_cnn, 8, 0.02, 2000, {"dense": None, "1 bit, feedback": lambda: ErrorFeedback(OneBit()), "1 bit": OneBit}
    ),
}


def train(data: tuple[Tensor, ...], setting: Setting, make: Method, seed: int) -> float:
    """The share of held-out images that are right, when the mean of what the ranks' compressors send is learnt from."""
    x, y, x_held_out, y_held_out = data
    torch.manual_seed(seed)
    net = setting.net()
    optimizer = torch.optim.SGD(net.parameters(), lr=setting.lr)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / setting.steps)) / 2 if setting.falls else 1.0
    )
    compressors = [make() for _ in range(RANKS)] if make else []
    epoch = len(y) // setting.batch
    for step in range(setting.steps):
        if step % epoch == 0:
            batches = permutation(len(y), seed, step // epoch).split(setting.batch)
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
        rate.step()
    with torch.no_grad():
        return (net(x_held_out).argmax(1) == y_held_out).double().mean().item()


def gradients(net: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))


def bytes_of_a_step(comm: Communicator, setting: Setting, make: Method) -> int:
    """That this rank sends, by the traffic counters."""
    model = DistributedDataParallel(setting.net(), comm, exchange=make() if make else None)
    before = comm.traffic.bytes_sent
    share = setting.batch // comm.size
    F.cross_entropy(model(torch.randn(share, 3, 32, 32)), torch.randint(10, (share,))).backward()
    return comm.traffic.bytes_sent - before


def show(data: tuple[Tensor, ...], setting: Setting, starts: int) -> None:
    """Print one line for each start, then means and bytes."""
    print(f"{setting.steps} steps of {setting.batch} images on {RANKS} ranks, first lr {setting.lr}")
    print("start  " + "".join(f"{method:>20}" for method in setting.methods))
    found: dict[str, list[float]] = {method: [] for method in setting.methods}
    for seed in range(starts):
        print(f"{seed:<7}", end="", flush=True)
        for method, make in setting.methods.items():
            found[method].append(100 * train(data, setting, make, seed))
            print(f"{found[method][-1]:>19.1f}%", end="", flush=True)
        print()
    sent = [sum(simulate(bytes_of_a_step, RANKS, setting, make).values) for make in setting.methods.values()]
    print("mean   " + "".join(f"{statistics.mean(of_method):>19.1f}%" for of_method in found.values()))
    print("bytes  " + "".join(f"{each:>20,}" for each in sent))
    print("fewer  " + "".join(f"{1 - each / sent[0]:>20.1%}" for each in sent))


def main() -> None:
    """Show one setting or both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--only", choices=SETTINGS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = images()
    for name in [options.only] if options.only else SETTINGS:
        show(data, SETTINGS[name], options.starts)


if __name__ == "__main__":
    main()
