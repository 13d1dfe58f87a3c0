"""`launch` from a real notebook kernel: functions defined in cells, error texts, Interrupt, restart, `%%ranks`."""

import sys
import time

import psutil
import pytest
from jupyter_client.manager import start_new_kernel

SLACK = 3.0
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="interrupts of a kernel differ on Windows")


class Restarted(Exception):
    """Leaves a cell whose kernel is gone: nobody would end it."""


class Notebook:
    """A kernel whose cells are run one by one."""

    def __init__(self):
        self.manager, self.client = start_new_kernel(kernel_name="python3", startup_timeout=110)

    def run(self, code, timeout=90, on_line=None):
        """What the cell printed, and its error as the notebook shows it."""
        printed, shown = [], []

        def hook(message):
            content = message["content"]
            if message["msg_type"] == "stream":
                printed.append(content["text"])
                if on_line:
                    on_line("".join(printed))
            elif message["msg_type"] == "error":
                shown.append(f"{content['ename']}\n" + "\n".join(content["traceback"]))

        self.client.execute_interactive(code, timeout=timeout, output_hook=hook, allow_stdin=False)
        return "".join(printed), "".join(shown)

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def notebook():
    notebook = Notebook()
    notebook.run("import os, time, torch\nfrom lockstep.world import launch")
    yield notebook
    notebook.stop()


def test_functions_and_classes_of_a_cell(notebook):
    # They cannot be sent to a spawned process (jupyter/notebook#6258, pytorch#20375).
    notebook.run("class Net(torch.nn.Module):\n    def forward(self, x):\n        return x * scale\nscale = 3")
    code = """
def program(comm):
    x = Net()(torch.ones(1) * comm.rank)
    comm.all_reduce(x)
    return x.item()
print(launch(program, 3).values)
"""
    assert notebook.run(code) == ("[9.0, 9.0, 9.0]\n", "")
    code = "import pickle\nprint(launch(lambda comm: type(pickle.loads(pickle.dumps(Net()))).__name__, 1).values)"
    assert notebook.run(code) == ("['Net']\n", "")


def test_an_error_shows_the_lines_of_the_cell_and_nothing_of_ours(notebook):
    code = """def divide(y):
    return 1 / y

def program(comm):
    if comm.rank == 1:
        divide(0)
    comm.barrier()

launch(program, 2)"""
    printed, shown = notebook.run(code)
    name, *rows = shown.splitlines()
    assert name == "RankError" and rows[0] == "RankError: rank 1 raised ZeroDivisionError: division by zero"
    assert rows[1].startswith("  cell In[") and rows[1].endswith(", line 6:  divide(0)")
    assert rows[2].endswith(", line 2:  return 1 / y")
    assert rows[4].startswith("  rank 0: barrier, cell In[") and rows[4].endswith(", line 7:  comm.barrier()")
    assert len(rows) == 5


@pytest.mark.stalls
def test_lines_appear_while_the_ranks_run(notebook):
    seen = []

    def on_line(text):
        seen.append((text.count("\n"), time.monotonic()))

    code = """
def program(comm):
    for i in range(2):
        time.sleep(i)
        print("step", i)
launch(program, 1)
None"""
    printed, _ = notebook.run(code, on_line=on_line)
    assert printed == "[rank 0] step 0\n[rank 0] step 1\n"
    assert seen[-1][1] - seen[0][1] > 0.6


@pytest.mark.stalls
def test_interrupt_stops_the_ranks_and_the_next_cell_runs(notebook):
    code = """
def program(comm):
    print("pid", os.getpid())
    while True:
        pass
launch(program, 2)"""
    pressed = []

    def press(text):
        if text.count("pid") == 2 and not pressed:
            pressed.append(time.monotonic())
            notebook.manager.interrupt_kernel()

    printed, shown = notebook.run(code, on_line=press)
    assert time.monotonic() - pressed[0] < 2 + SLACK
    assert shown == "KeyboardInterrupt\nKeyboardInterrupt: the run was interrupted, and its 2 ranks were stopped"
    assert not [pid for pid in _pids(printed) if psutil.pid_exists(pid)]
    assert notebook.run("print(launch(lambda comm: comm.rank, 2).values)") == ("[0, 1]\n", "")


def test_the_magic_runs_a_cell_on_every_rank(notebook):
    code = """%%ranks 3 --timeout 30
x = torch.full((2,), float(comm.rank * scale))
comm.all_reduce(x)
print("here", comm.rank)
def later():
    return x.tolist(), comm.size
later()"""
    notebook.run("scale = 3")
    printed, shown = notebook.run(code)
    assert shown == "" and sorted(printed.splitlines()) == [
        "[rank 0] here 0",
        "[rank 1] here 1",
        "[rank 2] here 2",
        "ranks 0 to 2: ([9.0, 9.0], 3)",
    ]
    _, shown = notebook.run("%%ranks 2\nif comm.rank == 0:\n    undefined")
    assert "rank 0 raised NameError" in shown and ", line 3:  undefined" in shown
    _, shown = notebook.run("%%ranks 2\n%time 1")
    assert "for IPython alone" in shown
    _, shown = notebook.run("%%ranks two\n1")
    assert "Usage: %%ranks 4" in shown
    printed, shown = notebook.run("%%ranks 2 --world simulate\ncomm.rank")
    assert (printed, shown) == ("rank 0: 0\nrank 1: 1\n", "")


@pytest.mark.stalls
def test_a_restarted_kernel_leaves_no_rank_and_works(notebook):
    code = """
def program(comm):
    print("pid", os.getpid())
    while True:
        pass
launch(program, 2)"""

    def restart(text):
        if text.count("pid") == 2:
            notebook.manager.restart_kernel(now=True)  # SIGKILL, as the button does
            raise Restarted(text)

    with pytest.raises(Restarted) as printed:
        notebook.run(code, on_line=restart)
    deadline = time.monotonic() + 2 + SLACK
    while alive := [pid for pid in _pids(str(printed.value)) if psutil.pid_exists(pid)]:
        assert time.monotonic() < deadline, f"ranks {alive} are still alive"
        time.sleep(0.02)
    notebook.client.wait_for_ready(timeout=110)
    code = "from lockstep.world import launch\nprint(launch(lambda comm: comm.rank, 2).values)"
    assert notebook.run(code) == ("[0, 1]\n", "")


def _pids(printed):
    return [int(line.split()[-1]) for line in printed.splitlines()]
