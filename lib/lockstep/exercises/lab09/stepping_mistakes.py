"""The sentence that each fault of exercise 09.3 gets.

Floor 4, room `exercises`; the exercise is in `stepping.py`, the wrong functions in `stepping_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab09 import stepping_wrong as wrong
from lockstep.exercises.symptoms import matches, says

MISTAKES = (
    Mistake(
        "gradient summed",
        wrong.adds_up,
        "You add up the ranks' gradients. Each comes from a mean loss, so the gradient of the whole batch is their mean: with "
        "N ranks your steps are N times as long.",
    ),
    Mistake(
        "clipping by local norm",
        wrong.local_norm,
        "Each rank clips by the norm of its own shard, so shards are scaled by different factors, and the direction of the "
        "step changes. Add up the *squares* of all shards, over the ranks, and take the root of that.",
    ),
    Mistake(
        "clips before the mean",
        wrong.clips_before_the_mean,
        "You clip each rank's gradient before they are averaged. Asked is the norm of the mean: gradients that point in "
        "different directions cancel, and the mean may need no clipping at all.",
    ),
    Mistake(
        "norm of the sum",
        wrong.norm_of_the_sum,
        "The norm by which you clip is that of the ranks' *sum*: as many times too long as there are ranks. Divide first, then "
        "take the norm of the mean.",
    ),
    Mistake(
        "adds up norms",
        wrong.adds_up_norms,
        "You add up the shards' norms. Squares add up, norms do not: sum the squares over the ranks, then take the root.",
    ),
    Mistake(
        "forgets the root",
        wrong.forgets_the_root,
        "What you clip by is the sum of the squares. The norm is its square root.",
    ),
    Mistake(
        "compares the square",
        wrong.squares_for_the_limit,
        "You compare the sum of the squares with `max_norm`, and gradients that are short enough get scaled. Take the root "
        "first; it is the norm that has the limit.",
    ),
    Mistake(
        "mean of the squares",
        wrong.mean_of_the_squares,
        "You average the ranks' sums of squares. Each belongs to another part of the gradient, so they add up: an all-reduce "
        "with the sum, not the mean.",
    ),
    Mistake(
        "ignores max_norm",
        wrong.clips_at_one,
        "You clip at 1, whatever `max_norm` is.",
    ),
    Mistake(
        "zeros for infinite numbers",
        wrong.zero_for_infinite,
        "You put zeros where the gradient is infinite, and step with the rest. If any number is infinite or NaN, nobody steps.",
        symptom=wrong.goes_on_with_zeros,
    ),
    Mistake(
        "steps with zeros",
        wrong.steps_with_zeros,
        "You give the optimizer zeros instead of leaving the step out. It has a memory: with momentum, or Adam, parameters "
        "move even so. Do not call `step()`.",
    ),
    Mistake(
        "looks for infinite numbers alone",
        wrong.infinite_alone,
        "You leave a step out when a number is infinite, and take it when one is NaN. `isfinite()` is false for both.",
        symptom=wrong.misses_a_nan,
    ),
    Mistake(
        "gathers all gradients",
        wrong.gathers_gradients,
        "You gather all shards of the gradient for their norm. A single number from each rank is enough: its sum of squares.",
    ),
    Mistake(
        "steps by hand",
        wrong.steps_by_hand,
        "You change the shard yourself, and the optimizer has done nothing: its momentum is lost. Put the gradient into "
        "`shard.grad` and call `optimizer.step()`.",
    ),
    Mistake(
        "the shard's gradient stays",
        wrong.keeps_the_shards_gradient,
        "`shard.grad` is still there. Set it to None too, also where no step is taken: the next step brings its own.",
    ),
    Mistake(
        "scales small gradients up",
        wrong.scales_up_too,
        "You scale to `max_norm` in any case. Clipping only makes long gradients shorter: the factor is at most 1.",
    ),
    Mistake(
        "does not clip",
        wrong.does_not_clip,
        "The gradient is not clipped: where the norm of the whole mean is above `max_norm`, all shards are scaled by "
        "`max_norm / norm`.",
    ),
    Mistake(
        "padding leaks into the norm",
        wrong.padding_counts,
        "The padding of the gradient is not zero. It counts in the norm, and so all real gradients are scaled too far down: "
        "pad with zeros.",
    ),
    Mistake(
        "overflow checked by one rank alone",
        wrong.looks_at_its_own_shard,
        "Each rank looks for infinite numbers in what it has itself. After the reduce-scatter an overflow is in *one* rank's "
        "shard: that rank does not step, the others do, and the parameters no longer belong together. Decide by a number "
        "that all ranks have in common.",
        symptom=wrong.disagrees,
    ),
    Mistake(
        "the rank with the overflow leaves",
        wrong.looks_at_its_own_gradient,
        "The rank that has an infinite gradient returns early, and the others wait for it in the next collective. Nobody may "
        "leave before all have agreed.",
        symptom=wrong.left_early,
    ),
    Mistake(
        "steps whatever the numbers are",
        wrong.steps_anyway,
        "There is an infinite number in the gradient, and you step all the same. One such step makes parameters NaN, for "
        "good: leave it out, on every rank.",
    ),
    Mistake(
        "optimizer state per parameter instead of shard",
        wrong.state_for_whole_parameters,
        "Your optimizer steps whole parameters, so it keeps state for all of them on every rank. That is the redundancy which "
        "stage 1 is to remove: step `shard` alone.",
    ),
    Mistake(
        "all-reduce, then cut",
        wrong.reduces_everywhere,
        "You bring the whole mean to every rank and keep a shard of it. A reduce-scatter gives each rank its shard for half of "
        "the bytes; with the all-gather of the parameters that makes one all-reduce in all.",
    ),
    Mistake(
        "a collective for each parameter",
        wrong.a_collective_for_each,
        "You reduce each parameter to everybody, one after the other. That is an all-reduce and more: one reduce-scatter of "
        "the flat gradient does it, for half of the bytes and one latency.",
    ),
    Mistake(
        "new parameters stay at home",
        wrong.gathers_nothing,
        "Each rank has stepped its own shard, and `parameters` do not know of it: after the step, gather the shards, and copy "
        "every piece to its parameter.",
    ),
    Mistake(
        "gradients not freed",
        wrong.keeps_gradients,
        "The gradients are still there. Set every `.grad` to None when it has been reduced, also where no step is taken: "
        "until the next backward nobody needs it, and it takes as much as the parameters.",
    ),
    Mistake(
        "shard boundary splits wrongly",
        wrong.forgets_the_padding,
        "The flat gradient is shorter than all shards together, so it is cut elsewhere than the parameters were. Pad it with "
        "zeros to `shard.numel() * comm.size` first.",
        symptom=matches("different size|same size|has size|sizes|shape"),
    ),
    Mistake(
        "writes under the eyes of autograd",
        wrong.writes_under_the_eyes_of_autograd,
        "Autograd watches parameters, and refuses to have one changed in place. Write past it: `p.data.copy_(...)`, or "
        "under `torch.no_grad()`.",
        symptom=says("leaf Variable"),
    ),
    Mistake(
        "returns nothing",
        wrong.returns_nothing,
        "Return whether the step was taken: True or False, the same on every rank. A loss scaler has to know.",
    ),
)
