"""What somebody who solved lab 06 for the first time wrote on the way, and the words that the verdict must hold.

`FOUND`: (exercise, function, words); each once passed, got a wrong cause, or none. A word with a leading "-" must not be
there. `RIGHT`: (exercise, function); each once failed, or is right in a way that is unlike the reference.
"""

from fractions import Fraction
from functools import cache
from itertools import accumulate, combinations, pairwise
from math import ceil, inf

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

# 06.1


def stage_of(comm, layers, cuts):
    bounds = [0, *cuts, len(layers)]
    return layers[bounds[comm.rank] : bounds[comm.rank + 1]]


def whole_pass(comm, own, x, loss, sent_back=lambda x, y: x.grad):
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    y = nn.Sequential(*own)(x)
    if y.requires_grad:
        y.retain_grad()
    out = None
    if comm.rank < comm.size - 1:
        comm.send(y.detach(), comm.rank + 1)
        g = torch.empty_like(y)
        comm.recv(g, comm.rank + 1)
        y.backward(g)
    else:
        out = loss(y)
        out.backward()
    if comm.rank > 0:
        comm.send(sent_back(x, y), comm.rank - 1)
    return out


def one_layer_more(comm, layers, cuts, x, loss):
    # "The last layer is missing": any message of a wrong shape was told that.
    bounds = [0, *cuts, len(layers) - 1]
    return whole_pass(comm, layers[bounds[comm.rank] : bounds[comm.rank + 1] + 1], x, loss)


def output_gradient_sent_back(comm, layers, cuts, x, loss):
    return whole_pass(comm, stage_of(comm, layers, cuts), x, loss, lambda x, y: y.grad)


def counts_per_rank(comm, layers, cuts, x, loss):
    n = len(layers) // comm.size
    last = comm.rank == comm.size - 1
    return whole_pass(comm, layers[comm.rank * n : None if last else (comm.rank + 1) * n], x, loss)


def step_of_sgd(comm, layers, cuts, x, loss):
    # Passed, though it changes what it was given.
    out = whole_pass(comm, stage_of(comm, layers, cuts), x, loss)
    with torch.no_grad():
        for layer in layers:
            for p in layer.parameters():
                if p.grad is not None:
                    p -= 0.01 * p.grad
    return out


def loss_on_every_rank(comm, layers, cuts, x, loss):
    out = whole_pass(comm, stage_of(comm, layers, cuts), x, loss)
    return loss(x) if out is None else out


def forward_computed_again(comm, layers, cuts, x, loss):
    stage = nn.Sequential(*stage_of(comm, layers, cuts))
    if comm.rank:
        comm.recv(x, comm.rank - 1)
    if comm.rank < comm.size - 1:
        with torch.no_grad():
            y = stage(x)
        comm.send(y, comm.rank + 1)
        g = torch.empty_like(y)
        comm.recv(g, comm.rank + 1)
    x = x.clone().requires_grad_()
    out = stage(x)
    if comm.rank == comm.size - 1:
        out = loss(out)
        out.backward()
    else:
        out.backward(g)
    if comm.rank:
        comm.send(x.grad, comm.rank - 1)
    return out if comm.rank == comm.size - 1 else None


def lists_of_its_own(comm, layers, cuts, x, loss):
    # The check itself ended with a KeyError: the layers were no longer in the list. A rank's lists are its own.
    cuts.insert(0, 0)
    cuts.append(len(layers))
    del layers[cuts[comm.rank + 1] :]
    del layers[: cuts[comm.rank]]
    return whole_pass(comm, layers, x, loss)


# 06.2


def times(costs, communication, cuts):
    both = [0, *communication, 0]
    return [sum(costs[a:b]) + both[a] + both[b] for a, b in pairwise([0, *cuts, len(costs)])]


def best_of(costs, parts, communication, goal=max):
    every = combinations(range(1, len(costs)), parts - 1)
    return list(min(every, key=lambda cuts: goal(times(costs, communication, cuts))))


