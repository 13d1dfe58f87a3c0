"""Collectives against sums worked out in one process, at 1 to 8 ranks and lengths that hurt."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thread_ranks import run_ranks

from lockstep.comm import CommunicationError
from lockstep.comm.collectives import (
    central_all_reduce,
    chunk_sizes,
    direct_gather,
    direct_scatter,
    dissemination_barrier,
    hierarchical_all_reduce,
    pairwise_all_to_all,
    rabenseifner_all_reduce,
    recursive_doubling_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    tree_broadcast,
    tree_reduce,
)


def on_nodes_of(size):
    def all_reduce(comm, tensor, op="sum"):
        return hierarchical_all_reduce(comm, tensor, size, op)

    return all_reduce


ALL_REDUCES = {
    "ring": ring_all_reduce,
    "central": central_all_reduce,
    "recursive doubling": recursive_doubling_all_reduce,
    "Rabenseifner": rabenseifner_all_reduce,
    "nodes of 1": on_nodes_of(1),
    "nodes of 2": on_nodes_of(2),
    "nodes of 3": on_nodes_of(3),
    "nodes of 8": on_nodes_of(8),
}
RANKS = range(1, 9)
LENGTHS = (0, 1, 3, 8, 17)
ORACLES = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0),
    "max": lambda x: x.amax(0),
    "min": lambda x: x.amin(0),
    "product": lambda x: x.prod(0),
}

every_all_reduce = pytest.mark.parametrize("all_reduce", ALL_REDUCES.values(), ids=ALL_REDUCES.keys())
every_size = pytest.mark.parametrize("p", RANKS)


def inputs(p, *shape, dtype=torch.float64, seed=0):
    """One small whole-numbered tensor a rank: sums are exact in every dtype, in any order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, (p, *shape), generator=generator).to(dtype)


@every_all_reduce
@every_size
def test_all_reduce_is_the_sum_on_every_rank(all_reduce, p):
    for n in LENGTHS:
        x = inputs(p, n)
        values, _ = run_ranks(lambda comm, x=x: all_reduce(comm, x[comm.rank].clone()), p)
        for value in values:
            assert torch.equal(value, x.sum(0)), n


@every_all_reduce
@pytest.mark.parametrize("op", ORACLES)
def test_every_operation(all_reduce, op):
    for p in (1, 3, 4):
        x = inputs(p, 2, 5)
        values, _ = run_ranks(lambda comm, x=x: all_reduce(comm, x[comm.rank].clone(), op), p)
        for value in values:
            torch.testing.assert_close(value, ORACLES[op](x), rtol=0, atol=1e-15)


@every_all_reduce
@every_size
def test_ranks_agree_bit_for_bit(all_reduce, p):
    x = torch.randn(p, 1001, generator=torch.Generator().manual_seed(p))
    values, _ = run_ranks(lambda comm: all_reduce(comm, x[comm.rank].clone(), "mean"), p)
    for value in values:
        assert torch.equal(value, values[0])
        torch.testing.assert_close(value, x.mean(0))


@every_all_reduce
@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.complex64],
)
def test_every_dtype_that_adds(all_reduce, dtype):
    x = inputs(5, 7).abs().to(dtype)
    values, _ = run_ranks(lambda comm: all_reduce(comm, x[comm.rank].clone()), 5)
    for value in values:
        assert value.dtype is dtype and torch.equal(value, x.sum(0).to(dtype))


@every_all_reduce
def test_in_place_for_tensors_with_gaps_and_for_tensors_that_require_grad(all_reduce):
    x = inputs(3, 4, 6)

    def program(comm):
        transposed = x[comm.rank].clone().t()
        column = x[comm.rank].clone()[:, 2]
        channels_last = x[comm.rank].clone().view(1, 2, 3, 4).to(memory_format=torch.channels_last)
        parameter = torch.nn.Parameter(x[comm.rank].clone())
        for tensor in (transposed, column, channels_last, parameter):
            assert all_reduce(comm, tensor) is tensor
        return transposed, column, channels_last, parameter.detach()

    total = x.sum(0)
    for transposed, column, channels_last, parameter in run_ranks(program, 3)[0]:
        assert torch.equal(transposed, total.t())
        assert torch.equal(column, total[:, 2])
        assert torch.equal(channels_last, total.view(1, 2, 3, 4))
        assert torch.equal(parameter, total)


def test_a_conjugated_view_travels_as_the_values_it_shows():
    x = torch.randn(2, 3, dtype=torch.complex64)
    values, _ = run_ranks(lambda comm: ring_all_reduce(comm, x[comm.rank].clone().conj()), 2)
    assert all(torch.equal(value, x.conj().sum(0)) for value in values)


