"""The training loop: same model, same batches, same result, whatever the strategy and the number of ranks.

Floor 4. Legend: `batch` counts the images of one step over all ranks; each rank works on its shard of them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real

import torch
import torch._dynamo  # the first optimizer imports it, for seconds; a run stopped meanwhile would leave it half there
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from tqdm.auto import tqdm

from lockstep.comm import Communicator
from lockstep.data import load, permutation, shard
from lockstep.nn import MODELS
from lockstep.train.strategies import STRATEGIES, Step, add_up, copy_from_rank_0
from lockstep.world.seeding import torch_seed

FAST_IMAGES = 640


@dataclass(frozen=True, eq=False)
class TrainResult:
    """What a training run did; every rank returns the same, but for its clock.

    losses: mean loss over the whole batch, one for each step.
    accuracies: share of the held-out images that are right, one for each epoch.
    seconds: of the training steps alone, without loading and evaluation; virtual in the simulated world.
    images: how many images the steps took in, over all ranks and epochs.
    weights: the trained parameters and buffers, for `model.load_state_dict`.
    """

    strategy: str
    model: str
    data: str
    ranks: int
    threads: int
    device: str
    epochs: int
    batch: int
    lr: float
    seed: int | None
    losses: tuple[float, ...] = field(repr=False)
    accuracies: tuple[float, ...] = field(repr=False)
    seconds: float
    images: int
    weights: dict[str, Tensor] = field(repr=False)

    @property
    def accuracy(self) -> float:
        """Share of the held-out images that are right after the last epoch."""
        return self.accuracies[-1]

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds if self.seconds else math.inf

    def __repr__(self) -> str:
        ranks = "1 process" if self.ranks == 1 else f"{self.ranks} ranks"
        return (
            f"{self.model} on {self.data}, strategy {self.strategy}, {ranks}, {len(self.losses)} steps of "
            f"{self.batch} images: {self.accuracy:.1%} of the held-out images right, last loss {self.losses[-1]:.3f}, "
            f"{self.seconds:.1f} s of training, {self.images_per_second:,.0f} images/s"
        )


def train(
    comm: Communicator | None = None,
    strategy: str = "none",
    model: str = "lenet",
    data: str = "mnist5k",
    epochs: int = 15,
    batch: int = 32,
    lr: float = 0.02,
    seed: int | None = None,
    fast: bool = False,
    verbose: bool = True,
) -> TrainResult:
    """Train `model` on `data`; a function for one process and a rank function alike.

    `train()` runs here, on the GPU if there is one; `launch(train, 2, strategy="naive")` on two ranks. Both see the
    same batches of `batch` images and start from rank 0's weights, so equal seeds give equal losses. Without a
    `seed`, the run's own decides (`launch(..., seed=3)`), or 0 in one process. SGD with momentum 0.9; the learning
    rate falls from `lr` to 0 along half a cosine. `fast` is for tests: one epoch over 640 images. Rank 0 prints the
    data set used and shows progress, unless `verbose=False`.

    Raises ValueError for an argument that cannot be, DataError when the data set cannot be used, and
    FloatingPointError as soon as the loss is no longer finite.
    """
    _check(strategy, model, epochs, batch, lr)
    rank, size = (0, 1) if comm is None else (comm.rank, comm.size)
    device = comm.device if comm else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    now = comm.now if comm else time.perf_counter
    seed = 0 if comm is None and seed is None else seed
    training, held_out = load(data, "train", verbose=verbose and rank == 0), load(data, "test", verbose=False)
    epochs, most = (1, FAST_IMAGES) if fast else (epochs, len(training))
    _check_batch(batch, size, most)
    images, held_out_images = (part.to(device) for part in _normalised(training.images[:most], held_out.images))
    labels, held_out_labels = training.labels[:most].to(device), held_out.labels.to(device)

    losses, accuracies, seconds = [], [], 0.0
    with torch.random.fork_rng(devices=[]):
        own_seed = torch.initial_seed() if seed is None else torch_seed(seed, rank)
        torch.default_generator.manual_seed(own_seed)
        net = MODELS[model](training.shape, len(training.classes)).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
        step = STRATEGIES[strategy](comm, net, optimizer)
        decay = CosineAnnealingLR(optimizer, epochs * math.ceil(most / batch))
        order_seed = _order_seed(comm, own_seed)
        for epoch in _shown(epochs, accuracies, quiet=rank > 0 or fast or not verbose):
            batches = permutation(most, order_seed, epoch).to(device).split(batch)
            net.train()
            start = now()
            losses += _epoch(comm, step, decay, images, labels, batches)
            seconds += now() - start
            accuracies.append(evaluate(comm, net, held_out_images, held_out_labels))
    return TrainResult(
        strategy=strategy,
        model=model,
        data=data,
        ranks=size,
        threads=torch.get_num_threads(),
        device=device.type,
        epochs=epochs,
        batch=batch,
        lr=lr,
        seed=seed,
        losses=tuple(losses),
        accuracies=tuple(accuracies),
        seconds=seconds,
        images=epochs * most,
        weights={name: tensor.detach().cpu().clone() for name, tensor in net.state_dict().items()},
    )


def _epoch(
    comm: Communicator | None,
    step: Step,
    decay: CosineAnnealingLR,
    images: Tensor,
    labels: Tensor,
    batches: Sequence[Tensor],
) -> list[float]:
    """One step for each batch of indices, each rank with its shard of it; the losses over the whole batches."""
    losses = []
    for indices in batches:
        part = range(len(indices)) if comm is None else shard(len(indices), comm.rank, comm.size)
        mine = indices[part.start : part.stop]
        losses.append(step(images[mine], labels[mine], len(indices)))
        if not math.isfinite(losses[-1]):  # the same number on every rank, so all of them stop
            lr = decay.base_lrs[0]
            raise FloatingPointError(f"the loss is {losses[-1]}: training has diverged at lr={lr:g}; try {lr / 10:g}")
        decay.step()
    return losses


@torch.no_grad()
def evaluate(comm: Communicator | None, model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of `images` that the model of rank 0 gets right, counted over all ranks, each image once.

    Every rank counts its own shard and the counts, not the shares, are added up: exact for shards of any size.
    Buffers, which batch norm lets drift apart, are copied from rank 0 first.
    """
    copy_from_rank_0(comm, list(model.buffers()))
    part = range(len(labels)) if comm is None else shard(len(labels), comm.rank, comm.size)
    right = torch.zeros((), dtype=torch.int64, device=labels.device)
    model.eval()
    for indices in torch.arange(part.start, part.stop, device=labels.device).split(500):
        right += (model(images[indices]).argmax(dim=1) == labels[indices]).sum()
    model.train()
    return int(add_up(comm, right)) / len(labels)


