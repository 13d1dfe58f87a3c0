"""The communicator on real gloo processes, against sums worked out here."""

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from lockstep.comm import CommunicationError
from lockstep.cost import LayerCost
from lockstep.world import DeadlockError, RankError, launch
from lockstep.world.child import run_child

OPS = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin, "product": torch.prod}
DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.bool]


def inputs(p, *shape, dtype=torch.float64):
    """One small whole-numbered tensor a rank, so that every order of summing is exact."""
    return torch.randint(1, 4, (p, *shape), generator=torch.Generator().manual_seed(p)).to(dtype)


def allowed(op, dtype):
    if dtype is torch.bool:
        return op in ("max", "min")
    if dtype.is_complex:
        return op in ("sum", "mean", "product")
    return op != "mean" or dtype.is_floating_point


def oracle(op, x):
    if x.dtype is torch.bool:
        return x.any(0) if op == "max" else x.all(0)
    wide = x.to(torch.complex128 if x.dtype.is_complex else torch.float64)
    return (OPS[op](wide, dim=0) if op != "product" else torch.prod(wide, 0)).to(x.dtype)


def reductions(comm):
    """What is not as it should be of every reduction, in every dtype and layout."""
    p, wrong = comm.size, []
    for dtype in DTYPES:
        for op in OPS:
            if not allowed(op, dtype):
                continue
            x = inputs(p, 3, 4, dtype=dtype)
            expected = oracle(op, x)
            rtol = 1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-6

            def same(value, wanted, rtol=rtol):
                return value.dtype is wanted.dtype and torch.allclose(value.to(wanted.dtype), wanted, rtol=rtol)

            plain, turned = x[comm.rank].clone(), x[comm.rank].t().contiguous().t()
            if not (comm.all_reduce(plain, op) is plain and same(plain, expected)):
                wrong.append(("all_reduce", op, dtype, plain))
            if not (comm.all_reduce(turned, op) is turned and same(turned, expected)):
                wrong.append(("all_reduce of a view with gaps", op, dtype, turned))
            for dst in range(p):
                reduced = comm.reduce(x[comm.rank].clone(), dst, op)
                if not same(reduced, expected if comm.rank == dst else x[comm.rank]):
                    wrong.append(("reduce", dst, op, dtype, reduced))
            chunk = comm.reduce_scatter(x[comm.rank], op)
            if not same(chunk, expected.flatten().tensor_split(p)[comm.rank]):
                wrong.append(("reduce_scatter", op, dtype, chunk))
    for empty in (
        comm.all_reduce(torch.empty(0)),
        comm.reduce(torch.empty(0, 3)),
        comm.reduce_scatter(torch.empty(0)),
    ):
        if empty.numel():
            wrong.append(empty)
    scalar, parameter = torch.tensor(2.0), torch.nn.Parameter(torch.ones(3))
    comm.all_reduce(scalar)
    comm.all_reduce(parameter)
    if scalar.item() != 2 * p or not parameter.requires_grad or parameter.detach().tolist() != [p] * 3:
        wrong.append((scalar, parameter))
    return wrong


def moves(comm):
    """The same of everything that moves tensors and adds nothing."""
    r, p, wrong = comm.rank, comm.size, []

    def expect(what, value, wanted):
        if value.dtype is not wanted.dtype or not torch.equal(value, wanted):
            wrong.append((what, value, wanted))

    for dtype in [*DTYPES, torch.uint16, torch.float8_e4m3fn]:
        raw = dtype is torch.float8_e4m3fn

        def view(t, raw=raw):  # torch does not compare fp8
            return t.view(torch.uint8) if raw else t

        x = inputs(p, 2, 3, dtype=torch.float32).to(dtype)
        for src in range(p):
            expect("broadcast", view(comm.broadcast(x[r].clone(), src)), view(x[src]))
            expect("broadcast with gaps", view(comm.broadcast(x[r].clone().t(), src)), view(x[src].t()))
        expect("all_gather", view(comm.all_gather(x[r])), view(x.flatten(0, 1)))
        rows = list(range(p))
        uneven = torch.ones(r, 2).to(dtype)
        expect("uneven all_gather", view(comm.all_gather(uneven, rows)), view(torch.ones(sum(rows), 2).to(dtype)))
        swap = inputs(p, 2 * p, 3, dtype=torch.float32).to(dtype)
        got = comm.all_to_all(swap[r])
        expect("all_to_all", view(got), view(swap.view(p, p, 2, 3)[:, r].flatten(0, 1)))
        gathered = comm.gather(x[r].t(), p - 1)
        if r == p - 1:
            expect("gather", view(torch.stack(gathered)), view(x.transpose(1, 2).contiguous()))
        shares = [x[i].t() for i in range(p)] if r == 0 else None
        expect("scatter", view(comm.scatter(torch.empty(2, 3, dtype=dtype).t(), shares)), view(x[r].t().contiguous()))
    expect("gather of scalars", comm.all_gather(torch.tensor(r)), torch.arange(p))
    expect("gather of nothing", comm.all_gather(torch.empty(0, 2)), torch.empty(0, 2))
    sizes = [[(i + j) % 3 for j in range(p)] for i in range(p)]
    block = torch.cat([torch.full((sizes[r][j], 2), 10 * r + j) for j in range(p)])
    got = comm.all_to_all(block, sizes[r], [sizes[i][r] for i in range(p)])
    expect("uneven all_to_all", got, torch.cat([torch.full((sizes[i][r], 2), 10 * i + r) for i in range(p)]))
    comm.barrier()
    return wrong


