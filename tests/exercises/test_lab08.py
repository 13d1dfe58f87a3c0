"""Lab 08: right answers in other clothes pass, what students get wrong is named, and references agree with the library."""

import numpy as np
import pytest
import torch
from newcomer_08 import FOUND, RIGHT, WRONG
from proof import behaviour, verdict_on
from torch import nn
from torch.nn import functional as F

from lockstep.comm import Mesh, MeshShape, bytes_by_link
from lockstep.comm.collectives import hierarchical_all_reduce
from lockstep.exercises import find
from lockstep.exercises.lab08 import EXERCISES, QUESTIONS
from lockstep.exercises.lab08.placing_judge import between
from lockstep.hardware import cluster
from lockstep.parallel import Hybrid
from lockstep.parallel.pipeline import one_f_one_b
from lockstep.world import simulate


def test_the_cores_come_first_and_the_cases_grow():
    assert [one.id for one in EXERCISES if one.core] == ["08.1", "08.2", "08.3"]
    for exercise in EXERCISES:
        ranks = [case.ranks for case in exercise.draw(7) if case.ranks]
        assert ranks == sorted(ranks), exercise.id
        assert find(exercise.id) is exercise


def test_right_answers_stand_in_different_places():
    right = [next(letter for letter, o in q.letters.items() if o.right) for q in QUESTIONS]
    assert len(QUESTIONS) == 4 and len(set(right)) >= 3


def named(found):
    """An id for each, by its place and name."""
    return [f"{id}-{i}-{fn.__name__}" for i, (id, fn, *_) in enumerate(found)]


@pytest.mark.parametrize("exercise_id, fn, words", FOUND, ids=named(FOUND))
def test_what_a_newcomer_wrote_is_told_why(exercise_id, fn, words):
    outcome = verdict_on(find(exercise_id), fn)
    assert not outcome.passed
    told = f"{outcome.seen} {outcome.cause}"
    for word in words:
        assert (word.removeprefix("-") in told) is not word.startswith("-"), outcome.text


@pytest.mark.parametrize("exercise_id, fn", RIGHT, ids=named(RIGHT))
def test_what_a_newcomer_wrote_is_right(exercise_id, fn):
    outcome = verdict_on(find(exercise_id), fn)
    assert outcome.passed, outcome.text


@pytest.mark.parametrize("fn", WRONG)
def test_a_mesh_for_some_sizes_fails(fn):
    # By the error alone: looking for a cause runs every known mistake again.
    assert any(seen.error is not None for seen in behaviour(find("08.1"), fn, 0))


def mesh_with_unravel_index(comm, axes):
    place = np.unravel_index(comm.rank, tuple(axes.values()))
    coordinates = {name: at for name, at in zip(axes, place, strict=True)}  # numpy integers
    groups = {}
    for name in sorted(axes):  # any order will do, as long as it is the same on all ranks
        fixed = [int(at) for other, at in coordinates.items() if other != name]
        groups[name] = comm.split(int("1" + "".join(f"{at:02}" for at in fixed)), int(coordinates[name]))
    return coordinates, groups


def levels_by_messages(inside, across, tensor):
    """Point to point inside the node, so that only the all-reduce across is a collective."""
    m, r = inside.size, inside.rank
    chunks = list(tensor.tensor_split(m))
    others = [rank for rank in range(m) if rank != r]
    parts = [torch.empty_like(chunks[r]) for _ in others]
    inside.exchange([(chunks[o].clone(), o) for o in others], [(p, o) for p, o in zip(parts, others, strict=True)])
    for part in parts:
        chunks[r] += part
    own = chunks[r].clone()
    across.all_reduce(own)
    chunks[r].copy_(own)
    inside.exchange([(own, o) for o in others], [(chunks[o], o) for o in others])
    return tensor


