"""What the reader of a simulation that went wrong is told; and that nothing of it stays behind."""

import _thread
import signal
import threading
import time

import pytest
import torch

from lockstep.comm import CommunicationError
from lockstep.hardware import Link
from lockstep.world.run import DeadlockError, RankError, RunTimeout
from lockstep.world.simulate import simulate

SLOW = Link(latency=1.0, bandwidth=4.0)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """None stays for ever; on a busy machine one that was told to end may need a while for it."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 60
    while left := set(threading.enumerate()) - before:
        assert time.monotonic() < deadline, f"still alive: {left}"
        time.sleep(0.01)


def four():
    return torch.zeros(4)


def test_a_run_that_ends_well_leaves_none_either():
    for _ in range(3):
        simulate(lambda comm: comm.all_reduce(torch.ones(1), async_op=True).wait(), 8)


# ---------------------------------------------------------------------------------------------- deadlocks


@pytest.mark.stalls
def test_both_send_first_is_a_deadlock_known_at_once():
    def program(comm):
        other = 1 - comm.rank
        comm.send(four(), other)  # both are here
        comm.recv(four(), other)

    begun = time.perf_counter()
    with pytest.raises(DeadlockError) as caught:
        simulate(program, 2, timeout=60)
    assert time.perf_counter() - begun < 10
    assert set(caught.value.waiting) == {0, 1}
    for rank in range(2):
        said = caught.value.waiting[rank]
        assert f"send of float32[4] to rank {1 - rank}" in said
        assert "test_simulate_errors.py" in said and "comm.send(four(), other)  # both are here" in said
        assert said in str(caught.value)


def test_a_deadlock_names_finished_ranks_too():
    def program(comm):
        if comm.rank == 0:
            comm.recv(four(), 1)
        if comm.rank == 2:
            comm.recv(four(), None)

    with pytest.raises(DeadlockError) as caught:
        simulate(program, 3)
    assert "recv of float32[4] from rank 1" in caught.value.waiting[0]
    assert "recv of float32[4] from any rank" in caught.value.waiting[2]
    assert 1 not in caught.value.waiting and "rank 1: had finished" in str(caught.value)


def test_a_collective_that_a_finished_rank_never_called():
    def program(comm):
        comm.barrier()
        if comm.rank != 3:
            comm.all_reduce(four())  # not on rank 3

    with pytest.raises(DeadlockError) as caught:
        simulate(program, 4)
    for rank in range(3):
        assert (
            "all_reduce(sum) of float32[4], its 2nd collective, which rank 3 finished without calling"
            in caught.value.waiting[rank]
        )
        assert "comm.all_reduce(four())  # not on rank 3" in caught.value.waiting[rank]


def test_an_exchange_says_only_what_is_missing():
    def program(comm):
        if comm.rank == 0:
            comm.exchange([(four(), 1), (four(), 2)], [(four(), 2)])
        if comm.rank == 1:
            comm.recv(four(), 0)
        if comm.rank == 2:
            comm.recv(torch.zeros(1), 1)

    with pytest.raises(DeadlockError) as caught:
        simulate(program, 3)
    assert "exchange of float32[4] to rank 2, float32[4] from rank 2" in caught.value.waiting[0]


def test_a_wait_for_an_asynchronous_collective_that_never_comes():
    def program(comm):
        if comm.rank == 0:
            handle = comm.all_reduce(four(), async_op=True)
            handle.wait()  # here

    with pytest.raises(DeadlockError) as caught:
        simulate(program, 2)
    said = caught.value.waiting[0]
    assert "wait() for all_reduce(sum) of float32[4], its 1st collective, which rank 1 finished without calling" in said
    assert "handle.wait()  # here" in said


def test_a_message_that_nobody_receives_is_found_at_the_ranks_return():
    def program(comm):
        if comm.rank == 0:
            comm.isend(four(), 1)  # and no wait

    with pytest.raises(DeadlockError) as caught:
        simulate(program, 2)
    assert "its return, for what it did not wait for: isend of float32[4] to rank 1" in caught.value.waiting[0]
    assert "comm.isend(four(), 1)  # and no wait" in caught.value.waiting[0]


def test_split_waits_for_every_rank():
    def program(comm):
        if comm.rank:
            comm.split(0)

    with pytest.raises(DeadlockError) as caught:
        simulate(program, 3)
    assert "split, its 1st collective, which rank 0 finished without calling" in caught.value.waiting[1]


def test_a_group_names_its_ranks_as_the_whole_run_does():
    def program(comm):
        group = comm.split(comm.rank % 2)
        if comm.rank == 3:
            group.recv(four(), 0)
        if comm.rank == 2:
            group.barrier()

    with pytest.raises(DeadlockError) as caught:
        simulate(program, 4)
    assert "recv of float32[4] from rank 1" in caught.value.waiting[3]
    assert "barrier, its 1st collective in the group of ranks 0 and 2" in caught.value.waiting[2]


def test_ranks_that_only_wait_for_a_busy_one_are_no_deadlock():
    def program(comm):
        if comm.rank == 0:
            time.sleep(0.3)
            comm.send(four(), 1)
        else:
            comm.recv(four(), 0)

    simulate(program, 2)


# ------------------------------------------------------------------------------------- calls that are wrong


def test_ranks_that_call_different_collectives():
    def program(comm):
        comm.barrier()
        if comm.rank == 2:
            comm.broadcast(four())
        else:
            comm.all_reduce(four())

    with pytest.raises(RankError) as caught:
        simulate(program, 3)
    assert isinstance(caught.value.cause, CommunicationError) and caught.value.rank == 2
    assert "Rank 2 calls broadcast from rank 0 of float32[4] as its 2nd collective" in str(caught.value)
    assert "rank 0 calls all_reduce(sum) of float32[4]" in str(caught.value)


def test_the_same_collective_of_different_shapes():
    with pytest.raises(RankError, match=r"all_reduce\(sum\) of float32\[3\].*all_reduce\(sum\) of float32\[2\]"):
        simulate(lambda comm: comm.all_reduce(torch.zeros(2 + comm.rank)), 2)


def test_collectives_and_messages_of_the_user_never_meet():
    def program(comm):
        x = torch.zeros(1)
        if comm.rank == 0:
            handle = comm.isend(torch.full((1,), 9.0), 1)
            comm.broadcast(torch.full((1,), 5.0))
            handle.wait()
            return None
        y = comm.broadcast(torch.zeros(1))
        comm.recv(x, 0)
        return x.item(), y.item()

    assert simulate(program, 2).values[1] == (9.0, 5.0)


@pytest.mark.parametrize("into", [torch.zeros(8), torch.zeros(2, 2), torch.zeros(4, dtype=torch.float64)])
def test_a_receive_into_another_shape_or_type_names_both(into):
    def program(comm, into):
        if comm.rank == 0:
            comm.send(four(), 1)
        else:
            comm.recv(into, 0)

    with pytest.raises(RankError, match=r"Rank 1 receives into float.*, rank 0 sends float32\[4\]") as caught:
        simulate(program, 2, into)
    assert isinstance(caught.value.cause, CommunicationError)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda comm: comm.send(four(), 2), "dst is 2: this communicator has ranks 0 to 1"),
        (lambda comm: comm.recv(four(), -1), "src is -1"),
        (lambda comm: comm.send(four(), comm.rank), "Rank 0 has itself as dst"),
        (lambda comm: comm.exchange([], [(four(), comm.rank)]), "Rank 0 has itself as src"),
        (lambda comm: comm.send([1.0], 1), "only tensors travel"),
        (lambda comm: comm.send(torch.zeros(4, device="meta"), 1), "is on meta"),
        (lambda comm: comm.split("left"), "color is 'left'"),
        (lambda comm: comm.all_reduce(four(), op="avg"), "op is 'avg'"),
    ],
)
def test_calls_that_cannot_be_right_get_a_sentence(call, sentence):
    with pytest.raises(RankError, match=sentence) as caught:
        simulate(call, 2)
    assert isinstance(caught.value.cause, CommunicationError)


@pytest.mark.parametrize("change", [lambda b: b.zero_(), lambda b: b.add_(1), lambda b: b[1:].mul_(3)])
def test_changing_a_buffer_before_wait_is_an_error(change):
    def program(comm, change):
        buffer = torch.ones(4)
        if comm.rank == 0:
            handle = comm.isend(buffer, 1)
            change(buffer)
            handle.wait()
        else:
            comm.recv(buffer, 0)

    with pytest.raises(RankError, match=r"buffer of isend of float32\[4\] to rank 1 was changed before wait") as caught:
        simulate(program, 2, change)
    assert caught.value.rank == 0
    assert "handle = comm.isend(buffer, 1)" in str(caught.value)


def test_writing_the_same_values_counts_as_a_change_and_so_does_writing_behind_torchs_back():
    def same(comm):
        buffer = torch.zeros(4)
        handle = comm.irecv(buffer, 1 - comm.rank) if comm.rank else comm.isend(buffer, 1)
        if comm.rank == 0:
            buffer.zero_()
        handle.wait()

    def numpy(comm):
        buffer = torch.zeros(4)
        handle = comm.irecv(buffer, 0) if comm.rank else comm.isend(buffer, 1)
        if comm.rank == 1:
            buffer.numpy()[2] = 1
        handle.wait()

    with pytest.raises(RankError, match="buffer of isend"):
        simulate(same, 2)
    with pytest.raises(RankError, match="buffer of irecv"):
        simulate(numpy, 2)


def test_the_buffer_of_an_asynchronous_collective_is_lent_too():
    def program(comm):
        gradient = torch.ones(4)
        handle = comm.all_reduce(gradient, async_op=True)
        with comm.span("next layer", cost=1e-6):
            gradient += 1
        handle.wait()

    with pytest.raises(RankError, match=r"buffer of all_reduce\(sum\) of float32\[4\].* was changed before wait"):
        simulate(program, 2)


def test_a_change_is_found_also_where_nobody_waits():
    def program(comm):
        if comm.rank == 0:
            buffer = four()
            comm.isend(buffer, 1)
            buffer += 1
        else:
            comm.recv(four(), 0)

    with pytest.raises(RankError, match="was changed before wait"):
        simulate(program, 2)


def test_one_chunk_may_change_while_another_is_on_its_way():
    def program(comm):
        whole, other = torch.arange(8.0), 1 - comm.rank
        first, second = whole.split(4)
        handle = comm.isend(first, other)
        comm.recv(second, other)
        second += 1
        handle.wait()
        return whole.tolist()

    def receives_first(comm):
        whole = torch.zeros(8)
        first, second = whole.split(4)
        if comm.rank == 0:
            handle = comm.isend(first, 1)
            second += 1
            handle.wait()
        else:
            comm.recv(first, 0)
            second += 1

    assert simulate(program, 2).values == [[0, 1, 2, 3, 1, 2, 3, 4]] * 2
    simulate(receives_first, 2)


def test_nan_in_a_buffer_is_no_change():
    def program(comm):
        buffer = torch.full((4,), float("nan"))
        handle = comm.irecv(buffer, 0) if comm.rank else comm.isend(buffer, 1)
        handle.wait()

    simulate(program, 2)


def test_another_thread_of_a_rank_may_not_communicate():
    def program(comm):
        said = []

        def beside():
            try:
                comm.barrier()
            except CommunicationError as error:
                said.append(str(error))

        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        return said[0]

    assert "from another thread than the one it runs in" in simulate(program, 1).values[0]


def test_an_integer_sum_that_does_not_fit_is_an_error_of_the_run():
    with pytest.raises(RankError, match="does not fit int8"):
        simulate(lambda comm: comm.all_reduce(torch.full((3,), 100, dtype=torch.int8)), 2)
    with pytest.raises(RankError, match="does not fit int8"):
        simulate(lambda comm: comm.all_reduce(torch.full((3,), 100, dtype=torch.int8), async_op=True).wait(), 2)


def test_a_rank_may_catch_a_wrong_call_and_go_on():
    def program(comm):
        try:
            comm.send(four(), 7)
        except CommunicationError:
            pass
        return comm.all_reduce(torch.ones(1)).item()

    assert simulate(program, 2).values == [2.0, 2.0]


# ----------------------------------------------------------------------------------------- ranks that raise


def test_a_rank_that_raises_is_named_with_its_own_lines_and_the_others_in_one_each():
    def inner():
        raise ValueError("no such layer")

    def program(comm):
        if comm.rank == 2:
            inner()
        comm.barrier()

    with pytest.raises(RankError) as caught:
        simulate(program, 4)
    error = caught.value
    assert error.rank == 2 and isinstance(error.cause, ValueError) and error.__cause__ is error.cause
    text = str(error)
    assert "rank 2 raised ValueError: no such layer" in text.splitlines()[0]
    assert text.index("inner()") < text.index('raise ValueError("no such layer")')
    assert "barrier, its 1st collective, which ranks 2 and 3 have not called" in text
    assert "scheduler.py" not in text and "simulated.py" not in text


@pytest.mark.parametrize("leave", [SystemExit("bye"), KeyboardInterrupt()])
def test_a_rank_that_leaves_is_an_error_too(leave):
    def program(comm, leave):
        if comm.rank:
            raise leave
        comm.barrier()

    with pytest.raises(RankError) as caught:
        simulate(program, 2, leave)
    assert caught.value.rank == 1


def test_finally_blocks_of_the_other_ranks_run_and_cannot_go_on_communicating(tmp_path):
    def program(comm, path):
        try:
            if comm.rank == 1:
                raise ValueError
            comm.barrier()
        except Exception:  # the end of a run is no Exception
            if comm.rank == 0:
                path.write_text("caught")
            raise
        finally:
            if comm.rank == 0:
                comm.barrier()
                path.write_text("went on")

    path = tmp_path / "said"
    with pytest.raises(RankError):
        simulate(program, 2, path)
    assert not path.exists()


def test_something_that_cannot_be_sent_to_a_rank_is_named():
    with pytest.raises(TypeError, match="lock"):
        simulate(lambda comm, lock: None, 2, threading.Lock())


# ------------------------------------------------------------------------------------- time limit, interrupt


@pytest.mark.stalls
def test_a_rank_that_loops_ends_at_the_timeout_and_its_line_is_named():
    def program(comm):
        if comm.rank == 1:
            while True:
                pass  # for ever
        comm.recv(four(), 1)

    begun = time.perf_counter()
    with pytest.raises(RunTimeout) as caught:
        simulate(program, 3, timeout=0.5)
    assert 0.5 <= time.perf_counter() - begun < 5
    text = str(caught.value)
    assert "rank 1" in text and ("while True:" in caught.value.lines[1] or "pass  # for ever" in caught.value.lines[1])
    assert "test_simulate_errors.py" in caught.value.stacks[1]
    assert "recv of float32[4] from rank 1" in text


def test_an_import_is_never_left_half_way(tmp_path, monkeypatch):
    # The first optimizer of a process imports a large part of torch. A time limit in the middle of that left
    # a package without its parts, and every later optimizer of the notebook failed on a missing attribute.
    package = tmp_path / "slow_package"
    package.mkdir()
    (package / "part.py").touch()
    (package / "__init__.py").write_text(
        "import time, slow_package.part\nend = time.monotonic() + 0.6\nwhile time.monotonic() < end:\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def program(comm):
        import slow_package  # noqa: F401

        while True:
            pass

    with pytest.raises(RunTimeout):
        simulate(program, 1, timeout=0.2)
    import slow_package

    assert slow_package.part


def test_a_rank_that_swallows_everything_ends_as_well():
    def program(comm):
        while True:
            try:
                comm.barrier()
                time.sleep(0.001)
            except:  # noqa: E722
                pass

    with pytest.raises(RunTimeout):
        simulate(program, 2, timeout=0.3)


def test_ranks_that_talk_for_ever_end_at_the_timeout():
    def program(comm):
        while True:
            comm.exchange([(four(), 1 - comm.rank)], [(four(), 1 - comm.rank)])

    with pytest.raises(RunTimeout) as caught:
        simulate(program, 2, timeout=0.3)
    assert "comm.exchange" in str(caught.value)


@pytest.mark.stalls
def test_a_sleeping_rank_cannot_be_ended_but_the_error_comes_in_time(monkeypatch):
    monkeypatch.setattr("lockstep.world.scheduler.GRACE", 0.2)

    def program(comm):
        time.sleep(1.2)  # its thread ends when the sleep does

    begun = time.perf_counter()
    with pytest.raises(RunTimeout) as caught:
        simulate(program, 2, timeout=0.2)
    assert time.perf_counter() - begun < 1.1
    assert "time.sleep(1.2)" in caught.value.lines[0]


def test_an_interrupt_ends_the_ranks_and_the_next_run_works():
    def program(comm):
        while comm.rank == 0:
            pass
        comm.recv(four(), 0)

    states = torch.get_rng_state()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts its background jobs deaf to it
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        simulate(program, 3, timeout=30)
    timer.join()
    assert torch.equal(states, torch.get_rng_state())
    assert simulate(lambda comm: comm.all_reduce(torch.ones(1)).item(), 3).values == [3.0] * 3