def bisects_and_fills(costs, parts, communication):
    # Passed: the textbook's way, exact without messages.
    both, n = [0, *communication, 0], len(costs)

    def fill(limit):
        cuts = []
        for left in range(parts - 1, 0, -1):
            start = cuts[-1] if cuts else 0
            fit = [j for j in range(start + 1, n - left + 1) if sum(costs[start:j]) + both[start] + both[j] <= limit]
            if not fit:
                return None
            cuts.append(fit[-1])
        return cuts if max(times(costs, communication, cuts)) <= limit else None

    low, high = 0, sum(costs) + 2 * sum(communication)
    best = fill(high)
    for _ in range(60):
        middle = (low + high) / 2
        found = fill(middle)
        best, low, high = (best, middle, high) if found is None else (found, low, middle)
    return best


def stops_when_a_part_is_too_long(costs, parts, communication):
    # Passed: a longer part may be a faster one, where its message is cheap.
    n, held, both = len(costs), [0, *accumulate(costs)], [0, *communication, 0]

    @cache
    def go(start, left):
        if left == 1:
            return held[n] - held[start] + both[start], ()
        best = (inf, tuple(range(start + 1, start + left)))
        for cut in range(start + 1, n - left + 2):
            here = held[cut] - held[start] + both[start] + both[cut]
            if here >= best[0]:
                break
            best = min(best, (max(here, go(cut, left - 1)[0]), (cut, *go(cut, left - 1)[1])))
        return best

    return list(go(0, parts)[1])


def moves_any_cut_anywhere(costs, parts, communication):
    # Passed: a search that steps to better lists only.
    cuts = [len(costs) * k // parts for k in range(1, parts)]
    while True:
        near = [sorted({*cuts[:k], v, *cuts[k + 1 :]}) for k in range(len(cuts)) for v in range(1, len(costs))]
        near = [one for one in near if len(one) == len(cuts)]
        better = min(near, key=lambda one: max(times(costs, communication, one)), default=cuts)
        if max(times(costs, communication, better)) >= max(times(costs, communication, cuts)):
            return cuts
        cuts = better


def in_milliseconds(costs, parts, communication):
    return best_of([round(c, 3) for c in costs], parts, [round(c, 3) for c in communication])


def small_messages_are_free(costs, parts, communication):
    return best_of(costs, parts, [c if c > min(costs) else 0 for c in communication])


def cuts_as_floats(costs, parts, communication):
    # Passed, and the next cell of the notebook could not cut a list with 2.0.
    return [float(cut) for cut in best_of(costs, parts, communication)]


def empties_costs(costs, parts, communication):
    cuts = best_of(costs, parts, communication)
    costs.clear()
    return cuts


def time_and_cuts(costs, parts, communication):
    cuts = best_of(costs, parts, communication)
    return max(times(costs, communication, cuts)), cuts


def groups(costs, parts, communication):
    # "The check itself failed": lists in a list were summed.
    return [costs[a:b] for a, b in pairwise([0, *best_of(costs, parts, communication), len(costs)])]


def bottleneck(costs, parts, communication):
    return max(times(costs, communication, best_of(costs, parts, communication)))


def halves_of_halves(costs, parts, communication):
    # "Your parts balance the layers alone": told to whoever had the same cuts on one case.
    def go(a, b, k):
        if k == 1:
            return []
        left = k // 2
        ends = range(a + left, b - k + left + 1)
        rates = {c: max(sum(costs[a:c]) / left, sum(costs[c:b]) / (k - left)) + communication[c - 1] for c in ends}
        cut = min(rates, key=rates.get)
        return [*go(a, cut, left), cut, *go(cut, b, k - left)]

    return go(0, len(costs), parts)


def largest_of_each(costs, parts, communication):
    def goal(cuts):
        layers = max(times(costs, [0] * len(communication), cuts))
        return layers + max([communication[cut - 1] for cut in cuts], default=0)

    return list(min(combinations(range(1, len(costs)), parts - 1), key=goal))


def fewer_parts_where_faster(costs, parts, communication):
    every = (best_of(costs, k, communication) for k in range(1, parts + 1))
    return min(every, key=lambda cuts: max(times(costs, communication, cuts)))


def loops_by_parts(costs, parts, communication):
    # "Your search finds nothing" was said, of large numbers, where five parts have no branch.
    return best_of(costs, parts, communication) if parts < 5 else None


def zero_in_front(costs, parts, communication):
    return [0, *best_of(costs, parts, communication)]


def cuts_in_an_array(costs, parts, communication):
    return np.array(best_of(costs, parts, communication), dtype=int)


def cuts_in_a_tensor(costs, parts, communication):
    return torch.tensor(best_of(costs, parts, communication), dtype=torch.long)


def cuts_from_a_generator(costs, parts, communication):
    yield from best_of(costs, parts, communication)


# 06.3


def writes_to_the_bias(comm, x, weight, bias):
    # Passed, though it changes what it was given.
    y = column_in_one(comm, x, weight, bias)
    bias.data = torch.zeros_like(bias)
    return y


def column_in_one(comm, x, weight, bias):
    # Failed: it adds up a gradient of images that nobody needs, which one all-reduce may do.
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            return x @ weight.T + bias

        @staticmethod
        def backward(ctx, g):
            x, weight = ctx.saved_tensors
            return comm.all_reduce(g @ weight), g.T @ x, g.sum(0)

    return Linear.apply(x, weight, bias)


def sums_outputs_in_place(comm, x, weight, bias):
    y = F.linear(x, weight, bias)
    comm.all_reduce(y)
    return y


def layer_of_its_own(comm, x, weight, bias):
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight.data, layer.bias.data = weight.data, bias.data
    return column_in_one(comm, x, layer.weight, layer.bias)


def bias_on_rank_0(comm, x, weight, bias):
    return column_in_one(comm, x, weight, bias if comm.rank == 0 else torch.zeros_like(bias))


# 06.4


def total_of(comm, y):
    """y, with the other ranks' terms as constants."""
    return y + (comm.all_reduce(y.detach().clone()) - y.detach())


def bias_of_the_last_rank(comm, x, weight, bias):
    return total_of(comm, F.linear(x, weight) + bias * (comm.rank == comm.size - 1))


def two_values(comm, x, weight, bias):
    # "'tuple' object has no attribute 'backward'", as if the student had called it.
    return total_of(comm, F.linear(x, weight)) + bias, None


def no_value(comm, x, weight, bias):
    total_of(comm, F.linear(x, weight) + bias)


def slices_once_more(comm, x, weight, bias):
    return total_of(comm, F.linear(x.tensor_split(comm.size, dim=1)[comm.rank], weight)) + bias


def by_way_of_rank_0(comm, x, weight, bias):
    y = F.linear(x, weight)
    t = y.detach().clone()
    if comm.rank == 0:
        other = torch.empty_like(t)
        for r in range(1, comm.size):
            comm.recv(other, r)
            t += other
        for r in range(1, comm.size):
            comm.send(t, r)
    else:
        comm.send(t, 0)
        comm.recv(t, 0)
    return y + (t - y).detach() + bias


# 06.5


def channels_with(comm, x, weight, bias, padding, forward, backward):
    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t, forward, backward):
            ctx.back = backward
            return forward(t)

        @staticmethod
        def backward(ctx, g):
            return ctx.back(g), None, None

    x = Through.apply(x, torch.clone, lambda g: comm.all_reduce(g.contiguous()))
    return Through.apply(F.conv2d(x, weight, bias, padding=padding), forward, backward)


