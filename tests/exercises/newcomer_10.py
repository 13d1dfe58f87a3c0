"""What somebody who solves lab 10 for the first time writes on the way, and the words that the verdict must hold.

`FOUND`: (exercise, function, words). A word with a leading "-" must not be there. `RIGHT`: (exercise, function); each is
right in a way that is unlike the reference.
"""

import math

import numpy as np
import torch
from torch.nn import functional as F

# 10.1


def rows_of(g, block):
    return F.pad(g, (0, -len(g) % block)).view(-1, block)


def coded(scale=lambda rows: rows.abs().amax(1, keepdim=True) / 127, draw=torch.rand_like, average=None):
    """int8 codes with another scale, other random numbers, or another average of codes [p, blocks, block] and scales."""

    def quantize(comm, g, block):
        rows = rows_of(g, block)
        s = scale(rows)
        codes = torch.floor((rows / s).nan_to_num() + draw(rows)).clamp(-127, 127).to(torch.int8)
        codes = comm.all_gather(codes).view(comm.size, -1, block)
        scales = comm.all_gather(s).view(comm.size, -1, 1)
        return (average or (lambda c, s: (c * s).mean(0)))(codes, scales).flatten()[: len(g)]

    return quantize


def sum_of_int8(codes, scales):
    total = codes[0]
    for own in codes[1:]:
        total = total + own
    return total * scales.mean(0) / len(codes)


def shared_scale_in_int8(comm, g, block):
    rows = rows_of(g, block)
    scale = comm.all_reduce(rows.abs().amax(1, keepdim=True), op="max") / 127
    codes = torch.floor(rows / scale.clamp(min=1e-20) + torch.rand_like(rows)).to(torch.int8)
    gathered = comm.all_gather(codes).view(comm.size, -1, block)
    total = torch.zeros_like(codes)
    for one in gathered:
        total += one
    return (total.float() * scale / comm.size).flatten()[: len(g)]


def noise_of_half(comm, g, block):
    rows = rows_of(g, block)
    scale = rows.abs().amax(1, keepdim=True) / 127
    codes = ((rows / scale).nan_to_num() + torch.rand_like(rows) - 0.5).to(torch.int8)  # cut off, not rounded
    return (comm.all_gather(codes) * comm.all_gather(scale)).view(comm.size, -1).mean(0)[: len(g)]


def other_way_round(comm, g, block):
    rows = rows_of(g, block)
    scale = rows.abs().amax(1, keepdim=True) / 127
    x = (rows / scale).nan_to_num()
    codes = (x.floor() + (torch.rand_like(x) > x - x.floor())).clamp(-127, 127).to(torch.int8)
    return (comm.all_gather(codes) * comm.all_gather(scale)).view(comm.size, -1).mean(0)[: len(g)]


def never_divides_by_127(comm, g, block):
    rows = rows_of(g, block)
    scale = rows.abs().amax(1, keepdim=True)
    codes = torch.floor(127 * (rows / scale).nan_to_num() + torch.rand_like(rows)).clamp(-127, 127).to(torch.int8)
    return (comm.all_gather(codes) * comm.all_gather(scale)).view(comm.size, -1).mean(0)[: len(g)]


