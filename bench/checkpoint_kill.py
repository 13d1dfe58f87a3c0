"""Kill a rank at a random moment of a save, again and again: the run goes on from a whole checkpoint each time.

    python bench/checkpoint_kill.py                  50 kills of ZeRO stage 2 on two ranks
    python bench/checkpoint_kill.py --kills 20 --ranks 3 --stage 3

A small network trains with a checkpoint after every step. In each run one rank, drawn at random, is killed (SIGKILL) at
a random moment within 1.4 times what a save takes, and then the others, wherever they are. The next run loads what is
left, checks it, and goes on. All losses, those of the checkpoints included, are compared bit for bit with the ones of a
run that nobody disturbed. Printed: how many kills left a checkpoint half written, how many came when it was complete.
Ranks are forked from this process, which has torch imported and computes nothing: a run takes less than a second.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import torch._dynamo  # each rank would import both, for seconds
import torch.distributed.checkpoint
import typer
from torch import distributed, nn
from torch.nn import functional as F

from lockstep.comm import Communicator, from_torch
from lockstep.parallel import ZeRO, load_checkpoint, save_checkpoint
from lockstep.parallel.checkpoint import all_checkpoints, latest_checkpoint
from lockstep.parallel.checkpoint.folders import described

WIDTH, BATCH = 64, 12


@dataclass(frozen=True)
class Kill:
    """Of that rank, so many seconds after its last save has begun."""

    rank: int
    after: float


def train(comm: Communicator, folder: Path, stage: int, until: int, kill: Kill | None) -> None:
    """Go on from the last checkpoint in `folder` to step `until`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 10))
    zero = ZeRO(model, lambda shards: torch.optim.Adam(shards, lr=0.01), comm, stage)
    losses = load_checkpoint(folder, zero).extra["losses"] if latest_checkpoint(folder) else []
    took = 0.0
    while len(losses) < until:
        generator = torch.Generator().manual_seed(len(losses))
        images, labels = torch.randn(BATCH, WIDTH, generator=generator), torch.arange(BATCH) % 10
        mine = slice(comm.rank * BATCH // comm.size, (comm.rank + 1) * BATCH // comm.size)
        loss = F.cross_entropy(zero(images[mine]), labels[mine], reduction="sum") / BATCH
        (loss * comm.size).backward()
        zero.step()
        losses.append(comm.all_reduce(loss.detach().double()).item())
        comm.barrier()
        if kill and kill.rank == comm.rank and len(losses) == until:
            threading.Timer(kill.after, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        begun = time.perf_counter()
        save_checkpoint(folder, zero, len(losses), {"losses": losses, "took": took})
        took = time.perf_counter() - begun
    if kill:
        time.sleep(60)  # it may come after the save


def rank_process(rank: int, ranks: int, store: Path, *arguments: object) -> None:
    """What a rank's process does."""
    torch.set_num_threads(1)
    if arguments[-1] is not None:  # the others find that one is gone, each with an error of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    train(from_torch(), *arguments)


def run(folder: Path, ranks: int, stage: int, until: int, kill: Kill | None = None) -> None:
    """Train in processes of their own; with `kill`, until that rank is dead, and then no rank is alive.

    Raises AssertionError when they end in another way.
    """
    with tempfile.TemporaryDirectory() as meeting:
        fork = multiprocessing.get_context("fork")
        arguments = (ranks, Path(meeting) / "store", folder, stage, until, kill)
        processes = [fork.Process(target=rank_process, args=(rank, *arguments), daemon=True) for rank in range(ranks)]
        for process in processes:
            process.start()
        ends = [processes[kill.rank]] if kill else processes
        for process in ends:
            process.join(100)
        codes = [process.exitcode for process in ends]
        for process in processes:
            process.kill()
            process.join()
        assert codes == ([-signal.SIGKILL] if kill else [0] * ranks), f"the ranks ended with {codes}"


def losses_in(folder: Path) -> tuple[list[float], float]:
    """(losses so far, seconds of the save before) from the last checkpoint; none where there is none."""
    latest = latest_checkpoint(folder)
    extra = described(latest)["extra"] if latest else {"losses": [], "took": 0.0}
    return extra["losses"], extra["took"]


def kill_again_and_again(folder: Path, kills: int, ranks: int, stage: int, draw: random.Random) -> dict[str, int]:
    """How many kills came at which moment. Raises AssertionError where a loss differs or a checkpoint is missing."""
    run(folder / "undisturbed", ranks, stage, kills + 1)
    (undisturbed, took), disturbed = losses_in(folder / "undisturbed"), folder / "disturbed"
    moments, at = {"before": 0, "half written": 0, "complete": 0}, 0
    for _ in range(kills):
        run(disturbed, ranks, stage, at + 1, Kill(draw.randrange(ranks), draw.uniform(0, 1.4 * took)))
        complete = (disturbed / f"step-{at + 1:09d}").is_dir()
        half = any(disturbed.glob(f".step-{at + 1:09d}*"))
        moments["complete" if complete else "half written" if half else "before"] += 1
        at += complete
        losses, _ = losses_in(disturbed)
        assert losses == undisturbed[:at], f"after a kill {losses}, undisturbed {undisturbed}"
        assert len(all_checkpoints(disturbed)) >= min(at, 2), f"{all_checkpoints(disturbed)} after step {at}"
    run(disturbed, ranks, stage, at + 1)
    losses, _ = losses_in(disturbed)
    assert losses == undisturbed[: at + 1], f"at the end {losses}, undisturbed {undisturbed}"
    return moments


def main(
    kills: Annotated[int, typer.Option(help="How often.")] = 50,
    ranks: Annotated[int, typer.Option(help="How many processes train.")] = 2,
    stage: Annotated[int, typer.Option(help="Of ZeRO.")] = 2,
    seed: Annotated[int, typer.Option(help="Of ranks and moments.")] = 0,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        moments = kill_again_and_again(Path(folder), kills, ranks, stage, random.Random(seed))
    said = ", ".join(f"{count} {moment}" for moment, count in moments.items())
    print(f"{kills} kills of {ranks} ranks, stage {stage}: {said}; every run went on from a whole checkpoint,")
    print(f"and all losses are those of the run that nobody disturbed (torch {torch.__version__})")


if __name__ == "__main__":
    typer.run(main)