def test_bool_has_max_and_min_and_no_sum():
    x = torch.tensor([[True, False, False], [True, True, False]])
    values, _ = run_ranks(lambda comm: ring_all_reduce(comm, x[comm.rank].clone(), "max"), 2)
    assert values[0].tolist() == values[1].tolist() == [True, True, False]
    with pytest.raises(CommunicationError, match="sum of bool values cannot be a bool"):
        run_ranks(lambda comm: ring_all_reduce(comm, x[comm.rank].clone()), 2)


@pytest.mark.parametrize(
    ("tensor", "op", "sentence"),
    [
        (torch.ones(2), "avg", "op is 'avg'; it must be one of 'sum', 'mean'"),
        (torch.ones(2, dtype=torch.int32), "mean", "mean of int32 values is not a int32 in general"),
        (torch.ones(2, dtype=torch.complex64), "max", "have no order"),
        (torch.ones(2).to(torch.float8_e4m3fn), "sum", "no arithmetic for float8_e4m3fn"),
    ],
)
@every_all_reduce
def test_an_operation_without_meaning_is_a_sentence(all_reduce, tensor, op, sentence):
    with pytest.raises(CommunicationError, match=sentence):
        run_ranks(lambda comm: all_reduce(comm, tensor.clone(), op), 2)


# Story: int8 gradients of 100 on two ranks came back as -56: the backend adds and wraps in silence.
@every_all_reduce
def test_an_integer_sum_that_does_not_fit_is_an_error(all_reduce):
    def program(comm):
        return all_reduce(comm, torch.tensor([1, 100], dtype=torch.int8))

    with pytest.raises(CommunicationError, match=r"200 does not fit int8 .*element \d+ overflows on rank \d"):
        run_ranks(program, 2)


@pytest.mark.parametrize(
    ("dtype", "op", "values", "fits"),
    [
        (torch.uint8, "sum", (200, 55), True),
        (torch.uint8, "sum", (200, 56), False),
        (torch.int16, "sum", (-32768, -1), False),
        (torch.int32, "product", (65536, 32768), False),
        (torch.int32, "product", (65536, 32767), True),
        (torch.int64, "sum", (2**63 - 1, 1), False),
        (torch.int64, "sum", (-(2**63), 2**63 - 1), True),
        (torch.int64, "sum", (-(2**63), -1), False),
        (torch.int64, "product", (2**32, 2**31), False),
        (torch.int64, "product", (-(2**32), 2**31), True),
        (torch.int64, "product", (3037000500, 3037000500), False),
        (torch.int64, "product", (3037000499, 3037000499), True),
        (torch.int64, "product", (-(2**63), -1), False),
        (torch.int64, "max", (2**63 - 1, 1), True),
    ],
)
def test_the_edge_of_every_integer(dtype, op, values, fits):
    def program(comm):
        return ring_all_reduce(comm, torch.tensor([values[comm.rank]], dtype=dtype), op)

    if not fits:
        with pytest.raises(CommunicationError, match="does not fit"):
            run_ranks(program, 2)
        return
    exact = {"sum": sum(values), "product": values[0] * values[1], "max": max(values)}[op]
    assert [value.item() for value in run_ranks(program, 2)[0]] == [exact, exact]


@every_size
def test_reduce_scatter_gives_each_rank_its_chunk_and_leaves_the_input_alone(p):
    for n in LENGTHS:
        x = inputs(p, n)
        values, _ = run_ranks(lambda comm, x=x: ring_reduce_scatter(comm, x[comm.rank]), p)
        for value, chunk in zip(values, x.sum(0).tensor_split(p), strict=True):
            assert torch.equal(value, chunk)
        assert torch.equal(x, inputs(p, n))


def test_reduce_scatter_in_uneven_sizes():
    x = inputs(3, 2, 5)
    values, _ = run_ranks(lambda comm: ring_reduce_scatter(comm, x[comm.rank], "mean", sizes=[7, 0, 3]), 3)
    for value, chunk in zip(values, x.mean(0).view(-1).split([7, 0, 3]), strict=True):
        torch.testing.assert_close(value, chunk)
    with pytest.raises(CommunicationError, match=r"sizes is \[7, 3\]: it needs 3 numbers"):
        run_ranks(lambda comm: ring_reduce_scatter(comm, x[comm.rank], sizes=[7, 3]), 3)


@every_size
def test_all_gather_joins_rows_also_uneven_and_of_scalars(p):
    rows = [(3 * rank) % 4 for rank in range(p)]
    blocks = [torch.full((n, 2), float(rank)) for rank, n in enumerate(rows)]

    def program(comm):
        return (
            ring_all_gather(comm, blocks[comm.rank], sizes=rows),
            ring_all_gather(comm, torch.tensor([[comm.rank], [-comm.rank]])),
            ring_all_gather(comm, torch.tensor(comm.rank)),
        )

    for uneven, even, scalars in run_ranks(program, p)[0]:
        assert torch.equal(uneven, torch.cat(blocks))
        assert even.flatten().tolist() == [sign * rank for rank in range(p) for sign in (1, -1)]
        assert scalars.tolist() == list(range(p))


