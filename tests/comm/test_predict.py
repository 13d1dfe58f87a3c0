"""Predicted seconds against the simulated world, which knows no formula: its time comes out of the messages."""

import math

import pytest
import torch

from lockstep.comm import bus_bandwidth, collectives, longest_chain, predict_hierarchical_seconds, predict_seconds
from lockstep.hardware import Cluster, Link
from lockstep.world import simulate

LATENCY, BANDWIDTH = 20e-6, 1e6  # a float32 costs a fifth of a message's latency, so that both terms count
LINK = Link(LATENCY, BANDWIDTH)


def all_to_all(comm, n):
    sizes = collectives.chunk_sizes(n, comm.size)
    collectives.pairwise_all_to_all(comm, torch.ones(n), sizes, [sizes[comm.rank]] * comm.size)


def gather(comm, n):
    sizes = collectives.chunk_sizes(n, comm.size)
    collectives.direct_gather(comm, torch.ones(sizes[comm.rank]), 0, sizes)


def scatter(comm, n):
    chunks = list(torch.ones(n).tensor_split(comm.size))
    collectives.direct_scatter(comm, chunks[comm.rank].clone(), chunks if comm.rank == 0 else None)


def all_gather(comm, n):
    sizes = collectives.chunk_sizes(n, comm.size)
    collectives.ring_all_gather(comm, torch.ones(sizes[comm.rank]), sizes)


CALLS = {
    "pairwise_all_to_all": all_to_all,
    "direct_gather": gather,
    "direct_scatter": scatter,
    "ring_all_gather": all_gather,
    "dissemination_barrier": lambda comm, n: collectives.dissemination_barrier(comm),
}
ALGORITHMS = [name for name in collectives.__all__ if name not in ("chunk_sizes", "hierarchical_all_reduce")]
LENGTHS = (0, 1, 5, 64, 101)


def run_them_all(comm, lengths):
    """Seconds between barriers in virtual time that cost nothing: each call starts on all ranks at once."""
    taken = {}
    for name in ALGORITHMS:
        call = CALLS.get(name, lambda comm, n, name=name: getattr(collectives, name)(comm, torch.ones(n)))
        for n in lengths if name != "dissemination_barrier" else (0,):
            comm.barrier()
            with comm.span("align", cost=max(0.0, 1.0 - comm.now() % 1.0)):  # on to the next whole second
                pass
            begun = comm.now()
            call(comm, n)
            taken[name, n] = comm.now() - begun
    return taken


@pytest.mark.parametrize("p", range(1, 10))
def test_every_algorithm_takes_the_predicted_seconds_in_the_simulated_world(p):
    values = simulate(run_them_all, p, LENGTHS, cluster=LINK, timeout=60).values
    for name, n in values[0]:
        measured = max(value[name, n] for value in values)
        predicted = predict_seconds(name, n * 4, p, LATENCY, BANDWIDTH)
        assert predicted == pytest.approx(measured, rel=1e-6, abs=1e-12), (name, n)


@pytest.mark.parametrize("p", (1, 2, 4, 8, 64))
def test_the_published_forms(p):
    """Thakur, Rabenseifner and Gropp 2005, section 4; n divides."""
    n, lg, alpha, beta, gamma = 4 * 64 * 1000, int(math.log2(p)), 1e-5, 1e-9, 1e-10
    forms = {
        "ring_all_reduce": 2 * (p - 1) * alpha + 2 * (p - 1) / p * n * beta + (p - 1) / p * n * gamma,
        "ring_reduce_scatter": (p - 1) * alpha + (p - 1) / p * n * (beta + gamma),
        "ring_all_gather": (p - 1) * alpha + (p - 1) / p * n * beta,
        "recursive_doubling_all_reduce": lg * (alpha + n * beta + n * gamma),
        "rabenseifner_all_reduce": 2 * lg * alpha + 2 * (p - 1) / p * n * beta + (p - 1) / p * n * gamma,
        "tree_broadcast": lg * (alpha + n * beta),
    }
    for name, seconds in forms.items():
        assert predict_seconds(name, n, p, alpha, 1 / beta, gamma=gamma) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(("p", "m"), [(1, 1), (4, 2), (6, 3), (6, 1), (8, 4), (8, 8)])
