"""Exercise 05.3: wrong solutions that students write; their sentences are in `bucketing_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.lab05.bucketing_right import make_buckets


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