def links_in_integers(axes, per_node, gradients, activations, boundary):
    shape, sums = MeshShape(axes), [0, 0]
    for a in range(shape.ranks):
        for name in axes:
            group = shape.group(a, name)
            i, k = group.index(a), len(group)
            if name == "pipeline":
                pairs = [(group[j], boundary) for j in (i - 1, i + 1) if 0 <= j < k]
            else:
                pairs = [(group[(i + 1) % k], 2 * (k - 1) * (gradients if name == "data" else activations) / k)]
            for b, size in pairs:
                sums[a // per_node != b // per_node] += size
    return {"within": sums[0], "between": sums[1]}


@pytest.mark.parametrize(
    "exercise_id, fn",
    [("08.1", mesh_with_unravel_index), ("08.2", levels_by_messages), ("08.5", links_in_integers)],
)
def test_right_answers_in_other_clothes_pass(exercise_id, fn):
    outcome = verdict_on(find(exercise_id), fn)
    assert outcome.passed, outcome.text


def torch_style_groups(comm, axes):
    """As with `new_group`: a list of ranks for each group, and only members go on."""
    shape, coordinates, groups = list(axes.values()), {}, {}
    grid = np.arange(comm.size).reshape(shape)
    for i, name in enumerate(axes):
        coordinates[name] = int(np.argwhere(grid == comm.rank)[0][i])
        for line in np.moveaxis(grid, i, -1).reshape(-1, shape[i]):
            if comm.rank in line:
                groups[name] = comm.split(7, comm.rank)
    return coordinates, groups


def reversed_division(comm, axes):
    coordinates, rest, groups = {}, comm.rank, {}
    for name, size in axes.items():
        coordinates[name] = rest % size
        rest //= size
    for name in axes:
        others = tuple(at for other, at in coordinates.items() if other != name)
        groups[name] = comm.split(abs(hash(others)) % 10_000, coordinates[name])
    return coordinates, groups


def sums_everything_first(inside, across, tensor):
    across.all_reduce(tensor)
    own = inside.reduce_scatter(tensor)
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    tensor.copy_(inside.all_gather(own, sizes))


def leaders_by_messages(inside, across, tensor):
    inside.reduce(tensor)
    if inside.rank == 0:
        across.all_reduce(tensor)
    inside.broadcast(tensor)


def trick_with_two_gathers(comm, x, weight, bias, images):
    first = sum(images[: comm.rank])
    everything = comm.all_gather(x.detach(), images)
    y = F.linear(everything, weight, bias)
    columns = list(comm.all_gather(y.detach().T.contiguous()).T.chunk(comm.size, dim=1))
    columns[comm.rank] = y
    return torch.cat(columns, dim=1)[first : first + images[comm.rank]]


def greedy(axes, sent, per_node):
    return tuple(sorted(axes, key=sent.get))


def one_way_pipeline(axes, per_node, gradients, activations, boundary):
    shape, found = MeshShape(axes), {"within": 0, "between": 0}
    for a in range(shape.ranks):
        for name, k in axes.items():
            here = shape.coordinates(a)
            if name == "pipeline" and here[name] + 1 == k:
                continue
            b = shape.rank(here | {name: (here[name] + 1) % k})
            ring = 2 * (k - 1) / k * {"data": gradients, "tensor": activations}.get(name, 0)
            found["within" if a // per_node == b // per_node else "between"] += boundary if name == "pipeline" else ring
    return found


@pytest.mark.parametrize(
    "exercise_id, fn, words",
    [
        ("08.1", torch_style_groups, "says who belongs"),
        ("08.1", reversed_division, "transposed"),
        ("08.2", sums_everything_first, "across the nodes first"),
        ("08.2", leaders_by_messages, "links between nodes are idle"),
        ("08.3", trick_with_two_gathers, "has no history"),
        ("08.4", greedy, "longer than a node"),
        ("08.5", one_way_pipeline, "has a gradient that comes back"),
    ],
)
def test_what_a_newcomer_writes_gets_its_cause(exercise_id, fn, words):
    outcome = verdict_on(find(exercise_id), fn)
    assert not outcome.passed
    assert any(word in outcome.cause for word in words.split("|")), outcome.text


def mesh_of_the_library(comm, axes):
    folded = Mesh(comm, axes)
    return folded.coordinates, {name: folded[name] for name in axes}


def test_the_librarys_mesh_is_no_answer():
    # It passed where a function had no source to look at: calling a class is no call that a profiler sees.
    outcome = verdict_on(find("08.1"), mesh_of_the_library)
    assert not outcome.passed and "Mesh" in outcome.text


def test_two_levels_agree_with_the_library():
    def program(comm):
        levels = Mesh(comm, {"node": 2, "gpu": 3})
        mine = torch.arange(17.0) * (comm.rank + 1)
        theirs = mine.clone()
        find("08.2").reference(levels["gpu"], levels["node"], mine)
        before = comm.traffic.bytes_sent
        hierarchical_all_reduce(comm, theirs, 3)
        return mine, theirs, before, comm.traffic.bytes_sent - before

    for mine, theirs, sent, library in simulate(program, 6).values:
        assert torch.equal(mine, theirs) and sent == library


def test_orders_are_as_good_as_trying_all():
    # The judge's own count against the reference's, which is written without MeshShape.
    axes, sent = {"data": 4, "pipeline": 2, "tensor": 3}, {"data": 5, "pipeline": 7, "tensor": 3}
    best = find("08.4").reference(axes, sent, 6)
    assert between(best, axes, sent, 6) == min(
        between(order, axes, sent, 6) for order in (("data", "pipeline", "tensor"), ("data", "tensor", "pipeline"),
        ("tensor", "data", "pipeline"), ("pipeline", "tensor", "data"), ("tensor", "pipeline", "data"))
    )  # fmt: skip


def hybrid_step(comm, axes):
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(2)]
    hybrid = Hybrid(stages, Mesh(comm, axes), nn.MSELoss(), one_f_one_b(2, 2))
    x = torch.ones(6, 8)
    hybrid.step(x, x)
    comm.barrier()
    with comm.span("step"):
        hybrid.step(x, x)
    return sum(p.nbytes for p in hybrid.parameters())


def test_bytes_by_link_are_those_of_a_hybrid_run():
    axes, on = {"data": 2, "pipeline": 2, "tensor": 2}, cluster("2xA100")
    run = simulate(hybrid_step, 8, axes)
    begun = min(span.start for span in run.trace.spans if span.name == "step")
    measured = bytes_by_link([one for one in run.trace.messages if one.sent >= begun], on)
    activation = 6 * 8 * 4
    counted = find("08.5").reference(axes, 2, run.values[0], 2 * activation, activation)
    for link, size in counted.items():
        assert size <= measured[link] <= size + 300, (link, measured, counted)  # losses, counts of samples
