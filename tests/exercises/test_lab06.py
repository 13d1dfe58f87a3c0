"""Lab 06: right answers in other clothes pass, what students get wrong is named, and references agree with the library."""

import numpy as np
import pytest
import torch
from newcomer_06 import FOUND, RIGHT
from proof import verdict_on
from torch import nn
from torch.nn import functional as F

from lockstep.exercises import find
from lockstep.exercises.lab06 import EXERCISES, QUESTIONS
from lockstep.exercises.lab06.balancing import slowest_of
from lockstep.parallel import ColumnParallelLinear, LayerSplit, RowParallelLinear
from lockstep.plan import balanced_partition
from lockstep.world import simulate


def test_the_cores_come_first_and_the_cases_grow():
    assert [one.id for one in EXERCISES if one.core] == ["06.1", "06.2", "06.3", "06.4"]
    for exercise in EXERCISES:
        ranks = [case.ranks for case in exercise.draw(7) if case.ranks]
        assert ranks == sorted(ranks), exercise.id
        assert find(exercise.id) is exercise


def test_right_answers_stand_in_different_places():
    right = [next(letter for letter, o in q.letters.items() if o.right) for q in QUESTIONS]
    assert len(QUESTIONS) == 4 and len(set(right)) >= 3


def named(found):
    """An id for each, by its place: some of the functions have one name."""
    return [f"{id}-{i}" for i, (id, *_) in enumerate(found)]


@pytest.mark.parametrize("exercise_id, fn, words", FOUND, ids=named(FOUND))
def test_what_a_newcomer_wrote_is_told_why(exercise_id, fn, words):
    outcome = verdict_on(find(exercise_id), fn)
    assert not outcome.passed
    for word in words:
        told = f"{outcome.seen} {outcome.cause}"
        assert (word.removeprefix("-") in told) is not word.startswith("-"), outcome.text


@pytest.mark.parametrize("exercise_id, fn", RIGHT, ids=named(RIGHT))
def test_what_a_newcomer_wrote_is_right(exercise_id, fn):
    outcome = verdict_on(find(exercise_id), fn)
    assert outcome.passed, outcome.text


def sends_at_once(comm, layers, cuts, x, loss):
    """Posts its receive first and gives the loss as a number."""
    r = comm.rank
    bounds = (0, *cuts, len(layers))
    if r > 0:
        comm.recv(x, r - 1)
    leaf = x.clone().requires_grad_(r > 0)
    out = nn.Sequential(*layers[bounds[r] : bounds[r + 1]])(leaf)
    if r == len(cuts):
        result = loss(out)
        result.backward()
        result = result.item()
    else:
        gradient = torch.zeros(out.shape)
        coming = comm.irecv(gradient, r + 1)
        comm.isend(out.detach(), r + 1).wait()
        coming.wait()
        torch.autograd.backward([out], [gradient])
        result = None
    if r > 0:
        comm.isend(leaf.grad, r - 1).wait()
    return result


def partition_as_a_tuple_of_numpy_numbers(costs, parts, communication):
    return tuple(np.asarray(balanced_partition(costs, parts, communication), dtype=np.int64))


def column_without_a_clone(comm, x, weight, bias):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient)

    return Copy.apply(x).matmul(weight.t()).add(bias)


def row_summed_in_place(comm, x, weight, bias):
    # `comm` changes the values out of autograd's sight, and the product does not need them for its backward.
    y = F.linear(x, weight)
    comm.all_reduce(y)
    return y + bias


@pytest.mark.parametrize(
    "exercise_id, fn",
    [
        ("06.1", sends_at_once),
        ("06.2", partition_as_a_tuple_of_numpy_numbers),
        ("06.3", column_without_a_clone),
        ("06.4", row_summed_in_place),
    ],
)
def test_right_answers_in_other_clothes_pass(exercise_id, fn):
    outcome = verdict_on(find(exercise_id), fn)
    assert outcome.passed, outcome.text


def forgets_twice(comm, layers, cuts, x, loss):
    """No gradient asked of the input, and none sent back either."""
    r, bounds = comm.rank, [0, *cuts, len(layers)]
    if r:
        comm.recv(x, r - 1)
    y = nn.Sequential(*layers[bounds[r] : bounds[r + 1]])(x)
    if r < len(cuts):
        comm.send(y, r + 1)
        return None
    value = loss(y)
    value.backward()
    return value


def splits_evenly_with_numpy(costs, parts, communication):
    return [int(part[0]) for part in np.array_split(range(len(costs)), parts)][1:]


def forgets_the_return(costs, parts, communication):
    balanced_partition(costs, parts, communication)


