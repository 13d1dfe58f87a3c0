"""Bytes that a rank puts on the network in one training step, for each way of dividing the work.

Floor 1, room `cost`; read `profile.py` first. Legend: p ranks, G bytes of gradients, A bytes of an activation. Every
function gives the most that one rank sends. Exchanges are those that send least: 2(p-1)/p of the tensor for an
all-reduce, half of that for a reduce-scatter or an all-gather (Patarasu and Yuan 2009).
"""

from __future__ import annotations

import math

from lockstep.cost.profile import Profile


def data_parallel_bytes(profile: Profile, ranks: int, itemsize: int = 4) -> float:
    """2(p-1)/p G: every gradient is all-reduced, `itemsize` bytes a number."""
    return 2 * _share(ranks) * itemsize * profile.trainable


def parameter_server_bytes(profile: Profile, ranks: int, itemsize: int = 4) -> float:
    """(p-1) G: rank 0 is the server, and sends the new parameters to each of the others."""
    _share(ranks)
    return (ranks - 1) * itemsize * profile.trainable


def zero_traffic(profile: Profile, ranks: int, stage: int, itemsize: int = 4) -> float:
    """2(p-1)/p G for stages 1 and 2, 3(p-1)/p G for stage 3 (Rajbhandari et al. 2020, section 7)."""
    if stage not in (1, 2, 3):
        raise ValueError(f"stage is {stage!r}; there are stages 1, 2 and 3")
    return (3 if stage == 3 else 2) * _share(ranks) * itemsize * profile.trainable


def layer_split_bytes(profile: Profile, after: str) -> int:
    """A: who has the layers up to `after` sends its output on, and gets a gradient of the same size back.

    Raises ValueError when the profile has no layer of that name.
    """
    for layer in profile.layers:
        if layer.name == after:
            return profile.dtype.itemsize * math.prod(layer.shape)
    raise ValueError(
        f"there is no layer {after!r}; there are {', '.join(layer.name for layer in profile.layers)[:400]}"
    )


def tensor_parallel_bytes(profile: Profile, ranks: int, after: str) -> float:
    """2 · 2(p-1)/p A for one pair of split layers that ends with `after`: an all-reduce each way."""
    return 4 * _share(ranks) * layer_split_bytes(profile, after)


def _share(ranks: int) -> float:
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        raise ValueError(f"ranks is {ranks!r}; it must be a whole number of at least 1")
    return (ranks - 1) / ranks
