"""How well this machine can shut a student's process in.

Floor 4, room `course`. Three levels, best first:

| level        | what shuts in                                                                                   |
|--------------|-------------------------------------------------------------------------------------------------|
| "bubblewrap" | a file system of its own, read-only; own process numbers and network; root: another user as well |
| "user"       | another user, to whom nothing of the grader belongs; needs root                                  |
| "process"    | a process of the same user                                                                       |

Limits of time, memory, processes, files and output hold at every level. Where the kernel has Landlock, every level also
opens only what Python and torch are made of, connects nowhere, and cannot signal or read processes outside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

LEVELS = ("bubblewrap", "user", "process")
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/opt/hostedtoolcache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/proc/cpuinfo", "/proc/meminfo")
FIRST_USER, USERS = 61_000, 4_000  # numbers of users that nobody has


def level(asked: str = "auto") -> str:
    """The level to use: the best there is, or the one that is asked for.

    Raises ValueError for one that does not exist or that this machine does not give, with the reason.
    """
    if asked == "auto":
        return next(one for one in LEVELS if not lacking(one))
    if asked not in LEVELS:
        raise ValueError(f"isolation is 'auto' or one of {', '.join(LEVELS)}, not {asked!r}")
    if why := lacking(asked):
        raise ValueError(f"this machine does not give isolation {asked!r}: {why}")
    return asked


@cache
def lacking(level: str) -> str:
    """Why this machine does not give a level; "" where it does."""
    if level == "bubblewrap":
        return _bubblewrap()
    if level == "user":
        if not hasattr(os, "geteuid") or os.geteuid() != 0:
            return "only root can change the user"
        return "" if _can_change_user() else "root may not change the user here"
    return "" if sys.platform == "linux" else "students' code is run on Linux only"


def _bubblewrap() -> str:
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed (`apt-get install bubblewrap`)"
    try:
        tried = subprocess.run(
            [program, *bubblewrap_options(), "true"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not start: {error}"
    if tried.returncode:
        said = (tried.stderr.strip() or f"exit status {tried.returncode}").splitlines()[-1]
        return f"bubblewrap may not make namespaces here ({said})"
    return ""


def bubblewrap_options() -> list[str]:
    """A system that can only be read, an empty /tmp, no process and no network but its own."""
    options = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session"]
    if os.geteuid() == 0:  # to change the user of each student's process, and to end it
        options += ["--cap-drop", "ALL"]
        for capability in ("SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_RESOURCE"):
            options += ["--cap-add", f"CAP_{capability}"]
    options += ["--size", str(256 << 20), "--tmpfs", "/tmp"]  # first: a clone of the course may lie in /tmp
    for path in SYSTEM:
        options += ["--ro-bind-try", path, path]
    for path in python_folders():
        options += ["--ro-bind-try", path, path]
    for path in hidden_in_python():
        options += ["--tmpfs", path]
    return [*options, "--proc", "/proc", "--dev", "/dev"]


def python_folders() -> list[str]:
    """Where this Python and its packages are."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names}
    folders |= {str(Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")), os.path.dirname(sys.executable)}
    folders |= {os.path.join(os.path.dirname(os.path.realpath(sys.executable)), "")[:-1]}
    folders |= {str(Path(sys.prefix) / "pyvenv.cfg")}
    return sorted(folder for folder in folders if os.path.exists(folder))


def hidden_in_python() -> list[str]:
    """Copies of this library among the packages."""
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return sorted(str(path) for place in places if (path := Path(place) / "lockstep").is_dir())


@cache
def readable() -> tuple[str, ...]:
    """What a student's process may open: Python, its packages without this library, the system's libraries."""
    hidden = {Path(path) for path in hidden_in_python()}
    folders = [*SYSTEM, *DEVICES, *python_folders()]
    return tuple(str(path) for folder in folders for path in _without(Path(folder), hidden))


def _without(folder: Path, hidden: set[Path]) -> list[Path]:
    """The folder, or, where something hidden lies in it, all that lies beside that."""
    if folder in hidden:
        return []
    if not any(path.is_relative_to(folder) for path in hidden):
        return [folder]
    return [kept for inside in folder.iterdir() for kept in _without(inside, hidden)]


def missing() -> list[str]:
    """What this machine lacks, as sentences: the levels that are better than the one used, and Landlock."""
    from lockstep.course.sandbox.inside.rules import landlock_version  # which needs a system with limits

    used = level()
    said = [f"No isolation {one!r}: {lacking(one)}." for one in LEVELS[: LEVELS.index(used)]]
    if not landlock_version():
        said.append(
            "The kernel has no Landlock: "
            + (
                "files that everybody may read can be read."
                if used != "bubblewrap"
                else "only namespaces shut files in."
            )
        )
    return said


def _can_change_user() -> bool:
    """Tried in a child: a container may have taken the right away."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(FIRST_USER, FIRST_USER, FIRST_USER)
            os.setresuid(FIRST_USER, FIRST_USER, FIRST_USER)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0