def _normalised(training: Tensor, held_out: Tensor) -> tuple[Tensor, Tensor]:
    """Both, shifted and scaled so that each channel of the training images has mean 0 and deviation 1."""
    deviation, mean = torch.std_mean(training, dim=(0, 2, 3), keepdim=True)
    dtype = torch.get_default_dtype()
    return (training - mean).div(deviation).to(dtype), (held_out - mean).div(deviation).to(dtype)


def _order_seed(comm: Communicator | None, own_seed: int) -> int:
    """What the order of the images is drawn from, the same on every rank: rank 0's seed."""
    seed = torch.tensor(own_seed % 2**63, device=comm.device if comm else None)
    copy_from_rank_0(comm, [seed])
    return int(seed)


def _shown(epochs: int, accuracies: list[float], quiet: bool) -> Iterator[int]:
    """0 to epochs - 1, with a bar in a notebook or terminal and lines where neither is, as in a rank; not in CI."""
    bar = tqdm(range(epochs), desc="training", unit="epoch", disable=True if quiet else None)
    lines = bar.disable and not quiet and not os.environ.get("CI")
    for epoch in bar:
        yield epoch
        so_far = f"{accuracies[-1]:.1%} of the held-out images right"
        bar.set_postfix_str(so_far)
        if lines:
            print(f"epoch {epoch + 1} of {epochs}: {so_far}", flush=True)


def _check(strategy: str, model: str, epochs: int, batch: int, lr: float) -> None:
    if strategy not in STRATEGIES:
        raise ValueError(f"there is no strategy {strategy!r}; there are {', '.join(STRATEGIES)}")
    if model not in MODELS:
        raise ValueError(f"there is no model {model!r}; there are {', '.join(MODELS)}")
    for name, value in (("epochs", epochs), ("batch", batch)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    if not isinstance(lr, Real) or not math.isfinite(lr) or lr <= 0:
        raise ValueError(f"lr, the learning rate, must be a number above 0, not {lr!r}")


def _check_batch(batch: int, ranks: int, images: int) -> None:
    if batch > images:
        raise ValueError(f"batch={batch} is more than the {images} images there are to train on; choose at most that")
    if batch < ranks:
        raise ValueError(f"batch={batch} leaves some of the {ranks} ranks without an image; choose at least {ranks}")
