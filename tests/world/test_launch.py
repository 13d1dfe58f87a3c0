"""What a run of real processes gives: values, copies, seeds, environment, traffic, and sentences for bad input."""

import importlib
import os
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
import torch

from lockstep.comm import Communicator
from lockstep.world import RankError, Run, launch, simulate
from lockstep.world.shipping import ShippingError


def test_every_rank_runs_and_values_come_in_rank_order():
    def program(comm, factor, offset=0):
        total = torch.tensor([float(comm.rank)])
        comm.all_reduce(total)
        return comm.rank * factor + offset, comm.size, total.item(), isinstance(comm, Communicator)

    run = launch(program, 4, 10, offset=1)
    assert isinstance(run, Run)
    assert run.values == [(1, 4, 6.0, True), (11, 4, 6.0, True), (21, 4, 6.0, True), (31, 4, 6.0, True)]
    assert run.seconds > 0


def test_lambdas_closures_and_local_classes_are_sent_by_value():
    # A spawned process cannot import what a cell defined (jupyter/notebook#6258, pytorch#20375).
    class Point:
        def __init__(self, x):
            self.x = x

        def moved(self, by):
            return Point(self.x + by)

    origin = Point(5)
    run = launch(lambda comm: origin.moved(comm.rank), 2)
    assert [point.x for point in run.values] == [5, 6]
    assert all(isinstance(point, Point) for point in run.values)


def test_each_rank_has_its_own_copy_of_the_arguments():
    shared = torch.zeros(3)
    things = [1]

    def program(comm, tensor, values):
        tensor += comm.rank + 1
        values.append(comm.rank)
        return tensor, values

    run = launch(program, 2, shared, things)
    assert shared.tolist() == [0, 0, 0] and things == [1]
    assert [t.tolist() for t, _ in run.values] == [[1, 1, 1], [2, 2, 2]]
    assert [v for _, v in run.values] == [[1, 0], [1, 1]]


def test_ranks_are_fresh_every_time():
    def program(comm):
        import lockstep

        before = getattr(lockstep, "touched", 0)
        lockstep.touched = 1
        return before, os.getpid()

    first, second = launch(program, 2), launch(program, 2)
    assert [seen for seen, _ in first.values + second.values] == [0, 0, 0, 0]
    assert len({pid for _, pid in first.values + second.values} | {os.getpid()}) == 5


def test_seeds_are_distinct_per_rank_and_reproducible():
    def program(comm):
        return torch.rand(1).item(), np.random.rand(), __import__("random").random()

    # The simulated world draws the same numbers, and sooner than a second launch.
    one, again, other = launch(program, 2, seed=3), simulate(program, 2, seed=3), simulate(program, 2, seed=4)
    assert one.values == again.values
    assert len({number for run in (one, other) for rank in run.values for number in rank}) == 12


def test_a_rank_has_the_threads_it_was_given():
    # Ranks times all cores of threads is slower than one process (pytorch#22260).
    def threads(comm):
        return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]

    assert launch(threads, 2).values == [(1, "1")] * 2
    assert launch(threads, 1, threads=2).values == [(2, "2")]


def test_environment_directory_and_import_path_are_those_of_the_call(tmp_path, monkeypatch):
    # The warm parent started earlier, in another directory and with another environment.
    (tmp_path / "beside_the_notebook.py").write_text("answer = 42\n")
    monkeypatch.setenv("SET_IN_A_CELL", "yes")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")

    def program(comm):
        import beside_the_notebook

        return beside_the_notebook.answer, os.environ["SET_IN_A_CELL"], os.getcwd(), "HOME" in os.environ

    assert launch(program, 1).values == [(42, "yes", str(tmp_path), False)]


def test_a_module_edited_between_two_runs_is_read_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def program(comm):
        import edited

        return edited.value

    for value in (1, 2):
        (tmp_path / "edited.py").write_text(f"value = {value}  #{' ' * value}\n")
        assert launch(program, 1).values == [value]


