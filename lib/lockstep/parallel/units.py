"""Which parameters of a model travel together when ranks share it out.

Floor 2, room `parallel`. Read `sharded` next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from lockstep.parallel.buckets import FIRST_BYTES, make_buckets


def share_out(
    model: nn.Module, trained: list[nn.Parameter], stage: int, unit_bytes: int, dtypes: Mapping[int, torch.dtype]
) -> list[list[nn.Parameter]]:
    """The parameters of each unit of ZeRO, in the order in which their last gradient is ready.

    trained: those to share out. unit_bytes: a unit is closed as soon as it holds this much. dtypes: what each parameter
    computes in, by its id; a unit has one. ValueError for less than 1 byte.
    """
    if stage == 3:
        return _by_module(model, trained, unit_bytes, dtypes)
    as_they_travel = [torch.empty_like(p, dtype=dtypes[id(p)], device="meta") for p in trained]
    return [[trained[i] for i in unit] for unit in make_buckets(as_they_travel, unit_bytes, FIRST_BYTES)]


def _by_module(
    model: nn.Module, trained: Sequence[nn.Parameter], unit_bytes: int, dtypes: Mapping[int, torch.dtype]
) -> list[list[nn.Parameter]]:
    """In stage 3 a unit is some modules that follow one another: it is whole while these compute.

    It is closed before the module that comes when it holds `unit_bytes`.
    """
    if not isinstance(unit_bytes, int) or isinstance(unit_bytes, bool) or unit_bytes < 1:
        raise ValueError(f"unit_bytes is {unit_bytes!r}: it is a whole number of bytes, at least 1.")
    left = {id(parameter): parameter for parameter in trained}
    ready: dict[int, int] = {}
    closed: list[list[nn.Parameter]] = []
    filling: dict[tuple, list[nn.Parameter]] = {}
    for module in reversed(list(model.modules())):
        own = [left.pop(id(p)) for p in reversed(list(module.parameters(recurse=False))) if id(p) in left]
        for kind in {(dtypes[id(p)], p.device) for p in own} & set(filling):
            if sum(p.numel() for p in filling[kind]) * kind[0].itemsize >= unit_bytes:
                closed.append(filling.pop(kind))
        for parameter in own:
            ready[id(parameter)] = len(ready)
            filling.setdefault((dtypes[id(parameter)], parameter.device), []).append(parameter)
    return sorted([*closed, *filling.values()], key=lambda unit: ready[id(unit[-1])])