@pytest.mark.parametrize("p", [1, 2, 3])
def test_collectives_of_every_dtype_and_layout(p):
    assert launch(lambda comm: (reductions(comm), moves(comm)), p).values == [([], [])] * p


def test_messages():
    def program(comm):
        r, other = comm.rank, 1 - comm.rank
        if r == 0:
            comm.send(torch.arange(6).view(2, 3).t(), 1)
            comm.send(torch.empty(0), 1)
            comm.send(torch.nn.Parameter(torch.ones(2)), 1)
            for n in (1, 2, 3):  # of one shape: in order
                comm.send(torch.tensor([n]), 1)
        else:
            turned = torch.zeros(2, 3, dtype=torch.int64).t()
            assert comm.recv(turned, 0) == 0 and torch.equal(turned, torch.arange(6).view(2, 3).t())
            comm.recv(torch.empty(0), 0)
            parameter = torch.nn.Parameter(torch.zeros(2))
            comm.recv(parameter, 0)
            assert parameter.detach().tolist() == [1, 1] and parameter.requires_grad
            numbers = [torch.zeros(1, dtype=torch.int64) for _ in range(3)]
            handles = [comm.irecv(each, 0) for each in numbers]
            assert [handle.wait().item() for handle in reversed(handles)] == [3, 2, 1]
            assert handles[0].wait() is numbers[0], "a second wait gives the same"
        mine, theirs = torch.full((2, 2), float(r)), torch.empty(2, 2).t()
        comm.exchange([(mine, other), (mine[0], other)], [(theirs, other), (theirs[0], other)])
        assert theirs.unique().item() == other
        sending = comm.isend(mine, other)
        receiving = comm.irecv(theirs, other)
        assert receiving.wait() is theirs and sending.wait() is None
        source = torch.zeros(1)
        if r == 0:
            assert comm.recv(source) == 1 and source.item() == 7
        else:
            comm.send(torch.full((1,), 7.0), 0)
        return comm.traffic

    run = launch(program, 2)
    first, second = run.traffic
    assert (first.messages_sent, first.bytes_sent) == (6 + 3, 48 + 0 + 8 + 24 + 16 + 8 + 16)
    assert (first.messages_received, first.bytes_received) == (second.messages_sent, second.bytes_sent)
    assert first.sent_to == {1: (9, first.bytes_sent)} and not first.nominal
    assert len(run.trace.messages) == first.messages_sent + second.messages_sent
    assert {(m.src, m.dst) for m in run.trace.messages} == {(0, 1), (1, 0)}


# Story: the status of a rank in an exchange held one need for each message; beyond some forty they ran over the words of
# the next rank, and at last over the posts.
def test_an_exchange_of_many_messages_leaves_the_board_whole():
    def program(comm):
        other, n = 1 - comm.rank, 300
        while comm.rank == 1 and comm.board.statuses()[0].state == "running":
            time.sleep(0.01)
        first, second = comm.board.statuses()
        assert comm.rank == 0 or (first.waits_for, second.state) == ((1,), "running")
        mine = [torch.full((1,), float(comm.rank * n + i)) for i in range(n)]
        theirs = [torch.zeros(1) for _ in range(n)]
        comm.exchange([(each, other) for each in mine], [(each, other) for each in theirs])
        comm.barrier()
        return [each.item() for each in theirs]

    first, second = launch(program, 2).values
    assert first == list(range(300, 600)) and second == list(range(300))


def test_a_mismatch_within_an_exchange_of_many_messages_is_seen():
    def program(comm):
        other = 1 - comm.rank
        sizes = [1] * 60 + [2 + comm.rank]
        comm.exchange([(torch.zeros(n), other) for n in sizes], [(torch.zeros(n), other) for n in sizes])

    assert "both sides must have the same shape and dtype" in failure(program)


