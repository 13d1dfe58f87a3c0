"""Where ranks come from and where they go: the warm parent, spares, and what is left when the kernel ends."""

import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import psutil
import pytest
import torch

from lockstep.world import RankError, RunError, RunTimeout, launch, spares
from lockstep.world.child import run_child

linux = pytest.mark.skipif(sys.platform != "linux", reason="the fork of a warm parent is for Linux")
SLACK = 3.0
SPAWN = {"start_method": "spawn"}


def warm_parent():
    return importlib.import_module("lockstep.world.forked")._Warm.process


def until_gone(pids, limit):
    """Wait for processes to end (a zombie has); fail after `limit` seconds."""
    deadline = time.monotonic() + limit
    while alive := [pid for pid in pids if _lives(pid)]:
        assert time.monotonic() < deadline, f"still alive: {[psutil.Process(pid).cmdline() for pid in alive]}"
        time.sleep(0.02)


def _lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@linux
def test_ranks_are_not_children_of_the_kernel_and_could_use_cuda():
    # "Cannot re-initialize CUDA in forked subprocess" (accelerate#940): the kernel is never forked.
    def program(comm):
        return os.getppid(), os.getpgid(0) == os.getpid(), torch.cuda._is_in_bad_fork()

    values = launch(program, 2).values
    assert values == [(warm_parent().pid, True, False)] * 2
    assert os.getsid(warm_parent().pid) == warm_parent().pid != os.getsid(0)


@linux
def test_too_few_descriptors_is_a_sentence_and_leaks_none():
    import resource

    launch(lambda comm: None, 1)
    gc.collect()  # what earlier tests left in cycles must not be closed amid this one
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 9, hard))
    try:
        with pytest.raises(RunError, match="cannot open what 8 ranks need: Too many open files"):
            launch(lambda comm: None, 8)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) <= before
    assert launch(lambda comm: comm.rank, 2).values == [0, 1]


def test_a_lone_child_gives_its_value_and_its_errors(capsys):
    def program(x):
        print("seen")
        return x + 1, torch.distributed.is_initialized(), torch.rand(1).item()

    value, group, drawn = run_child(program, 2)
    assert (value, group) == (3, False) and drawn == run_child(program, 2)[2]
    assert capsys.readouterr().out == "seen\nseen\n"
    with pytest.raises(RankError, match="raised ZeroDivisionError"):
        run_child(lambda: 1 / 0)

    def spin():
        while True:
            pass

    with pytest.raises(RunTimeout) as caught:
        run_child(spin, timeout=0.5)
    assert "test_launch_processes.py" in caught.value.lines[0] and "spin" not in caught.value.lines[0].split(":")[0]


@linux
def test_a_warm_parent_killed_between_two_cells_is_replaced():
    launch(lambda comm: None, 1)
    first = warm_parent()
    first.kill()
    assert launch(lambda comm: comm.rank, 2).values == [0, 1]
    assert warm_parent().pid != first.pid


@pytest.mark.stalls
@linux
def test_a_warm_parent_killed_during_a_run_takes_its_ranks_along(capsys):
    def program(comm):
        print("pid", os.getpid())
        comm.barrier()
        if comm.rank == 0:
            os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(RunError, match="was killed, and the ranks with it; run the cell again"):
        launch(program, 2)
    until_gone([int(line.split()[-1]) for line in capsys.readouterr().out.splitlines()], 2 + SLACK)


