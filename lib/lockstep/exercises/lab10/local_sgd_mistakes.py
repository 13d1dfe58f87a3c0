"""What goes wrong in exercise 10.8, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `local_sgd.py`.
"""

from __future__ import annotations

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches


def averages(comm, parameters, op="mean"):
    for p in parameters:
        comm.all_reduce(p.data, op=op)


def trained(comm, parameters, step, steps, *, due, average=averages, at_the_end=False, first=0):
    """Steps, each followed by an average where it is due; once more at the end, where that is asked."""
    for i in range(first, steps):
        step(i)
        if due(i):
            average(comm, parameters)
    if at_the_end:
        average(comm, parameters)


def due_after(steps, every):
    """Where the right function averages."""
    return lambda i: (i + 1) % every == 0 or i + 1 == steps


def counts_from_zero(comm, parameters, step, steps, every):
    trained(comm, parameters, step, steps, due=lambda i: i % every == 0 or i + 1 == steps)


def never_after_the_last(comm, parameters, step, steps, every):
    trained(comm, parameters, step, steps, due=lambda i: (i + 1) % every == 0)


def once_more_at_the_end(comm, parameters, step, steps, every):
    trained(comm, parameters, step, steps, due=lambda i: (i + 1) % every == 0, at_the_end=True)


def every_step(comm, parameters, step, steps, every):
    trained(comm, parameters, step, steps, due=lambda i: True)


def at_the_end_alone(comm, parameters, step, steps, every):
    trained(comm, parameters, step, steps, due=lambda i: i + 1 == steps)


def one_step_late(comm, parameters, step, steps, every):
    trained(comm, parameters, step, steps, due=lambda i: i and i % every == 0 or i + 1 == steps)


def before_the_step(comm, parameters, step, steps, every):
    for i in range(steps):
        if (i + 1) % every == 0 or i + 1 == steps:
            averages(comm, parameters)
        step(i)


def before_the_first_step(comm, parameters, step, steps, every):
    for i in range(steps):
        if i % every == 0:
            averages(comm, parameters)
        step(i)
    averages(comm, parameters)


def adds_up(comm, parameters, step, steps, every):
    trained(comm, parameters, step, steps, due=due_after(steps, every), average=lambda c, p: averages(c, p, "sum"))


def copies_rank_0(comm, parameters, step, steps, every):
    def broadcast(comm, parameters):
        for p in parameters:
            comm.broadcast(p.data)

    trained(comm, parameters, step, steps, due=due_after(steps, every), average=broadcast)


def averages_gradients(comm, parameters, step, steps, every):
    def of_gradients(comm, parameters):
        for p in parameters:
            comm.all_reduce(p.grad, op="mean")

    trained(comm, parameters, step, steps, due=due_after(steps, every), average=of_gradients)


def first_parameter_alone(comm, parameters, step, steps, every):
    trained(comm, parameters, step, steps, due=due_after(steps, every), average=lambda c, p: averages(c, p[:1]))


def mean_of_a_copy(comm, parameters, step, steps, every):
    def of_copies(comm, parameters):
        for p in parameters:
            p = comm.all_reduce(p.data.clone(), op="mean")

    trained(comm, parameters, step, steps, due=due_after(steps, every), average=of_copies)


def skips_the_first(comm, parameters, step, steps, every):
    trained(comm, parameters, step, steps, due=due_after(steps, every), first=1)


def counts_steps_from_one(comm, parameters, step, steps, every):
    trained(comm, parameters, lambda i: step(i + 1), steps, due=due_after(steps, every))


def in_place_on_a_leaf(comm, parameters, step, steps, every):
    def copy(comm, parameters):
        for p in parameters:
            p.copy_(comm.all_reduce(p.data.clone(), op="mean"))

    trained(comm, parameters, step, steps, due=due_after(steps, every), average=copy)


def never_averaged(case: Case, seen: Observation, expected: Observation) -> bool:
    """Steps are right, and no average is ever seen."""
    if seen.error is not None or case.ranks == 1:
        return False
    apart = [[*one["found"], one["left"]] for one in seen.value]
    met = any(alike(one, other) for one, other in zip(apart[0][1:], apart[1][1:], strict=False))
    return len(apart[0]) > 1 and not met and sum(one["sent"] for one in seen.value) > 0


def gradients_met(case: Case, seen: Observation, expected: Observation) -> bool:
    """The gradients of the last step are the same on all ranks."""
    return never_averaged(case, seen, expected) and alike(seen.value[0]["gradient"], seen.value[1]["gradient"])


MISTAKES = (
    Mistake(
        "counts from zero",
        counts_from_zero,
        "You average after the first step: `i % every == 0` is true for i = 0. After step i, `i + 1` steps have been taken.",
    ),
    Mistake(
        "one step late",
        one_step_late,
        "You average a step too late: after step i, `i + 1` steps have been taken.",
    ),
    Mistake(
        "never after the last step",
        never_after_the_last,
        "Where `every` does not divide the steps, the last ones are never averaged, and each rank ends with a model of its own.",
    ),
    Mistake(
        "once more at the end",
        once_more_at_the_end,
        "Where `every` divides the steps you average twice at the end. The second time sends everything for nothing.",
    ),
    Mistake(
        "averages every step",
        every_step,
        "You average after every step. That is what local SGD saves: average every `every` steps.",
    ),
    Mistake(
        "averages at the end alone",
        at_the_end_alone,
        "You average once, at the end. By then the ranks have walked far apart: average every `every` steps.",
    ),
    Mistake(
        "averages before the step",
        before_the_step,
        "You average before the step instead of after it, so that the step just taken is not in the mean.",
    ),
    Mistake(
        "once more before the first step",
        before_the_first_step,
        "You average before the first step as well. All ranks begin with the same parameters, so that sends them for nothing.",
    ),
    Mistake(
        "sum for mean",
        adds_up,
        "You add the parameters up. Asked is their mean: `op='mean'`.",
    ),
    Mistake(
        "rank 0's parameters for all",
        copies_rank_0,
        "Everyone gets the parameters of rank 0: what the other ranks have learned is thrown away. Average.",
    ),
    Mistake(
        "averages gradients",
        averages_gradients,
        "You average the gradients. The steps have been taken by then, and nobody uses them any more: average the parameters.",
        symptom=gradients_met,
    ),
    Mistake(
        "one parameter alone",
        first_parameter_alone,
        "You average the first parameter alone. All of them have to be.",
    ),
    Mistake(
        "mean of a copy",
        mean_of_a_copy,
        "The mean never reaches the model: it is in a copy, or in a new tensor. Write it into the parameters themselves: "
        "`p.data.copy_(mean)`.",
        symptom=never_averaged,
    ),
    Mistake(
        "skips the first step",
        skips_the_first,
        "You leave out step 0.",
    ),
    Mistake(
        "counts steps from one",
        counts_steps_from_one,
        "Your steps are numbered from 1. `step(i)` takes 0 to `steps - 1`.",
    ),
    Mistake(
        "in place on a leaf",
        in_place_on_a_leaf,
        "You write into a parameter while autograd watches. Work on `p.data`, or inside `torch.no_grad()`.",
        symptom=matches("leaf Variable that requires grad"),
    ),
)
