"""The share of right answers when every rank has a part of the samples.

Floor 2, room `parallel`. Legend: n samples of this rank, K classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.comm import Communicator


def distributed_accuracy(comm: Communicator | None, logits: Tensor, labels: Tensor) -> float:
    """The share of all ranks' samples whose largest of `logits` (n, K) is at the label (n,); the same on every rank.

    Collective, one all-reduce of two whole numbers: right answers and samples are counted, each sample once, so the
    share is exact for parts of any size, down to none. A mean of the ranks' shares would not be, nor one over
    samples that a sampler repeated to make parts equal. `comm` is None in a process of its own.
    Raises ValueError when logits and labels do not fit, or no rank has a sample.
    """
    if logits.dim() != 2 or labels.dim() != 1 or len(logits) != len(labels):
        raise ValueError(
            f"logits of shape (n, K) and labels of shape (n,) are expected, not {tuple(logits.shape)} and "
            f"{tuple(labels.shape)}"
        )
    right = (logits.argmax(dim=1) == labels).sum() if len(labels) else labels.new_zeros((), dtype=torch.int64)
    counts = torch.stack([right, torch.full_like(right, len(labels))])
    if comm is not None:
        counts = comm.all_reduce(counts)
    total_right, total = counts.tolist()
    if not total:
        raise ValueError("no rank has a sample, so there is no share of right answers")
    return total_right / total
