"""The trainer as a command: `python -m lockstep.train --help`, alone or under torchrun.

Floor 4. Under torchrun the ranks are its processes; only rank 0 prints.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import distributed

from lockstep.comm import Communicator, from_torch
from lockstep.compress import COMPRESSORS, NotFinite
from lockstep.data import NAMES, DataError
from lockstep.nn import MODELS
from lockstep.parallel.precision import PRECISIONS
from lockstep.train.meshed import SYNCHRONOUS
from lockstep.train.result import TrainResult
from lockstep.train.strategies import STRATEGIES, configured
from lockstep.train.trainer import train


def command(
    strategy: Annotated[str, typer.Option(help=f"How ranks share a step: {', '.join(STRATEGIES)}.")] = "none",
    schedule: Annotated[
        str | None, typer.Option(help=f"Of pipeline and hybrid, by default 1f1b: {', '.join(SYNCHRONOUS)}.")
    ] = None,
    micro_batches: Annotated[
        int | None, typer.Option(help="Of pipeline and hybrid, by default two for each pipeline rank.")
    ] = None,
    mesh: Annotated[str | None, typer.Option(help="Of hybrid, such as data=2,pipeline=2 or data=2,tensor=2.")] = None,
    precision: Annotated[
        str | None, typer.Option(help=f"Of zero1, zero2 and zero3, by default fp32: {', '.join(PRECISIONS)}.")
    ] = None,
    compress: Annotated[
        str | None, typer.Option(help=f"Of ddp, such as topk:0.01 or powersgd:2: {', '.join(COMPRESSORS)}.")
    ] = None,
    feedback: Annotated[
        bool, typer.Option("--feedback", help="Of ddp with --compress: send later what was not sent.")
    ] = False,
    model: Annotated[str, typer.Option(help=f"The network: {', '.join(MODELS)}.")] = "lenet",
    data: Annotated[str, typer.Option(help=f"The data set: {', '.join(NAMES)}.")] = "mnist5k",
    epochs: Annotated[int, typer.Option(help="Times through the training images.")] = 15,
    batch: Annotated[int, typer.Option(help="Images in a step, over all ranks.")] = 32,
    lr: Annotated[float, typer.Option(help="Learning rate of SGD with momentum 0.9, at the start.")] = 0.02,
    seed: Annotated[int, typer.Option(help="Fixes the weights at the start and the order of the images.")] = 0,
    threads: Annotated[int | None, typer.Option(help="CPU threads of each rank; torch decides without it.")] = None,
    checkpoint_dir: Annotated[
        Path | None, typer.Option(help="Save checkpoints in this folder, which all machines share, after each epoch.")
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Save after every so many steps instead.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint there, if there is one.")
    ] = False,
    fast: Annotated[bool, typer.Option("--fast", help="One epoch over few images, for tests.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results to this file.")] = None,
) -> None:
    """Train a convolutional network in one process, or in the ranks of torchrun:

    torchrun --nproc-per-node=2 -m lockstep.train --strategy ddp
    """
    rank = int(os.environ.get("RANK", 0))
    try:
        _check(threads, json_file if rank == 0 else None)
        if threads is not None:
            torch.set_num_threads(threads)
        options = {"schedule": schedule, "micro_batches": micro_batches, "mesh": mesh, "precision": precision}
        options |= {"compress": compress, "feedback": feedback or None}
        chosen = configured(strategy, options)
        with _ranks_of_torchrun() as comm:
            result = train(
                comm, chosen, model, data, epochs, batch, lr, seed, fast, True, checkpoint_dir, checkpoint_every, resume
            )
    except NotFinite as error:  # perhaps on one rank only, which it names
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error
    except (ValueError, FloatingPointError) as error:  # the same on every rank
        if rank == 0:
            typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error
    except DataError as error:  # perhaps on one machine only
        typer.echo(f"Error on rank {rank}: {error}", err=True)
        raise typer.Exit(2) from error
    if rank == 0:
        typer.echo(str(result))
        if json_file:
            json_file.write_text(_as_json(result), encoding="utf-8")


def main() -> None:
    """The command line of `python -m lockstep.train`."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    app(prog_name="python -m lockstep.train")


@contextmanager
def _ranks_of_torchrun() -> Iterator[Communicator | None]:
    """The communicator of torchrun's ranks for as long as they train; None when torchrun did not start us."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield None
        return
    gpus = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(minutes=5))
    try:
        yield from_torch()
    finally:
        distributed.destroy_process_group()


def _check(threads: int | None, json_file: Path | None) -> None:
    """What would otherwise only fail after the training."""
    if threads is not None and threads < 1:
        raise ValueError(f"--threads {threads}: a rank needs at least 1")
    if json_file and not json_file.absolute().parent.is_dir():
        raise ValueError(f"--json {json_file}: there is no folder {json_file.absolute().parent}; make it first")


def _as_json(result: TrainResult) -> str:
    """Everything but the weights."""
    values = {name: value for name, value in vars(result).items() if name != "weights"}
    return json.dumps(values | {"accuracy": result.accuracy, "images_per_second": result.images_per_second}, indent=1)
