"""All-reduce over nodes of several ranks, where links inside a node are faster than between nodes.

Floor 1, room `comm`. Legend in `lockstep.comm.collectives`; read `ring.py` before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lockstep.comm.collectives.layout import Subset, chunk_sizes, flatten, write_back
from lockstep.comm.collectives.ring import all_gather_chunks, reduce_scatter_chunks, ring_all_reduce
from lockstep.comm.errors import CommunicationError
from lockstep.comm.reduction import check_op, divide

if TYPE_CHECKING:
    from lockstep.comm.communicator import Communicator


def hierarchical_all_reduce(comm: Communicator, tensor: Tensor, node_size: int, op: str = "sum") -> Tensor:
    """All-reduce in place where links inside a node are faster than between nodes; gives `tensor`.

    Rank r is on node r // node_size; the last node may have fewer ranks. Inside each node a ring reduce-scatter,
    then for each of the `node_size` chunks a ring all-reduce between its owners, one a node, then inside each
    node a ring all-gather. A full node's rank sends 2(m-1) messages inside and 2(p/m - 1) across, and across
    only n/m elements, twice less two chunks of that (Jia et al. 2018, "Highly Scalable Deep Learning Training
    System with Mixed-Precision", whose reduce and broadcast
    inside a node are a reduce-scatter and an all-gather here).
    """
    check_op(op, tensor.dtype)
    if not isinstance(node_size, int) or node_size < 1:
        raise CommunicationError(f"node_size is {node_size!r}: it must be a whole number of ranks, at least 1.")
    p, r = comm.size, comm.rank
    flat = flatten(tensor)
    nodes = [range(first, min(first + node_size, p)) for first in range(0, p, node_size)]
    node = nodes[r // node_size]
    chunks = flat.split(chunk_sizes(flat.numel(), len(nodes[0])))
    partial_op = "sum" if op == "mean" else op

    inside = Subset(comm, node)
    owned = _owned(len(chunks), len(node))  # which chunks each rank of this node looks after
    parts = [torch.cat([chunks[c] for c in of_one]) for of_one in owned]
    reduce_scatter_chunks(inside, parts, partial_op)

    own = parts[inside.rank].split([chunks[c].numel() for c in owned[inside.rank]])
    for c, chunk in zip(owned[inside.rank], own, strict=True):
        owners = [members[_owner(c, len(chunks), len(members))] for members in nodes]
        ring_all_reduce(Subset(comm, owners), chunk, partial_op)
        divide(op, chunk, p)

    all_gather_chunks(inside, parts)
    torch.cat(parts, out=flat)
    return write_back(tensor, flat)


def _owned(chunks: int, ranks: int) -> list[range]:
    """The chunks of each rank of a node: one each on a full node, consecutive ones on a smaller node."""
    sizes = chunk_sizes(chunks, ranks)
    return [range(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(ranks)]


def _owner(chunk: int, chunks: int, ranks: int) -> int:
    """The rank of a node that looks after `chunk`."""
    return next(i for i, of_one in enumerate(_owned(chunks, ranks)) if chunk in of_one)
