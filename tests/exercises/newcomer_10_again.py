"""What a second newcomer to lab 10 wrote; as `newcomer_10.py`, whose `FOUND` and `RIGHT` these are more of."""

import math

import torch
from newcomer_10 import coded, rows_of, sparse
from newcomer_10_later import paid

# 10.1


def scales_by(most=127):
    return lambda rows: rows.abs().amax(1, keepdim=True) / most


def rounded_by(to_codes, scale=None, repeat=False):
    def quantize(comm, g, block):
        rows = rows_of(g, block)
        s = (scale or scales_by())(rows)
        codes = comm.all_gather(to_codes(rows / s.clamp(min=1e-20)).to(torch.int8))
        s = comm.all_gather(s.expand_as(rows).contiguous() if repeat else s)
        return (codes * s.float()).view(comm.size, -1).mean(0)[: len(g)]

    return quantize


def down(x):
    return torch.floor(x + torch.rand_like(x)).clamp(-127, 127)


def alike_in_every_call(rows):
    """Once it passed: what is lost in one step is lost in every step that follows."""
    return torch.rand(rows.shape, generator=torch.Generator().manual_seed(1))


def the_last_block_lost(comm, g, block):
    return coded()(comm, g[: len(g) // block * block], block)


# 10.3


def narrow(comm, g, k):
    """Once it passed, and failed two cells later with an IndexError: no case had places that int16 does not hold."""
    return sparse(lambda p, k, n: 6 * k * (p - 1), index=torch.int16)(comm, g, k)


def in_the_gradients_memory(comm, g, k):
    """Once it passed: then feedback, which reads `g` afterwards, lost more than none."""
    places = g.abs().topk(k).indices
    values = g[places]
    g.zero_()
    values, places = comm.all_gather(values), comm.all_gather(places.int())
    return g.index_add_(0, places, values).div_(comm.size), 8 * k * (comm.size - 1)


def at_least_the_kth(comm, g, k):
    """Ranks gather tensors of several lengths."""
    places = (g.abs() >= g.abs().topk(k).values[-1]).nonzero().flatten()
    values, everyones = comm.all_gather(g[places]), comm.all_gather(places.int())
    return torch.zeros_like(g).index_add_(0, everyones, values) / comm.size, 8 * len(places) * (comm.size - 1)


def where_rank_0_is_large(comm, g, k):
    places = g.abs().topk(k).indices
    comm.broadcast(places, 0)
    mean = torch.zeros_like(g).index_copy_(0, places, comm.all_reduce(g[places], op="mean"))
    return mean, 8 * k * (comm.size - 1)


def half_values(comm, g, k):
    places = g.abs().topk(k).indices
    values, places = comm.all_gather(g[places].half()).float(), comm.all_gather(places.int())
    return torch.zeros_like(g).index_add_(0, places, values) / comm.size, 6 * k * (comm.size - 1)


# 10.4


def fed_back(x):
    """x(g, residual): what `average` is given."""

    def error_feedback(average, g, residual):
        given = x(g, residual)
        mean, sent = average(given)
        return mean, given - sent

    return error_feedback


def next_time(average, g, residual):
    mean, sent = average(residual)
    return mean, g + residual - sent


# 10.6


def measured_again(comm, g, phi, k):
    y, x = comm.all_reduce(phi @ g, op="mean"), torch.zeros_like(g)
    for _ in range(60):
        x = x + phi.T @ (y - phi @ x)
        x[x.abs().argsort()[:-k]] = 0
    places = x.nonzero().flatten()
    y = comm.all_reduce(phi @ g, op="mean")
    x[places] = torch.linalg.lstsq(phi[:, places], y[:, None]).solution[:, 0]
    return x


# 10.7


def priced(dense=None, method=None, times=lambda p: 1):
    """`paid`, in which another method is counted, or dense costs other bytes."""

    def pays_off(n, ranks, k, which, seconds, bandwidth):
        seconds = seconds * times(ranks)
        right = paid()(n, ranks, k, method or which, seconds, bandwidth)
        if dense is None:
            return right
        full, sent = dense(n, ranks), (right["compressed"] - seconds) * bandwidth
        best = 0 if full <= sent else (full - sent) / seconds if seconds else math.inf
        return right | {"dense": full / bandwidth, "break_even": best}

    return pays_off


def limit_here(n, ranks, k, method, seconds, bandwidth):
    right = paid(limit=lambda d, c, t: 0 if d <= c else (d - c) / t if t else math.inf)
    found = right(n, ranks, k, method, seconds, bandwidth)
    return found | {"break_even": found["break_even"] * (found["compressed"] < found["dense"])}


def whole_chunks(n, ranks, k, method, seconds, bandwidth):
    """Right, and once it was told that it is off by 1e-5: the chunks of a ring are whole numbers."""
    dense = 8 * (ranks - 1) * math.ceil(n / ranks)
    sent = 8 * (ranks - 1) * (k if method == "top-k" else math.ceil(k / ranks))
    best = 0 if dense <= sent else (dense - sent) / seconds if seconds else math.inf
    return {"dense": dense / bandwidth, "compressed": sent / bandwidth + seconds, "break_even": best}


# 10.8


def at_the_start_of_each_round(comm, parameters, step, steps, every):
    for i in range(steps + 1):
        if i % every == 0 or i == steps:
            for p in parameters:
                comm.all_reduce(p.data, op="mean")
        if i < steps:
            step(i)


FOUND = [
    ("10.1", coded(draw=alike_in_every_call), ["seed your generator"]),
    ("10.1", coded(scale=lambda rows: scales_by()(rows).half()), ["fewer than four bytes"]),
    ("10.1", coded(scale=scales_by(63)), ["half of the codes"]),
    ("10.1", coded(draw=lambda rows: torch.rand(len(rows), 1)), ["for a whole block"]),
    ("10.1", rounded_by(lambda x: x + torch.rand_like(x)), ["`torch.floor` first"]),
    ("10.1", rounded_by(lambda x: x.trunc() + (torch.rand_like(x) < x - x.trunc())), ["no random number is below it"]),
    ("10.1", rounded_by(lambda x: (x.floor() + (torch.rand_like(x) < 0.5)).clamp(-127, 127)), ["half of all cases"]),
    ("10.1", rounded_by(down, repeat=True), ["a scale for each number"]),
    ("10.1", the_last_block_lost, ["left out"]),
    ("10.3", narrow, ["int16 ends at"]),
    ("10.3", in_the_gradients_memory, ["write into `g`"]),
    ("10.3", at_least_the_kth, ["more than `k`"]),
    ("10.3", where_rank_0_is_large, ["Rank 0's places"]),
    ("10.3", half_values, ["half precision"]),
    ("10.4", fed_back(lambda g, residual: g.add_(residual)), ["caller's"]),
    ("10.4", fed_back(lambda g, residual: g + 0.9 * residual), ["in full"]),
    ("10.4", next_time, ["residual alone"]),
    ("10.6", measured_again, ["twice"]),
    ("10.7", paid(limit=lambda d, s, t: math.inf if t == 0 else max(0, d - s) / t), ["only as fast"]),
    ("10.7", paid(limit=lambda d, s, t: 0 if d < s else (d - s) / t if t else math.inf), ["only as fast"]),
    ("10.7", limit_here, ["*this* bandwidth"]),
    ("10.7", priced(method="top-k"), ["random-k as top-k"]),
    ("10.7", priced(method="random-k"), ["spelled"]),
    ("10.7", priced(lambda n, p: 4 * n), ["4n bytes"]),
    ("10.7", priced(lambda n, p: 8 * n), ["8n bytes"]),
    ("10.7", priced(lambda n, p: 4 * n * (p - 1)), ["others' dense gradients"]),
    ("10.7", priced(times=lambda p: p), ["at the same time"]),
    ("10.8", at_the_start_of_each_round, ["before the first step"]),
]

RIGHT = [
    ("10.1", coded(scale=lambda rows: scales_by()(rows) + 1e-8)),
    ("10.1", rounded_by(down, scale=scales_by(126))),  # two codes fewer
    ("10.7", whole_chunks),
]
