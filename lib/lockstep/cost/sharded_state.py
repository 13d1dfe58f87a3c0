"""The bytes of a model's state on one rank when ZeRO shares it out.

Floor 1, room `cost`; read `memory.py` first, whose optimizers and precisions these are. A shard has ceil(P / N) numbers
on every rank, since the flat tensor of all parameters is padded. Mixed precision with Adam is the table of Rajbhandari
et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 3.1 and table 1.
"""

from __future__ import annotations

from lockstep.cost.memory import PRECISIONS, STATE
from lockstep.cost.step import check_optimizer

FROM_STAGE = {"optimizer": 1, "gradients": 2, "parameters": 3}  # from which stage on a part is sharded


def zero_bytes(parameters: int, ranks: int, stage: int, optimizer_bytes: int = 12) -> int:
    """Bytes that one rank holds in mixed precision: 2 of each parameter, 2 of its gradient, `optimizer_bytes` for it.

    12 are Adam's with the master copy (K in the paper). With N ranks: 4 P + 12 P / N in stage 1, 2 P + 14 P / N in
    stage 2, 16 P / N in stage 3, and in stage 0 all 16 P. Raises ValueError as `zero_memory` does.
    """
    _check_counts(parameters=parameters, ranks=ranks)
    _check_stage(stage)
    if not isinstance(optimizer_bytes, int) or isinstance(optimizer_bytes, bool) or optimizer_bytes < 0:
        raise ValueError(f"optimizer_bytes is {optimizer_bytes!r}; it must be a whole number of at least 0")
    widths = {"parameters": 2, "gradients": 2, "optimizer": optimizer_bytes}
    return sum(_by_part(parameters, ranks, stage, widths).values())


def zero_memory(
    parameters: int, ranks: int, stage: int, optimizer: str = "adam", precision: str = "mixed"
) -> dict[str, int]:
    """Bytes that one rank holds: "parameters", "gradients", and "optimizer" with the master copy of mixed precision.

    stage: 0 is plain data parallel. Activations and what is gathered for a while are not among them. Raises ValueError
    for numbers below 1 (a stage that is not 0 to 3) and unknown names.
    """
    check_optimizer(optimizer)
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}; known are {', '.join(PRECISIONS)}")
    _check_counts(parameters=parameters, ranks=ranks)
    _check_stage(stage)
    mixed = precision == "mixed"
    width = 2 if mixed else 4
    widths = {"parameters": width, "gradients": width, "optimizer": 4 * (STATE[optimizer] + mixed)}
    return _by_part(parameters, ranks, stage, widths)


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1")


def _check_stage(stage: int) -> None:
    if stage not in (0, 1, 2, 3) or isinstance(stage, bool):
        raise ValueError(f"stage is {stage!r}; there are stages 1, 2 and 3, and 0 shards nothing")


def _by_part(parameters: int, ranks: int, stage: int, widths: dict[str, int]) -> dict[str, int]:
    shard = -(-parameters // ranks)
    return {part: width * (shard if stage >= FROM_STAGE[part] else parameters) for part, width in widths.items()}


def zero3_estimate(parameters: int, largest_layer: int, ranks: int, offload: str = "nothing") -> int:
    """DeepSpeed's own estimate of a GPU's bytes in stage 3: 4 * largest_layer + 18 * parameters / ranks.

    The 18 bytes are 2 of a parameter and 16 of gradient and Adam. offload: "optimizer" keeps the 16 in the CPU's memory,
    "all" the parameters as well. Activations are left out. Source: DeepSpeed's documentation, "Memory Requirements".
    Raises ValueError for numbers below 1 and for another offload.
    """
    kept = {"nothing": 18, "optimizer": 2, "all": 0}
    if offload not in kept:
        raise ValueError(f"offload is {offload!r}; known are {', '.join(kept)}")
    _check_counts(parameters=parameters, largest_layer=largest_layer, ranks=ranks)
    return 4 * largest_layer + kept[offload] * parameters // ranks