def test_hierarchical_on_two_kinds_of_link(p, m):
    within, between = Link(5e-6, 4e6), LINK
    for n in (0, 7, 96):
        run = simulate(
            lambda comm, n=n: collectives.hierarchical_all_reduce(comm, torch.ones(n), m),
            p,
            cluster=Cluster(Cluster.uniform(LINK).device, m, within, between),
        )
        predicted = predict_hierarchical_seconds(4 * n, p, m, (5e-6, 4e6), (LATENCY, BANDWIDTH))
        assert predicted == pytest.approx(run.seconds, rel=1e-6, abs=1e-12)
    with pytest.raises(ValueError, match="5 ranks do not fill nodes of 2"):
        predict_hierarchical_seconds(4, 5, 2, (0, 1), (0, 1))


def test_chunks_are_whole_elements_of_the_given_size():
    # 3 float64 over 2 ranks: two elements and one, not a byte in between
    assert longest_chain("ring_all_reduce", 24, 2, itemsize=8).moved == 2 * 16
    assert longest_chain("ring_all_reduce", 24, 2, itemsize=4).moved == 2 * 12
    assert predict_seconds("ring_all_reduce", 8, 3, 0.0, math.inf) == 0.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("ring", 4, 2, 0, 1), "algorithm is 'ring'; known: ring_all_reduce, "),
        (("ring_all_reduce", -4, 2, 0, 1), "nbytes is a whole number of at least 0, not -4"),
        (("ring_all_reduce", 4.5, 2, 0, 1), "nbytes is a whole number of at least 0, not 4.5"),
        (("ring_all_reduce", 6, 2, 0, 1), "6 bytes are no whole number of elements of 4 bytes"),
        (("ring_all_reduce", 4, 0, 0, 1), "ranks is a whole number of at least 1, not 0"),
        (("ring_all_reduce", 4, True, 0, 1), "ranks is a whole number of at least 1, not True"),
        (("ring_all_reduce", 4, 2, -1e-6, 1), "latency is a number of seconds of at least 0, not -1e-06"),
        (("ring_all_reduce", 4, 2, math.nan, 1), "latency is a number of seconds of at least 0, not nan"),
        (("ring_all_reduce", 4, 2, 0, 0), "bandwidth is a number of bytes per second above 0, not 0"),
        (("dissemination_barrier", 4, 2, 0, 1), "A barrier moves no data"),
    ],
)
def test_what_cannot_be_is_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        predict_seconds(*arguments)


def test_bus_bandwidth_has_the_factors_of_nccl_tests():
    for name, factor in [
        ("all_reduce", 2 * 7 / 8),
        ("ring_all_reduce", 2 * 7 / 8),
        ("reduce_scatter", 7 / 8),
        ("ring_all_gather", 7 / 8),
        ("all_to_all", 7 / 8),
        ("direct_gather", 7 / 8),
        ("broadcast", 1),
        ("tree_reduce", 1),
    ]:
        assert bus_bandwidth(name, 8000, 8, 2.0) == pytest.approx(4000 * factor), name
    # A ring on a network without latency keeps its links full, at any number of ranks.
    for p in (2, 5, 8):
        seconds = predict_seconds("ring_all_reduce", 4 * 840, p, 0.0, 1e9)
        assert bus_bandwidth("all_reduce", 4 * 840, p, seconds) == pytest.approx(1e9)
    with pytest.raises(ValueError, match="name is 'allreduce'; a bus bandwidth is known for all_reduce"):
        bus_bandwidth("allreduce", 4, 2, 1.0)
    with pytest.raises(ValueError, match="seconds is a number above 0, not 0"):
        bus_bandwidth("all_reduce", 4, 2, 0)
