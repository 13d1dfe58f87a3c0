"""The operations of a reduction, and the guard that keeps integers from wrapping.

Floor 1, room `comm`. `check_op` says which operation makes sense for which dtype; `combine` reduces
two partial results; `divide` finishes a mean.

Integers. A sum or product that does not fit its dtype is an error, never a wrap (int8: 100 + 100 is
not -56). `combine` checks every *partial* result, because each travels in the tensor's own dtype:
100 + 100 - 100 in int8 is refused when the first two meet, though the total would fit. The rank that
sees it raises, and no rank can finish the collective without that rank. In processes, where the
backend reduces and shows no partial result, int64 carries the total (`widen`, `exact_sum`) and every rank checks it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.comm.errors import CommunicationError

OPS = ("sum", "mean", "max", "min", "product")

_FUNCTIONS = {
    "sum": torch.add,
    "mean": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "product": torch.mul,
}
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_COMPLEX = (torch.complex64, torch.complex128)


def name_of(dtype: torch.dtype) -> str:
    """`torch.float32` as "float32"."""
    return str(dtype).removeprefix("torch.")


def check_op(op: str, dtype: torch.dtype) -> None:
    """Raise CommunicationError when `op` is unknown or has no meaning for `dtype`."""
    if op not in OPS:
        raise CommunicationError(f"op is {op!r}; it must be one of {', '.join(map(repr, OPS))}.")
    name = name_of(dtype)
    if dtype in _FLOATS:
        return
    if dtype in _COMPLEX:
        if op in ("max", "min"):
            raise CommunicationError(f"Complex numbers have no order, so {op} of {name} has no meaning: reduce .abs().")
    elif op == "mean" and (dtype in _INTEGERS or dtype is torch.bool):
        raise CommunicationError(
            f"The mean of {name} values is not a {name} in general: convert to float32 first, or use op='sum' and divide."
        )
    elif dtype is torch.bool:
        if op in ("sum", "product"):
            raise CommunicationError(
                f"The {op} of bool values cannot be a bool: convert to int64 to count, or use op='max' (any), 'min' (all)."
            )
    elif dtype not in _INTEGERS:
        raise CommunicationError(
            f"torch has no arithmetic for {name} that a reduction could use: convert to float32 (or int64) first."
        )


def needs_guard(op: str, dtype: torch.dtype) -> bool:
    """Whether this reduction could leave the range of its dtype and wrap."""
    return dtype in _INTEGERS and op in ("sum", "product")


def combine(op: str, lower: Tensor, upper: Tensor, rank: int, out: Tensor) -> Tensor:
    """Reduce two partial results, 1-D, of equal length and dtype, into `out`; `lower` comes from the lower ranks.

    `out` may be one of the two: memory for a third one costs more time than the addition.
    Raises CommunicationError, naming value, dtype and `rank`, when an integer result does not fit.
    """
    if not needs_guard(op, lower.dtype):
        return _FUNCTIONS[op](lower, upper, out=out)
    return out.copy_(narrow(op, *_exact_pair(op, lower, upper), lower.dtype, f"on rank {rank}"))


def divide(op: str, total: Tensor, p: int) -> Tensor:
    """Finish a mean over p ranks in place; any other `op` is finished already."""
    return total.div_(p) if op == "mean" else total


def _exact_pair(op: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(result in int64, where it did not even fit int64)."""
    wide_a, wide_b = a.to(torch.int64), b.to(torch.int64)
    result = _FUNCTIONS[op](wide_a, wide_b)
    if a.dtype is not torch.int64:
        return result, torch.zeros_like(result, dtype=torch.bool)
    if op == "sum":  # overflow turns the sign of two numbers of equal sign
        return result, ((wide_a ^ result) & (wide_b ^ result)) < 0
    # Far from 2^63 a float64 product decides; near it Python's integers do.
    lost = (wide_a.double() * wide_b.double()).abs() >= 2.0**62
    for i in torch.nonzero(lost).flatten().tolist():
        lost[i] = not -(2**63) <= int(wide_a[i]) * int(wide_b[i]) < 2**63
    return result, lost


def narrow(op: str, wide: Tensor, lost: Tensor, dtype: torch.dtype, where: str) -> Tensor:
    """Give `wide` (int64) as `dtype`; raise CommunicationError when a value does not fit or was `lost` before."""
    limits = torch.iinfo(dtype)
    outside = lost | (wide < limits.min) | (wide > limits.max)
    if outside.any():
        i = int(torch.nonzero(outside)[0])
        value = "A value of more than 64 bits" if lost[i] else str(int(wide[i]))
        wider = "float64" if dtype is torch.int64 else "int64"
        raise CommunicationError(
            f"{value} does not fit {name_of(dtype)} ({limits.min} to {limits.max}): "
            f"the {op} of element {i} overflows {where}. Convert to {wider} before reducing."
        )
    return wide.to(dtype)


def widen(x: Tensor) -> Tensor:
    """Integers of any width as int64 terms whose sum cannot overflow: the values, or for int64 [2, n] halves."""
    if x.dtype is not torch.int64:
        return x.to(torch.int64)
    return torch.stack([x >> 32, x & 0xFFFFFFFF])


def exact_sum(total: Tensor, dtype: torch.dtype, where: str) -> Tensor:
    """The sum of `widen`ed terms as `dtype`, or CommunicationError when it does not fit."""
    if dtype is not torch.int64:
        return narrow("sum", total, torch.zeros_like(total, dtype=torch.bool), dtype, where)
    high, low = total[0] + (total[1] >> 32), total[1] & 0xFFFFFFFF
    lost = (high < -(2**31)) | (high >= 2**31)
    return narrow("sum", (high << 32) | low, lost, dtype, where)