def shares_worked_out(comm, x, weight, bias, padding, channels):
    # Passed: every case was shared out evenly.
    n = sum(channels)
    shares = [n // comm.size + (r < n % comm.size) for r in range(comm.size)]

    def gather(y):
        return comm.all_gather(y.transpose(0, 1).contiguous(), shares).transpose(0, 1)

    return channels_with(comm, x, weight, bias, padding, gather, lambda g: g.split(shares, 1)[comm.rank])


def pieces_of_images(comm, x, weight, bias, padding, channels):
    n = len(x)
    return channels_with(
        comm, x, weight, bias, padding,
        lambda y: comm.all_gather(y.contiguous(), [n] * comm.size), lambda g: g.split(n)[comm.rank],
    )  # fmt: skip


def padded_by_half_the_kernel(comm, x, weight, bias, padding, channels):
    return image_by_image(comm, x, weight, bias, weight.shape[2] // 2, channels)


def image_by_image(comm, x, weight, bias, padding, channels):
    def gather(y):
        return torch.stack([comm.all_gather(image.contiguous(), channels) for image in y])

    return channels_with(comm, x, weight, bias, padding, gather, lambda g: g.split(channels, 1)[comm.rank])


# 06.6


def rounded_with(chunk, parameters_of=lambda inputs, outputs, parameters: parameters):
    def bytes_per_step(split, inputs, outputs, parameters, batch, ranks):
        p, i, o = 4 * parameters_of(inputs, outputs, parameters), 4 * batch * inputs, 4 * batch * outputs
        gathered, layers = {"column": o, "row": i}.get(split, 0), i + o
        reduced = {"data": p, "column": i, "row": o, "pair": i + o}.get(split, 0)
        return layers if split == "layers" else sum(chunk(n, ranks) for n in (gathered, reduced, reduced))

    return bytes_per_step


whole_chunks = rounded_with(lambda n, p: n // p * (p - 1))
rounded_up = rounded_with(lambda n, p: ceil(n / p) * (p - 1))
truncated = rounded_with(lambda n, p: int(n * ((p - 1) / p)))
fractions = rounded_with(lambda n, p: n * Fraction(p - 1, p))
zero_dimensional = rounded_with(lambda n, p: torch.tensor(n * (p - 1) / p, dtype=torch.float64))
ignores_parameters = rounded_with(lambda n, p: n * (p - 1) / p, lambda i, o, p: i * o + o)
one_chunk = rounded_with(lambda n, p: n / p)
doubled = rounded_with(lambda n, p: 2 * n * (p - 1) / p)
divides_by_the_others = rounded_with(lambda n, p: n / p / (1 / (p - 1)))

FOUND = [
    ("06.1", one_layer_more, ["one layer too many", "-is missing"]),
    ("06.1", output_gradient_sent_back, ["gradient of your *output*", "-is missing"]),
    ("06.1", counts_per_rank, ["equally many"]),
    ("06.1", step_of_sgd, ["change the parameters"]),
    ("06.1", loss_on_every_rank, ["A rank before the last calls `loss`"]),
    ("06.2", bisects_and_fills, ["as far as a limit allows"]),
    ("06.2", stops_when_a_part_is_too_long, ["slowest part takes"]),
    ("06.2", moves_any_cut_anywhere, ["slowest part takes"]),
    ("06.2", in_milliseconds, ["slowest part takes"]),
    ("06.2", small_messages_are_free, ["slowest part takes", "-alone"]),
    ("06.2", cuts_as_floats, ["not 2.0"]),
    ("06.2", empties_costs, ["`costs` is changed", "work on a copy"]),
    ("06.2", time_and_cuts, ["lists in the list"]),
    ("06.2", groups, ["lists in the list"]),
    ("06.2", bottleneck, ["not its time"]),
    ("06.2", halves_of_halves, ["-alone", "-equally many"]),
    ("06.2", largest_of_each, ["-alone", "-one too low"]),
    ("06.2", fewer_parts_where_faster, ["has no layer"]),
    ("06.2", loops_by_parts, ["returns None", "-begins with a best"]),
    ("06.2", zero_in_front, ["Leave out 0"]),
    ("06.3", writes_to_the_bias, ["bias are others than before"]),
    ("06.3", sums_outputs_in_place, ["different neurons"]),
    ("06.3", layer_of_its_own, ["new `nn.Linear`"]),
    ("06.3", bias_on_rank_0, ["lack the bias"]),
    ("06.4", bias_of_the_last_rank, ["only one rank's copy"]),
    ("06.4", two_values, ["returns a tuple", "one tensor"]),
    ("06.4", no_value, ["is there a `return`?"]),
    ("06.4", slices_once_more, ["once more"]),
    ("06.5", shares_worked_out, ["from their sum"]),
    ("06.5", pieces_of_images, ["one behind the other", "-Here all of them"]),
    ("06.5", padded_by_half_the_kernel, ["which may be 0"]),
    ("06.6", ignores_parameters, ["this is a convolution"]),
    ("06.6", one_chunk, ["one chunk", "-trip round the ring"]),
    ("06.6", doubled, ["twice as many", "-to itself"]),
    ("06.6", divides_by_the_others, ["ZeroDivisionError"]),
]

RIGHT = [
    ("06.1", forward_computed_again),
    ("06.1", lists_of_its_own),
    ("06.2", cuts_in_an_array),
    ("06.2", cuts_in_a_tensor),
    ("06.2", cuts_from_a_generator),
    ("06.3", column_in_one),
    ("06.4", by_way_of_rank_0),
    ("06.5", image_by_image),
    ("06.6", whole_chunks),
    ("06.6", rounded_up),
    ("06.6", truncated),
    ("06.6", fractions),
    ("06.6", zero_dimensional),
]
