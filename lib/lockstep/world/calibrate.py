"""What this machine can do: latency and bandwidth between ranks, FLOP/s and memory bandwidth of one thread.

Floor 1. `calibrate` measures in two ranks of `launch`, about a second's work; `fit_link` turns times
into a `Link`. The result is kept in the user's cache, because it belongs to the machine and not to
the student, whose `my/` may travel.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import torch
from torch import nn

from lockstep.comm import Communicator
from lockstep.hardware import Device, Link
from lockstep.nn.models import LeNet
from lockstep.trace.units import show_bytes, show_number, show_seconds, show_share
from lockstep.world.launch import launch

SIZES = (8, 128, 1024, 8192, 65_536, 524_288, 1_048_576, 4_194_304)  # bytes of a message
COPIED = 64 * 2**20  # bytes: more than most caches hold

# One training step of LeNet on 64 images, one thread, torch 2.14.1, on the machine that the labs'
# "takes about N s" were written on: two virtual cores of an x86-64 cloud server.
REFERENCE_STEP = 0.024

KEPT_WITHIN = 0.25  # a worse fit says that the machine was busy, and is not kept


@dataclass(frozen=True)
class Calibration:
    """One machine's measured figures.

    link: seconds of a message = latency + bytes / bandwidth, between two ranks of this machine.
    device: one thread; float32 FLOP/s of a matrix product, bytes/s of a copy (read and write both counted), its memory.
    convolution: FLOP/s of a 3 x 3 convolution. training_step: seconds of one step of LeNet on 64 images.
    points: the medians that the link was fitted to, as (bytes, seconds). residual: median relative error of the fit.
    seconds: how long calibrating took. machine: what it was measured on.
    """

    link: Link
    device: Device
    convolution: float
    training_step: float
    points: tuple[tuple[int, float], ...]
    residual: float
    seconds: float
    machine: str

    @property
    def gamma(self) -> float:
        """Seconds per byte of reduction by one thread: for each, two bytes are read and one is written."""
        return 3 / self.device.memory_bandwidth

    def scale(self, reference_seconds: float) -> float:
        """Seconds that a cell takes here, from its seconds on the reference machine (`REFERENCE_STEP`), by their training steps.

        Both are of one thread: four ranks on two cores take about twice as long.
        """
        return reference_seconds * self.training_step / REFERENCE_STEP

    def save(self, path: str | Path | None = None) -> Path:
        """Write as JSON, to the user's cache if no path is given; returns the path."""
        path = Path(path) if path is not None else calibration_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        part.write_text(json.dumps(asdict(self), indent=1, allow_nan=False), encoding="utf-8")
        part.replace(path)  # a reader sees the old file or the new one, never half of one
        return path

    @classmethod
    def load(cls, path: str | Path | None = None) -> Calibration:
        """Read what `save` wrote. FileNotFoundError without a file, ValueError when it holds something else."""
        path = Path(path) if path is not None else calibration_file()
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            facts["link"], facts["device"] = Link(**facts["link"]), Device(**facts["device"])
            facts["points"] = tuple((int(size), float(seconds)) for size, seconds in facts["points"])
            return cls(**facts)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{path} holds no calibration ({type(error).__name__}: {error}); calibrate(fresh=True) makes a new one."
            ) from None

    def __repr__(self) -> str:
        rate, width = show_number(self.device.rate() / 1e9), show_bytes(self.device.memory_bandwidth)
        return (
            f"Calibration of {self.machine}: a message takes {show_seconds(self.link.latency)} + bytes / "
            f"({show_bytes(self.link.bandwidth)}/s), within {show_share(self.residual)}; one thread computes "
            f"{rate} GFLOP/s in matrix products and {show_number(self.convolution / 1e9)} in convolutions, and copies "
            f"{width}/s; a training step of LeNet takes {show_seconds(self.training_step)}."
        )


def calibrate(*, fresh: bool = False, path: str | Path | None = None) -> Calibration:
    """Measure this machine, or return what an earlier call measured on it.

    fresh: measure again in any case. path: where the result is kept (the user's cache if not given);
    a link that does not fit its points within 25 % is not kept, because the machine was busy.
    Takes about 2 s; close to nothing when there is a result for this machine and this torch.
    """
    if not fresh:
        try:
            kept = Calibration.load(path)
            if kept.machine == this_machine():
                return kept
        except (OSError, ValueError):
            pass  # no result, or a damaged one: measure
    begun = time.perf_counter()
    found = launch(_measure, 2, timeout=60).values[0]
    latency, bandwidth, residual = fit_link(found["points"])
    source = f"measured by lockstep.world.calibrate on {this_machine()}"
    device = Device(
        "one thread of this machine",
        {"float32": found["matmul"]},
        found["copy"],
        psutil.virtual_memory().total,
        source,
    )
    result = Calibration(
        Link(latency, bandwidth, source),
        device,
        found["convolution"],
        found["training_step"],
        tuple(found["points"]),
        residual,
        time.perf_counter() - begun,
        this_machine(),
    )
    try:
        if residual <= KEPT_WITHIN:
            result.save(path)
    except OSError:
        if path is not None:
            raise
        # a home that cannot be written: the next call measures again
    return result


