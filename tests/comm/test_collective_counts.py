"""Messages and bytes of every collective against its closed form; the formulas are in the algorithms' sources."""

import math

import pytest
import torch
from thread_ranks import run_ranks

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

SIZE = 4  # bytes of a float32
LENGTHS = (0, 1, 5, 24, 840)
every_size = pytest.mark.parametrize("p", range(1, 9))


def counts(collective, p):
    """(messages, bytes) that each rank sends."""
    return [(rank.messages, rank.bytes) for rank in run_ranks(collective, p)[1]]


@every_size
@pytest.mark.parametrize("n", LENGTHS)
def test_ring_sends_the_lower_bound(p, n):
    """Patarasu and Yuan 2009: 2(p-1) messages and 2n less two chunks; a reduce-scatter or an all-gather is half."""
    chunks = chunk_sizes(n, p)
    right = [chunks[(r + 1) % p] for r in range(p)]
    reduce = counts(lambda comm: ring_all_reduce(comm, torch.ones(n)), p)
    assert reduce == [(2 * (p - 1), (2 * n - chunks[r] - right[r]) * SIZE) for r in range(p)]
    assert sum(size for _, size in reduce) == 2 * (p - 1) * n * SIZE
    scatter = counts(lambda comm: ring_reduce_scatter(comm, torch.ones(n)), p)
    assert scatter == [(p - 1, (n - chunks[r]) * SIZE) for r in range(p)]
    gather = counts(lambda comm: ring_all_gather(comm, torch.ones(chunks[comm.rank]), chunks), p)
    assert gather == [(p - 1, (n - right[r]) * SIZE) for r in range(p)]
    if n % p == 0:
        assert {size for _, size in reduce} == {2 * (p - 1) * n * SIZE // p}


def folded(p, inner):
    """What each rank sends when `inner` (messages, bytes) is what a rank at work sends, and n elements fold."""
    extra = p - 2 ** int(math.log2(p))
    messages, size, n = inner

    def of(rank):
        if rank >= 2 * extra:
            return messages, size
        return (1, n) if rank % 2 == 0 else (messages + 1, size + n)

    return [of(rank) for rank in range(p)]


@every_size
@pytest.mark.parametrize("n", (0, 1, 24))
def test_recursive_doubling_sends_everything_lg_p_times(p, n):
    lg = int(math.log2(p))
    measured = counts(lambda comm: recursive_doubling_all_reduce(comm, torch.ones(n)), p)
    assert measured == folded(p, (lg, lg * n * SIZE, n * SIZE))


@every_size
def test_rabenseifner_sends_the_lower_bound_in_2_lg_p_messages(p):
    n, lg = 840 * 8, int(math.log2(p))
    at_work = 2**lg
    measured = counts(lambda comm: rabenseifner_all_reduce(comm, torch.ones(n)), p)
    assert measured == folded(p, (2 * lg, 2 * (at_work - 1) * n * SIZE // at_work, n * SIZE))


@every_size
@pytest.mark.parametrize("n", (0, 1, 5, 25, 843))
def test_rabenseifner_in_uneven_chunks(p, n):
    """Halving gives away all but the own chunk; doubling sends the chunks of a window that doubles each time.

    After j halvings rank v works on the chunks whose first j bits are the last j bits of v, mirrored.
    """
    k = int(math.log2(p))
    chunks = chunk_sizes(n, 2**k)

    def window(v, j):
        wanted = [v >> bit & 1 for bit in range(j)]
        return sum(size for c, size in enumerate(chunks) if [c >> (k - 1 - bit) & 1 for bit in range(j)] == wanted)

    at_work = [n - window(v, k) + sum(window(v, j) for j in range(1, k + 1)) for v in range(2**k)]
    extra = p - 2**k
    expected = []
    for rank in range(p):
        folds = rank < 2 * extra
        v = rank // 2 if folds else rank - extra
        idle = folds and rank % 2 == 0
        expected.append((1, n * SIZE) if idle else (2 * k + folds, (at_work[v] + folds * n) * SIZE))
    assert counts(lambda comm: rabenseifner_all_reduce(comm, torch.ones(n)), p) == expected
    assert sum(at_work) == 2 * (2**k - 1) * n


@every_size
@pytest.mark.parametrize("n", (0, 1, 25))
def test_trees_send_p_minus_1_messages_and_the_root_at_most_lg_p(p, n):
    depth = math.ceil(math.log2(p))
    for root in range(p):
        down = counts(lambda comm, root=root: tree_broadcast(comm, torch.ones(n), root), p)
        up = counts(lambda comm, root=root: tree_reduce(comm, torch.ones(n), root), p)
        assert down[root] == (depth, depth * n * SIZE)
        assert sum(messages for messages, _ in down) == p - 1
        assert sum(size for _, size in down) == (p - 1) * n * SIZE
        assert up == [(0, 0) if r == root else (1, n * SIZE) for r in range(p)]


@every_size
@pytest.mark.parametrize("n", (0, 1, 25))
def test_the_centre_of_a_central_all_reduce_is_its_hot_spot(p, n):
    measured = counts(lambda comm: central_all_reduce(comm, torch.ones(n)), p)
    assert measured == [(p - 1, (p - 1) * n * SIZE)] + [(1, n * SIZE)] * (p - 1)


@pytest.mark.parametrize(("p", "m"), [(8, 2), (8, 4), (6, 3), (6, 2), (4, 1), (4, 4), (4, 8)])
def test_hierarchical_sends_little_between_nodes(p, m):
    n, inside = 240, min(m, p)
    nodes = p // inside
    _, ranks = run_ranks(lambda comm: hierarchical_all_reduce(comm, torch.ones(n), m), p)
    within, across = 2 * (inside - 1) * n * SIZE // inside, 2 * (nodes - 1) * n * SIZE // inside // nodes
    for rank in ranks:
        assert (rank.messages, rank.bytes) == (2 * (inside - 1) + 2 * (nodes - 1), within + across)
        to_own_node = sum(count for dst, count in rank.sent_to.items() if dst // m == rank.rank // m)
        assert to_own_node == 2 * (inside - 1)


@pytest.mark.parametrize(("p", "m"), [(7, 3), (5, 4), (3, 2)])
def test_hierarchical_with_a_smaller_last_node_has_one_ring_a_chunk_across(p, m):
    n, nodes = 120, math.ceil(p / m)
    _, ranks = run_ranks(lambda comm: hierarchical_all_reduce(comm, torch.ones(n), m), p)
    across = sum(count for rank in ranks for dst, count in rank.sent_to.items() if dst // m != rank.rank // m)
    assert across == m * nodes * 2 * (nodes - 1)


@every_size
def test_all_to_all_gather_scatter_barrier(p):
    assert counts(lambda comm: pairwise_all_to_all(comm, torch.ones(3 * p)), p) == [(p - 1, 3 * (p - 1) * SIZE)] * p
    gather = counts(lambda comm: direct_gather(comm, torch.ones(3)), p)
    assert gather == [(0, 0)] + [(1, 3 * SIZE)] * (p - 1)
    n = 3 * p + 1  # one row too many to divide
    rows = chunk_sizes(n, p)
    uneven = counts(lambda comm: pairwise_all_to_all(comm, torch.ones(n), rows, [rows[comm.rank]] * p), p)
    assert uneven == [(p - 1, (n - rows[r]) * SIZE) for r in range(p)]
    shares = [torch.ones(3)] * p
    scatter = counts(lambda comm: direct_scatter(comm, torch.ones(3), shares if comm.rank == 0 else None), p)
    assert scatter == [(p - 1, 3 * (p - 1) * SIZE)] + [(0, 0)] * (p - 1)
    assert counts(dissemination_barrier, p) == [(math.ceil(math.log2(p)), 0)] * p