@pytest.mark.stalls
@linux
def test_two_threads_start_one_warm_parent_and_an_interrupt_while_it_imports_ends_the_cell():
    module = importlib.import_module("lockstep.world.forked")
    module.stop_warm_parent()
    threads = [threading.Thread(target=module.start_warm_parent) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mine = [p for p in psutil.Process().children() if "warm.serve" in " ".join(p.cmdline())]
    assert len(mine) == 1 == len({warm_parent().pid, mine[0].pid})
    # It cannot answer while it imports; the cell must not wait for it.
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts its background jobs deaf to it
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        launch(lambda comm: None, 2)
        timer.join()  # a run that ends early must not leave the interrupt to the next test
    assert time.monotonic() - begun < 2
    assert launch(lambda comm: comm.rank, 2).values == [0, 1]


def copied():
    """Of the kernel, which lives on and would keep its pipes and sockets open."""
    sys.stdin.readline()
    if pid := os.fork():  # both said a number, and where the copy's own 0 came first, the test killed pytest
        print("copy", pid)
    time.sleep(60)


def be_a_kernel(listen, speak):
    """In a fork of this process, which need not import torch again: launch in both ways, and never end."""
    os.dup2(listen, 0)
    os.dup2(speak, 1)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", buffering=1, closefd=False)
    assert importlib.import_module("lockstep.world.forked")._Warm.socket is None, "it has a warm parent of its own"

    def program(comm):
        data = torch.utils.data.TensorDataset(torch.arange(1000.0))
        loader = iter(torch.utils.data.DataLoader(data, batch_size=1, num_workers=1))
        next(loader)
        print("pids", os.getpid(), *(p.pid for p in psutil.Process().children(recursive=True)))
        while True:
            pass

    threading.Thread(target=copied, daemon=True).start()
    threading.Thread(target=lambda: launch(program, 1, **SPAWN), daemon=True).start()
    launch(program, 2)


@pytest.mark.stalls
@linux
def test_no_rank_outlives_a_kernel_killed_by_sigkill_and_the_kernel_that_it_was_forked_from_goes_on():
    # Interrupt or a killed kernel leaves orphan ranks (pytorch#14394).
    launch(lambda comm: None, 1)
    ours = warm_parent().pid
    answers, speak = os.pipe()
    listen, tell = os.pipe()
    kernel = os.fork()
    if kernel == 0:
        try:
            os.close(answers)
            os.close(tell)
            be_a_kernel(listen, speak)
        finally:
            os._exit(1)
    os.close(listen)
    os.close(speak)
    copy = None
    with open(answers) as said, open(tell, "w", buffering=1) as asked:
        try:
            rows = [said.readline() for _ in range(3)]
            pids = [int(word) for row in rows for word in row.split()[3:]]
            assert len(pids) == 6, rows  # three ranks, and a worker of each
            asked.write("now\n")
            copy = int(said.readline().split()[-1])
            family = {p.pid for p in psutil.Process(kernel).children(recursive=True)} | set(pids)
        finally:
            os.kill(kernel, signal.SIGKILL)
            os.waitpid(kernel, 0)
        try:
            until_gone(family - {copy}, 2 + SLACK)
            assert _lives(copy)
        finally:
            os.kill(copy, signal.SIGKILL)
    assert launch(lambda comm: comm.rank, 2).values == [0, 1] and warm_parent().pid == ours


@pytest.mark.stalls
@linux
def test_nothing_is_left_when_the_kernel_ends_by_itself():
    script = """
    import psutil
    from lockstep.world import launch, spares
    spares.refill(1)
    launch(lambda comm: None, 1)
    print(*(p.pid for p in psutil.Process().children(recursive=True)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=110)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2 and done.stderr == ""  # the warm parent and a spare
    until_gone(pids, 2 + SLACK)


@pytest.mark.stalls
def test_spawned_ranks_do_what_forked_ones_do(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SET_IN_A_CELL", "yes")
    factor = 3

    def program(comm, x):
        print("hello", comm.rank)
        comm.all_reduce(x)
        return x.tolist(), os.environ["SET_IN_A_CELL"], os.getcwd() == str(tmp_path), comm.rank * factor

    run = launch(program, 2, torch.ones(2), **SPAWN)
    assert run.values == [([2.0, 2.0], "yes", True, 0), ([2.0, 2.0], "yes", True, 3)]
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank 0] hello 0", "[rank 1] hello 1"]

    # Spares are used once, and new ones are on their way.
    waiting = [spare.process.pid for spare in spares._spares]
    assert len(waiting) == 2
    pids = launch(lambda comm: os.getpid(), 1, **SPAWN).values
    assert pids == waiting[:1]
    until_gone(pids, SLACK)


def test_a_stranger_is_not_taken_for_a_spare():
    # Any process of the machine can connect to a loopback port; only the spare knows the secret.
    spare = object.__new__(spares.Spare)
    spare.secret, spare.channel = bytes(range(spares.SECRET_BYTES)), None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for shown in (bytes(spares.SECRET_BYTES), b"", spare.secret[:-1]):
            with socket.create_connection(listener.getsockname()) as stranger:
                stranger.sendall(shown)
                stranger.shutdown(socket.SHUT_WR)
                spare._greet(listener.accept()[0])
                assert spare.channel is None and stranger.recv(1) == b""
        with socket.create_connection(listener.getsockname()) as friend:
            friend.sendall(spare.secret)
            spare._greet(listener.accept()[0])
            assert spare.channel is not None
            spare.channel.close()


def test_spawned_ranks_fail_as_forked_ones_do(monkeypatch, capsys):
    def program(comm, how):
        print("last words")
        if how == "leave":
            os._exit(3)
        while True:
            pass

    with pytest.raises(RankError, match="rank 0 ended its process with exit code 3"):
        launch(program, 1, "leave", **SPAWN)
    # Windows has no signal that asks for a stack, a thread of the rank answers; and no pipe that can be waited for.
    monkeypatch.setattr(spares, "PIPES_CAN_BE_WAITED_FOR", False)
    module = importlib.import_module("lockstep.world.launch")
    job = module._job
    monkeypatch.setattr(module, "_job", lambda *args: replace(job(*args), stacks_by_signal=False))
    with pytest.raises(RunTimeout) as caught:
        launch(program, 1, "loop", timeout=1, **SPAWN)
    assert "while True:" in caught.value.stacks[0] or "pass" in caught.value.stacks[0]
    assert capsys.readouterr().out == "[rank 0] last words\n" * 2
    spares.dismiss()
    assert spares._spares == []
