"""Ranks begin alike: the same model on every rank, or a sentence that says where they differ; then rank 0's values.

Floor 2, room `parallel`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lockstep.comm import CommunicationError, Communicator
from lockstep.comm.signature import describe
from lockstep.parallel.buckets import make_buckets


def check_same_model(comm: Communicator, model: nn.Module, settings: str) -> None:
    """Collective: one small all-gather, and another only where models differ.

    settings: what else all ranks must have alike, in words. Raises CommunicationError on every rank when names,
    shapes, dtypes or `requires_grad` of parameters, buffers or `settings` differ by rank.
    """
    text = "\n".join([settings, *_described(model)]).encode()
    mark = int.from_bytes(hashlib.sha256(text).digest()[:7], "little")
    table = comm.all_gather(torch.tensor([mark, len(text)], device=comm.device)).view(-1, 2).tolist()
    strangers = [rank for rank, (other, _) in enumerate(table) if other != table[0][0]]
    if not strangers:
        return
    sizes = [size for _, size in table]
    mine = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(comm.device)
    texts = comm.all_gather(mine, sizes=sizes).cpu().split(sizes)
    first, other = (bytes(texts[rank].tolist()).decode().split("\n") for rank in (0, strangers[0]))
    raise CommunicationError(_difference(first, strangers[0], other))


def copy_from_rank_0(comm: Communicator | None, tensors: Sequence[Tensor], bucket_bytes: int = 25 * 2**20) -> None:
    """Collective: give all `tensors` the values that they have on rank 0, about `bucket_bytes` at a time.

    `comm` is None in a process of its own, where they have them.
    """
    if comm is None:
        return
    for positions in make_buckets(tensors, bucket_bytes):
        group = [tensors[position].detach() for position in positions]
        flat = torch.cat([tensor.reshape(-1) for tensor in group])
        if flat.numel():
            comm.broadcast(flat, src=0)
        for tensor, chunk in zip(group, flat.split([tensor.numel() for tensor in group]), strict=True):
            tensor.copy_(chunk.view(tensor.shape))


def _described(model: nn.Module) -> list[str]:
    lines = [
        f"parameter {name} {describe(parameter)}{'' if parameter.requires_grad else ', frozen'}"
        for name, parameter in model.named_parameters()
    ]
    return lines + [f"buffer {name} {describe(buffer)}" for name, buffer in model.named_buffers()]


def _difference(first: list[str], rank: int, other: list[str]) -> str:
    """The first difference between what rank 0 and rank `rank` have."""
    counts = [sum(line.startswith("parameter") for line in lines) for lines in (first, other)]
    ours, theirs = next(
        (a, b) for a, b in zip([*first, "nothing more"], [*other, "nothing more"], strict=False) if a != b
    )
    number = f" ({counts[0]} parameters against {counts[1]})" if counts[0] != counts[1] else ""
    return (
        f"The ranks' models differ: rank 0 has {ours} where rank {rank} has {theirs}{number}. "
        f"Build the same model, with the same settings, on every rank."
    )
