"""Collectives written from send and receive: what the simulated world is made of.

Floor 1, room `comm`. Every function is `f(comm, tensor, ...)`, uses only `rank`, `size`, `send`, `recv` and
`exchange` of `comm`, and gives what the table in `communicator` says. Read `ring.py` first.

Legend, as in the papers:
    p      number of ranks                       n      elements of the tensor
    r      this rank                             s      step of a loop over messages
    m      ranks of a node                       left, right   ring neighbours r-1 and r+1 (mod p)
    chunk  one rank's part of the flat tensor, split as `torch.tensor_split` does; empty chunks are sent too

Tensors may be of any length, also shorter than p, and any layout; other layouts than row by row go through a copy.
Every all-reduce leaves bitwise equal results on all ranks: a chunk is either reduced by one rank alone, or by
several that combine the same two partial results in the same order.

Sources: Patarasu and Yuan 2009 (ring); Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005 (the others).
"""

from lockstep.comm.collectives.direct import direct_gather, direct_scatter, dissemination_barrier, pairwise_all_to_all
from lockstep.comm.collectives.hypercube import rabenseifner_all_reduce, recursive_doubling_all_reduce
from lockstep.comm.collectives.layout import chunk_sizes
from lockstep.comm.collectives.nodes import hierarchical_all_reduce
from lockstep.comm.collectives.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from lockstep.comm.collectives.tree import central_all_reduce, tree_broadcast, tree_reduce

__all__ = [
    "central_all_reduce",
    "chunk_sizes",
    "direct_gather",
    "direct_scatter",
    "dissemination_barrier",
    "hierarchical_all_reduce",
    "pairwise_all_to_all",
    "rabenseifner_all_reduce",
    "recursive_doubling_all_reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "tree_broadcast",
    "tree_reduce",
]
