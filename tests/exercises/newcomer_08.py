"""What somebody who solved lab 08 for the first time wrote on the way, and the words that the verdict must hold.

`FOUND`: (exercise, function, words); each once passed, got a wrong cause, or none. A word with a leading "-" must not be
there. `WRONG`: what passed once and fails now with an error of its own. `RIGHT`: (exercise, function); each once failed, or is right in a way that is unlike the reference.
"""

import math
from collections import defaultdict
from fractions import Fraction
from itertools import permutations

import numpy as np
import torch
from torch.nn import functional as F


def place_of(rank, axes):
    """A helper of several programs below, as if it stood in another cell."""
    coordinates = {}
    for name in reversed(axes):
        rank, coordinates[name] = divmod(rank, axes[name])
    return coordinates


# 08.1, wrong


def mesh_sorted_names(comm, axes):
    coordinates, groups, stride = {}, {}, 1
    for name in sorted(axes, reverse=True):
        coordinates[name] = comm.rank // stride % axes[name]
        groups[name] = comm.split(comm.rank - coordinates[name] * stride, comm.rank)
        stride *= axes[name]
    return coordinates, groups


def mesh_collides_when_more_behind(comm, axes):
    coordinates, groups, stride = {}, {}, 1
    for name in reversed(axes):
        size = axes[name]
        coordinates[name] = comm.rank // stride % size
        groups[name] = comm.split(comm.rank % stride * size + comm.rank // (stride * size), comm.rank)
        stride *= size
    return coordinates, groups


def mesh_base_four(comm, axes):
    coordinates = place_of(comm.rank, axes)
    color = {n: sum(coordinates[k] * 4**i for i, k in enumerate(axes) if k != n) for n in axes}
    return coordinates, {n: comm.split(color[n], coordinates[n]) for n in axes}


def mesh_color_is_a_sum(comm, axes):
    coordinates = place_of(comm.rank, axes)
    color = {n: sum(coordinates[k] for k in axes if k != n) for n in axes}
    return coordinates, {n: comm.split(color[n], coordinates[n]) for n in axes}


def mesh_three_axes_at_most(comm, axes):
    s = [1] * (3 - len(axes)) + list(axes.values())
    c = [comm.rank // (s[1] * s[2]), comm.rank // s[2] % s[1], comm.rank % s[2]]
    colors = [c[1] * s[2] + c[2], c[0] * s[2] + c[2], c[0] * s[1] + c[1]]
    groups = [comm.split(color, place) for color, place in zip(colors, c, strict=True)]
    return dict(zip(axes, c[-len(axes) :], strict=True)), dict(zip(axes, groups[-len(axes) :], strict=True))


def mesh_none_for_size_one(comm, axes):
    coordinates, groups, stride = {}, {}, 1
    for name in reversed(axes):
        coordinates[name] = comm.rank // stride % axes[name]
        groups[name] = comm.split(comm.rank - coordinates[name] * stride) if axes[name] > 1 else None
        stride *= axes[name]
    return coordinates, groups


def mesh_size_one_left_out(comm, axes):
    coordinates, groups, stride = {}, {}, 1
    for name in reversed(axes):
        coordinates[name] = comm.rank // stride % axes[name]
        if axes[name] > 1:
            groups[name] = comm.split(comm.rank - coordinates[name] * stride)
        stride *= axes[name]
    return coordinates, groups


def mesh_sizes_by_heart(comm, axes):
    sizes = {2: (2,), 8: (2, 4), 12: (2, 3, 2)}[comm.size]
    coordinates, groups, stride = {}, {}, 1
    for name, size in zip(reversed(axes), reversed(sizes), strict=True):
        coordinates[name] = comm.rank // stride % size
        groups[name] = comm.split(comm.rank - coordinates[name] * stride)
        stride *= size
    return coordinates, groups


def mesh_coordinates_in_words(comm, axes):
    coordinates, groups, stride = {}, {}, 1
    for name in reversed(axes):
        own = comm.rank // stride % axes[name]
        coordinates[name] = str(own)
        groups[name] = comm.split(comm.rank - own * stride)
        stride *= axes[name]
    return coordinates, groups


def mesh_returned_the_other_way(comm, axes):
    coordinates = place_of(comm.rank, axes)
    color = {n: sum(coordinates[k] * 100**i for i, k in enumerate(axes) if k != n) for n in axes}
    return {n: comm.split(color[n], coordinates[n]) for n in axes}, coordinates


def mesh_alone(comm, axes):
    coordinates = place_of(comm.rank, axes)
    return coordinates, {n: comm.split(comm.rank, coordinates[n]) for n in axes}


def mesh_counts_from_one(comm, axes):
    coordinates = place_of(comm.rank, axes)
    color = {n: sum(coordinates[k] * 100**i for i, k in enumerate(axes) if k != n) for n in axes}
    groups = {n: comm.split(color[n], coordinates[n]) for n in axes}
    return {n: c + 1 for n, c in coordinates.items()}, groups


# 08.1, right


def mesh_numpy(comm, axes):
    where = np.unravel_index(comm.rank, tuple(axes.values()))
    grid = np.arange(comm.size).reshape(tuple(axes.values()))
    groups = {}
    for d, name in enumerate(axes):
        line = np.moveaxis(grid, d, -1)[tuple(np.delete(where, d))]
        groups[name] = comm.split(int(line.min()), int(where[d]))
    return dict(zip(axes, where, strict=True)), groups


def mesh_in_a_list(comm, axes):
    coordinates = place_of(comm.rank, axes)
    color = {n: sum(coordinates[k] * 100**i for i, k in enumerate(axes) if k != n) for n in axes}
    return [coordinates, {n: comm.split(color[n], coordinates[n]) for n in axes}]


def mesh_every_group_as_in_torch(comm, axes):
    everyone, groups = [place_of(r, axes) for r in range(comm.size)], {}
    for name in axes:
        others = [tuple(c[k] for k in axes if k != name) for c in everyone]
        for team in dict.fromkeys(others):
            group = comm.split(0 if others[comm.rank] == team else None, comm.rank)
            groups[name] = group or groups.get(name)
    return everyone[comm.rank], groups


def mesh_split_again(comm, axes):
    coordinates, groups = place_of(comm.rank, axes), {}
    for name in axes:
        groups[name] = comm
        for other in axes:
            if other != name:
                groups[name] = groups[name].split(coordinates[other])
    return coordinates, groups


# 08.2, wrong


def reduce_dot_data(inside, across, tensor):
    chunk = inside.reduce_scatter(tensor)
    across.all_reduce(chunk)
    tensor.data = inside.all_gather(chunk, [len(c) for c in tensor.tensor_split(inside.size)])


def reduce_set(inside, across, tensor):
    chunk = inside.reduce_scatter(tensor)
    across.all_reduce(chunk)
    tensor.set_(inside.all_gather(chunk, [len(c) for c in tensor.tensor_split(inside.size)]))


def reduce_chunk_sizes(inside, across, tensor):
    chunk = inside.reduce_scatter(tensor)
    across.all_reduce(chunk)
    tensor.copy_(inside.all_gather(chunk, [len(c) for c in tensor.chunk(inside.size)]))


def reduce_nothing_when_alone(inside, across, tensor):
    if inside.size > 1:
        chunk = inside.reduce_scatter(tensor)
        across.all_reduce(chunk)
        tensor.copy_(inside.all_gather(chunk, [len(c) for c in tensor.tensor_split(inside.size)]))


def reduce_everyones_chunk(inside, across, tensor):
    chunk = inside.reduce_scatter(tensor)
    chunk = across.all_gather(chunk).view(across.size, -1).sum(0)
    tensor.copy_(inside.all_gather(chunk, [len(c) for c in tensor.tensor_split(inside.size)]))


def reduce_inside_whole_then_chunk(inside, across, tensor):
    inside.all_reduce(tensor)
    chunk = tensor.tensor_split(inside.size)[inside.rank]
    across.all_reduce(chunk)
    tensor.copy_(inside.all_gather(chunk, [len(c) for c in tensor.tensor_split(inside.size)]))


def reduce_with_a_neighbour(inside, across, tensor):
    chunk = inside.reduce_scatter(tensor)
    if across.size > 1:
        got, k = torch.empty_like(chunk), across.size
        across.exchange([(chunk.clone(), (across.rank + 1) % k)], [(got, (across.rank - 1) % k)])
        chunk += got
    tensor.copy_(inside.all_gather(chunk, [len(c) for c in tensor.tensor_split(inside.size)]))


def reduce_barrier_of_one(inside, across, tensor):
    sizes = [len(c) for c in tensor.tensor_split(inside.size)]
    chunk = inside.reduce_scatter(tensor)
    if inside.rank == 0:
        across.all_reduce(chunk)
        inside.barrier()
    tensor.copy_(inside.all_gather(chunk, sizes))


def reduce_rank_0_crosses(inside, across, tensor):
    chunk = inside.reduce_scatter(tensor)
    if inside.rank == 0:
        across.all_reduce(chunk)
    tensor.copy_(inside.all_gather(chunk, [len(c) for c in tensor.tensor_split(inside.size)]))


# 08.2, right


def reduce_gather_and_broadcast(inside, across, tensor):
    pieces, total = list(tensor.tensor_split(inside.size)), None
    for r, piece in enumerate(pieces):
        got = inside.gather(piece, r)
        total = sum(got) if got is not None else total
    across.all_reduce(total)
    for r, piece in enumerate(pieces):
        if r == inside.rank:
            piece.copy_(total)
        inside.broadcast(piece, r)


def reduce_with_a_short_last_chunk(inside, across, tensor):
    m, n = inside.size, len(tensor)
    sizes = [n // m + (r >= m - n % m) for r in range(m)]
    chunk = inside.reduce_scatter(tensor, sizes=sizes)
    across.all_reduce(chunk)
    tensor[:] = inside.all_gather(chunk, sizes)


# 08.3: the programs below differ in what follows the switches


def switches(comm, x, images, neurons):
    """Both switches, right."""
    own, p = images[comm.rank], comm.size

    class AllImages(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return comm.all_gather(x, images)

        @staticmethod
        def backward(ctx, g):
            return comm.reduce_scatter(g.contiguous(), sizes=[i * g.shape[1] for i in images]).view(own, -1)

    class AllNeurons(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return torch.cat(comm.all_to_all(y, images, [own] * p).tensor_split(p), 1)

        @staticmethod
        def backward(ctx, g):
            return comm.all_to_all(torch.cat(g.tensor_split(p, 1)), [own] * p, images)

    return AllImages, AllNeurons


def trick_without_bias(comm, x, weight, bias, images):
    gather, swap = switches(comm, x, images, len(weight))
    return swap.apply(F.linear(gather.apply(x), weight))


def trick_bias_of_own_neurons_for_all(comm, x, weight, bias, images):
    gather, swap = switches(comm, x, images, len(weight))
    return swap.apply(F.linear(gather.apply(x), weight)) + bias.repeat(comm.size)


def trick_stacked(comm, x, weight, bias, images):
    own, p = images[comm.rank], comm.size
    gather, _ = switches(comm, x, images, len(weight))

    class Stacked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return comm.all_to_all(y, images, [own] * p)

        @staticmethod
        def backward(ctx, g):
            return comm.all_to_all(g.contiguous(), [own] * p, images)

    return Stacked.apply(F.linear(gather.apply(x), weight, bias))


def trick_own_block_first(comm, x, weight, bias, images):
    gather, swap = switches(comm, x, images, len(weight))
    y = swap.apply(F.linear(gather.apply(x), weight, bias))
    return y.roll(-comm.rank * len(weight), 1)


def trick_interleaved(comm, x, weight, bias, images):
    gather, swap = switches(comm, x, images, len(weight))
    y = swap.apply(F.linear(gather.apply(x), weight, bias))
    return torch.stack(y.tensor_split(comm.size, 1), 2).flatten(1)


def trick_gathers_outputs(comm, x, weight, bias, images):
    n, me = len(weight), comm.rank
    gather, _ = switches(comm, x, images, n)

    class AllOutputs(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return torch.cat([y_.split(images)[me] for y_ in comm.all_gather(y).tensor_split(comm.size)], 1)

        @staticmethod
        def backward(ctx, g):
            return comm.all_gather(g.contiguous(), images)[:, me * n : (me + 1) * n]

    return AllOutputs.apply(F.linear(gather.apply(x), weight, bias))


def trick_gathers_again(comm, x, weight, bias, images):
    own, p = images[comm.rank], comm.size

    class Everything(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            y = F.linear(comm.all_gather(x, images), weight, bias)
            return torch.cat(comm.all_to_all(y, images, [own] * p).tensor_split(p), 1)

        @staticmethod
        def backward(ctx, g):
            x, weight = ctx.saved_tensors
            g = comm.all_to_all(torch.cat(g.tensor_split(p, 1)), [own] * p, images)
            gx = g @ weight
            gx = comm.reduce_scatter(gx, sizes=[i * gx.shape[1] for i in images]).view(own, -1)
            return gx, g.T @ comm.all_gather(x, images), g.sum(0)

    return Everything.apply(x, weight, bias)


def trick_asks_for_the_images(comm, x, weight, bias, images):
    asked = comm.all_gather(torch.tensor([len(x)])).tolist()
    gather, swap = switches(comm, x, asked, len(weight))
    return swap.apply(F.linear(gather.apply(x), weight, bias))


def trick_returns_nothing(comm, x, weight, bias, images):
    gather, swap = switches(comm, x, images, len(weight))
    swap.apply(F.linear(gather.apply(x), weight, bias))


def trick_returns_two(comm, x, weight, bias, images):
    gather, swap = switches(comm, x, images, len(weight))
    return swap.apply(F.linear(gather.apply(x), weight, bias)), x


def trick_flat_gradient(comm, x, weight, bias, images):
    _, swap = switches(comm, x, images, len(weight))

    class AllImages(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return comm.all_gather(x, images)

        @staticmethod
        def backward(ctx, g):
            return comm.reduce_scatter(g.contiguous(), sizes=[i * g.shape[1] for i in images])

    return swap.apply(F.linear(AllImages.apply(x), weight, bias))


def trick_sizes_in_rows(comm, x, weight, bias, images):
    _, swap = switches(comm, x, images, len(weight))

    class AllImages(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return comm.all_gather(x, images)

        @staticmethod
        def backward(ctx, g):
            return comm.reduce_scatter(g.contiguous(), sizes=images)

    return swap.apply(F.linear(AllImages.apply(x), weight, bias))


def trick_backward_not_cut(comm, x, weight, bias, images):
    own, p = images[comm.rank], comm.size
    gather, _ = switches(comm, x, images, len(weight))

    class AllNeurons(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return torch.cat(comm.all_to_all(y, images, [own] * p).tensor_split(p), 1)

        @staticmethod
        def backward(ctx, g):
            return comm.all_to_all(g.reshape(own * p, -1), [own] * p, images)

    return AllNeurons.apply(F.linear(gather.apply(x), weight, bias))


# 08.3, right


def trick_in_pieces(comm, x, weight, bias, images):
    own, p, me, n = images[comm.rank], comm.size, comm.rank, len(weight)
    others = [r for r in range(p) if r != me]

    class AllImages(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            everyone = x.new_empty(sum(images), x.shape[1])
            for r, part in enumerate(everyone.split(images)):
                if r == me:
                    part.copy_(x)
                comm.broadcast(part, r)
            return everyone

        @staticmethod
        def backward(ctx, g):
            parts = [part.clone() for part in g.split(images)]
            for r, part in enumerate(parts):
                comm.reduce(part, r)
            return parts[me]

    class AllNeurons(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            parts, got = y.split(images), [y.new_empty(own, n) for _ in range(p)]
            got[me] = parts[me]
            comm.exchange([(parts[r].contiguous(), r) for r in others], [(got[r], r) for r in others])
            return torch.cat(got, 1)

        @staticmethod
        def backward(ctx, g):
            columns, got = g.split(n, 1), [g.new_empty(i, n) for i in images]
            got[me] = columns[me]
            comm.exchange([(columns[r].contiguous(), r) for r in others], [(got[r], r) for r in others])
            return torch.cat(got)

    return AllNeurons.apply(F.linear(AllImages.apply(x), weight, bias))


def trick_transposed(comm, x, weight, bias, images):
    gather, swap = switches(comm, x, images, len(weight))
    return swap.apply((weight @ gather.apply(x).T + bias[:, None]).T.contiguous())


# 08.4


def crossing(order, axes, sent, per_node):
    """Bytes that cross in this order; the programs below bend its arguments."""
    grid = torch.arange(math.prod(axes.values())).view([axes[name] for name in order]) // per_node
    return sum(sent[name] * int((grid != grid.roll(-1, d)).sum()) for d, name in enumerate(order))


def place_nodes_of_four(axes, sent, per_node):
    return min(permutations(axes), key=lambda order: crossing(order, axes, sent, 4))


def place_nodes_of_eight(axes, sent, per_node):
    return min(permutations(axes), key=lambda order: crossing(order, axes, sent, 8))


def place_nodes_of_two(axes, sent, per_node):
    return min(permutations(axes), key=lambda order: crossing(order, axes, sent, 2))


def place_by_sent_over_size(axes, sent, per_node):
    return tuple(sorted(axes, key=lambda name: sent[name] / axes[name]))


def place_by_sent_where_it_fits(axes, sent, per_node):
    return tuple(sorted(axes, key=lambda name: (axes[name] <= per_node, sent[name])))


def place_by_sent_up_to_a_node(axes, sent, per_node):
    return tuple(sorted(axes, key=lambda name: sent[name] / axes[name] * min(axes[name], per_node)))


def place_by_sent_or_over_size(axes, sent, per_node):
    return tuple(sorted(axes, key=lambda name: sent[name] / (1 if axes[name] <= per_node else axes[name])))


def place_greedily(axes, sent, per_node):
    left, order, room = dict(axes), [], per_node
    while left:
        fit = [name for name in left if left[name] <= room] or list(left)
        heaviest = max(fit, key=sent.get)
        order.insert(0, heaviest)
        room = max(1, room // left.pop(heaviest))
    return tuple(order)


def place_by_a_formula(axes, sent, per_node):
    def total(order):
        bytes_across, stride = 0, 1
        for name in reversed(order):
            inside = max(1, min(axes[name], per_node // stride))
            bytes_across += 0 if inside == axes[name] else sent[name] / inside
            stride *= axes[name]
        return bytes_across

    return min(permutations(axes), key=total)


def place_first_node_alone(axes, sent, per_node):
    def total(order):
        grid = torch.arange(math.prod(axes.values())).view([axes[name] for name in order])
        return sum(
            sent[name] * int(((grid < per_node) & (grid.roll(-1, d) >= per_node)).sum()) for d, name in enumerate(order)
        )

    return min(permutations(axes), key=total)


def place_by_rule(axes, sent, per_node):
    return tuple(name for name in ("data", "pipeline", "tensor") if name in axes)


def place_bytes_alike(axes, sent, per_node):
    return min(permutations(axes), key=lambda order: crossing(order, axes, dict.fromkeys(axes, 1), per_node))


def place_sent_shared_out(axes, sent, per_node):
    shared = {name: sent[name] / axes[name] for name in axes}
    return min(
        permutations(axes),
        key=lambda order: sum(
            shared[name] * crossing(order, axes, dict.fromkeys(axes, 0) | {name: 1}, per_node) for name in axes
        ),
    )


def place_without_the_way_back(axes, sent, per_node):
    def total(order):
        grid = torch.arange(math.prod(axes.values())).view([axes[name] for name in order]) // per_node
        return sum(sent[name] * int((grid.diff(dim=d) != 0).sum()) for d, name in enumerate(order))

    return min(permutations(axes), key=total)


def place_tells_the_bytes(axes, sent, per_node):
    return min(crossing(order, axes, sent, per_node) for order in permutations(axes))


# 08.4, right


def place_last_of_the_best(axes, sent, per_node):
    best, least = None, float("inf")
    for order in permutations(axes):
        bytes_across = crossing(order, axes, sent, per_node)
        if bytes_across <= least:
            best, least = order, bytes_across
    return list(best)


# 08.5


def counted(axes, per_node, gradients, activations, boundary, same=None, size=None, steps=None, names=None):
    """A right count, parts of which the programs below replace."""
    names = list(axes) if names is None else names
    same = same or (lambda r, q, stride, k: r // per_node == q // per_node)
    size = size or (lambda name, k: 2 * (k - 1) / k * (gradients if name == "data" else activations))
    steps = steps or (lambda c, k: [s for s in (c - 1, c + 1) if 0 <= s < k])
    total, stride = {"within": 0, "between": 0}, 1
    for name in reversed(names):
        k = axes[name]
        for r in range(math.prod(axes.values())):
            c = r // stride % k
            for s in steps(c, k) if name == "pipeline" else [(c + 1) % k]:
                each = boundary if name == "pipeline" else size(name, k)
                total["within" if same(r, r + (s - c) * stride, stride, k) else "between"] += each
        stride *= k
    return total


def count_by_distance(axes, per_node, gradients, activations, boundary):
    return counted(axes, per_node, gradients, activations, boundary, lambda r, q, stride, k: abs(q - r) < per_node)


def count_whole_axes(axes, per_node, gradients, activations, boundary):
    return counted(axes, per_node, gradients, activations, boundary, lambda r, q, stride, k: stride * k <= per_node)


def count_by_stride(axes, per_node, gradients, activations, boundary):
    return counted(axes, per_node, gradients, activations, boundary, lambda r, q, stride, k: stride < per_node)


def count_by_first_and_last(axes, per_node, gradients, activations, boundary):
    def same(r, q, stride, k):
        first = r - r // stride % k * stride
        return first // per_node == (first + (k - 1) * stride) // per_node

    return counted(axes, per_node, gradients, activations, boundary, same)


def count_nodes_of_four(axes, per_node, gradients, activations, boundary):
    return counted(axes, 4, gradients, activations, boundary)


def count_sorted_names(axes, per_node, gradients, activations, boundary):
    return counted(axes, per_node, gradients, activations, boundary, names=sorted(axes))


def count_remainders(axes, per_node, gradients, activations, boundary):
    same = lambda r, q, stride, k: r % per_node == q % per_node  # noqa: E731
    return counted(axes, per_node, gradients, activations, boundary, same)


def count_divided_again(axes, per_node, gradients, activations, boundary):
    size = lambda name, k: 2 * (k - 1) / k / k * (gradients if name == "data" else activations)  # noqa: E731
    return counted(axes, per_node, gradients, activations, boundary, size=size)


def count_rings_of_two(axes, per_node, gradients, activations, boundary):
    size = lambda name, k: (gradients if name == "data" else activations) if k > 1 else 0  # noqa: E731
    return counted(axes, per_node, gradients, activations, boundary, size=size)


def count_ring_of_stages(axes, per_node, gradients, activations, boundary):
    steps = lambda c, k: ((c - 1) % k, (c + 1) % k)  # noqa: E731
    return counted(axes, per_node, gradients, activations, boundary, steps=steps)


def count_without_the_way_back(axes, per_node, gradients, activations, boundary):
    line, stride = {"within": 0, "between": 0}, 1
    for name in reversed(axes):
        k = axes[name]
        for r in range(math.prod(axes.values())):
            if r // stride % k < k - 1:
                each = 2 * boundary
                if name != "pipeline":
                    each = 2 * (k - 1) / k * (gradients if name == "data" else activations)
                line["within" if r // per_node == (r + stride) // per_node else "between"] += each
        stride *= k
    return line


# 08.5, right


def count_in_whole_bytes(axes, per_node, gradients, activations, boundary):
    size = lambda name, k: 2 * (k - 1) * (gradients if name == "data" else activations) // k  # noqa: E731
    return counted(axes, per_node, gradients, activations, boundary, size=size)


def count_in_fractions(axes, per_node, gradients, activations, boundary):
    size = lambda name, k: Fraction(2 * (k - 1), k) * (gradients if name == "data" else activations)  # noqa: E731
    return counted(axes, per_node, gradients, activations, boundary, size=size)


def count_in_tensors(axes, per_node, gradients, activations, boundary):
    right = counted(axes, per_node, gradients, activations, boundary)
    return {where: torch.tensor(size) for where, size in right.items()}


def count_in_numpy(axes, per_node, gradients, activations, boundary):
    node = np.arange(math.prod(axes.values())).reshape(tuple(axes.values())) // per_node
    within = between = np.float64(0)
    for d, (name, k) in enumerate(axes.items()):
        crosses = node != np.roll(node, -1, d)
        each = 2 * (k - 1) / k * (gradients if name == "data" else activations)
        if name == "pipeline":
            crosses, each = np.moveaxis(crosses, d, 0)[:-1], 2 * boundary
        between, within = between + each * crosses.sum(), within + each * (~crosses).sum()
    return {"within": within, "between": between}


def count_in_a_defaultdict(axes, per_node, gradients, activations, boundary):
    total = defaultdict(float)
    for where, size in counted(axes, per_node, gradients, activations, boundary).items():
        total[where] += size
    return total


FOUND = [
    ("08.1", mesh_sorted_names, ["order of their names"]),
    ("08.1", mesh_collides_when_more_behind, ["one color"]),
    ("08.1", mesh_base_four, ["one color"]),
    ("08.1", mesh_color_is_a_sum, ["one color"]),
    ("08.1", mesh_none_for_size_one, ["An axis of size 1"]),
    ("08.1", mesh_coordinates_in_words, ["is a whole number; this is '1'"]),
    ("08.1", mesh_returned_the_other_way, ["You return the groups first", "-A list"]),
    ("08.1", mesh_alone, ["a color of its own", "-coordinate on the axis itself. That"]),
    ("08.1", mesh_counts_from_one, ["Rank 0 is at data = 0, and you say 1"]),
    ("08.2", reduce_dot_data, ["Copy into it"]),
    ("08.2", reduce_set, ["Copy into it"]),
    ("08.2", reduce_chunk_sizes, ["makes other pieces"]),
    ("08.2", reduce_nothing_when_alone, ["there are other nodes"]),
    ("08.2", reduce_everyones_chunk, ["less than two chunks", "-your all-reduce inside"]),
    ("08.2", reduce_inside_whole_then_chunk, ["the first before you go across"]),
    ("08.2", reduce_with_a_neighbour, ["two others"]),
    ("08.2", reduce_barrier_of_one, ["calls barrier", "-does not divide"]),
    ("08.2", reduce_rank_0_crosses, ["The first rank's chunk"]),
    ("08.3", trick_without_bias, ["bias is missing"]),
    ("08.3", trick_bias_of_own_neurons_for_all, ["its own bias to everybody's"]),
    ("08.3", trick_stacked, ["side by side"]),
    ("08.3", trick_own_block_first, ["come first. All ranks need one order"]),
    ("08.3", trick_interleaved, ["in turn"]),
    ("08.3", trick_gathers_outputs, ["throws most of them away"]),
    ("08.3", trick_gathers_again, ["gathers the images once more"]),
    ("08.3", trick_asks_for_the_images, ["That is in `images`"]),
    ("08.3", trick_returns_nothing, ["is there a `return`", "-autograd"]),
    ("08.3", trick_returns_two, ["a tuple of 2", "-autograd"]),
    ("08.3", trick_flat_gradient, ["is flat"]),
    ("08.3", trick_sizes_in_rows, ["counts elements"]),
    ("08.3", trick_backward_not_cut, ["*columns*"]),
    ("08.4", place_nodes_of_two, ["Something is not counted"]),
    ("08.4", place_nodes_of_four, ["Something is not counted"]),
    ("08.4", place_nodes_of_eight, ["as if nodes had eight", "-sizes alone"]),
    ("08.4", place_by_sent_over_size, ["Rules of thumb"]),
    ("08.4", place_by_sent_where_it_fits, ["Rules of thumb"]),
    ("08.4", place_by_sent_up_to_a_node, ["Rules of thumb"]),
    ("08.4", place_by_sent_or_over_size, ["Rules of thumb"]),
    ("08.4", place_greedily, ["Rules of thumb"]),
    ("08.4", place_by_a_formula, ["Something is not counted"]),
    ("08.4", place_first_node_alone, ["Something is not counted"]),
    ("08.4", place_by_rule, ["Tensor inside is a good rule", "-fastest"]),
    ("08.4", place_bytes_alike, ["Their bytes count", "-fastest"]),
    ("08.4", place_sent_shared_out, ["Something is not counted", "-fastest"]),
    ("08.4", place_without_the_way_back, ["for the last one the first"]),
    ("08.4", place_tells_the_bytes, ["An order of all axes"]),
    ("08.5", count_by_distance, ["some bytes are on the wrong link"]),
    ("08.5", count_whole_axes, ["some bytes are on the wrong link"]),
    ("08.5", count_by_stride, ["some bytes are on the wrong link"]),
    ("08.5", count_by_first_and_last, ["some bytes are on the wrong link"]),
    ("08.5", count_nodes_of_four, ["some bytes are on the wrong link"]),
    ("08.5", count_sorted_names, ["in the order of `axes`", "-transposed"]),
    ("08.5", count_remainders, ["the place in the node", "-other way round"]),
    ("08.5", count_divided_again, ["once more", "-one trip"]),
    ("08.5", count_rings_of_two, ["for two ranks only"]),
    ("08.5", count_ring_of_stages, ["you count"]),
    ("08.5", count_without_the_way_back, ["The last of a ring", "-one trip"]),
]

WRONG = [mesh_three_axes_at_most, mesh_size_one_left_out, mesh_sizes_by_heart]

RIGHT = [
    ("08.1", mesh_numpy),
    ("08.1", mesh_in_a_list),
    ("08.1", mesh_every_group_as_in_torch),
    ("08.1", mesh_split_again),
    ("08.2", reduce_gather_and_broadcast),
    ("08.2", reduce_with_a_short_last_chunk),
    ("08.3", trick_in_pieces),
    ("08.3", trick_transposed),
    ("08.4", place_last_of_the_best),
    ("08.5", count_in_whole_bytes),
    ("08.5", count_in_fractions),
    ("08.5", count_in_tensors),
    ("08.5", count_in_numpy),
    ("08.5", count_in_a_defaultdict),
]
