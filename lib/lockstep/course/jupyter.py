"""How JupyterLab is started.

Floor 4, room `course`. Nothing leaves the machine: its looks for news and newer versions are turned off. Where it
can, it encrypts what it says to its kernels, so that nobody else on a shared machine reads along.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def lab_command(folder: Path) -> list[str]:
    """The command that opens JupyterLab at a folder. As root (in a container, say) it needs to be told that it may."""
    options = ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None"]
    if can_encrypt():
        options.append("--KernelManager.transport_encryption=auto")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")
    return [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}", *options]


def can_encrypt() -> bool:
    """Whether this Jupyter and its messaging library can encrypt; without, a kernel warns at every start."""
    import zmq
    from jupyter_client import KernelManager

    return hasattr(KernelManager, "transport_encryption") and zmq.has("curve")