def test_all_gather_says_when_sizes_and_rows_disagree():
    with pytest.raises(CommunicationError, match=r"sizes\[\d\] is 4, but rank \d gives a tensor of 2 rows"):
        run_ranks(lambda comm: ring_all_gather(comm, torch.ones(2, 3), sizes=[4, 4]), 2)


@every_size
def test_broadcast_and_reduce_from_and_to_every_root(p):
    x = inputs(p, 2, 3)

    def program(comm):
        copies = [tree_broadcast(comm, x[comm.rank].clone().t(), root) for root in range(p)]
        totals = [tree_reduce(comm, x[comm.rank].clone().t(), root) for root in range(p)]
        return copies, totals

    for rank, (copies, totals) in enumerate(run_ranks(program, p)[0]):
        for root in range(p):
            assert torch.equal(copies[root], x[root].t())
            assert torch.equal(totals[root], (x.sum(0) if rank == root else x[rank]).t())


@every_size
def test_all_to_all_even_and_uneven(p):
    rows = [[(i + 2 * j) % 3 for j in range(p)] for i in range(p)]  # rows[i][j] go from i to j

    def program(comm):
        r = comm.rank
        even = pairwise_all_to_all(comm, torch.arange(p).view(p, 1) + 10 * r)
        block = torch.cat([torch.full((rows[r][j], 2), 10 * r + j) for j in range(p)])
        return even, pairwise_all_to_all(comm, block, rows[r], [rows[i][r] for i in range(p)])

    for j, (even, uneven) in enumerate(run_ranks(program, p)[0]):
        assert even.flatten().tolist() == [10 * i + j for i in range(p)]
        assert torch.equal(uneven, torch.cat([torch.full((rows[i][j], 2), 10 * i + j) for i in range(p)]))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((torch.ones(3),), "3 rows over 2 ranks does not split evenly"),
        ((torch.ones(4), [2, 2]), "needs both send_sizes and recv_sizes"),
        ((torch.ones(4), [2, 1], [2, 1]), r"send_sizes is \[2, 1\]: it needs 2 numbers"),
        ((torch.ones(4), [3, 1], [2, 2]), "keeps"),
        ((torch.tensor(1.0),), "a tensor without dimensions has none"),
    ],
)
def test_all_to_all_with_sizes_that_cannot_be(arguments, sentence):
    with pytest.raises(CommunicationError, match=sentence):
        run_ranks(lambda comm: pairwise_all_to_all(comm, *arguments), 2)


@every_size
def test_gather_and_scatter(p):
    root = p - 1

    def program(comm):
        gathered = direct_gather(comm, torch.full((2, 2), comm.rank).t(), root)
        uneven = direct_gather(comm, torch.full((comm.rank, 1), comm.rank), root, sizes=range(p))
        own = torch.zeros(comm.rank + 1, 2).t()
        shares = [torch.full((2, rank + 1), float(rank)) for rank in range(p)] if comm.rank == root else None
        return gathered, uneven, direct_scatter(comm, own, shares, root)

    for rank, (gathered, uneven, share) in enumerate(run_ranks(program, p)[0]):
        assert torch.equal(share, torch.full((2, rank + 1), float(rank)))
        if rank != root:
            assert gathered is None and uneven is None
        else:
            assert [block.unique().item() for block in gathered] == list(range(p))
            assert [len(block) for block in uneven] == list(range(p))


def test_scatter_says_what_is_missing():
    with pytest.raises(CommunicationError, match="scatter from rank 0 needs one tensor a rank, 2 in all; it got None"):
        run_ranks(lambda comm: direct_scatter(comm, torch.ones(1)) if comm.rank == 0 else None, 2)


@every_size
def test_nobody_leaves_a_barrier_before_the_last_has_come(p):
    arrived = []

    def program(comm):
        arrived.append(comm.rank)
        dissemination_barrier(comm)
        return len(arrived)

    assert run_ranks(program, p)[0] == [p] * p


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(sorted(ALL_REDUCES)),
    p=st.integers(1, 8),
    n=st.integers(0, 40),
    op=st.sampled_from(sorted(ORACLES)),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.int16, torch.int64, torch.bfloat16]),
    seed=st.integers(0, 1000),
)
def test_any_all_reduce_of_anything(name, p, n, op, dtype, seed):
    if op == "mean" and not dtype.is_floating_point:
        op = "sum"
    x = inputs(p, n, dtype=dtype, seed=seed).clamp(-1, 1)
    values, _ = run_ranks(lambda comm: ALL_REDUCES[name](comm, x[comm.rank].clone(), op), p)
    for value in values:
        assert torch.equal(value, values[0])
        torch.testing.assert_close(value, ORACLES[op](x.double()).to(dtype))


@given(n=st.integers(0, 500), p=st.integers(1, 20))
def test_chunks_are_those_of_tensor_split(n, p):
    assert chunk_sizes(n, p) == [len(chunk) for chunk in torch.arange(n).tensor_split(p)]