def test_anyone_may_send_first():
    def program(comm):
        if comm.rank > 0:
            comm.send(torch.tensor([comm.rank]), 0)
            return None
        seen = {}
        for _ in range(comm.size - 1):
            box = torch.zeros(1, dtype=torch.int64)
            source = comm.recv(box)
            seen[source] = box.item()
        return seen

    assert launch(program, 4).values[0] == {1: 1, 2: 2, 3: 3}


def test_traffic_of_collectives_is_nominal_where_it_is_the_backends_and_exact_where_it_is_ours():
    def program(comm):
        comm.all_reduce(torch.ones(8))
        comm.all_gather(torch.ones(3))
        comm.all_to_all(torch.ones(8))
        comm.broadcast(torch.ones(5), 1)
        comm.reduce(torch.ones(5), 1)
        comm.barrier()
        before = comm.traffic.messages_sent
        comm.reduce_scatter(torch.ones(9))
        return before

    run = launch(program, 4)
    assert run.values == [0] * 4
    for rank, traffic in enumerate(run.traffic):
        assert traffic.nominal == {
            "all_reduce": 2 * 3 * 32 // 4,
            "all_gather": 3 * 12,
            "all_to_all": 3 * 8,
            "broadcast": 20 * {1: 2, 2: 1}.get(rank, 0),
            "reduce": 0 if rank == 1 else 20,
        }
        assert (traffic.messages_sent, traffic.bytes_sent) == (3, (9 - (3, 2, 2, 2)[rank]) * 4)


def test_asynchronous_collectives():
    def program(comm):
        x = inputs(comm.size, 12)
        handles = [
            comm.all_reduce(x[comm.rank].clone(), async_op=True),
            comm.reduce_scatter(x[comm.rank], "mean", async_op=True),
            comm.all_gather(x[comm.rank], async_op=True),
            comm.broadcast(x[comm.rank].clone(), 1, async_op=True),
            comm.all_reduce(inputs(comm.size, 3, dtype=torch.int16)[comm.rank], "product", async_op=True),
            comm.reduce(x[comm.rank].clone(), 1, async_op=True),
            comm.all_to_all(x[comm.rank], async_op=True),
            comm.all_gather(torch.ones(comm.rank), [0, 1, 2], async_op=True),
        ]
        blocking = comm.all_reduce(x[comm.rank].clone(), "max")
        with comm.span("layer", micro_batch=2):
            pass
        results = [handle.wait() for handle in reversed(handles)][::-1]
        comm.barrier()
        return results, blocking, [handle.wait() is result for handle, result in zip(handles, results, strict=True)]

    run = launch(program, 3)
    x, factors = inputs(3, 12), inputs(3, 3, dtype=torch.int16)
    for r, (results, blocking, again) in enumerate(run.values):
        wanted = [x.sum(0), x.mean(0).chunk(3)[r], x.flatten(), x[1], factors.prod(0).to(torch.int16)]
        wanted += [x.sum(0) if r == 1 else x[r], x.view(3, 3, 4)[:, r].flatten(), torch.ones(3)]
        for result, expected in zip(results, wanted, strict=True):
            torch.testing.assert_close(result, expected)
        assert torch.equal(blocking, x.amax(0)) and all(again)
    beside = [span for span in run.trace.spans if span.stream == 1 and span.rank == 0]
    assert sorted(span.name for span in beside) == sorted(
        ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_reduce", "reduce", "all_to_all", "all_gather"]
    )
    assert [span.micro_batch for span in run.trace.spans if span.name == "layer"] == [2, 2, 2]


# Story: int8 gradients of 100 on two ranks came back as -56.
def test_integers_never_wrap_and_every_rank_knows():
    def program(comm):
        def attempt(call):
            try:
                return call()
            except CommunicationError as error:
                return str(error)

        def of(value, dtype):
            return torch.tensor([0, value], dtype=dtype)

        top, r = 2**63 - 1, comm.rank
        return [
            attempt(lambda: comm.all_reduce(of(100, torch.int8))),
            attempt(lambda: comm.all_reduce(of((100, 27)[r], torch.int8))),
            attempt(lambda: comm.all_reduce(of((100, -128)[r], torch.int8))),
            attempt(lambda: comm.all_reduce(of((top, 1)[r], torch.int64))),
            attempt(lambda: comm.all_reduce(of((top, -1)[r], torch.int64))),
            attempt(lambda: comm.all_reduce(of((-top, -1)[r], torch.int64))),
            attempt(lambda: comm.all_reduce(of(200, torch.int16), "product")),
            attempt(lambda: comm.all_reduce(of(181, torch.int16), "product")),
            attempt(lambda: comm.all_reduce(of((2**40, 3)[r], torch.int64), async_op=True).wait()),
        ]

    for values in launch(program, 2).values:
        assert values[0].startswith(
            "200 does not fit int8 (-128 to 127): the sum of element 1 overflows over ranks 0 to 1"
        )
        assert "more than 64 bits does not fit int64" in values[3]
        assert values[6].startswith("40000 does not fit int16")
        numbers = [values[i][1].item() for i in (1, 2, 4, 5, 7, 8)]
        assert numbers == [127, -28, 2**63 - 2, -(2**63), 32761, 2**40 + 3]


