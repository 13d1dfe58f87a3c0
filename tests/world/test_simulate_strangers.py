"""Ranks share nothing: copies, random numbers, dtypes, modes; and the caller finds everything as it was."""

import random
import threading
import types
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.hardware import Link
from lockstep.world.launch import launch
from lockstep.world.run import RankError
from lockstep.world.seeding import seed_rank
from lockstep.world.simulate import simulate


def draw():
    return torch.rand(2).tolist(), np.random.rand(2).tolist(), [random.random() for _ in range(2)]


def hand_over(comm):
    """Let every other rank run."""
    out, into = torch.zeros(1, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)
    comm.exchange([(out, (comm.rank + 1) % comm.size)], [(into, (comm.rank - 1) % comm.size)])


@pytest.fixture(autouse=True)
def callers_generators():
    torch.manual_seed(1), np.random.seed(2), random.seed(3)
    np.random.randn()  # leaves half a pair behind
    states = torch.get_rng_state(), np.random.get_state(legacy=False), random.getstate()
    yield
    after = np.random.get_state(legacy=False)
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1]["state"]["key"] == after["state"]["key"]).all() and states[1]["state"]["pos"] == after["state"][
        "pos"
    ]
    assert (states[1]["has_gauss"], states[1]["gauss"]) == (after["has_gauss"], after["gauss"])
    assert states[2] == random.getstate()
    assert torch.get_default_dtype() is torch.float32


def test_each_rank_draws_its_own_numbers_whoever_runs_in_between():
    def program(comm):
        numbers = []
        for _ in range(4):
            numbers.append((draw(), np.random.randn(), random.gauss(0, 1), torch.randn(1).item()))
            hand_over(comm)
        return numbers

    run = simulate(program, 3, seed=5)

    def alone(rank):
        seed_rank(5, rank)
        return [(draw(), np.random.randn(), random.gauss(0, 1), torch.randn(1).item()) for _ in range(4)]

    states = torch.get_rng_state(), np.random.get_state(legacy=False), random.getstate()
    expected = [alone(rank) for rank in range(3)]
    torch.set_rng_state(states[0]), np.random.set_state(states[1]), random.setstate(states[2])
    assert run.values == expected
    assert run.values[0] != run.values[1]


def test_a_fork_of_the_generators_inside_a_rank_is_that_ranks_own():
    def program(comm):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            hand_over(comm)
            inside = torch.rand(1).item()
        return inside, torch.rand(1).item()

    values = simulate(program, 3).values
    assert len({inside for inside, _ in values}) == 1
    assert len({after for _, after in values}) == 3


def test_another_numpy_bit_generator_stays_with_its_rank_and_its_owner():
    mine = np.random.get_bit_generator()

    def program(comm):
        if comm.rank == 0:
            np.random.set_bit_generator(np.random.PCG64(7))
        first = np.random.rand()
        hand_over(comm)
        return first, np.random.rand(), type(np.random.get_bit_generator()).__name__

    values = simulate(program, 2).values
    again = np.random.RandomState(np.random.PCG64(7))
    assert values[0] == (again.rand(), again.rand(), "PCG64")
    assert values[1][2] == "MT19937"
    assert np.random.get_bit_generator() is mine


def test_the_callers_generators_are_restored_after_an_error_too():
    def program(comm):
        draw()
        np.random.set_bit_generator(np.random.PCG64(7))
        torch.set_default_dtype(torch.float64)
        raise ValueError

    with pytest.raises(RankError):
        simulate(program, 2)


def test_default_dtype_grad_mode_autocast_and_default_device_are_kept_apart():
    def program(comm):
        start = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        if comm.rank == 0:
            torch.set_default_dtype(torch.float64)
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                hand_over(comm)
                inside = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        else:
            hand_over(comm)
            inside = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        return start, inside, torch.ones(1).device.type

    with torch.no_grad(), torch.device("meta"):
        torch.set_default_dtype(torch.float16)
        try:
            values = simulate(program, 2).values
            assert torch.get_default_dtype() is torch.float16 and not torch.is_grad_enabled()
        finally:
            torch.set_default_dtype(torch.float32)
    fresh = (torch.float32, True, False)
    assert values == [(fresh, (torch.float64, False, True), "cpu"), (fresh, fresh, "cpu")]


def test_messages_between_ranks_in_different_modes():
    def program(comm):
        if comm.rank == 0:
            with torch.inference_mode():
                x = torch.zeros(3)
                comm.recv(x, 1)
                comm.all_reduce(x)
                return x.tolist()
        weight = nn.Parameter(torch.ones(3))
        comm.send(weight, 0)
        comm.all_reduce(weight)
        return weight.tolist(), weight.requires_grad, weight.grad_fn

    assert simulate(program, 2).values == [[2.0] * 3, ([2.0] * 3, True, None)]


def test_every_rank_has_its_own_copy_of_function_and_arguments():
    shared, model = [1, 2], nn.BatchNorm1d(1)

    def program(comm, shared, model, *, options):
        shared.append(comm.rank)
        options["rank"] = comm.rank
        with torch.no_grad():
            model.weight.fill_(comm.rank)
        hand_over(comm)
        return shared, options, model.weight.item(), remembered.append(comm.rank) or remembered

    remembered = []
    options = {}
    run = simulate(program, 3, shared, model, options=options)
    assert run.values == [([1, 2, r], {"rank": r}, float(r), [r]) for r in range(3)]
    assert (shared, options, remembered) == ([1, 2], {}, [])


def notebook(source):
    """A module that, like a notebook's `__main__`, is sent by value."""
    module = types.ModuleType("__main__")
    exec(source, module.__dict__)
    return module


