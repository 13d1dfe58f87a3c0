"""What a collective costs before it runs: seconds from latency and bandwidth, and the bandwidth it made of the bus.

Floor 1, room `comm`. Read `longest_chain` first: every collective has a chain of messages each of which waits for
the one before, and its seconds are those of that chain. Legend in `lockstep.comm.collectives`, and
    alpha   latency, seconds of a message                   beta    1 / bandwidth, seconds per byte moved
    gamma   seconds per byte that is reduced                n       elements of the whole tensor

Exact on a uniform network: every pair of ranks joined by the same link, all ranks called at once, each with one
port to send and one to receive, both at work at once. So is the simulated world, which these forms are tested against.

Sources: Thakur, Rabenseifner and Gropp 2005, section 4; Patarasu and Yuan 2009; NVIDIA nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

from lockstep.comm.collectives import chunk_sizes


@dataclass(frozen=True, slots=True)
class Chain:
    """Messages one after another, the bytes that they move, and the bytes that are reduced between them."""

    messages: int
    moved: int
    reduced: int

    def seconds(self, latency: float, bandwidth: float, gamma: float = 0.0) -> float:
        """messages * alpha + moved * beta + reduced * gamma."""
        return self.messages * latency + self.moved / bandwidth + self.reduced * gamma


def predict_seconds(
    algorithm: str,
    nbytes: int,
    ranks: int,
    latency: float,
    bandwidth: float,
    *,
    itemsize: int = 4,
    gamma: float = 0.0,
) -> float:
    """Seconds of a collective over `ranks` ranks whose pairs are all joined by the same link.

    algorithm: the name of a function of `lockstep.comm.collectives`, such as "ring_all_reduce".
    nbytes: of the whole tensor: what is reduced or broadcast, what an all_gather or gather joins, what a
    reduce_scatter or scatter divides, what each rank gives to an all_to_all; 0 for a barrier.
    latency: seconds. bandwidth: bytes per second, one direction. gamma: seconds per byte of reduction.
    itemsize: bytes of an element; chunks are whole elements, the first ones one longer where they do not divide.
    Raises ValueError for an unknown algorithm and for numbers that cannot be.
    """
    for name, value, least in (("latency", latency, 0), ("gamma", gamma, 0)):
        if not _is_number(value) or not least <= value < math.inf:
            raise ValueError(f"{name} is a number of seconds of at least 0, not {value!r}.")
    if not _is_number(bandwidth) or not bandwidth > 0:
        raise ValueError(f"bandwidth is a number of bytes per second above 0, not {bandwidth!r}.")
    return longest_chain(algorithm, nbytes, ranks, itemsize=itemsize).seconds(latency, bandwidth, gamma)


def longest_chain(algorithm: str, nbytes: int, ranks: int, *, itemsize: int = 4) -> Chain:
    """The chain of messages that decides how long `algorithm` takes; arguments and errors as in `predict_seconds`."""
    if algorithm not in _CHAINS:
        raise ValueError(f"algorithm is {algorithm!r}; known: {', '.join(_CHAINS)}.")
    p = _whole("ranks", ranks, 1)
    nbytes, itemsize = _whole("nbytes", nbytes, 0), _whole("itemsize", itemsize, 1)
    if nbytes % itemsize:
        raise ValueError(f"{nbytes} bytes are no whole number of elements of {itemsize} bytes: give another itemsize.")
    messages, moved, reduced = _CHAINS[algorithm](nbytes // itemsize, p)
    return Chain(messages, moved * itemsize, reduced * itemsize)


def predict_hierarchical_seconds(
    nbytes: int,
    ranks: int,
    node_size: int,
    within: tuple[float, float],
    between: tuple[float, float],
    *,
    itemsize: int = 4,
    gamma: float = 0.0,
) -> float:
    """Seconds of `hierarchical_all_reduce` on nodes of `node_size` ranks; each link is (latency, bandwidth).

    The first chunk is the longest: it is reduced inside a node, by a ring between nodes, and gathered inside.
    Raises what `predict_seconds` raises, and ValueError when nodes are not full.
    """
    m = _whole("node_size", node_size, 1)
    if _whole("ranks", ranks, 1) % m:
        raise ValueError(f"{ranks} ranks do not fill nodes of {m}: this form is for full nodes.")
    longest = -(-_whole("nbytes", nbytes, 0) // (itemsize * m)) * itemsize
    inside = [
        predict_seconds(half, nbytes, m, *within, itemsize=itemsize, gamma=gamma)
        for half in ("ring_reduce_scatter", "ring_all_gather")
    ]
    return sum(inside) + predict_seconds(
        "ring_all_reduce", longest, ranks // m, *between, itemsize=itemsize, gamma=gamma
    )


def bus_bandwidth(name: str, nbytes: int, ranks: int, seconds: float) -> float:
    """Bytes per second that each rank's link must have carried, whatever the number of ranks: nccl-tests' "busbw".

    name: of the collective, such as "all_reduce", or of an algorithm for it, such as "ring_all_reduce".
    nbytes: of the whole tensor, as in `predict_seconds`. nbytes / seconds times a factor: 2(p-1)/p for an all_reduce,
    (p-1)/p for reduce_scatter, all_gather, all_to_all, gather and scatter, 1 for broadcast and reduce.
    Raises ValueError for an unknown name and for numbers that cannot be.
    """
    p, nbytes = _whole("ranks", ranks, 1), _whole("nbytes", nbytes, 0)
    if not _is_number(seconds) or not 0 < seconds < math.inf:
        raise ValueError(f"seconds is a number above 0, not {seconds!r}.")
    # "tree_reduce" ends with "reduce", and so does "ring_all_reduce": longest names first.
    factor = next((f for known, f in _FACTORS.items() if name == known or str(name).endswith(f"_{known}")), None)
    if factor is None:
        raise ValueError(f"name is {name!r}; a bus bandwidth is known for {', '.join(_FACTORS)}.")
    return nbytes / seconds * factor(p)


_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "all_to_all": lambda p: (p - 1) / p,
    "gather": lambda p: (p - 1) / p,
    "scatter": lambda p: (p - 1) / p,
    "broadcast": lambda p: 1.0,
    "reduce": lambda p: 1.0,
}


def _lg(p: int) -> int:
    """ceil(lg p)."""
    return (p - 1).bit_length()


def _longest_chunk(n: int, p: int) -> int:
    return -(-n // p)


def _reduce_scatter(n: int, p: int) -> tuple[int, int, int]:
    """One of the longest chunks goes all the way round: whoever receives it sends it next."""
    c = _longest_chunk(n, p)
    return p - 1, (p - 1) * c, (p - 1) * c


def _all_gather(n: int, p: int) -> tuple[int, int, int]:
    return p - 1, (p - 1) * _longest_chunk(n, p), 0


def _ring(n: int, p: int) -> tuple[int, int, int]:
    """The chunk that came round last in the reduce-scatter sets out first in the all-gather."""
    c = _longest_chunk(n, p)
    return 2 * (p - 1), 2 * (p - 1) * c, (p - 1) * c


def _central(n: int, p: int) -> tuple[int, int, int]:
    return 2 * (p - 1), 2 * (p - 1) * n, (p - 1) * n


def _broadcast(n: int, p: int) -> tuple[int, int, int]:
    return _lg(p), _lg(p) * n, 0


def _reduce(n: int, p: int) -> tuple[int, int, int]:
    return _lg(p), _lg(p) * n, _lg(p) * n


def _doubling(n: int, p: int) -> tuple[int, int, int]:
    """floor(lg p) swaps of everything; where p is no power of two, one fold before and one after."""
    k, fold = p.bit_length() - 1, p & (p - 1) != 0
    return k + 2 * fold, (k + 2 * fold) * n, (k + fold) * n


def _rabenseifner(n: int, p: int) -> tuple[int, int, int]:
    """The rank with the first, longest chunk takes in the first half of the chunks, then the first quarter, ..."""
    k, fold = p.bit_length() - 1, p & (p - 1) != 0
    chunks = chunk_sizes(n, 1 << k)
    halves = sum(sum(chunks[: 1 << level]) for level in range(k))
    return 2 * (k + fold), 2 * (halves + fold * n), halves + fold * n


def _root_port(n: int, p: int) -> tuple[int, int, int]:
    """Rank 0's one port: everybody's chunk but its own, one after another."""
    return p - 1, n - _longest_chunk(n, p), 0


def _barrier(n: int, p: int) -> tuple[int, int, int]:
    if n:
        raise ValueError("A barrier moves no data: nbytes is 0 for it.")
    return _lg(p), 0, 0


# (messages, elements moved, elements reduced) of n elements over p ranks
_CHAINS: dict[str, Callable[[int, int], tuple[int, int, int]]] = {
    "ring_all_reduce": _ring,
    "ring_reduce_scatter": _reduce_scatter,
    "ring_all_gather": _all_gather,
    "tree_broadcast": _broadcast,
    "tree_reduce": _reduce,
    "recursive_doubling_all_reduce": _doubling,
    "rabenseifner_all_reduce": _rabenseifner,
    "central_all_reduce": _central,
    "pairwise_all_to_all": _all_gather,
    "direct_gather": _root_port,
    "direct_scatter": _root_port,
    "dissemination_barrier": _barrier,
}


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _whole(name: str, value: object, least: int) -> int:
    if not _is_number(value) or not math.isfinite(value) or value != int(value) or value < least:
        raise ValueError(f"{name} is a whole number of at least {least}, not {value!r}.")
    return int(value)