def fit_link(points: Sequence[tuple[int, float]]) -> tuple[float, float, float]:
    """Latency (s), bandwidth (bytes/s) and median relative error of t = latency + n / bandwidth, from (n, t) points.

    Least squares of the *relative* errors, so that 100 µs count as much as 10 ms, with Huber's weights,
    so that one slow message does not bend the line (Huber 1964). Latency is at least 0.
    Raises ValueError without two different sizes, or when larger messages are not slower.
    """
    n, t = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True)) if points else ((), ())
    if len(set(n)) < 2 or not (np.isfinite(t).all() and np.min(t) > 0):
        raise ValueError(f"A link is fitted to times above 0 of at least two message sizes, not to {list(points)}.")
    weight = np.ones_like(t)
    for _ in range(50):
        alpha, beta = _weighted_line(n, t, weight / t)
        relative = np.abs(alpha + beta * n - t) / t
        spread = max(1.4826 * np.median(relative), 1e-12)
        weight = np.sqrt(np.minimum(1.0, 1.345 * spread / np.maximum(relative, 1e-300)))
    if beta <= 0:
        raise ValueError(f"Larger messages were not slower, so there is no bandwidth to fit: {list(points)}.")
    return float(alpha), float(1 / beta), float(np.median(relative))


def calibration_file() -> Path:
    """Where a calibration is kept: `lockstep/calibration.json` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lockstep" / "calibration.json"


def this_machine() -> str:
    """What a calibration is valid for: cores, architecture, system and torch."""
    return f"{os.cpu_count()} cores {platform.machine()} {platform.system()}, torch {torch.__version__}"


def _weighted_line(n: np.ndarray, t: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """alpha >= 0 and beta that minimise the sum of (weight (alpha + beta n - t))^2."""
    (alpha, beta), *_ = np.linalg.lstsq(np.stack([weight, weight * n], axis=1), weight * t, rcond=None)
    if alpha < 0:
        return 0.0, float(np.sum(weight**2 * n * t) / np.sum((weight * n) ** 2))
    return alpha, beta


def _measure(comm: Communicator) -> dict | None:
    """The rank function: both ranks send to and fro, then the first computes alone."""
    points = [(size, _one_way(comm, size)) for size in SIZES]
    return {"points": points, **_one_thread()} if comm.rank == 0 else None


def _one_way(comm: Communicator, size: int, budget: float = 0.15) -> float:
    """Median seconds of a message of `size` bytes: half of there and back, for about `budget` seconds.

    Rank 0 decides when it is enough, and says so in the first byte.
    """
    buffer = torch.zeros(size, dtype=torch.uint8)
    times: list[float] = []
    while not buffer[0]:
        begun = time.perf_counter()
        if comm.rank == 0:
            buffer[0] = len(times) >= 5 and (sum(times) > budget / 2 or len(times) > 60)
            comm.send(buffer, 1)
            comm.recv(buffer, 1)
        else:
            comm.recv(buffer, 0)
            comm.send(buffer, 0)
        times.append((time.perf_counter() - begun) / 2)
    return median(times[1:])  # the first one warms up


def _one_thread() -> dict[str, float]:
    """FLOP/s, bytes/s and seconds of what one thread does most in this course."""
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    x_NCHW, w_OIKK = torch.randn(8, 32, 28, 28), torch.randn(64, 32, 3, 3)
    source, target = torch.zeros(COPIED // 4), torch.zeros(COPIED // 4)
    model, images, labels = LeNet(), torch.randn(64, 1, 28, 28), torch.randint(10, (64,))

    def step() -> None:  # by hand: making one of torch's optimizers imports its compiler, which takes seconds
        model.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad

    with torch.no_grad():
        product = _seconds(lambda: a @ b)
        convolution = _seconds(lambda: nn.functional.conv2d(x_NCHW, w_OIKK, padding=1))
        copy = _seconds(lambda: target.copy_(source))
    return {
        "matmul": 2 * 512**3 / product,
        "convolution": 2 * 8 * 64 * 28 * 28 * 32 * 9 / convolution,
        "copy": 2 * COPIED / copy,
        "training_step": _seconds(step),
    }


def _seconds(work: Callable[[], object], budget: float = 0.15) -> float:
    """Median seconds of one call, over at least five calls and about `budget` seconds.

    By this thread's own clock where that is fine enough (Windows ticks every 16 ms), so that another
    program on the same core does not count.
    """
    clock = time.thread_time if time.get_clock_info("thread_time").resolution < 1e-4 else time.perf_counter
    work()
    times: list[float] = []
    while len(times) < 5 or sum(times) < budget:
        begun = clock()
        work()
        times.append(clock() - begun)
    return median(times)