def test_classes_of_a_notebook_are_each_ranks_own_and_results_are_instances_of_the_notebooks():
    """cloudpickle, unpickling in the same process, gave ranks the notebook's class and wrote its methods anew:
    afterwards `Result.scaled` saw a snapshot of `FACTOR`, and ranks shared `Result.seen`."""
    main = notebook(
        "from dataclasses import dataclass\n"
        "from enum import Enum\n"
        "FACTOR = 2\n"
        "class Phase(Enum):\n    TRAIN = 1\n"
        "@dataclass\n"
        "class Result:\n"
        "    value: int\n"
        "    seen = []\n"
        "    def scaled(self): return FACTOR * self.value\n"
        "def program(comm, given):\n"
        "    Result.seen.append(comm.rank)\n"
        "    return Result(comm.rank), given, list(Result.seen), given.scaled(), Phase.TRAIN\n"
    )
    method = main.Result.scaled
    run = simulate(main.program, 2, main.Result(10))
    assert run.values == [(main.Result(r), main.Result(10), [r], 20, main.Phase.TRAIN) for r in range(2)]
    assert type(run.values[0][0]) is main.Result
    assert main.Result.scaled is method and main.Result.seen == []
    main.FACTOR = 3
    assert main.Result(1).scaled() == 3


def test_an_exception_of_a_notebook_is_an_instance_of_the_notebooks_class():
    main = notebook("class Oops(Exception): pass\ndef program(comm): raise Oops('here')\n")
    with pytest.raises(RankError) as caught:
        simulate(main.program, 1)
    assert isinstance(caught.value.cause, main.Oops) and caught.value.cause.args == ("here",)


@dataclass
class Importable:
    value: torch.Tensor


def test_values_of_importable_classes_are_passed_as_they_are():
    def program(comm):
        weight = torch.ones(1, requires_grad=True)
        return Importable(weight * comm.rank)

    first, second = (value.value for value in simulate(program, 2).values)
    assert first.grad_fn is not None and first.data_ptr() != second.data_ptr()


# ---------------------------------------------------------------------------------------------- split


def test_split_numbers_ranks_by_key_within_each_color_and_counts_to_the_whole_run():
    def program(comm):
        group = comm.split(comm.rank % 2, -comm.rank)
        total = group.all_reduce(torch.tensor([float(comm.rank)])).item()
        if group.rank == 0:
            group.send(torch.tensor([comm.rank + 0.5]), 1)
            source = None
        elif group.rank == 1:
            source = group.recv(torch.zeros(1))
        else:
            source = None
        return group.rank, group.size, total, source

    run = simulate(program, 5)
    # Even: 4, 2, 0; odd: 3, 1.
    assert run.values == [(2, 3, 6.0, None), (1, 2, 4.0, 0), (1, 3, 6.0, 0), (0, 2, 4.0, None), (0, 3, 6.0, None)]
    assert set(run.traffic[4].sent_to) == {2} and run.traffic[3].sent_to[1][0] == 3
    group = next(s.detail["group"] for s in run.trace.spans if s.rank == 4 and s.kind == "collective")
    assert group == (4, 2, 0)


def test_a_rank_without_color_is_in_no_group_and_groups_split_again():
    def program(comm):
        group = comm.split(None if comm.rank == 0 else 1)
        if group is None:
            return None
        half = group.split(group.rank // 2)
        return half.size, half.all_reduce(torch.ones(1)).item(), half.split(0).rank

    assert simulate(program, 5).values == [None, (2, 2.0, 0), (2, 2.0, 1), (2, 2.0, 0), (2, 2.0, 1)]


def test_split_moves_no_bytes_and_ends_when_the_last_rank_calls_it():
    def program(comm):
        with comm.span("work", cost=comm.rank):
            pass
        comm.split(0)
        return comm.now()

    run = simulate(program, 3)
    assert run.values == [2.0] * 3 and run.trace.messages == ()


# --------------------------------------------------------------------------------------------- nested


def test_a_simulation_inside_a_simulation():
    def inner(comm):
        return comm.all_reduce(torch.rand(1)).item()

    def program(comm):
        before = torch.rand(1).item()
        result = simulate(inner, 2, cluster=Link(1, 1)).values
        hand_over(comm)
        return before, result, torch.rand(1).item()

    values = simulate(program, 2).values
    assert values[0][1] == values[1][1] == simulate(inner, 2).values
    seed_rank(0, 1)
    expected = torch.rand(1).item(), torch.rand(1).item()
    torch.manual_seed(1), np.random.seed(2), random.seed(3)
    np.random.randn()
    assert (values[1][0], values[1][2]) == expected


def test_a_simulation_inside_a_real_rank():
    def inner(comm):
        return comm.all_reduce(torch.ones(1)).item()

    def program(comm):
        mine = simulate(inner, comm.rank + 2).values[0]
        return comm.all_reduce(torch.tensor([mine])).item()

    assert launch(program, 2).values == [5.0, 5.0]


def test_simulations_in_several_threads_of_the_caller_take_turns():
    results = {}

    def program(comm, n):
        first = torch.rand(1).item()
        hand_over(comm)
        return first, torch.rand(1).item(), n

    def run(n):
        results[n] = [value[:2] for value in simulate(program, 4, n).values]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(result == results[0] for result in results.values())


def test_ranks_compute_with_one_thread_each_and_the_caller_keeps_its_own():
    before = torch.get_num_threads()
    assert simulate(lambda comm: torch.get_num_threads(), 2).values == [1, 1]
    assert torch.get_num_threads() == before