def test_a_deleted_working_directory_does_not_matter(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert launch(lambda comm: comm.rank, 2).values == [0, 1]


def test_the_backward_pass_of_a_rank_works_after_one_in_the_kernel():
    # backward() in the parent, fork, backward() in the child hangs (pytorch#3966, #32835, #69839).
    torch.rand(50, 50, requires_grad=True).sum().backward()
    torch.rand(500, 500) @ torch.rand(500, 500)

    def program(comm):
        weight = torch.ones(3, requires_grad=True)
        (weight * (comm.rank + 1)).sum().backward()
        comm.all_reduce(weight.grad)
        return weight.grad.tolist()

    assert launch(program, 2).values == [[3.0] * 3] * 2


def test_data_loader_workers_inside_a_rank(monkeypatch):
    # Daemonic processes may not have children (pytorch#14391); ours are not daemonic.
    folder = tempfile.mkdtemp()  # short: the workers' sockets have paths of at most 108 bytes
    monkeypatch.setattr("tempfile.tempdir", folder)

    def program(comm):
        data = torch.utils.data.TensorDataset(torch.arange(40.0))
        loader = torch.utils.data.DataLoader(data, batch_size=10, num_workers=2)
        total = sum(batch.sum() for (batch,) in loader)
        comm.all_reduce(total)
        return total.item()

    monkeypatch.setenv("TMPDIR", folder)
    assert launch(program, 2).values == [1560.0, 1560.0]
    os.rmdir(folder)  # raises when something was left in it


def test_results_are_plain_copies_on_the_cpu():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

    def program(comm):
        model = Model()
        loss = model.linear(torch.ones(1, 2)).sum()
        wide = torch.arange(12).reshape(3, 4)
        return (
            loss,
            model,
            wide.t(),
            wide[:, 1],
            torch.empty(0, 3),
            torch.tensor(True),
            torch.ones(2, dtype=torch.bfloat16),
        )

    loss, model, turned, column, empty, yes, half = launch(program, 1).values[0]
    assert not loss.requires_grad and loss.grad_fn is None
    assert isinstance(model, Model) and all(p.requires_grad for p in model.parameters())
    assert turned.shape == (4, 3) and column.tolist() == [1, 5, 9] and empty.shape == (0, 3)
    assert yes.item() is True and half.dtype is torch.bfloat16
    turned += 1  # writable


def test_a_returned_instance_leaves_its_class_as_it_was():
    # Rebuilding what a rank returned wrote the class's attributes anew: after `K = 5; R(...).k()` a method
    # of the notebook's class went on reading the K of the time when it was sent.
    class Result:
        def doubled(self):
            return 2

    method = Result.doubled

    class Mine(Exception):
        def words(self):
            return "mine"

    words = Mine.words

    def program(comm):
        if comm.size == 2:
            raise Mine
        return Result()

    (value,) = launch(program, 1).values
    assert type(value) is Result
    assert Result.doubled is method
    with pytest.raises(RankError) as caught:
        launch(program, 2)
    assert type(caught.value.cause) is Mine
    assert Mine.words is words


def test_a_result_larger_than_any_pipe_comes_back_whole():
    # 64 MB of /dev/shm is all that a container has (pytorch#5040): results do not go through it.
    def program(comm):
        return torch.full((6_000_000,), float(comm.rank))

    values = launch(program, 2).values
    assert [v.numel() for v in values] == [6_000_000] * 2 and values[1][-1] == 1.0


def test_a_large_argument_arrives_whole():
    big = torch.arange(3_000_000)
    assert launch(lambda comm, x: x.sum().item(), 2, big).values == [big.sum().item()] * 2


def test_traffic_and_trace_hold_every_message():
    def program(comm):
        with comm.span("work"):
            time.sleep(0.01)
        if comm.rank == 0:
            comm.send(torch.ones(10), 1)
            comm.send(torch.ones(5, dtype=torch.float64), 2)
        else:
            buffer = torch.empty(10) if comm.rank == 1 else torch.empty(5, dtype=torch.float64)
            comm.recv(buffer, 0)

    run = launch(program, 3)
    assert [(t.messages_sent, t.bytes_sent, t.messages_received) for t in run.traffic] == [
        (2, 80, 0),
        (0, 0, 1),
        (0, 0, 1),
    ]
    assert run.traffic[0].sent_to == {1: (1, 40), 2: (1, 40)}
    assert sorted((m.src, m.dst, m.bytes) for m in run.trace.messages) == [(0, 1, 40), (0, 2, 40)]
    assert all(0 <= m.sent <= m.received <= run.seconds for m in run.trace.messages)
    assert sorted(s.rank for s in run.trace.spans if s.name == "work") == [0, 1, 2]
    assert run.trace.ranks == 3 and run.trace.world == "processes"


def test_runs_from_several_threads_at_once():
    # The same cell twice at once: own rendezvous file each time, no port (pytorch#126510).
    found = {}

    def program(comm, number):
        total = torch.tensor([float(number)])
        comm.all_reduce(total)
        return total.item()

    def work(number):
        found[number] = launch(program, 2, number).values

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [2.0 * number] * 2 for number in range(3)}


def test_runs_one_after_the_other_leave_nothing_behind():
    # Initialise, destroy, initialise on one store hangs (pytorch#55967, #74666).
    open_before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for _ in range(4):
        launch(lambda comm: comm.barrier(), 2)
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) <= open_before + 1


def test_torch_distributed_is_ready_to_use_directly():
    def program(comm):
        import torch.distributed as dist

        x = torch.ones(2) * (dist.get_rank() + 1)
        dist.all_reduce(x)
        return x.tolist(), os.environ["RANK"], os.environ["WORLD_SIZE"]

    assert launch(program, 2).values == [([3.0, 3.0], "0", "2"), ([3.0, 3.0], "1", "2")]


