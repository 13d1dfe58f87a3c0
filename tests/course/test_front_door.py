"""`./course` and install.py: set up once, recover from what can stop a set-up half-way, and choose a torch.

The installers are stand-ins: shell scripts that write down how they were called.
"""

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lockstep.course import install

HOME = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")

UV = """#!/bin/sh
echo "uv $*" >>"$CALLS"
[ "$1" = run ] && { while [ "$1" != --python ]; do shift; done; shift 2; exec REAL_PYTHON "$@"; }
[ -n "${UV_FAILS-}" ] && { echo "error: uv is broken today"; exit 2; }
if [ "$1" = venv ]; then
    for last; do :; done
    mkdir -p "$last/bin"; ln -sf REAL_PYTHON "$last/bin/python"
    exit 0
fi
if [ -n "${UV_SLEEPS-}" ]; then sleep "$UV_SLEEPS"; fi
while [ "$1" != --python ]; do shift; done
bin=$(dirname "$2")
printf '#!/bin/sh\\necho "lockstep in $PWD: $*; PYTHONPATH=${PYTHONPATH-unset} VIRTUAL_ENV=$VIRTUAL_ENV"\\n' >"$bin/lockstep"
chmod +x "$bin/lockstep"
"""

PYTHON = """#!/bin/sh
echo "python $*" >>"$CALLS"
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit 0; fi
echo "PIP_USER=$PIP_USER PIP_TARGET=${PIP_TARGET-unset}" >>"$CALLS"
[ -n "${PIP_SAYS-}" ] && { echo "$PIP_SAYS"; exit 1; }
exit 0
"""


@pytest.fixture
def clone(tmp_path):
    """A clone's front door in a folder with a space in its name."""
    root = tmp_path / "my clone"
    (root / "lib/lockstep/course").mkdir(parents=True)
    for name in ("course", "requirements.lock", "pyproject.toml", "lib/lockstep/course/install.py"):
        shutil.copy(HOME / name, root / name)
    return root


