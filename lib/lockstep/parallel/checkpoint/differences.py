"""What a checkpoint and the training that is to load it do not have in common, in a sentence.

Floor 2, room `parallel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.comm.reduction import name_of
from lockstep.parallel.checkpoint.errors import CheckpointError
from lockstep.parallel.checkpoint.held import Held


def check_fits(held: Held, about: Mapping[str, Any]) -> None:
    """Raise CheckpointError with the first thing that differs. about: the checkpoint's description."""
    here = {n: [*held.layouts[n], name_of(one.parameter.dtype)] for one in held.stepped for n in one.names}
    _compare("trained parameter", about["parameters"], here)
    _compare("buffer or frozen parameter", about["whole"], {name: held.layouts[name] for name in held.whole})
    saved, optimizer = about["optimizer"], held.optimizer
    if saved["class"] != type(optimizer).__name__:
        raise CheckpointError(
            f"the checkpoint is of a run with {saved['class']}, and here the optimizer is {type(optimizer).__name__}: "
            f"make the same one."
        )
    if len(saved["groups"]) != len(optimizer.param_groups):
        raise CheckpointError(
            f"the checkpoint's optimizer has {len(saved['groups'])} groups of parameters, and here it has "
            f"{len(optimizer.param_groups)}."
        )
    for one in held.stepped:
        first = saved["state"][one.names[0]]
        other = next((name for name in one.names if saved["state"][name] != first), None)
        if other:
            raise CheckpointError(
                f"the checkpoint's optimizer has stepped {one.names[0]} and {other} differently, which lie in one shard "
                f"here: load it as it was saved, with parameters whole on every rank."
            )


def _compare(kind: str, saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    for name in [*saved, *here]:
        if name not in here:
            raise CheckpointError(f"the checkpoint is of another model: its {kind} {name} does not exist here.")
        if name not in saved:
            raise CheckpointError(f"the checkpoint is of another model: the {kind} {name} does not exist there.")
        (shape, order, *dtype), (own_shape, own_order, *own_dtype) = saved[name], here[name]
        for what, there, own in (("shape", list(shape), list(own_shape)), ("dtype", dtype, own_dtype)):
            if there != own:
                there, own = (tuple(v) if what == "shape" else v[0] for v in (there, own))
                raise CheckpointError(
                    f"the checkpoint is of another model: its {kind} {name} has {what} {there}, and here {own}."
                )
        if list(order) != list(own_order):
            raise CheckpointError(
                f"the checkpoint's {kind} {name} lies in memory in the order of dimensions {list(order)}, and here in "
                f"{list(own_order)}: use the same memory_format."
            )
