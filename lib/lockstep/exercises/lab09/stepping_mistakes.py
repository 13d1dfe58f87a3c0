"""What goes wrong in exercise 09.3, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `stepping.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab09.stepping_right import zero1_step
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import is_deadlock, matches, says


def flat_gradient(parameters, length, filler=0.0):
    flat = torch.cat([p.grad.flatten() for p in parameters])
    return F.pad(flat, (0, length - len(flat)), value=filler)


def bring_home(comm, parameters, shard):
    whole, start = comm.all_gather(shard), 0
    for p in parameters:
        p.data.copy_(whole[start : start + p.numel()].view_as(p))
        start += p.numel()
        p.grad = None
    shard.grad = None


def agreed_norm(comm, shard):
    return comm.all_reduce(shard.grad.square().sum()).sqrt()


def take(comm, parameters, shard, optimizer, max_norm, op="mean", filler=0.0, norm=agreed_norm):
    """The right step, in which one thing can be another."""
    shard.grad = comm.reduce_scatter(flat_gradient(parameters, shard.numel() * comm.size, filler), op=op)
    length = norm(comm, shard)
    finite = bool(length.isfinite())
    if finite:
        shard.grad *= (max_norm / (length + 1e-6)).clamp(max=1)
        optimizer.step()
    bring_home(comm, parameters, shard)
    return finite


def adds_up(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, op="sum")


def padding_counts(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, filler=1.0)


def local_norm(comm, parameters, shard, optimizer, max_norm):
    def own_norm(comm, shard):
        comm.all_reduce(shard.grad.square().sum())  # of no use here: so that the ranks make the same calls
        return shard.grad.norm()

    return take(comm, parameters, shard, optimizer, max_norm, norm=own_norm)


def clips_before_the_mean(comm, parameters, shard, optimizer, max_norm):
    norm = torch.cat([p.grad.flatten() for p in parameters]).norm()
    for p in parameters:
        p.grad *= (max_norm / (norm + 1e-6)).clamp(max=1)
    return take(comm, parameters, shard, optimizer, 1e30)


def norm_of_the_sum(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, norm=lambda c, s: c.size * agreed_norm(c, s))


def adds_up_norms(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, norm=lambda c, s: c.all_reduce(s.grad.norm()))


def forgets_the_root(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, max_norm, norm=lambda c, s: c.all_reduce(s.grad.square().sum()))


def scales_up_too(comm, parameters, shard, optimizer, max_norm):
    shard.grad = comm.reduce_scatter(flat_gradient(parameters, shard.numel() * comm.size), op="mean")
    norm = agreed_norm(comm, shard)
    finite = bool(norm.isfinite())
    if finite:
        shard.grad *= max_norm / norm
        optimizer.step()
    bring_home(comm, parameters, shard)
    return finite


def does_not_clip(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, 1e30)


def looks_at_its_own_shard(comm, parameters, shard, optimizer, max_norm):
    shard.grad = comm.reduce_scatter(flat_gradient(parameters, shard.numel() * comm.size), op="mean")
    norm = agreed_norm(comm, shard)
    finite = bool(shard.grad.isfinite().all())
    if finite:
        shard.grad *= (max_norm / (norm + 1e-6)).clamp(max=1)
        optimizer.step()
    bring_home(comm, parameters, shard)
    return finite


def looks_at_its_own_gradient(comm, parameters, shard, optimizer, max_norm):
    if not all(p.grad.isfinite().all() for p in parameters):
        return False
    return zero1_step(comm, parameters, shard, optimizer, max_norm)


def steps_anyway(comm, parameters, shard, optimizer, max_norm):
    shard.grad = comm.reduce_scatter(flat_gradient(parameters, shard.numel() * comm.size), op="mean")
    shard.grad *= (max_norm / (agreed_norm(comm, shard) + 1e-6)).clamp(max=1)
    optimizer.step()
    bring_home(comm, parameters, shard)
    return True


def state_for_whole_parameters(comm, parameters, shard, optimizer, max_norm):
    mean = comm.all_reduce(torch.cat([p.grad.flatten() for p in parameters]), op="mean")
    norm = mean.norm()
    if norm.isfinite():
        mean *= (max_norm / (norm + 1e-6)).clamp(max=1)
        start = 0
        for p in parameters:
            p.grad = mean[start : start + p.numel()].view_as(p)
            start += p.numel()
        optimizer.param_groups[0]["params"] = list(parameters)
        optimizer.step()
    for p in parameters:
        p.grad = None
    return bool(norm.isfinite())


def reduces_everywhere(comm, parameters, shard, optimizer, max_norm):
    mean = comm.all_reduce(flat_gradient(parameters, shard.numel() * comm.size), op="mean")
    shard.grad = mean.chunk(comm.size)[comm.rank].clone()
    finite = bool(mean.isfinite().all())
    if finite:
        shard.grad *= (max_norm / (mean.norm() + 1e-6)).clamp(max=1)
        optimizer.step()
    bring_home(comm, parameters, shard)
    return finite


def gathers_nothing(comm, parameters, shard, optimizer, max_norm):
    shard.grad = comm.reduce_scatter(flat_gradient(parameters, shard.numel() * comm.size), op="mean")
    norm = agreed_norm(comm, shard)
    if norm.isfinite():
        shard.grad *= (max_norm / (norm + 1e-6)).clamp(max=1)
        optimizer.step()
    for p in (*parameters, shard):
        p.grad = None
    return bool(norm.isfinite())


def keeps_gradients(comm, parameters, shard, optimizer, max_norm):
    gradients = [p.grad for p in parameters]
    finite = zero1_step(comm, parameters, shard, optimizer, max_norm)
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = gradient
    return finite


def forgets_the_padding(comm, parameters, shard, optimizer, max_norm):
    shard.grad = comm.reduce_scatter(torch.cat([p.grad.flatten() for p in parameters]), op="mean")
    norm = agreed_norm(comm, shard)
    if norm.isfinite():
        shard.grad *= (max_norm / (norm + 1e-6)).clamp(max=1)
        optimizer.step()
    bring_home(comm, parameters, shard)
    return bool(norm.isfinite())


def a_collective_for_each(comm, parameters, shard, optimizer, max_norm):
    """Reduces every parameter to everybody, and cuts then."""
    for p in parameters:
        comm.all_reduce(p.grad, op="mean")
    flat = flat_gradient(parameters, shard.numel() * comm.size)
    shard.grad = flat.chunk(comm.size)[comm.rank].clone()
    finite = bool(flat.isfinite().all())
    if finite:
        shard.grad *= (max_norm / (flat.norm() + 1e-6)).clamp(max=1)
        optimizer.step()
    bring_home(comm, parameters, shard)
    return finite


def writes_under_the_eyes_of_autograd(comm, parameters, shard, optimizer, max_norm):
    zero1_step(comm, parameters, shard, optimizer, max_norm)
    for p in parameters:
        p.copy_(p.detach().clone())


def returns_nothing(comm, parameters, shard, optimizer, max_norm):
    zero1_step(comm, parameters, shard, optimizer, max_norm)


def squares_for_the_limit(comm, parameters, shard, optimizer, max_norm):
    shard.grad = comm.reduce_scatter(flat_gradient(parameters, shard.numel() * comm.size), op="mean")
    squares = comm.all_reduce(shard.grad.square().sum())
    finite = bool(squares.isfinite())
    if finite:
        if squares > max_norm:
            shard.grad *= max_norm / squares.sqrt()
        optimizer.step()
    bring_home(comm, parameters, shard)
    return finite


def mean_of_the_squares(comm, parameters, shard, optimizer, max_norm):
    def norm(comm, shard):
        return comm.all_reduce(shard.grad.square().sum(), op="mean").sqrt()

    return take(comm, parameters, shard, optimizer, max_norm, norm=norm)


def clips_at_one(comm, parameters, shard, optimizer, max_norm):
    return take(comm, parameters, shard, optimizer, 1.0)


def zero_for_infinite(comm, parameters, shard, optimizer, max_norm):
    shard.grad = comm.reduce_scatter(flat_gradient(parameters, shard.numel() * comm.size), op="mean")
    shard.grad = shard.grad.nan_to_num(0, 0, 0)
    shard.grad *= (max_norm / (agreed_norm(comm, shard) + 1e-6)).clamp(max=1)
    optimizer.step()
    bring_home(comm, parameters, shard)
    return True


def steps_with_zeros(comm, parameters, shard, optimizer, max_norm):
    shard.grad = comm.reduce_scatter(flat_gradient(parameters, shard.numel() * comm.size), op="mean")
    norm = agreed_norm(comm, shard)
    finite = bool(norm.isfinite())
    shard.grad = shard.grad * (max_norm / (norm + 1e-6)).clamp(max=1) if finite else torch.zeros_like(shard)
    optimizer.step()
    bring_home(comm, parameters, shard)
    return finite


def infinite_alone(comm, parameters, shard, optimizer, max_norm):
    shard.grad = comm.reduce_scatter(flat_gradient(parameters, shard.numel() * comm.size), op="mean")
    norm = agreed_norm(comm, shard)
    finite = not norm.isinf()
    if finite:
        shard.grad *= (max_norm / (norm + 1e-6)).clamp(max=1)
        optimizer.step()
    bring_home(comm, parameters, shard)
    return finite


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


MISTAKES = (
    Mistake(
        "gradient summed",
        adds_up,
        "You add up the ranks' gradients. Each comes from a mean loss, so the gradient of the whole batch is their mean: with "
        "N ranks your steps are N times as long.",
    ),
    Mistake(
        "clipping by local norm",
        local_norm,
        "Each rank clips by the norm of its own shard, so shards are scaled by different factors, and the direction of the "
        "step changes. Add up the *squares* of all shards, over the ranks, and take the root of that.",
    ),
    Mistake(
        "clips before the mean",
        clips_before_the_mean,
        "You clip each rank's gradient before they are averaged. Asked is the norm of the mean: gradients that point in "
        "different directions cancel, and the mean may need no clipping at all.",
    ),
    Mistake(
        "norm of the sum",
        norm_of_the_sum,
        "The norm by which you clip is that of the ranks' *sum*: as many times too long as there are ranks. Divide first, then "
        "take the norm of the mean.",
    ),
    Mistake(
        "adds up norms",
        adds_up_norms,
        "You add up the shards' norms. Squares add up, norms do not: sum the squares over the ranks, then take the root.",
    ),
    Mistake(
        "forgets the root",
        forgets_the_root,
        "What you clip by is the sum of the squares. The norm is its square root.",
    ),
    Mistake(
        "compares the square",
        squares_for_the_limit,
        "You compare the sum of the squares with `max_norm`, and gradients that are short enough get scaled. Take the root "
        "first; it is the norm that has the limit.",
    ),
    Mistake(
        "mean of the squares",
        mean_of_the_squares,
        "You average the ranks' sums of squares. Each belongs to another part of the gradient, so they add up: an all-reduce "
        "with the sum, not the mean.",
    ),
    Mistake(
        "ignores max_norm",
        clips_at_one,
        "You clip at 1, whatever `max_norm` is.",
    ),
    Mistake(
        "zeros for infinite numbers",
        zero_for_infinite,
        "You put zeros where the gradient is infinite, and step with the rest. If any number is infinite or NaN, nobody steps.",
        symptom=goes_on_with_zeros,
    ),
    Mistake(
        "steps with zeros",
        steps_with_zeros,
        "You give the optimizer zeros instead of leaving the step out. It has a memory: with momentum, or Adam, parameters "
        "move even so. Do not call `step()`.",
    ),
    Mistake(
        "looks for infinite numbers alone",
        infinite_alone,
        "You leave a step out when a number is infinite, and take it when one is NaN. `isfinite()` is false for both.",
        symptom=misses_a_nan,
    ),
    Mistake(
        "gathers all gradients",
        gathers_gradients,
        "You gather all shards of the gradient for their norm. A single number from each rank is enough: its sum of squares.",
    ),
    Mistake(
        "steps by hand",
        steps_by_hand,
        "You change the shard yourself, and the optimizer has done nothing: its momentum is lost. Put the gradient into "
        "`shard.grad` and call `optimizer.step()`.",
    ),
    Mistake(
        "the shard's gradient stays",
        keeps_the_shards_gradient,
        "`shard.grad` is still there. Set it to None too, also where no step is taken: the next step brings its own.",
    ),
    Mistake(
        "scales small gradients up",
        scales_up_too,
        "You scale to `max_norm` in any case. Clipping only makes long gradients shorter: the factor is at most 1.",
    ),
    Mistake(
        "does not clip",
        does_not_clip,
        "The gradient is not clipped: where the norm of the whole mean is above `max_norm`, all shards are scaled by "
        "`max_norm / norm`.",
    ),
    Mistake(
        "padding leaks into the norm",
        padding_counts,
        "The padding of the gradient is not zero. It counts in the norm, and so all real gradients are scaled too far down: "
        "pad with zeros.",
    ),
    Mistake(
        "overflow checked by one rank alone",
        looks_at_its_own_shard,
        "Each rank looks for infinite numbers in what it has itself. After the reduce-scatter an overflow is in *one* rank's "
        "shard: that rank does not step, the others do, and the parameters no longer belong together. Decide by a number "
        "that all ranks have in common.",
        symptom=disagrees,
    ),
    Mistake(
        "the rank with the overflow leaves",
        looks_at_its_own_gradient,
        "The rank that has an infinite gradient returns early, and the others wait for it in the next collective. Nobody may "
        "leave before all have agreed.",
        symptom=left_early,
    ),
    Mistake(
        "steps whatever the numbers are",
        steps_anyway,
        "There is an infinite number in the gradient, and you step all the same. One such step makes parameters NaN, for "
        "good: leave it out, on every rank.",
    ),
    Mistake(
        "optimizer state per parameter instead of shard",
        state_for_whole_parameters,
        "Your optimizer steps whole parameters, so it keeps state for all of them on every rank. That is the redundancy which "
        "stage 1 is to remove: step `shard` alone.",
    ),
    Mistake(
        "all-reduce, then cut",
        reduces_everywhere,
        "You bring the whole mean to every rank and keep a shard of it. A reduce-scatter gives each rank its shard for half of "
        "the bytes; with the all-gather of the parameters that makes one all-reduce in all.",
    ),
    Mistake(
        "a collective for each parameter",
        a_collective_for_each,
        "You reduce each parameter to everybody, one after the other. That is an all-reduce and more: one reduce-scatter of "
        "the flat gradient does it, for half of the bytes and one latency.",
    ),
    Mistake(
        "new parameters stay at home",
        gathers_nothing,
        "Each rank has stepped its own shard, and `parameters` do not know of it: after the step, gather the shards, and copy "
        "every piece to its parameter.",
    ),
    Mistake(
        "gradients not freed",
        keeps_gradients,
        "The gradients are still there. Set every `.grad` to None when it has been reduced, also where no step is taken: "
        "until the next backward nobody needs it, and it takes as much as the parameters.",
    ),
    Mistake(
        "shard boundary splits wrongly",
        forgets_the_padding,
        "The flat gradient is shorter than all shards together, so it is cut elsewhere than the parameters were. Pad it with "
        "zeros to `shard.numel() * comm.size` first.",
        symptom=matches("different size|same size|has size|sizes|shape"),
    ),
    Mistake(
        "writes under the eyes of autograd",
        writes_under_the_eyes_of_autograd,
        "Autograd watches parameters, and refuses to have one changed in place. Write past it: `p.data.copy_(...)`, or "
        "under `torch.no_grad()`.",
        symptom=says("leaf Variable"),
    ),
    Mistake(
        "returns nothing",
        returns_nothing,
        "Return whether the step was taken: True or False, the same on every rank. A loss scaler has to know.",
    ),
)