# ----------------------------------------------------------------------------------------------- calls that cannot be


def failure(program, p=2):
    with pytest.raises(RankError) as error:
        launch(program, p, timeout=20)
    return str(error.value)


def test_ranks_that_call_different_collectives():
    def program(comm):
        comm.barrier()
        if comm.rank == 0:
            comm.all_reduce(torch.ones(8))
        else:
            comm.broadcast(torch.ones(8))

    text = failure(program)
    assert "calls all_reduce(sum) of float32[8]" in text and "calls broadcast from rank 0 of float32[8]" in text
    assert "as its 2nd collective" in text


def test_ranks_that_reduce_different_shapes_or_dtypes():
    def program(comm, tensors):
        comm.all_reduce(tensors[comm.rank])

    for tensors, words in (
        ((torch.ones(8), torch.ones(9)), "float32[9]"),
        ((torch.ones(8), torch.ones(8).double()), "float64[8]"),
    ):
        assert words in failure(lambda comm, tensors=tensors: program(comm, tensors))


# Story: gloo fills the front of a larger buffer in silence, and at 4 KB two blocking sends wait for ever.
def test_a_receive_into_a_larger_buffer():
    def program(comm):
        if comm.rank == 0:
            comm.send(torch.ones(4), 1)
        else:
            comm.recv(torch.zeros(8), 0)

    assert "Rank 1 receives into float32[8], rank 0 sends float32[4]" in failure(program)


def test_both_send_first():
    def program(comm):
        comm.send(torch.ones(1024), 1 - comm.rank)
        comm.recv(torch.ones(1024), 1 - comm.rank)

    with pytest.raises(DeadlockError) as error:
        launch(program, 2, timeout=30)
    assert {rank: "send of float32[1024] to rank" in words for rank, words in error.value.waiting.items()} == {
        0: True,
        1: True,
    }


def test_scatter_and_all_to_all_with_shapes_that_do_not_fit():
    def scatter(comm):
        comm.scatter(torch.ones(3), [torch.ones(3), torch.ones(4)] if comm.rank == 0 else None)

    assert "Rank 1 receives into float32[3], rank 0 scatters float32[4] to it" in failure(scatter)

    def all_to_all(comm):
        comm.all_to_all(torch.ones(4), [2, 2], [2, 1] if comm.rank == 0 else [2, 2])

    assert "rank 1 sends 2 rows to rank 0, whose recv_sizes[1] is 1" in failure(all_to_all)


def test_arguments_that_cannot_be_are_sentences_and_send_nothing():
    def program(comm):
        def words(call, *arguments):
            try:
                call(*arguments)
            except (CommunicationError, ValueError, TypeError) as error:
                return str(error)
            return "no error"

        x, model = torch.ones(3), torch.nn.Linear(2, 2)
        return [
            words(comm.send, x, 2),
            words(comm.send, x, comm.rank),
            words(comm.recv, x, -1),
            words(comm.send, x.to("meta"), 1),
            words(comm.send, [1.0, 2.0], 1),
            words(comm.send, x.to_sparse(), 1),
            words(comm.broadcast, x, 5),
            words(comm.all_reduce, x, "average"),
            words(comm.all_reduce, torch.ones(2, dtype=torch.int32), "mean"),
            words(comm.all_to_all, x),
            words(comm.split, "red"),
            words(comm.charge, model, {"layer9": LayerCost(1.0)}),
            words(comm.charge, model, {"": 1.0}),
        ]

    starts = [
        "The other rank is 2: this communicator has ranks 0 to 1",
        "sends to or receives from itself",
        "The other rank is -1",
        "is on meta, this rank communicates on cpu",
        "is a list: only tensors travel",
        "has layout torch.sparse_coo",
        "src is 5",
        "op is 'average'",
        "mean of int32",
        "3 rows over 2 ranks does not split evenly",
        "split(color='red'",
        "a cost for 'layer9', but the model's modules are",
        "gives 1.0 for ''; give LayerCost(forward, backward)",
    ]
    for values in launch(program, 2).values:
        for value, start in zip(values, starts, strict=True):
            assert start in value


