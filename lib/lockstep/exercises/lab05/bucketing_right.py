"""Exercise 05.3: right ways, and the skeleton.

Floor 4, room `exercises`; the exercise is in `bucketing.py`.
"""

from __future__ import annotations


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