@pytest.mark.skipif(sys.platform != "linux", reason="lists the sockets of a process")
def test_ranks_talk_over_loopback_alone():
    # So a run works on a machine without any network, and no firewall asks.
    def program(comm):
        import psutil

        comm.barrier()
        return {c.laddr.ip for c in psutil.Process().net_connections("inet")}

    assert launch(program, 2).values == [{"127.0.0.1"}] * 2


def test_sixteen_ranks():
    def program(comm):
        x = torch.ones(1)
        comm.all_reduce(x)
        return x.item()

    assert launch(program, 16).values == [16.0] * 16


def test_a_temporary_directory_with_a_long_path(tmp_path, monkeypatch):
    # A Unix socket's path holds 107 characters; no socket of ours has a path.
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert launch(lambda comm: comm.all_reduce(torch.ones(1)).item(), 2).values == [2.0, 2.0]
    assert list(deep.iterdir()) == []


def test_no_place_for_temporary_files_is_a_sentence(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    with pytest.raises(Exception, match="Set TMPDIR"):
        launch(lambda comm: None, 1)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"ranks": 0}, ValueError, "at least 1, not 0"),
        ({"ranks": -3}, ValueError, "at least 1, not -3"),
        ({"ranks": 2.5}, TypeError, "whole number"),
        ({"ranks": True}, TypeError, "whole number"),
        ({"ranks": "4"}, TypeError, "'4'"),
        ({"ranks": 5000}, ValueError, r"5000 is more than 100: .*simulate"),
        ({"timeout": 0}, ValueError, "more than 0"),
        ({"timeout": float("nan")}, ValueError, "more than 0"),
        ({"timeout": float("inf")}, ValueError, "a week"),
        ({"timeout": "60"}, TypeError, "number of seconds"),
        ({"threads": 0}, ValueError, "threads is at least 1"),
        ({"seed": -1}, ValueError, "seed"),
        ({"backend": "mpi"}, ValueError, "'auto', 'gloo' or 'nccl', not 'mpi'"),
        ({"start_method": "forkserver"}, ValueError, "'fork', 'spawn' or None"),
        ({"pace": 1}, TypeError, "pace is True or False, not 1"),
        ({"link": "1GbE"}, ValueError, "link='1GbE' belongs to a paced run: add pace=True"),
        ({"device": "A100"}, ValueError, "device='A100' belongs to a paced run"),
        ({"pace": True, "link": "1GbX"}, ValueError, "no link '1GbX' is known; known: .*1GbE"),
        (
            {"pace": True, "link": 1e9},
            TypeError,
            "link is a lockstep.hardware.Link or the name of one, not 1000000000.0",
        ),
        ({"pace": True, "device": "B17"}, ValueError, "no device 'B17' is known"),
        ({"pace": True, "backend": "nccl"}, ValueError, "a paced run sleeps on the CPU"),
        ({"slow": {2: 2.0}}, ValueError, "slow is given for rank 2, but the ranks are 0 to 1"),
        ({"slow": {1: 0.5}}, ValueError, "from 1 to a million, not 0.5"),
        ({"slow": [1.0, 2.0]}, TypeError, r"slow maps ranks to factors, such as \{1: 2.0\}"),
        ({"time_out": 5}, TypeError, "unexpected keyword argument 'time_out'.*backend, timeout"),
    ],
)
def test_arguments_that_cannot_be_right_get_a_sentence(arguments, error, sentence):
    with pytest.raises(error, match=sentence):
        launch(lambda comm: None, **({"ranks": 2} | arguments))


def test_a_function_that_does_not_take_what_it_would_get_is_named_before_any_process_starts():
    def program():
        return 1

    def needs(comm, batch):
        return batch

    with pytest.raises(TypeError, match=r"calls program\(comm, ...\).*program\(\) does not take them: too many"):
        launch(program, 2)
    with pytest.raises(TypeError, match="missing a required argument: 'batch'"):
        launch(needs, 2)
    with pytest.raises(TypeError, match="the first argument is the function to run, not None"):
        launch(None, 2)


def test_two_nccl_ranks_never_share_a_gpu(monkeypatch):
    # "Duplicate GPU detected" (pytorch#68666).
    module = importlib.import_module("lockstep.world.launch")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert module._backend("auto", 2) == "gloo"
    assert module._backend("auto", 1) == "cpu:gloo,cuda:nccl"
    with pytest.raises(ValueError, match="a GPU of its own for each of the 2 ranks, and there is 1"):
        launch(lambda comm: None, 2, backend="nccl")


def test_what_cannot_be_sent_is_named():
    lock = threading.Lock()

    def uses(comm):
        return lock.locked()

    def calls(comm):
        return uses(comm)

    with pytest.raises(ShippingError, match="the variable `lock`, which `uses` uses, cannot be sent.*type lock"):
        launch(calls, 2)
    with pytest.raises(ShippingError, match="argument 2 after `ranks`.*Create it inside the function"):
        launch(lambda comm, *rest: None, 2, 1, lock)
    with pytest.raises(ShippingError, match="the argument `guard`"):
        launch(lambda comm, guard: None, 2, guard=lock)
