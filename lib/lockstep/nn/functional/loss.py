"""Softmax and cross-entropy in one, which is both simpler and safer than one after the other.

Floor 0, room `nn`. Legend: N images, K classes.
"""

from __future__ import annotations

import torch
from torch import Tensor


def softmax_cross_entropy(logits_NK: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over the images of -log softmax(logits)[label], and its gradient for the logits, (N, K).

    The largest logit of each image is taken off first, which changes nothing and keeps exp from overflowing. The
    gradient is (softmax - one-hot) / N. Raises ValueError for labels that are no class, and without any image.
    """
    n = _checked(logits_NK, labels_N)
    shifted = logits_NK - logits_NK.max(dim=1, keepdim=True).values
    log_softmax = shifted - shifted.exp().sum(dim=1, keepdim=True).log()
    picked = torch.arange(n, device=logits_NK.device), labels_N
    gradient = log_softmax.exp()
    gradient[picked] -= 1
    return -log_softmax[picked].mean(), gradient / n


def _checked(logits: Tensor, labels: Tensor) -> int:
    if logits.dim() != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits come as (N, K) and labels as (N,); these have the shapes {list(logits.shape)} and "
            f"{list(labels.shape)}"
        )
    if labels.dtype != torch.int64:
        raise ValueError(f"labels are whole numbers of dtype int64; these are {labels.dtype}")
    n, k = logits.shape
    if n == 0:
        raise ValueError("there are no images, so there is no mean of their losses")
    wrong = labels[(labels < 0) | (labels >= k)]
    if len(wrong):
        raise ValueError(f"a label must be from 0 to {k - 1}, since there are {k} classes; one is {int(wrong[0])}")
    return n
