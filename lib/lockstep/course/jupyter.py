"""How JupyterLab is started.

Floor 4, room `course`. Nothing leaves the machine: its looks for news and newer versions are turned off.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def lab_command(folder: Path) -> list[str]:
    """The command that opens JupyterLab at a folder. As root (in a container, say) it needs to be told that it may."""
    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    quiet = ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None"]
    return [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}", *quiet, *root]
