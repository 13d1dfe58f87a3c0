"""Exercise 08.2: wrong solutions that students write; their sentences are in `levels_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import torch

from lockstep.exercises.lab08.levels_right import hierarchical_all_reduce


def across_first(inside, across, tensor):
    across.all_reduce(tensor)
    inside.all_reduce(tensor)


def whole_tensor_across(inside, across, tensor):
    inside.all_reduce(tensor)
    across.all_reduce(tensor)


def first_of_each_node(inside, across, tensor):
    inside.reduce(tensor, dst=0)
    if inside.rank == 0:
        across.all_reduce(tensor)
    inside.broadcast(tensor, src=0)


def sums_inside_twice(inside, across, tensor):
    inside.all_reduce(tensor)
    across.all_reduce(tensor)
    inside.all_reduce(tensor)


def chunk_of_its_own_tensor(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = tensor.tensor_split(inside.size)[inside.rank].clone()
    across.all_reduce(own)
    tensor.copy_(inside.all_gather(own, sizes))


def never_across(inside, across, tensor):
    inside.all_reduce(tensor)


def never_inside(inside, across, tensor):
    across.all_reduce(tensor)


def takes_means(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor, op="mean")
    across.all_reduce(own, op="mean")
    tensor.copy_(inside.all_gather(own, sizes))


def forgets_to_gather(inside, across, tensor):
    parts = tensor.tensor_split(inside.size)
    own = inside.reduce_scatter(tensor)
    across.all_reduce(own)
    parts[inside.rank].copy_(own)


def gathers_without_sizes(inside, across, tensor):
    own = inside.reduce_scatter(tensor)
    across.all_reduce(own)
    tensor.copy_(inside.all_gather(own))


def not_in_place(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor)
    across.all_reduce(own)
    tensor = inside.all_gather(own, sizes)
    return tensor


def whole_chunk_to_every_node(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor)
    own = across.all_gather(own).view(across.size, -1).sum(0)
    tensor.copy_(inside.all_gather(own, sizes))


def all_reduce_inside_and_gather(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    inside.all_reduce(tensor)
    own = tensor.tensor_split(inside.size)[inside.rank].clone()
    across.all_reduce(own)
    tensor.copy_(inside.all_gather(own, sizes))


def adds_the_next_node_only(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor)
    k, r = across.size, across.rank
    if k > 1:
        other = torch.empty_like(own)
        across.exchange([(own.clone(), (r + 1) % k)], [(other, (r - 1) % k)])
        own += other
    tensor.copy_(inside.all_gather(own, sizes))


def first_chunk_crosses_alone(inside, across, tensor):
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor)
    if inside.rank == 0:
        across.all_reduce(own)
    tensor.copy_(inside.all_gather(own, sizes))


def nothing_where_a_node_has_one(inside, across, tensor):
    if inside.size > 1:
        hierarchical_all_reduce(inside, across, tensor)


def lengths_of_chunk(inside, across, tensor):
    own = inside.reduce_scatter(tensor)
    across.all_reduce(own)
    tensor.copy_(inside.all_gather(own, [len(chunk) for chunk in tensor.chunk(inside.size)]))