# ------------------------------------------------------------------------------------------------------------- split


def test_split_orders_by_key_counts_in_the_whole_and_survives_lopsided_splits():
    def program(comm):
        r = comm.rank
        halves = comm.split(r % 2, key=-r)
        total = halves.all_reduce(torch.tensor([r])).item()
        seen = halves.all_gather(torch.tensor([r])).tolist()
        swapped = halves.all_to_all(torch.tensor([10 * r, 10 * r + 1])).tolist()
        word = halves.broadcast(torch.tensor([r]), 0).item()
        box = torch.zeros(1)
        other = 1 - halves.rank
        halves.exchange([(torch.full((1,), float(r)), other)], [(box, other)])
        # Only rank 0's half splits again, so its ranks have made more groups than the others.
        if r % 2 == 0:
            halves.split(0)
        some = comm.split(None if r == 3 else 7)
        again = comm.split(0).all_reduce(torch.tensor([1])).item()
        members = some.all_gather(torch.tensor([r])).tolist() if some else None
        return halves.rank, total, seen, swapped, word, box.item(), members, again, comm.traffic

    run = launch(program, 4)
    for r, (rank, total, seen, swapped, word, box, members, again, traffic) in enumerate(run.values):
        mates = [2, 0] if r % 2 == 0 else [3, 1]
        assert (rank, total, seen, word) == (mates.index(r), sum(mates), mates, mates[0])
        assert swapped == [10 * mate + mates.index(r) for mate in mates]
        assert box == mates[1 - rank] and again == 4
        assert members == (None if r == 3 else [0, 1, 2])
        assert traffic.sent_to.keys() == {mates[1 - rank]}, "the whole counts what its parts send, by its own ranks"
    assert {(m.src, m.dst) for m in run.trace.messages} == {(0, 2), (2, 0), (1, 3), (3, 1)}


def test_a_deadlock_across_a_split_names_both_calls():
    def program(comm):
        pair = comm.split(comm.rank // 2)
        if comm.rank == 0:
            pair.barrier()
        elif comm.rank == 1:
            comm.recv(torch.ones(1), 0)

    with pytest.raises(DeadlockError) as error:
        launch(program, 4, timeout=30)
    assert "barrier" in error.value.waiting[0] and "recv of float32[1] from rank 0" in error.value.waiting[1]


# --------------------------------------------------------------------------------------------------- without a launch


def test_charge_records_the_layers_and_can_be_undone():
    def program(comm):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        charged = comm.charge(model, {"0": LayerCost(1.0), "2": LayerCost(1.0)})
        model(torch.ones(2, 4))
        charged.remove()
        model(torch.ones(2, 4))
        return [(span.kind, span.name) for span in comm.recorder.spans]

    assert launch(program, 1).values == [[("compute", "0"), ("compute", "2")]]


def test_from_torch_without_a_group_says_what_to_do():
    from lockstep.comm import from_torch

    with pytest.raises(CommunicationError, match="init_process_group"):
        from_torch()


def test_a_group_that_the_program_made_from_torchruns_variables():
    """No launch of ours: from_torch wraps it. (torchrun itself starts `lockstep.train` in tests/test_train.py.)"""

    def program(rank, port):
        import torch.distributed as dist

        from lockstep.comm import from_torch

        os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        dist.init_process_group("gloo")
        comm = from_torch()
        total = comm.all_reduce(torch.tensor([comm.rank + 1.0]))
        chunk = comm.reduce_scatter(torch.arange(4.0))
        part = comm.split(0, key=-comm.rank)
        order = part.all_gather(torch.tensor([comm.rank])).tolist()
        pair = dist.new_group([0, 1])
        inner = from_torch(pair)
        inner.barrier()
        try:
            comm.all_reduce(torch.ones(2)) if comm.rank == 0 else comm.reduce(torch.ones(2))
            said = ""
        except CommunicationError as error:
            said = str(error)
        return total.item(), chunk.tolist(), order, comm.board.path.exists(), said

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ThreadPoolExecutor() as both:
        values = list(both.map(lambda rank: run_child(program, rank, port, timeout=60), range(2)))
    for rank, (total, chunk, order, board_file_left, said) in enumerate(values):
        assert (total, chunk, order) == (3.0, [[0.0, 2.0], [4.0, 6.0]][rank], [1, 0])
        assert not board_file_left or os.name != "posix"
        assert "calls all_reduce(sum) of float32[2]" in said and "calls reduce(sum) to rank 0" in said
