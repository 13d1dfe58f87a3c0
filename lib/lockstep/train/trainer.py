"""The training loop: same model, same batches, same result, whatever the strategy and the number of ranks.

Floor 4. Legend: `batch` counts the images of one step over all ranks; each rank works on its shard of them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch._dynamo  # the first optimizer imports it, for seconds; a run stopped meanwhile would leave it half there
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from tqdm.auto import tqdm

from lockstep.comm import Communicator
from lockstep.data import Normalize, load, permutation, shard
from lockstep.nn import MODELS
from lockstep.parallel import ZeRO, distributed_accuracy
from lockstep.parallel.agreement import copy_from_rank_0
from lockstep.train.arguments import check_batch, check_checkpoints, check_run, named_strategy
from lockstep.train.checkpoints import Checkpoints, kept_by
from lockstep.train.result import TrainResult
from lockstep.train.step import Apart, Kept, Placed, Step, Strategy
from lockstep.world.seeding import torch_seed

FAST_IMAGES = 640


def train(
    comm: Communicator | None = None,
    strategy: str | Strategy = "none",
    model: str = "lenet",
    data: str = "mnist5k",
    epochs: int = 15,
    batch: int = 32,
    lr: float = 0.02,
    seed: int | None = None,
    fast: bool = False,
    verbose: bool = True,
    checkpoint_dir: str | os.PathLike | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
) -> TrainResult:
    """Train `model` on `data`; a function for one process and a rank function alike.

    `train()` runs here, on the GPU if there is one; `launch(train, 2, strategy="ddp")` on two ranks. Both see the
    same batches of `batch` images and start from rank 0's weights, so equal seeds give equal losses, unless the
    strategy lets ranks go on with stale weights. `strategy` is a name in `STRATEGIES` or a function such as those.
    Without a `seed`, the run's own decides (`launch(..., seed=3)`), or 0 in one process. SGD with momentum 0.9; the
    learning rate falls from `lr` to 0 along half a cosine. `fast` is for tests: one epoch over 640 images. Rank 0
    prints the data set used and shows progress, unless `verbose=False`.

    checkpoint_dir: save a checkpoint there after each epoch, or after every `checkpoint_every` steps and at the end; a
    folder that all ranks share. With `resume` the run goes on from the last one there, if there is one, and its result
    is that of a run that never stopped; on another number of ranks but for the last digits, and dropout.

    Raises ValueError for an argument or a checkpoint that cannot be, DataError when the data set cannot be used, and
    FloatingPointError as soon as the ranks know that the loss is no longer finite.
    """
    name, share_out = named_strategy(strategy)
    check_run(model, epochs, batch, lr)
    check_checkpoints(checkpoint_dir, checkpoint_every, resume)
    rank, size = (0, 1) if comm is None else (comm.rank, comm.size)
    device = comm.device if comm else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    seed = 0 if comm is None and seed is None else seed
    used = _load(data, FAST_IMAGES if fast else None, device, verbose and rank == 0)
    epochs = 1 if fast else epochs
    with torch.random.fork_rng(devices=[]):
        own_seed = torch.initial_seed() if seed is None else torch_seed(seed, rank)
        torch.default_generator.manual_seed(own_seed)
        net = MODELS[model](used.shape, used.classes).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
        step = share_out(comm, net, optimizer)
        check_batch(batch, _place(comm, step)[1], len(used.labels))
        decay = CosineAnnealingLR(optimizer, epochs * math.ceil(len(used.labels) / batch))
        quiet = rank > 0 or fast or not verbose
        order = _order_seed(comm, own_seed)
        settings = {
            "model": model,
            "data": data,
            "images": len(used.labels),
            "epochs": int(epochs),
            "batch": int(batch),
        }
        settings |= {"lr": float(lr), "seed": order if seed is None else int(seed)}
        kept = kept_by(step, comm, net, optimizer) if checkpoint_dir is not None else None
        checkpoints = Checkpoints(checkpoint_dir, checkpoint_every, kept, decay, settings, own_seed)
        checkpoints.begin(resume)
        _train_epochs(comm, net, step, decay, used, epochs, batch, order, quiet, checkpoints)
    went = checkpoints.went
    return TrainResult(
        strategy=name,
        model=model,
        data=data,
        ranks=size,
        threads=torch.get_num_threads(),
        device=device.type,
        epochs=epochs,
        batch=batch,
        lr=lr,
        seed=seed,
        losses=tuple(went.losses),
        accuracies=tuple(went.accuracies),
        seconds=went.seconds,
        images=epochs * len(used.labels),
        weights={name: tensor.detach().cpu().clone() for name, tensor in _state(net, step).items()},
    )


@dataclass(frozen=True, eq=False)
class _Used:
    """The images to train on and those held out, normalised, on the device of this rank."""

    images: Tensor
    labels: Tensor
    held_out_images: Tensor
    held_out_labels: Tensor
    shape: tuple[int, int, int]
    classes: int


def _load(data: str, most: int | None, device: torch.device, verbose: bool) -> _Used:
    """The first `most` of the images to train on, and all that are held out."""
    training, held_out = load(data, "train", verbose=verbose), load(data, "test", verbose=False)
    normalize, dtype = Normalize.of(training.images[:most]), torch.get_default_dtype()
    return _Used(
        normalize(training.images[:most]).to(device, dtype),
        training.labels[:most].to(device),
        normalize(held_out.images).to(device, dtype),
        held_out.labels.to(device),
        training.shape,
        len(training.classes),
    )


def _train_epochs(
    comm: Communicator | None,
    net: nn.Module,
    step: Step,
    decay: CosineAnnealingLR,
    used: _Used,
    epochs: int,
    batch: int,
    order_seed: int,
    quiet: bool,
    checkpoints: Checkpoints,
) -> None:
    """Go on from where the last run came to."""
    now, went = comm.now if comm else time.perf_counter, checkpoints.went
    for epoch in _shown(epochs, went.accuracies, quiet):
        batches = permutation(len(used.labels), order_seed, epoch).to(used.labels.device).split(batch)
        begun, ended = epoch * len(batches), (epoch + 1) * len(batches)
        net.train()
        for first, last in checkpoints.stretches(ended):
            start = now()
            went.losses += _steps(comm, step, decay, used.images, used.labels, batches[first - begun : last - begun])
            went.seconds += now() - start
            if last < ended:
                checkpoints.save()
        went.accuracies.append(evaluate(comm, net, used.held_out_images, used.held_out_labels))
        checkpoints.save(due=epoch == epochs - 1)


def _state(net: nn.Module, step: Step) -> dict[str, Tensor]:
    """The parameters and buffers, in fp32 where the model computed in less. Collective."""
    if isinstance(step, Kept) and isinstance(step.kept, ZeRO):
        return step.kept.full_state_dict()
    return net.state_dict()


def _steps(
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
        part = shard(len(indices), *_place(comm, step))
        mine = indices[part.start : part.stop]
        losses.append(step(images[mine], labels[mine], len(indices)))
        _check_finite(losses[-1], decay)
        decay.step()
    if isinstance(step, Apart):
        losses = step.settle()
        for loss in losses:
            _check_finite(loss, decay)
    return losses


def _check_finite(loss: float | None, decay: CosineAnnealingLR) -> None:
    """A loss that is known is the same number on every rank, so all of them stop."""
    if loss is not None and not math.isfinite(loss):
        lr = decay.base_lrs[0]
        raise FloatingPointError(f"the loss is {loss}: training has diverged at lr={lr:g}; try {lr / 10:g}")


def _place(comm: Communicator | None, step: Step) -> tuple[int, int]:
    """(which part of each batch this rank has, how many parts there are)."""
    if isinstance(step, Placed):
        return step.part, step.parts
    return (0, 1) if comm is None else (comm.rank, comm.size)


@torch.no_grad()
def evaluate(comm: Communicator | None, model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of `images` that the model of rank 0 gets right, over all ranks, each of which takes a shard.

    Buffers, which batch norm lets drift apart, are copied from rank 0 first.
    """
    copy_from_rank_0(comm, list(model.buffers()))
    part = range(len(labels)) if comm is None else shard(len(labels), comm.rank, comm.size)
    model.eval()
    logits = torch.cat([model(piece) for piece in images[part.start : part.stop].split(500)])
    model.train()
    return distributed_accuracy(comm, logits, labels[part.start : part.stop])


def _order_seed(comm: Communicator | None, own_seed: int) -> int:
    """What the order of the images is drawn from, the same on every rank: rank 0's seed."""
    seed = torch.tensor(own_seed % 2**63, device=comm.device if comm else None)
    copy_from_rank_0(comm, [seed])
    return int(seed)


def _shown(epochs: int, accuracies: list[float], quiet: bool) -> Iterator[int]:
    """The epochs that have no accuracy yet; with a bar, or lines where neither notebook nor terminal is; not in CI."""
    done = len(accuracies)
    disable = True if quiet else None
    bar = tqdm(range(done, epochs), desc="training", unit="epoch", disable=disable, initial=done, total=epochs)
    lines = bar.disable and not quiet and not os.environ.get("CI")
    for epoch in bar:
        yield epoch
        so_far = f"{accuracies[-1]:.1%} of the held-out images right"
        bar.set_postfix_str(so_far)
        if lines:
            print(f"epoch {epoch + 1} of {epochs}: {so_far}", flush=True)