class Shell:
    """Runs the clone's ./course under one shell, with a stand-in `uv` first on the PATH."""

    def __init__(self, clone, tmp_path, shell="sh"):
        self.clone, self.shell = clone, shell
        self.calls = tmp_path / "calls"
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        script(self.bin / "uv", UV.replace("REAL_PYTHON", f"'{install.base_python()}'"))
        kept = ("PATH", "HOME", "LANG", "SYSTEMROOT")
        self.variables = {name: os.environ[name] for name in kept if name in os.environ}
        self.variables |= {"CALLS": str(self.calls), "LOCKSTEP_TORCH": "default"}
        self.variables["LOCKSTEP_PYTHON"] = install.base_python()  # looking for one is a test of its own
        self.variables["PATH"] = f"{self.bin}:{self.variables['PATH']}"

    def start(self, *arguments, cwd=None, **variables):
        return subprocess.Popen(
            [self.shell, str(self.clone / "course"), *arguments],
            cwd=cwd,
            env=self.variables | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def course(self, *arguments, cwd=None, **variables):
        process = self.start(*arguments, cwd=cwd, **variables)
        out, err = process.communicate(timeout=110)
        return process.returncode, out, err

    def installs(self):
        return self.calls.read_text().count("uv pip install") if self.calls.exists() else 0


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def shell(clone, tmp_path):
    return Shell(clone, tmp_path)


@pytest.mark.parametrize("program", ["sh", "dash", "bash", "busybox"])
def test_course_is_a_posix_script(program):
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    command = [program, "sh"] if program == "busybox" else [program]
    subprocess.run([*command, "-n", str(HOME / "course")], check=True)


def test_course_is_executable():
    assert os.access(HOME / "course", os.X_OK)


def test_sets_up_once_from_any_folder_then_hands_on(shell, tmp_path):
    status, out, err = shell.course("run", "00", "--fast", cwd=tmp_path, PYTHONPATH="/elsewhere", VIRTUAL_ENV="/other")
    assert (status, out) == (
        0,
        f"lockstep in {tmp_path}: run 00 --fast; PYTHONPATH=unset VIRTUAL_ENV={shell.clone / '.venv'}\n",
    )
    assert "setting up .venv" in err
    assert shell.course("test", cwd="/")[1:] == (
        f"lockstep in /: test; PYTHONPATH=unset VIRTUAL_ENV={shell.clone / '.venv'}\n",
        "",
    )
    assert shell.installs() == 1


def test_works_through_a_link(shell, tmp_path):
    link = tmp_path / "elsewhere"
    link.symlink_to("my clone/course")
    done = subprocess.run(
        [shell.shell, link, "doctor"], env=shell.variables, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0 and ": doctor;" in done.stdout


def test_two_at_once_install_once(shell):
    both = [shell.start("doctor", UV_SLEEPS="1") for _ in range(2)]
    outputs = [process.communicate(timeout=110) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert shell.installs() == 1
    assert sum("another ./course is setting up" in err for _, err in outputs) == 1


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_set_up_is_made_again(shell, stop):
    process = shell.start("doctor", UV_SLEEPS="2")
    deadline = time.monotonic() + 30
    while shell.installs() == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    leftover = shell.clone / ".venv/leftover"
    leftover.write_text("half-made")
    process.send_signal(stop)
    assert process.wait(timeout=110) != 0
    process.communicate()
    # After SIGKILL the installer lives on; the next set-up waits until it has ended, because it holds the lock.
    status, out, _ = shell.course("doctor")
    assert status == 0 and ": doctor;" in out
    assert shell.installs() == 2 and not leftover.exists()


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_a_changed_lock_brings_the_environment_up_to_date_in_place(shell, name):
    shell.course("doctor")
    kept = shell.clone / ".venv/kept"
    kept.write_text("")
    with open(shell.clone / name, "a") as file:
        file.write("\n# changed\n")
    assert shell.course("doctor")[0] == 0
    assert shell.installs() == 2 and kept.exists()
    shell.course("doctor")
    assert shell.installs() == 2


def test_a_moved_clone_is_set_up_again(shell, tmp_path):
    # Scripts in an environment name the folder it was made in.
    shell.course("doctor")
    shell.clone = shell.clone.rename(tmp_path / "moved")
    assert shell.course("doctor")[0] == 0
    assert shell.installs() == 2


def test_an_environment_whose_python_was_removed_is_made_again(shell):
    shell.course("doctor")
    python = shell.clone / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert shell.course("doctor")[0] == 0
    assert shell.installs() == 2


def test_another_torch_by_hand_is_installed_from_nothing(shell):
    shell.course("doctor")
    kept = shell.clone / ".venv/kept"
    kept.write_text("")
    assert shell.course("doctor", LOCKSTEP_TORCH="cpu")[0] == 0
    assert not kept.exists()
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in shell.calls.read_text()


def test_a_wrong_torch_or_python_gets_a_sentence(shell):
    status, _, err = shell.course("doctor", LOCKSTEP_TORCH="gpu")
    assert status == 1 and err.startswith("course: LOCKSTEP_TORCH is 'gpu'; it may be")
    status, _, err = shell.course("doctor", LOCKSTEP_PYTHON="/bin/false")
    assert status == 1 and "LOCKSTEP_PYTHON is '/bin/false'" in err
    assert not (shell.clone / ".venv").exists()


def test_too_old_pythons_are_passed_over(shell, tmp_path):
    # A version manager leaves stand-ins on the PATH that exist and fail: python3.13 here.
    script(shell.bin / "python3.13", "#!/bin/sh\necho 'python3.13: command not found' >&2\nexit 127\n")
    script(shell.bin / "python3.12", "#!/bin/sh\nexit 1\n")
    script(shell.bin / "python3.11", f"#!/bin/sh\nexec '{install.base_python()}' \"$@\"\n")
    assert shell.course("doctor", LOCKSTEP_PYTHON="")[0] == 0


def test_without_python_uv_brings_one_and_without_both_there_is_a_sentence(shell, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("dirname", "mkdir", "ln", "chmod", "sh"):
        (tools / name).symlink_to(shutil.which(name))
    alone = {"PATH": f"{shell.bin}:{tools}", "LOCKSTEP_PYTHON": ""}
    assert shell.course("doctor", **alone)[0] == 0
    assert "uv run" in shell.calls.read_text()
    (shell.bin / "uv").unlink()
    shutil.rmtree(shell.clone / ".venv")
    process = subprocess.run(
        [shutil.which("sh"), shell.clone / "course"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert process.returncode == 1 and "no Python 3.11 or newer is on the PATH" in process.stderr


# install.py by itself, with pip


@pytest.fixture
def by_pip(clone, tmp_path, monkeypatch):
    """`ensure` with a stand-in Python, as on a machine without uv; returns (run it, what was called)."""
    calls = tmp_path / "calls"
    script(tmp_path / "python", PYTHON)
    monkeypatch.setattr(install, "base_python", lambda: str(tmp_path / "python"))

    def run(**variables):
        install.ensure(clone, {"PATH": "/usr/bin:/bin", "CALLS": str(calls), "LOCKSTEP_TORCH": "default"} | variables)
        return calls.read_text()

    return run


def test_pip_installs_the_lock_and_the_project_with_its_test_tools(by_pip, clone):
    said = by_pip(PIP_USER="1", PIP_TARGET="/elsewhere", PIP_FIND_LINKS="/wheels")
    assert f"python -m venv {clone / '.venv'}" in said
    assert "--retries 2 -r requirements.lock -e .[test]\n" in said
    assert "PIP_USER=0 PIP_TARGET=unset" in said
    assert json.loads((clone / ".venv/lockstep-setup.json").read_text())["state"] == "finished"


def test_a_failing_uv_is_followed_by_pip(by_pip, tmp_path, capsys):
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/uv", UV)
    said = by_pip(PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin", UV_FAILS="1")
    assert "python -m pip install" in said
    assert "error: uv is broken today" in capsys.readouterr().err


def test_an_environment_made_by_hand_is_never_removed(by_pip, clone, tmp_path):
    # A contributor's own .venv holds more than the lock; only what ./course began may ./course remove.
    own = clone / ".venv/bin"
    own.mkdir(parents=True)
    shutil.copy(tmp_path / "python", own / "python")
    (clone / ".venv/mine").write_text("")
    with pytest.raises(install.SetupError):
        by_pip(PIP_SAYS="ERROR: no")
    said = by_pip()
    assert "-m venv" not in said and (clone / ".venv/mine").exists()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("Temporary failure in name resolution\nERROR: No matching distribution", "the package index did not answer"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: ResolutionImpossible", "the installer ended with status 1"),
    ],
)
def test_a_failing_pip_ends_in_a_sentence_with_its_last_words(by_pip, clone, said, sentence):
    with pytest.raises(install.SetupError, match=sentence) as failure:
        by_pip(PIP_SAYS=said)
    assert said.splitlines()[-1] in str(failure.value)
    assert "lockstep-setup.log" in str(failure.value)


# which torch


@pytest.fixture
def address():
    """A web server on this machine that answers every request."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.stalls
def test_an_index_that_answers_is_told_from_one_that_refuses_or_is_silent(address, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert install.answers(address)
    with http.server.HTTPServer(
        ("127.0.0.1", 0), http.server.BaseHTTPRequestHandler
    ) as silent:  # accepts, never answers
        start = time.monotonic()
        assert not install.answers(f"http://127.0.0.1:{silent.server_port}", within=0.3)
        assert time.monotonic() - start < 5
        port = silent.server_port
    assert not install.answers(f"http://127.0.0.1:{port}")  # closed: refused


@pytest.mark.parametrize(
    ("system", "driver", "answer", "torch"),
    [
        ("Linux", False, True, "cpu"),
        ("Linux", False, False, "default"),
        ("Linux", True, True, "default"),
        ("Darwin", False, True, "default"),
        ("Windows", False, True, "default"),
    ],
)
def test_torch_is_the_cpu_build_only_where_no_gpu_can_use_another(monkeypatch, system, driver, answer, torch):
    monkeypatch.setattr(install.platform, "system", lambda: system)
    monkeypatch.setattr(install, "has_nvidia_driver", lambda: driver)
    monkeypatch.setattr(install, "answers", lambda address: answer)
    assert install.choose_torch() == torch


def test_the_cpu_index_is_a_second_index_so_that_everything_else_comes_from_the_first():
    assert install.torch_index("cpu") == ["--extra-index-url", install.CPU_INDEX]
    assert install.torch_index("default") == []


def test_install_imports_nothing_that_a_bare_python_lacks():
    code = "import runpy; runpy.run_path('lib/lockstep/course/install.py')"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=HOME, check=True, timeout=110)
