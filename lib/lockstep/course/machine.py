"""The doctor: what this machine offers, and what that means for the labs.

Floor 4, room `course`. Each finding is looked at, not guessed: gloo by two ranks that add up a number, a data set
by loading it. Only what makes the labs unusable counts as a failure; the rest is said and lived with.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from lockstep.exercises.card import Card, Row

PER_RANK = 0.35e9  # bytes that one rank with torch imported takes


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what it is, what it means for the labs, and whether the labs can be used at all."""

    name: str
    says: str
    means: str
    usable: bool = True


@dataclass(frozen=True, repr=False)
class Report:
    """What the doctor found; shown as a card in a notebook and as text anywhere else."""

    findings: tuple[Finding, ...]

    @property
    def usable(self) -> bool:
        return all(finding.usable for finding in self.findings)

    @property
    def card(self) -> Card:
        broken = [finding.name for finding in self.findings if not finding.usable]
        badge = f"not usable yet: {', '.join(broken)}" if broken else "ready"
        rows = tuple(Row(finding.name, f"{finding.says}. {finding.means}") for finding in self.findings)
        return Card("This machine", badge, "bad" if broken else "good", rows)

    def __repr__(self) -> str:
        return self.card.text

    def _repr_html_(self) -> str:
        return self.card._repr_html_()


def examine() -> Report:
    """Look at this machine: cores, memory, GPUs, gloo, NCCL, /dev/shm, data and versions. Takes a few seconds."""
    looks = (versions, cores, memory, gpus, gloo, shared_memory, data_sets, grading)
    return Report(tuple(finding for look in looks if (finding := look()) is not None))


def versions() -> Finding:
    import torch

    names = ("torch", "torchvision", "numpy", "jupyterlab", "ipywidgets")
    known = [f"{name} {importlib.metadata.version(name)}" for name in names if _is_installed(name)]
    missing = [name for name in names if not _is_installed(name)]
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if missing:
        means = f"Missing: {', '.join(missing)}. `./course` installs them."
    elif (2, 11) <= release < (2, 15):
        means = "The labs are tested with these."
    else:
        means = "The labs are tested with torch 2.11 to 2.14."
    return Finding("versions", f"Python {platform.python_version()}, {', '.join(known)}", means, release >= (2, 11))


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def usable_cores() -> float:
    """Cores that this process may use: its affinity, and the share a container grants it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        return cores


def cores() -> Finding:
    count = usable_cores()
    says = f"{count:g} core{'' if count == 1 else 's'} usable of {os.cpu_count()}"
    if count < 4:
        means = (
            f"Four real ranks share {'it' if count == 1 else 'them'}, so they gain little time. "
            "Labs show speed-ups in the paced and the simulated world."
        )
    else:
        means = f"Up to {int(count)} real ranks with one thread each run side by side."
    return Finding("cores", says, means)


def memory() -> Finding:
    available = psutil.virtual_memory().available
    ranks = int(available / PER_RANK)
    means = (
        f"Enough for about {ranks} real ranks." if ranks >= 4 else "Four ranks need about 1.5 GB: close other programs."
    )
    return Finding("memory", f"{available / 2**30:.1f} GiB free", means, ranks >= 2)


def gpus() -> Finding:
    import torch

    count = torch.cuda.device_count()
    if not count:
        return Finding("GPUs", "none that torch can use", "No lab needs one: ranks run on cores, over gloo.")
    names = ", ".join(sorted({torch.cuda.get_device_name(i) for i in range(count)}))
    nccl = torch.distributed.is_nccl_available()
    if count > 1 and nccl:
        means = f"Up to {count} ranks get a GPU each and talk over NCCL."
    elif nccl:
        means = "One rank can use it. Two NCCL ranks cannot share a GPU, so more ranks run on cores, over gloo."
    else:
        means = "This torch has no NCCL, so ranks talk over gloo."
    return Finding("GPUs", f"{count} ({names})", means)


def _add_up(comm) -> float:
    import torch

    return comm.all_reduce(torch.tensor(float(comm.rank + 1))).item()


def gloo() -> Finding:
    from lockstep.world import RunError, launch

    try:
        run = launch(_add_up, 2, backend="gloo", timeout=60)
    except (RunError, OSError) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        return Finding("gloo", f"two ranks could not talk: {first}", "No lab works without it.", usable=False)
    right = run.values == [3.0, 3.0]
    if not right:
        return Finding("gloo", f"two ranks added 1 and 2 to {run.values}", "No lab works without it.", usable=False)
    return Finding("gloo", f"two ranks added up a number in {run.seconds:.2f} s", "Ranks can be launched here.")


def shared_memory() -> Finding | None:
    """Linux only: DataLoader workers hand their batches over through /dev/shm."""
    place = Path("/dev/shm")
    if not place.is_dir():
        return None
    free = shutil.disk_usage(place).free
    says = f"{free / 2**30:.2f} GiB free"
    if free < 2**28:
        return Finding(
            "/dev/shm", says, "Too little for DataLoader workers: use num_workers=0, or docker's --shm-size=1g."
        )
    return Finding("/dev/shm", says, "Enough for DataLoader workers.")


def data_sets() -> Finding:
    from lockstep import data

    ready, wrong = [], []
    for name in ("mnist5k", "digits", "shapes32"):
        try:
            data.load(name, "test", verbose=False)
            ready.append(name)
        except (data.DataError, ImportError, OSError) as error:
            wrong.append(f"{name} cannot be loaded: {error}")
    if wrong:
        return Finding("data", "; ".join(wrong), "The labs that train on it cannot run.", usable=bool(ready))
    return Finding("data", ", ".join(ready) + " load", "Nothing will be downloaded.")


def grading() -> Finding | None:
    """Linux only: how well `lockstep grade` can shut students' code in."""
    from lockstep.course.sandbox import levels

    if levels.lacking("process"):
        return None
    lacking = " ".join(levels.missing()) or "No better one is known."
    return Finding("grading", f"`lockstep grade` runs students' code at isolation {levels.level()!r}", lacking)
