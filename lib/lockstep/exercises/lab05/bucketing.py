"""Exercise 05.3: which gradients travel together.

Floor 4, room `exercises`; solutions are in `bucketing_right.py` and `bucketing_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.bucketing_mistakes import MISTAKES
from lockstep.exercises.lab05.bucketing_right import (
    make_buckets,
    make_buckets_by_closing,
    make_buckets_recursively,
    make_buckets_stub,
)
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import kind, short


def collected(fn: Any, parameters: Sequence[nn.Parameter], bucket_bytes: int) -> Any:
    """The buckets, with indices in tensors or arrays taken for lists."""
    buckets = fn(parameters, bucket_bytes)
    one = (torch.Tensor, np.ndarray)
    listed = list(buckets) if isinstance(buckets, (list, tuple)) else buckets
    return [b.tolist() if isinstance(b, one) else b for b in listed] if isinstance(listed, list) else listed


def right_buckets(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The same indices in the same buckets, with a sentence for the first property that fails."""
    got, want, (parameters, cap) = seen.value, expected.value, case.args
    if not isinstance(got, list) or not all(isinstance(b, (list, tuple)) for b in got):
        return Finding("A list of lists is asked for.", short(want), f"{kind(got)}: {short(got)}", ("type", str(got)))
    got = [list(bucket) for bucket in got]
    if not all(type(i) is int for bucket in got for i in bucket):
        return Finding(
            "A bucket holds something that is no index: whole numbers are asked for.", short(want), short(got), "type"
        )
    return None if got == want else Finding(_first_fault(got, want, parameters, cap), short(want), short(got), got)


def _first_fault(got: list[list[Any]], want: list[list[int]], parameters: Sequence[nn.Parameter], cap: int) -> str:
    flat, right = [i for bucket in got for i in bucket], [i for bucket in want for i in bucket]
    outside = [i for i in flat if not 0 <= i < len(parameters)]
    if outside:
        return f"There is no parameter {outside[0]}: the indices run from 0 to {len(parameters) - 1}."
    frozen = [i for i in flat if not parameters[i].requires_grad]
    if frozen:
        return f"Parameter {frozen[0]} is frozen: it never has a gradient."
    missing = sorted(set(right) - set(flat))
    if missing:
        return f"Parameter {missing[0]} is in no bucket."
    if len(flat) > len(right):
        return "A parameter is in two buckets."
    mixed = next((bucket for bucket in got if len({parameters[i].dtype for i in bucket}) > 1), None)
    if mixed is not None:
        return f"Bucket {mixed} mixes dtypes, and one flat tensor cannot hold them."
    if flat != right:
        return "The order is not that in which backward makes the gradients ready: the last parameter comes first."
    if not all(got):
        return "There is a bucket with nothing in it."
    at = next(k for k, (g, w) in enumerate(zip(got, want, strict=False)) if g != w)
    held = sum(parameters[i].nbytes for i in got[at])
    if len(got[at]) < len(want[at]):
        return f"Bucket {got[at]} is closed at {held} bytes, before it holds {cap}."
    return f"Bucket {got[at]} still takes in parameters after it has reached {cap} bytes; it ends with {held}."


HALF, WIDE = torch.float16, torch.float64


def cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = rng.integers(1, 9, 12).tolist()
    kinds = [(torch.float32, HALF, WIDE)[int(k)] for k in rng.integers(0, 3, 12)]
    frozen = set(rng.choice(12, 3, replace=False).tolist())
    # elements of each parameter, cap in bytes, dtypes that are not float32, frozen ones, words
    yield _case((1, 2, 3), 12, words="")
    yield _case((4, 2, 3, 1, 2), 16, words="")
    yield _case((2, 9, 1, 2), 13, words="")
    yield _case((3, 2, 4, 1), 12, frozen={1}, words=", parameter 1 frozen")
    yield _case((4, 4, 4, 4, 2), 16, {0: HALF, 1: HALF, 4: WIDE}, words=", of three dtypes")
    yield _case((2, 3, 2), 4096, {1: HALF}, {1}, words=", parameter 1 frozen and of another dtype")
    yield _case((2, 3), 4096, words=", less than one bucket")
    other = {i: dtype for i, dtype in enumerate(kinds) if dtype != torch.float32}
    yield _case(tuple(drawn), 40, other, frozen, words=", of three dtypes, three frozen")


def _case(sizes, cap, dtypes=None, frozen=(), words=""):
    parameters = []
    for index, size in enumerate(sizes):
        numbers = torch.arange(size, dtype=(dtypes or {}).get(index, torch.float32)) + index
        parameters.append(nn.Parameter(numbers, requires_grad=index not in frozen))
    sizes = ", ".join(str(p.nbytes) for p in parameters)
    return Case(f"parameters of {sizes} bytes{words}; bucket_bytes={cap}", (parameters, cap))


OBSERVE, JUDGE = Call(collected), right_buckets

BUCKETS = Exercise(
    id="05.3",
    title="Buckets",
    function="make_buckets",
    points=2,
    asks=(
        "Return a list of buckets, each a list of indices into `parameters`. Go from the last parameter to the first "
        "and leave out the frozen ones. The open bucket closes as soon as it holds `bucket_bytes` or more, and also "
        "when the next trained parameter has another dtype."
    ),
    reference=make_buckets,
    also_right=(make_buckets_by_closing, make_buckets_recursively),
    stub=make_buckets_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "Backward reaches the last layer first. In which order should the buckets be filled, so that the first one is "
        "full early?",
        "Keep three things while you go: the list of buckets, the bytes in the open one, and its dtype. When does a "
        "parameter begin a new bucket, and when does it join the open one?",
        "A parameter begins a new bucket when there is none yet, when the open one holds `bucket_bytes` or more, or "
        "when its dtype is another. Its size in bytes is `parameter.nbytes`.",
        "The test is `if filled >= bucket_bytes or parameter.dtype != dtype:`; after it `buckets.append([])` and "
        "`filled, dtype = 0, parameter.dtype`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
