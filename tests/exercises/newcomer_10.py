"""What somebody who solves lab 10 for the first time writes on the way, and the words that the verdict must hold.

`FOUND`: (exercise, function, words). A word with a leading "-" must not be there. `RIGHT`: (exercise, function); each is
right in a way that is unlike the reference.
"""

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
]
