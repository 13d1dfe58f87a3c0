"""Columns of length one at right angles to each other, of many matrices at once.

Floor 2, room `compress`. Gram and Schmidt's procedure in its modified form: a matrix here has few columns, and a model
many matrices, so that one pass over all of them costs less than a factorisation of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def orthonormalise(matrices: Sequence[Tensor]) -> tuple[list[Tensor], bool]:
    """Matrices [n, r], n of each its own, with orthonormal columns that span the same; whether all columns do.

    A column that lies in the span of those before it, up to rounding, becomes zero: what is left of it is noise, and
    would be counted as a direction of its own.
    """
    stack = pad_sequence(list(matrices), batch_first=True)  # rows of zeros change nothing
    columns = list(stack.unbind(2))
    before = [torch.linalg.vector_norm(column, dim=1, keepdim=True) for column in columns]
    negligible = 32 * torch.finfo(stack.dtype).eps
    alive = True
    for at, column in enumerate(columns):
        norm = torch.linalg.vector_norm(column, dim=1, keepdim=True) if at else before[0]
        dead = norm <= negligible * before[at]
        if dead.any():
            alive = False
            column.masked_fill_(dead, 0)
            norm = norm.masked_fill(dead, 1)
        column.div_(norm)
        for later in columns[at + 1 :]:
            later.sub_((column * later).sum(1, keepdim=True) * column)
    return [matrix[: len(given)] for matrix, given in zip(stack, matrices, strict=True)], alive
