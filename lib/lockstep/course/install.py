"""Makes `.venv` once and hands on to the `lockstep` command in it: what `./course` and `course.cmd` run.

Floor 4, room `course`. It runs before anything is installed, by path, so it imports the standard library only.

`.venv/lockstep-setup.json` says how far a set-up came. It is written before the first package ("installing") and
after the last ("finished", with a hash of everything the set-up depended on):

    | .venv                   | what is done                                                    |
    |-------------------------|-----------------------------------------------------------------|
    | missing                 | made                                                            |
    | finished, same hash     | nothing                                                         |
    | finished, another hash  | brought up to date in place (the lock file or pyproject changed) |
    | installing              | removed and made again: an installer was stopped half-way       |
    | without the file        | somebody's own: packages are added in place                     |
    | its Python does not run | removed and made again                                          |

A lock on `.venv-lock` lets one set-up run at a time. The operating system frees it when its holders die, and the
installer is one of them, so it is never stale and a new set-up never meets the last one's orphan.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[3]
WINDOWS = os.name == "nt"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CUDA_INDEX = "https://download.pytorch.org/whl/cu130"  # only Windows needs it: elsewhere the package index has CUDA
ANSWER_WITHIN = 3.0  # seconds
STATE = "lockstep-setup.json"
# The test tools are installed with the rest: they are small beside torch, and `./course test` then sets up nothing.
PROJECT = ".[test]"


class SetupError(Exception):
    """A set-up that cannot go on; the message says what to do."""


def main(arguments: Sequence[str]) -> int:
    """Set up if need be, then run `lockstep` with these arguments; returns its exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        environment = ensure(ROOT, os.environ)
    except SetupError as error:
        print(f"course: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"course: the set-up failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncourse: the set-up was interrupted; the next ./course starts it again.", file=sys.stderr)
        return 130
    return hand_on(environment, arguments)


def hand_on(environment: Path, arguments: Sequence[str]) -> int:
    """Become the environment's `lockstep` command; on Windows, which cannot, wait for it."""
    scripts = environment / ("Scripts" if WINDOWS else "bin")
    command = [str(scripts / ("lockstep.exe" if WINDOWS else "lockstep")), *arguments]
    variables = dict(os.environ)
    variables["VIRTUAL_ENV"] = str(environment)
    variables["PATH"] = f"{scripts}{os.pathsep}{variables.get('PATH', os.defpath)}"
    for name in ("PYTHONHOME", "PYTHONPATH"):  # another project's modules must not shadow the course's
        variables.pop(name, None)
    if not WINDOWS:
        os.execve(command[0], command, variables)
    with contextlib.suppress(KeyboardInterrupt):  # the child gets the interrupt too and ends by itself
        return subprocess.call(command, env=variables)
    return 130


def ensure(root: Path, variables: Mapping[str, str]) -> Path:
    """The path of a finished environment for this clone; makes or updates it when it is missing or stale."""
    environment = root / ".venv"
    wanted = variables.get("LOCKSTEP_TORCH", "")
    if wanted not in ("", "cpu", "cuda", "default"):
        raise SetupError(f"LOCKSTEP_TORCH is {wanted!r}; it may be 'cpu', 'cuda' or 'default'.")
    if finished(environment, root, wanted):
        return environment
    if Path(sys.prefix) == environment and Path(base_python()).is_file():
        # An environment cannot be made again by the Python inside it.
        command = [base_python(), "-P", __file__, *sys.argv[1:]]
        if WINDOWS:
            sys.exit(subprocess.call(command))
        os.execv(command[0], command)
    with locked(root / ".venv-lock") as lock:
        if not finished(environment, root, wanted):
            set_up(environment, root, wanted, variables, lock)
    return environment


def base_python() -> str:
    """The interpreter below any virtual environment that this one runs in."""
    return getattr(sys, "_base_executable", "") or sys.executable


def digest(root: Path) -> str:
    """Hash of everything a set-up depends on: the lock file, pyproject and where the clone lies (scripts name it)."""
    parts = [(root / name).read_bytes().replace(b"\r\n", b"\n") for name in ("requirements.lock", "pyproject.toml")]
    return hashlib.sha256(b"\0".join([*parts, os.fsencode(root)])).hexdigest()


def state(environment: Path) -> dict[str, str]:
    """What the environment says of its own set-up; empty for somebody's own environment."""
    try:
        return json.loads((environment / STATE).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        return {"state": "installing"}  # torn: the set-up died while writing it


def write_state(environment: Path, **values: str) -> None:
    temporary = environment / f"{STATE}.new"
    temporary.write_text(json.dumps(values))
    os.replace(temporary, environment / STATE)


def finished(environment: Path, root: Path, wanted: str) -> bool:
    """True when nothing is to be done: same hash, the wanted torch, and its Python is still there."""
    now = state(environment)
    same_torch = wanted in ("", now.get("torch"))
    return now.get("state") == "finished" and now.get("digest") == digest(root) and same_torch and runs(environment)


def python_of(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if WINDOWS else "bin/python")


def runs(environment: Path) -> bool:
    """Whether the environment's interpreter exists; a link to a Python that was removed does not count."""
    return python_of(environment).exists()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Hold an operating-system lock on the file; says so when another set-up makes this one wait."""
    with open(path, "a") as file:
        if not try_lock(file):
            print("course: another ./course is setting up; waiting for it.", file=sys.stderr)
            while not try_lock(file):
                time.sleep(0.2)
        yield file


def try_lock(file: IO[str]) -> bool:
    """Take the lock if it is free. A file system without locks (some network drives) counts as free."""
    try:
        if WINDOWS:
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def set_up(environment: Path, root: Path, wanted: str, variables: Mapping[str, str], lock: IO[str]) -> None:
    """Make the environment, or bring it up to date, and mark it finished. The lock is held."""
    before = state(environment)
    another_torch = before.get("state") == "finished" and wanted not in ("", before.get("torch"))
    broken = environment.exists() and not runs(environment)
    if before.get("state") == "installing" or broken or another_torch:
        remove(environment)
    torch = wanted or before.get("torch") or choose_torch()
    own = environment.exists() and not before
    installers = ["uv", "pip"] if shutil.which("uv", path=variables.get("PATH")) else ["pip"]
    for installer in installers:
        try:
            if not own:
                environment.mkdir(exist_ok=True)
                write_state(environment, state="installing")
            install(installer, environment, root, torch, variables, lock)
            break
        except SetupError as error:
            if installer == installers[-1]:
                raise
            print(f"course: {error} Trying pip.", file=sys.stderr)
            if not own:
                remove(environment)
    write_state(environment, state="finished", digest=digest(root), torch=torch)


def remove(environment: Path) -> None:
    try:
        shutil.rmtree(environment)
    except OSError as error:
        raise SetupError(f"a half-made {environment} cannot be removed ({error}). Remove it and try again.") from None


def choose_torch() -> str:
    """ "cpu" on Linux without an NVIDIA driver when PyTorch's CPU index answers; otherwise "default".

    The package index has only the CUDA build for Linux, several GB that such a machine cannot use.
    """
    if platform.system() != "Linux" or has_nvidia_driver():
        return "default"
    return "cpu" if answers(CPU_INDEX + "/torch/") else "default"


def has_nvidia_driver() -> bool:
    """Whether a driver is loaded (Linux proper, or Windows' own through WSL)."""
    signs = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
    return any(Path(sign).exists() for sign in signs)


def answers(address: str, within: float = ANSWER_WITHIN) -> bool:
    """Whether a web address answers in time, name look-up and all (which no socket timeout limits, hence the thread)."""
    outcome: list[bool] = []

    def ask() -> None:
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(address, timeout=within) as reply:
            outcome.append(reply.status == 200)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(within)
    return outcome == [True]


def torch_index(torch: str) -> list[str]:
    """The options, for uv and pip alike, that make this build of torch the preferred one."""
    if torch == "cpu":
        return ["--extra-index-url", CPU_INDEX]
    if torch == "cuda" and WINDOWS:
        return ["--extra-index-url", CUDA_INDEX]
    return []


def install(
    installer: str, environment: Path, root: Path, torch: str, variables: Mapping[str, str], lock: IO[str]
) -> None:
    """Run one installer to its end, showing one line of progress; raises SetupError with what it said last."""
    python = str(python_of(environment))
    what = ["-r", "requirements.lock", "-e", PROJECT, *torch_index(torch)]
    if installer == "uv":
        make = ["uv", "venv", "--allow-existing", "--seed", "--python", base_python(), str(environment)]
        fill = ["uv", "pip", "install", "--python", python, "--index-strategy", "unsafe-best-match", *what]
    else:
        make = [base_python(), "-m", "venv", str(environment)]
        fill = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
        # A module is compiled when it is first imported; to compile all 14,000 now takes longer than to install them.
        fill += ["--no-compile", "--retries", "2", *what]
    clean = {name: value for name, value in variables.items() if name not in ("PIP_TARGET", "PIP_PREFIX", "PYTHONPATH")}
    clean["PIP_USER"] = "0"  # a user's "always --user" cannot work inside an environment
    update = runs(environment)
    steps = [fill] if update else [make, fill]
    doing = "bringing .venv up to date" if update else "setting up .venv, once"
    log = environment / "lockstep-setup.log"
    with open(log, "w+", encoding="utf-8", errors="replace") as output:
        with progress(f"course: {doing} (torch: {torch}, with {installer})"):
            for command in steps:
                status = call(command, root, clean, output, lock)
                if status:
                    output.seek(0)
                    raise SetupError(explain(command, status, output.read(), log))


def call(command: Sequence[str], root: Path, variables: Mapping[str, str], output: IO[str], lock: IO[str]) -> int:
    """Run a command with its output in the log; ended with us when we are interrupted.

    It inherits the lock, so that the lock stays taken if we are killed and it goes on.
    """
    inherit = {} if WINDOWS else {"pass_fds": (lock.fileno(),)}
    try:
        process = subprocess.Popen(
            command, cwd=root, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **inherit
        )
    except OSError as error:
        raise SetupError(f"{command[0]} cannot be run ({error}).") from None
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def explain(command: Sequence[str], status: int, output: str, log: Path) -> str:
    """A sentence for a failed step: the likely cause, the installer's own last words, and where the rest is."""
    lowered = output.lower()
    if "ensurepip" in lowered and "venv" in command:
        cause = "this Python cannot make environments; on Debian and Ubuntu `apt install python3-venv` adds that part."
    elif "no space left" in lowered:
        cause = "the disk is full; the set-up needs about 2 GB with a CPU build of torch, 7 GB with CUDA."
    elif any(sign in lowered for sign in ("name resolution", "connection", "timed out", "network is unreachable")):
        cause = "the package index did not answer; check the network and try again."
    else:
        cause = f"the installer ended with status {status}."
    said = [line.strip() for line in output.splitlines() if line.lower().startswith(("error", "  ×", "  ╰"))][-3:]
    return "\n        ".join([f"the set-up failed: {cause}", *said, f"Everything it said is in {log}."])


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """One line with the seconds so far on a terminal; elsewhere the line once, and the seconds at the end."""
    start = time.monotonic()
    done = threading.Event()
    live = sys.stderr.isatty()

    def show() -> None:
        while not done.wait(1):
            print(f"\r{text}: {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)

    ticking = threading.Thread(target=show, daemon=True)
    if live:
        ticking.start()
    else:
        print(f"{text} ...", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        done.set()
        if live:
            ticking.join()
        print(f"{chr(13) if live else ''}{text}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
