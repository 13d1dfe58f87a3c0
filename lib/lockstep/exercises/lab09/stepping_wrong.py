"""Wrong functions for exercise 09.3, and by what some of them show.

Floor 4, room `exercises`; the exercise is in `stepping.py`, what they are told in `stepping_mistakes.py`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch.nn import functional as F

from lockstep.exercises.exercise import Case
from lockstep.exercises.lab09.stepping_right import zero1_step
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import is_deadlock


def flat_gradient(parameters, length=0, filler=0.0):
    """All gradients end to end, filled up to `length`."""
    flat = torch.cat([p.grad.flatten() for p in parameters])
    return F.pad(flat, (0, max(0, length - len(flat))), value=filler)


def reduced(comm, parameters, shard, op="mean", filler=0.0):
    return comm.reduce_scatter(flat_gradient(parameters, shard.numel() * comm.size, filler), op=op)


def agreed_norm(comm, shard):
    return comm.all_reduce(shard.grad.square().sum()).sqrt()


def is_finite(shard, norm):
    return bool(norm.isfinite())


def at_most_one(max_norm, norm):
    return (max_norm / (norm + 1e-6)).clamp(max=1)


def lets_go(comm, parameters, shard):
    for p in (*parameters, shard):
        p.grad = None


def bring_home(comm, parameters, shard):
    parts = comm.all_gather(shard)[: sum(p.numel() for p in parameters)].split([p.numel() for p in parameters])
    for p, part in zip(parameters, parts, strict=True):
        p.data.copy_(part.view_as(p))
    lets_go(comm, parameters, shard)


def take(
    comm, parameters, shard, optimizer, max_norm, *,
    reduce=reduced, norm=agreed_norm, takes=is_finite, factor=at_most_one, ends=bring_home,
):  # fmt: skip
    """The right step, in which one thing can be another."""
    shard.grad = reduce(comm, parameters, shard)
    length = norm(comm, shard)
    taken = takes(shard, length)
    if taken:
        shard.grad *= factor(max_norm, length)
        optimizer.step()
    ends(comm, parameters, shard)
    return taken


def take_of_the_whole(comm, parameters, shard, optimizer, max_norm, mean):
    """A step where every rank has the whole mean, flat and padded, and cuts it."""
    return take(
        comm, parameters, shard, optimizer, max_norm,
        reduce=lambda *_: mean.chunk(comm.size)[comm.rank].clone(), norm=lambda *_: mean.norm(),
    )  # fmt: skip


def adds_up(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, reduce=partial(reduced, op="sum"))


def padding_counts(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, reduce=partial(reduced, filler=1.0))


def local_norm(comm, parameters, shard, optimizer, max_norm):
    def own_norm(comm, shard):
        comm.all_reduce(shard.grad.square().sum())  # of no use here: so that the ranks make the same calls
        return shard.grad.norm()

    return take(comm, parameters, shard, optimizer, max_norm, norm=own_norm)


def clips_before_the_mean(comm, parameters, shard, optimizer, max_norm):
    norm = flat_gradient(parameters).norm()
    for p in parameters:
        p.grad *= at_most_one(max_norm, norm)
    return take(comm, parameters, shard, optimizer, 1e30)


def norm_of_the_sum(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, norm=lambda c, s: c.size * agreed_norm(c, s))


def adds_up_norms(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, norm=lambda c, s: c.all_reduce(s.grad.norm()))


def forgets_the_root(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, norm=lambda c, s: c.all_reduce(s.grad.square().sum()))


def scales_up_too(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, factor=lambda most, norm: most / norm)


def does_not_clip(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, 1e30)


def looks_at_its_own_shard(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, takes=lambda shard, _: bool(shard.grad.isfinite().all()))


def looks_at_its_own_gradient(comm, parameters, shard, optimizer, max_norm):
    if not all(p.grad.isfinite().all() for p in parameters):
        return False
    return zero1_step(comm, parameters, shard, optimizer, max_norm)


def steps_anyway(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, takes=lambda *_: True)


def state_for_whole_parameters(comm, parameters, shard, optimizer, max_norm):
    mean = comm.all_reduce(flat_gradient(parameters), op="mean")
    norm = mean.norm()
    if norm.isfinite():
        mean *= at_most_one(max_norm, norm)
        for p, part in zip(parameters, mean.split([p.numel() for p in parameters]), strict=True):
            p.grad = part.view_as(p)
        optimizer.param_groups[0]["params"] = list(parameters)
        optimizer.step()
    for p in parameters:
        p.grad = None
    return bool(norm.isfinite())


def reduces_everywhere(comm, parameters, shard, optimizer, max_norm):
    mean = comm.all_reduce(flat_gradient(parameters, shard.numel() * comm.size), op="mean")
    return take_of_the_whole(comm, parameters, shard, optimizer, max_norm, mean)


def gathers_nothing(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, ends=lets_go)


def keeps_gradients(comm, parameters, shard, optimizer, max_norm):
    gradients = [p.grad for p in parameters]
    finite = zero1_step(comm, parameters, shard, optimizer, max_norm)
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = gradient
    return finite


def forgets_the_padding(comm, parameters, shard, optimizer, max_norm):
    def unpadded(comm, parameters, shard):
        return comm.reduce_scatter(flat_gradient(parameters), op="mean")

    return take(comm, parameters, shard, optimizer, max_norm, reduce=unpadded)


def a_collective_for_each(comm, parameters, shard, optimizer, max_norm):
    """Reduces every parameter to everybody, and cuts then."""
    for p in parameters:
        comm.all_reduce(p.grad, op="mean")
    mean = flat_gradient(parameters, shard.numel() * comm.size)
    return take_of_the_whole(comm, parameters, shard, optimizer, max_norm, mean)


def writes_under_the_eyes_of_autograd(comm, parameters, shard, optimizer, max_norm):
    zero1_step(comm, parameters, shard, optimizer, max_norm)
    for p in parameters:
        p.copy_(p.detach().clone())


def returns_nothing(comm, parameters, shard, optimizer, max_norm):
    zero1_step(comm, parameters, shard, optimizer, max_norm)


def squares_for_the_limit(comm, parameters, shard, optimizer, max_norm):
    def squares(comm, shard):
        return comm.all_reduce(shard.grad.square().sum())

    def factor(most, squares):
        return most / squares.sqrt() if squares > most else 1

    return take(comm, parameters, shard, optimizer, max_norm, norm=squares, factor=factor)


def mean_of_the_squares(comm, parameters, shard, optimizer, max_norm):
    def norm(comm, shard):
        return comm.all_reduce(shard.grad.square().sum(), op="mean").sqrt()

    return take(comm, parameters, shard, optimizer, max_norm, norm=norm)


def clips_at_one(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, 1.0)


def zero_for_infinite(comm, parameters, shard, optimizer, max_norm):
    def cleaned(comm, parameters, shard):
        return reduced(comm, parameters, shard).nan_to_num(0, 0, 0)

    return take(comm, parameters, shard, optimizer, max_norm, reduce=cleaned)


def steps_with_zeros(comm, parameters, shard, optimizer, max_norm):
    def zeros_or_not(shard, norm):
        if not norm.isfinite():
            shard.grad.zero_()
            optimizer.step()
        return bool(norm.isfinite())

    return take(comm, parameters, shard, optimizer, max_norm, takes=zeros_or_not)


def infinite_alone(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, takes=lambda _, norm: not norm.isinf())


def gathers_gradients(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, norm=lambda c, s: c.all_gather(s.grad).norm())


def steps_by_hand(comm, parameters, shard, optimizer, max_norm):
    class ByHand:
        def step(self):
            shard.data -= optimizer.param_groups[0]["lr"] * shard.grad

    return take(comm, parameters, shard, ByHand(), max_norm)


def keeps_the_shards_gradient(comm, parameters, shard, optimizer, max_norm):
    taken = zero1_step(comm, parameters, shard, optimizer, max_norm)
    shard.grad = torch.zeros_like(shard)
    return taken


def goes_on_with_zeros(case: Case, seen: Observation, expected: Observation) -> bool:
    """Takes every step, and has nothing infinite afterwards."""
    if not with_an_overflow(case) or seen.error is not None:
        return False
    after = [p for one in seen.value for step in one["after"] for p in step]
    return all(all(one["said"]) for one in seen.value) and all(bool(p.isfinite().all()) for p in after)


def misses_a_nan(case: Case, seen: Observation, expected: Observation) -> bool:
    """Leaves the infinite step out, and takes the one with NaN."""
    if not with_an_overflow(case) or seen.error is not None:
        return False
    return all([bool(said) for said in one["said"]] == [True, False, True] for one in seen.value)


def with_an_overflow(case: Case) -> bool:
    return "overflow" in case.name


def disagrees(case: Case, seen: Observation, expected: Observation) -> bool:
    """Who saw the overflow left, or answers otherwise than the others."""
    if not with_an_overflow(case):
        return False
    if seen.error is not None:
        return seen.error.type in ("Deadlock", "CommunicationError")
    return len({str(one["said"]) for one in seen.value}) > 1


def left_early(case: Case, seen: Observation, expected: Observation) -> bool:
    return with_an_overflow(case) and is_deadlock(case, seen, expected)
