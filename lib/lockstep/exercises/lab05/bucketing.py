"""Exercise 05.3: which gradients travel together.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import kind, short


def make_buckets(parameters, bucket_bytes):
    buckets, filled, dtype = [], bucket_bytes, None
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if not parameter.requires_grad:
            continue
        if filled >= bucket_bytes or parameter.dtype != dtype:
            buckets.append([])
            filled, dtype = 0, parameter.dtype
        buckets[-1].append(index)
        filled += parameter.nbytes
    return buckets


def make_buckets_by_closing(parameters, bucket_bytes):
    trained = [i for i, p in enumerate(parameters) if p.requires_grad][::-1]
    done, open_one = [], []
    for i, after in zip(trained, [*trained[1:], None], strict=True):
        open_one.append(i)
        held = sum(parameters[k].numel() * parameters[k].element_size() for k in open_one)
        if held >= bucket_bytes or after is None or parameters[after].dtype != parameters[i].dtype:
            done.append(tuple(open_one))
            open_one = []
    return done


def make_buckets_recursively(parameters, bucket_bytes):
    last = len(parameters) - 1
    while last >= 0 and not parameters[last].requires_grad:
        last -= 1
    if last < 0:
        return []
    bucket, size, at = [], 0, last
    while at >= 0 and (not bucket or size < bucket_bytes):
        if parameters[at].requires_grad:
            if parameters[at].dtype != parameters[last].dtype:
                break
            bucket.append(at)
            size += parameters[at].nbytes
        at -= 1
    return [bucket, *make_buckets_recursively(parameters[: at + 1], bucket_bytes)]


def make_buckets_stub(parameters, bucket_bytes):
    raise NotImplementedError("return a list of buckets, each a list of indices into `parameters`")


def in_forward_order(parameters, bucket_bytes):
    buckets, filled, dtype = [], bucket_bytes, None
    for index, parameter in enumerate(parameters):
        if parameter.requires_grad:
            if filled >= bucket_bytes or parameter.dtype != dtype:
                buckets.append([])
                filled, dtype = 0, parameter.dtype
            buckets[-1].append(index)
            filled += parameter.nbytes
    return buckets


def counts_from_the_end(parameters, bucket_bytes):
    buckets, filled, dtype = [], bucket_bytes, None
    for index, parameter in enumerate(reversed(parameters)):
        if parameter.requires_grad:
            if filled >= bucket_bytes or parameter.dtype != dtype:
                buckets.append([])
                filled, dtype = 0, parameter.dtype
            buckets[-1].append(index)
            filled += parameter.nbytes
    return buckets


def counts_in_a_copy(parameters, bucket_bytes):
    return make_buckets([p for p in parameters if p.requires_grad], bucket_bytes)


def closes_at_a_frozen_dtype(parameters, bucket_bytes):
    buckets, filled, dtype = [], bucket_bytes, None
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if parameter.dtype != dtype:
            filled, dtype = bucket_bytes, parameter.dtype
        if parameter.requires_grad:
            if filled >= bucket_bytes:
                buckets.append([])
                filled = 0
            buckets[-1].append(index)
            filled += parameter.nbytes
    return buckets


def clears_what_it_handed_over(parameters, bucket_bytes):
    buckets, bucket, filled = [], [], 0
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if parameter.requires_grad:
            if bucket and (filled >= bucket_bytes or parameter.dtype != parameters[bucket[-1]].dtype):
                buckets.append(bucket)
                bucket.clear()
                filled = 0
            bucket.append(index)
            filled += parameter.nbytes
    buckets.append(bucket)
    return buckets


def never_exceeds_the_cap(parameters, bucket_bytes):
    buckets, filled, dtype = [], 0, None
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if parameter.requires_grad:
            if not buckets or filled + parameter.nbytes > bucket_bytes or parameter.dtype != dtype:
                buckets.append([])
                filled, dtype = 0, parameter.dtype
            buckets[-1].append(index)
            filled += parameter.nbytes
    return buckets


def closes_only_beyond_the_cap(parameters, bucket_bytes):
    buckets, filled, dtype = [], 0, None
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if parameter.requires_grad:
            if not buckets or filled > bucket_bytes or parameter.dtype != dtype:
                buckets.append([])
                filled, dtype = 0, parameter.dtype
            buckets[-1].append(index)
            filled += parameter.nbytes
    return buckets


def counts_elements(parameters, bucket_bytes):
    buckets, filled, dtype = [], bucket_bytes, None
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if parameter.requires_grad:
            if filled >= bucket_bytes or parameter.dtype != dtype:
                buckets.append([])
                filled, dtype = 0, parameter.dtype
            buckets[-1].append(index)
            filled += parameter.numel()
    return buckets


def counts_four_bytes_an_element(parameters, bucket_bytes):
    buckets, filled, dtype = [], bucket_bytes, None
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if parameter.requires_grad:
            if filled >= bucket_bytes or parameter.dtype != dtype:
                buckets.append([])
                filled, dtype = 0, parameter.dtype
            buckets[-1].append(index)
            filled += 4 * parameter.numel()
    return buckets


def mixes_dtypes(parameters, bucket_bytes):
    buckets, filled = [], bucket_bytes
    for index in reversed(range(len(parameters))):
        if parameters[index].requires_grad:
            if filled >= bucket_bytes:
                buckets.append([])
                filled = 0
            buckets[-1].append(index)
            filled += parameters[index].nbytes
    return buckets


def takes_frozen_ones_too(parameters, bucket_bytes):
    buckets, filled, dtype = [], bucket_bytes, None
    for index in reversed(range(len(parameters))):
        if filled >= bucket_bytes or parameters[index].dtype != dtype:
            buckets.append([])
            filled, dtype = 0, parameters[index].dtype
        buckets[-1].append(index)
        filled += parameters[index].nbytes
    return buckets


def loses_the_last_bucket(parameters, bucket_bytes):
    buckets, bucket, filled, dtype = [], [], 0, None
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if parameter.requires_grad:
            if bucket and parameter.dtype != dtype:
                buckets.append(bucket)
                bucket, filled = [], 0
            bucket.append(index)
            dtype, filled = parameter.dtype, filled + parameter.nbytes
            if filled >= bucket_bytes:
                buckets.append(bucket)
                bucket, filled = [], 0
    return buckets


def never_starts_counting_anew(parameters, bucket_bytes):
    buckets, filled, dtype = [[]], 0, None
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if parameter.requires_grad:
            if buckets[-1] and (filled >= bucket_bytes or parameter.dtype != dtype):
                buckets.append([])
            dtype = parameter.dtype
            buckets[-1].append(index)
            filled += parameter.nbytes
    return [bucket for bucket in buckets if bucket]


def one_for_each(parameters, bucket_bytes):
    return [[i] for i in reversed(range(len(parameters))) if parameters[i].requires_grad]


def one_for_all(parameters, bucket_bytes):
    trained = [i for i in reversed(range(len(parameters))) if parameters[i].requires_grad]
    dtypes = sorted({parameters[i].dtype for i in trained}, key=str)
    return [[i for i in trained if parameters[i].dtype == dtype] for dtype in dtypes]


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


def was_emptied(case: Case, seen: Observation, expected: Observation) -> bool:
    """Empty buckets, where those that were filled before should be."""
    got = seen.value if seen.error is None else None
    return isinstance(got, list) and len(got) > 1 and sum(bucket == [] for bucket in got) >= len(got) - 1


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
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "in forward order",
                in_forward_order,
                "Your buckets begin with the first layer, whose gradient is ready last. The first bucket would be full "
                "only at the end of backward, with nothing left to hide its journey behind. Go from the last parameter "
                "to the first.",
            ),
            Mistake(
                "counts indices from the end",
                counts_from_the_end,
                "The order is right, but your indices count in a reversed copy: index 0 has to be `parameters[0]`. "
                "`enumerate` numbers what it is given.",
            ),
            Mistake(
                "counts in a copy without the frozen ones",
                counts_in_a_copy,
                "Your indices count in a copy that lacks the frozen parameters. They have to count in `parameters`, "
                "frozen ones included: 2 is `parameters[2]`.",
            ),
            Mistake(
                "clears the list that it handed over",
                clears_what_it_handed_over,
                "`clear()` empties the list that is already in your result: both names mean one list. Begin a new bucket "
                "with a new list.",
                symptom=was_emptied,
            ),
            Mistake(
                "never exceeds the cap",
                never_exceeds_the_cap,
                "You close a bucket before it would exceed the cap. Here it closes as soon as it has *reached* the cap, "
                "so the parameter that reaches it still belongs to it. PyTorch fills its buckets in that way too.",
            ),
            Mistake(
                "closes only beyond the cap",
                closes_only_beyond_the_cap,
                "A bucket that holds exactly `bucket_bytes` is full. Yours takes in one more: `>` where `>=` is needed.",
            ),
            Mistake(
                "counts elements",
                counts_elements,
                "The cap is in bytes, and you count elements. A float32 has 4 bytes; `parameter.nbytes` counts them.",
            ),
            Mistake(
                "counts four bytes for each element",
                counts_four_bytes_an_element,
                "Not every element has 4 bytes: a float16 has 2, a float64 has 8. `parameter.nbytes` knows.",
            ),
            Mistake(
                "closes at a frozen dtype",
                closes_at_a_frozen_dtype,
                "A frozen parameter of another dtype closes your bucket. It is in no bucket, so its dtype does not matter: "
                "pass it over before you look at the dtype.",
            ),
            Mistake(
                "mixes dtypes",
                mixes_dtypes,
                "A bucket becomes one flat tensor, and a tensor has one dtype. Begin a new bucket when the dtype changes.",
            ),
            Mistake(
                "takes frozen parameters too",
                takes_frozen_ones_too,
                "A frozen parameter never gets a gradient. A bucket that waits for one is never full. Leave out "
                "parameters whose `requires_grad` is False.",
            ),
            Mistake(
                "loses the last bucket",
                loses_the_last_bucket,
                "The bucket that is still open at the end is lost, and with it the gradients of the first layers. Nobody "
                "would notice, but these layers would drift apart between the ranks.",
            ),
            Mistake(
                "never starts counting anew",
                never_starts_counting_anew,
                "After the first bucket has closed, every parameter gets a bucket of its own: the bytes counted so far "
                "still include those of the closed one.",
            ),
            Mistake(
                "one bucket for each parameter",
                one_for_each,
                "Every parameter travels alone, whatever the cap. Each message pays the latency again; small gradients "
                "should share one.",
            ),
            Mistake(
                "one bucket for all",
                one_for_all,
                "Everything of a dtype is in one bucket. It is full only when backward has ended, so nothing overlaps. "
                "Close a bucket when it has reached the cap.",
            ),
        ),
    ),
)