def block_is_their_number(comm, g, block):
    padded = F.pad(g, (0, -len(g) % block))
    return coded()(comm, padded, len(padded) // block)[: len(g)]


def pieces_with_blocks_of_their_own(comm, g, block):
    """Right: each rank owns a piece, which does not begin where a block does."""

    def encode(x):
        rows = rows_of(x, block)
        scale = rows.abs().amax(1, keepdim=True) / 127
        return torch.floor((rows / scale).nan_to_num() + torch.rand_like(rows)).clamp(-127, 127).to(torch.int8), scale

    pieces = g.tensor_split(comm.size)
    blocks = [-(-len(piece) // block) for piece in pieces]
    to_me = [blocks[comm.rank]] * comm.size
    parts = zip(*map(encode, pieces), strict=True)
    codes, scales = (comm.all_to_all(torch.cat(part), blocks, to_me) for part in parts)
    mean = (codes * scales).view(comm.size, -1).mean(0)[: len(pieces[comm.rank])]
    codes, scales = (comm.all_gather(part, blocks) for part in encode(mean))
    rows = (codes * scales).split(blocks)
    return torch.cat([own.flatten()[: len(piece)] for own, piece in zip(rows, pieces, strict=True)])


def half_and_round(comm, g, block):
    """Right: a shift between -1/2 and 1/2, then to the nearest."""
    rows = rows_of(g, block)
    scale = rows.abs().amax(1, keepdim=True) / 127
    codes = ((rows / scale).nan_to_num() + torch.rand_like(rows) - 0.5).round().clamp(-127, 127).to(torch.int8)
    return (comm.all_gather(codes) * comm.all_gather(scale)).view(comm.size, -1).mean(0)[: len(g)]


def one_message(comm, g, block):
    """Right: scales and codes in one tensor of bytes, decoded piece by piece, with a generator of its own."""
    random = torch.Generator().manual_seed(int(torch.randint(2**31, ())))  # other numbers at each call
    pieces = g.split(block)
    scales = torch.stack([piece.abs().max().clamp(min=1e-20) for piece in pieces])
    codes = []
    for piece, scale in zip(pieces, scales, strict=True):
        x = piece / scale * 127
        down = x.floor()
        codes.append((down + (torch.rand(len(x), generator=random) < x - down)).clamp(-127, 127).to(torch.int8))
    wire = torch.cat([scales.view(torch.int8), *codes])
    mean = torch.zeros(len(g))
    for own in comm.all_gather(wire).chunk(comm.size):
        scales = own[: 4 * len(pieces)].clone().view(torch.float32)
        for at, code in enumerate(own[4 * len(pieces) :].split(block)):
            mean[at * block : at * block + len(code)] += code * scales[at] / 127 / comm.size
    return mean


# 10.2


def with_packbits_alone(g):
    return torch.from_numpy(np.packbits((g > 0).numpy())), g[g < 0].mean(), g[g > 0].mean()


def as_numpy_gives_it(g):
    """Right: bits as an array, means as NumPy's numbers."""
    x = g.numpy()
    bits = np.packbits(x >= 0, bitorder="little")
    return bits, x[x < 0].mean() if (x < 0).any() else 0, x[x >= 0].mean() if (x >= 0).any() else 0


def fills_up_first(g):
    text = "".join(str(int(x >= 0)) for x in g.tolist()).zfill(-(-len(g) // 8) * 8)
    bits = torch.tensor([int(text[i : i + 8], 2) for i in range(0, len(text), 8)], dtype=torch.uint8)
    return bits, g[g < 0].sum() / max(1, (g < 0).sum()), g[g >= 0].sum() / max(1, (g >= 0).sum())


def means_in_tensors(g):
    """Right: each mean is a tensor of one number."""
    above = (g >= 0).float()
    bits = torch.from_numpy(np.packbits(above.numpy().astype(bool)))
    low = ((1 - above) @ g / (1 - above).sum().clamp(min=1)).view(1)
    return bits, low, (above @ g / above.sum().clamp(min=1)).view(1)


def means_of_sign(g):
    above = g >= 0
    bits = torch.zeros(-(-len(g) // 8), dtype=torch.uint8)
    for i in range(len(g)):
        if above[i]:
            bits[i // 8] += 1 << i % 8
    return bits, g[~above].abs().mean().nan_to_num(), g[above].mean().nan_to_num()


# 10.3


def in_a_loop(comm, g, k):
    """Right: sparse tensors by hand, indices in float32."""
    order = torch.argsort(g.abs(), descending=True)[:k]
    pairs = comm.all_gather(torch.stack([order.float(), g[order]], 1))
    mean = torch.zeros_like(g)
    for place, value in pairs.tolist():
        mean[int(place)] += value / comm.size
    return mean, 8 * k * (comm.size - 1)


def sparse(count, change=lambda mean, p: mean / p, index=torch.int32):
    def top_k(comm, g, k):
        places = g.abs().topk(k)[1]
        all_places, values = comm.all_gather(places.to(index)), comm.all_gather(g[places])
        mean = torch.zeros_like(g)
        mean.index_add_(0, all_places.long(), values)
        return change(mean, comm.size), count(comm.size, k, len(g))

    return top_k


def scatter_alone(comm, g, k):
    values, places = g.abs().topk(k)
    places, values = comm.all_gather(places.int()), comm.all_gather(g[places])
    mean = torch.zeros_like(g)
    mean[places.long()] += values
    return mean / comm.size, (comm.size - 1) * k * 8


def by_a_threshold(comm, g, k):
    least = g.abs().topk(k)[0][-1]
    places = (g.abs() >= least).nonzero().flatten()  # more than k where numbers are equal
    mine = comm.all_gather(torch.tensor([len(places)]))
    values, places = comm.all_gather(g[places], mine.tolist()), comm.all_gather(places.int(), mine.tolist())
    return torch.zeros_like(g).index_add_(0, places, values / comm.size), (comm.size - 1) * k * 8


def counts_what_it_has(comm, g, k):
    places = g.abs().topk(k)[1]
    values, places = comm.all_gather(g[places]), comm.all_gather(places)
    return torch.zeros_like(g).index_add_(0, places, values) / comm.size, values.nbytes + places.nbytes


def from_each_to_each(comm, g, k):
    """Right: messages, and the bytes of each."""
    places = g.abs().topk(k)[1]
    pairs, sent = torch.stack([places.float(), g[places]]), 0
    total = torch.zeros_like(g).index_add_(0, places, g[places])
    for d in range(1, comm.size):
        got = torch.empty_like(pairs)
        comm.exchange([(pairs, (comm.rank + d) % comm.size)], [(got, (comm.rank - d) % comm.size)])
        sent += pairs.nbytes
        total.index_add_(0, got[0].int(), got[1])
    return total / comm.size, sent


# 10.4


def clears_what_was_sent(average, g, residual):
    total = g + residual
    mean, sent = average(total)
    return mean, total * (sent == 0)


def grows(average, g, residual):
    mean, sent = average(g + residual)
    residual += g + residual - sent
    return mean, residual


def one_more(average, g, residual):
    """Right: the residual is what was left and what was not sent of the gradient."""
    mean, sent = average(residual + g)
    return [mean, residual + (g - sent)]


# 10.5


def thin(basis=lambda p: torch.linalg.qr(p)[0], start=lambda q, p: q, dense=False):
    def power_sgd(comm, m, q):
        p = comm.all_reduce(m @ q) / comm.size
        p = basis(p)
        new = comm.all_reduce(m.T @ p) / comm.size
        mean = p @ new.T
        if dense:
            mean = comm.all_reduce(mean, op="mean")
        return mean, start(new, p)

    return power_sgd


def gram_schmidt_forgets_to_divide(p):
    for j in range(p.shape[1]):
        for i in range(j):
            p[:, j] -= (p[:, i] @ p[:, j]) / (p[:, i] @ p[:, i]) * p[:, i]
    return p


def by_cholesky(p):
    """Right, as any orthonormal basis is."""
    return torch.linalg.solve_triangular(torch.linalg.cholesky(p.T @ p), p.T, upper=False).T


# 10.6


def iterated(turns, step=1.0, keep=lambda x, k: x.abs().topk(k)[1]):
    def sense_and_recover(comm, g, phi, k):
        y = comm.all_reduce(phi @ g) / comm.size
        x = torch.zeros(phi.shape[1])
        for _ in range(turns):
            z = x + step * (phi.T @ (y - phi @ x))
            x = torch.zeros_like(z).index_copy_(0, keep(z, k), z[keep(z, k)])
        return x

    return sense_and_recover


def least_squares_once(comm, g, phi, k):
    y = comm.all_reduce(phi @ g, op="mean")
    places = (phi.T @ y).abs().topk(k)[1]
    x = torch.zeros_like(g)
    x[places] = torch.linalg.lstsq(phi[:, places], y[:, None]).solution.flatten()
    return x


def by_pursuit(comm, g, phi, k):
    """Right: places by a step, values by least squares."""
    y, x = comm.all_reduce(phi @ g, op="mean"), torch.zeros_like(g)
    for _ in range(12):
        places = (x + phi.T @ (y - phi @ x)).abs().topk(k)[1]
        x = torch.zeros_like(g)
        x[places] = torch.linalg.lstsq(phi[:, places], y[:, None]).solution[:, 0]
    return x


# 10.7


def paid(gathered=lambda p: p - 1, pair=8, limit=None):
    def pays_off(n, ranks, k, method, seconds, bandwidth):
        ring = 2 * (ranks - 1) / ranks
        dense, sent = ring * 4 * n, gathered(ranks) * pair * k if method == "top-k" else ring * 4 * k
        best = limit(dense, sent, seconds) if limit else max(0, dense - sent) / seconds if seconds else math.inf
        return {"dense": dense / bandwidth, "compressed": sent / bandwidth + seconds, "break_even": best}

    return pays_off


# 10.8


def averaged(due, write=None):
    def local_sgd(comm, parameters, step, steps, every):
        for i in range(steps):
            step(i)
            if due(i, steps, every):
                for at, p in enumerate(parameters):
                    mean = comm.all_reduce(p.detach().clone(), op="mean")
                    if write:
                        write(parameters, at, mean)
                    else:
                        p.data = mean

    return local_sgd


def right_time(i, steps, every):
    return i % every == every - 1 or i == steps - 1


def without_a_wait(comm, parameters, step, steps, every):
    for i in range(steps):
        step(i)
        if right_time(i, steps, every):
            for p in parameters:
                comm.all_reduce(p.data, op="mean", async_op=True)


def one_after_the_other(comm, parameters, step, steps, every):
    """Right: all on their way at once."""
    for i in range(steps):
        step(i)
        if right_time(i, steps, every):
            for handle in [comm.all_reduce(p.data, op="mean", async_op=True) for p in parameters]:
                handle.wait()


def rebind(parameters, at, mean):
    parameters[at] = torch.nn.Parameter(mean)


FOUND = [
    ("10.1", coded(average=sum_of_int8), ["100 + 100"]),
    ("10.1", shared_scale_in_int8, ["100 + 100"]),
    ("10.1", coded(average=lambda c, s: (c * s).sum(0)), ["asked is the mean"]),
    ("10.1", coded(average=lambda c, s: c.float().mean(0) * s.mean(0)), ["apart"]),
    ("10.1", coded(scale=lambda rows: (rows.abs().max() / 127).expand(len(rows), 1)), ["whole tensor"]),
    ("10.1", coded(draw=lambda rows: 0.5), ["nearest"]),
    ("10.1", coded(draw=lambda rows: torch.rand(1)), ["one random number"]),
    ("10.1", other_way_round, ["seven of ten"]),
    ("10.1", never_divides_by_127, ["127 times too large"]),
    ("10.1", block_is_their_number, ["make `block` blocks"]),
    ("10.1", noise_of_half, ["off by"]),
    ("10.2", with_packbits_alone, ["zeros"]),
    ("10.2", fills_up_first, ["after the last"]),
    ("10.2", means_of_sign, ["keep its sign"]),
    ("10.3", scatter_alone, ["index_add_"]),
    ("10.3", sparse(lambda p, k, n: 4 * k * (p - 1)), ["not their indices"]),
    ("10.3", sparse(lambda p, k, n: 8 * k * (p - 1), index=torch.int64), ["int64"]),
    ("10.3", sparse(lambda p, k, n: 8 * k), ["comm.size - 1"]),
    ("10.3", sparse(lambda p, k, n: 8 * k * (p - 1), lambda mean, p: mean), ["asked is the mean"]),
    ("10.3", counts_what_it_has, ["`comm.size` payloads"]),
    ("10.3", by_a_threshold, ["bytes"]),
    ("10.4", clears_what_was_sent, ["rounding error"]),
    ("10.4", grows, ["carry the residual twice"]),
    ("10.5", thin(gram_schmidt_forgets_to_divide), ["not orthonormal"]),
    ("10.5", thin(torch.nn.functional.normalize), ["-right angles"]),
    ("10.5", thin(dense=True), ["bytes"]),
    ("10.5", thin(start=lambda q, p: p), ["`Q` that fits"]),
    ("10.6", iterated(2), ["come to rest"]),
    ("10.6", iterated(30, keep=lambda x, k: x.topk(k)[1]), ["magnitude"]),
    ("10.6", least_squares_once, ["fits the measurements"]),
    ("10.7", paid(pair=4), ["its index"]),
    ("10.7", paid(gathered=lambda p: 2 * (p - 1) / p), ["nothing to add"]),
    ("10.7", paid(limit=lambda d, s, t: max(0, d - s) / t), ["divide by zero"]),
    ("10.7", paid(limit=lambda d, s, t: math.inf if d <= s or not t else (d - s) / t), ["below no bandwidth"]),
    ("10.7", paid(limit=lambda d, s, t: (d - s) / t if t and d > s else 0), ["on every link"]),
    ("10.8", without_a_wait, ["before wait()"]),
    ("10.8", averaged(lambda i, steps, every: i % every == 0), ["first step"]),
    ("10.8", averaged(lambda i, steps, every: i % every == every - 1), ["does not divide"]),
    ("10.8", averaged(right_time, rebind), ["never reaches the model"]),
]

RIGHT = [
    ("10.1", half_and_round),
    ("10.1", one_message),
    ("10.1", pieces_with_blocks_of_their_own),
    ("10.2", means_in_tensors),
    ("10.2", as_numpy_gives_it),
    ("10.3", in_a_loop),
    ("10.3", sparse(lambda p, k, n: float(12 * k * (p - 1)), index=torch.int64)),
    ("10.3", from_each_to_each),
    ("10.4", one_more),
    ("10.5", thin(lambda p: torch.linalg.svd(p, False)[0])),
    ("10.5", thin(by_cholesky)),
    ("10.6", by_pursuit),
    ("10.6", iterated(15)),
    ("10.6", iterated(30, step=1.3)),
    ("10.8", one_after_the_other),
    ("10.8", averaged(right_time)),
]