def column_like_a_ddp_layer(comm, x, weight, bias):
    for tensor in (x, weight, bias):
        if tensor.requires_grad:
            tensor.register_hook(lambda g: comm.all_reduce(g.clone()))
    return F.linear(x, weight, bias)


def row_with_the_sum_of_lab_05(comm, x, weight, bias):
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            return comm.all_reduce(tensor.clone())

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone())

    return Sum.apply(x @ weight.T) + bias


def row_with_bias_inside(comm, x, weight, bias):
    y = F.linear(x, weight, bias)
    comm.all_reduce(y)
    return y


def channels_by_cat(comm, x, weight, bias, padding, channels):
    y = F.conv2d(x, weight, bias, padding=padding)
    parts = [torch.zeros(y.shape[0], k, *y.shape[2:]) for k in channels]
    parts[comm.rank] = y.detach().clone()
    for src, part in enumerate(parts):
        comm.broadcast(part, src)
    parts[comm.rank] = y
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize(
    "exercise_id, fn, words",
    [
        ("06.1", forgets_twice, "owes|Only the last rank has gradients"),
        ("06.2", splits_evenly_with_numpy, "equally many layers"),
        ("06.2", forgets_the_return, ""),
        ("06.3", column_like_a_ddp_layer, "nobody else's business"),
        ("06.4", row_with_the_sum_of_lab_05, "already has the whole"),
        ("06.4", row_with_bias_inside, "once, after the all-reduce"),
        ("06.5", channels_by_cat, "only what came through this rank's channels"),
    ],
)
def test_what_a_newcomer_writes_gets_its_cause(exercise_id, fn, words):
    outcome = verdict_on(find(exercise_id), fn)
    assert not outcome.passed
    assert any(word in outcome.cause for word in words.split("|")), outcome.text


def test_gathering_between_the_pair_is_found_by_its_bytes():
    row = find("06.4")
    gathers = next(one for one in row.mistakes if one.name == "gathers between the pair")
    outcome = verdict_on(row, gathers.function)
    assert outcome.cause == gathers.sentence and "bytes forward" in outcome.seen


def test_cuts_are_as_good_as_the_librarys():
    # Two independent programmes: the exercise's judges by the bottleneck, so the cuts may differ and it may not.
    rng = np.random.default_rng(6)
    for _ in range(60):
        n = int(rng.integers(1, 10))
        costs, between = rng.integers(1, 20, n).tolist(), rng.integers(0, 9, n - 1).tolist()
        parts = int(rng.integers(1, n + 1))
        mine = find("06.2").reference(costs, parts, between)
        assert slowest_of(mine, costs, between) == slowest_of(balanced_partition(costs, parts, between), costs, between)


def sent_in_a_step(comm, split, batch, inputs, outputs):
    """Bytes of one forward and backward pass of the library's layers."""
    x = torch.ones(batch, inputs, requires_grad=True)
    if split == "layers":
        layers = [nn.Linear(inputs, inputs), nn.Linear(inputs, outputs), nn.Linear(outputs, 1)]
        model = LayerSplit(layers, [1, 2], comm)
    elif split == "column":
        model = ColumnParallelLinear(nn.Linear(inputs, outputs), comm, gather=True)
    elif split == "row":
        model = RowParallelLinear(nn.Linear(inputs, outputs), comm, split=True)
    else:
        first, second = nn.Linear(inputs, 12), nn.Linear(12, outputs)
        model = nn.Sequential(ColumnParallelLinear(first, comm), nn.ReLU(), RowParallelLinear(second, comm))
    before = comm.traffic.bytes_sent
    y = model(x)
    (y if y.dim() == 0 else y.sum()).backward()
    return comm.traffic.bytes_sent - before


@pytest.mark.parametrize("split, ranks", [("layers", 3), ("column", 4), ("row", 4), ("pair", 4)])
def test_bytes_per_step_are_those_of_the_library(split, ranks):
    batch, inputs, outputs = 4, 400, 800
    sent = simulate(sent_in_a_step, ranks, split, batch, inputs, outputs).values[1]
    said = find("06.6").reference(split, inputs, outputs, 0, batch, ranks)
    # Beside the tensors a split by layers sends their shapes: a header for each activation.
    assert said <= sent < said + (1000 if split == "layers" else 1)


def test_bytes_of_data_parallel_are_those_of_a_ring():
    sent = simulate(lambda comm: (comm.all_reduce(torch.ones(1200)), comm.traffic.bytes_sent)[1], 4).values
    assert set(sent) == {find("06.6").reference("data", 1, 1, 1200, 32, 4)}
