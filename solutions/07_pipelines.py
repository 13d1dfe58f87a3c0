# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 07 · Pipelines
#
# **Time:** 90 minutes, core exercises included; those marked *stretch* come on top.
#
# **You will be able to**
# - write a pipeline schedule as data, and have the same lists drawn, proved, simulated and executed;
# - say what a schedule costs: idle time, activations held, messages, and the age of the weights;
# - predict the timeline of two real stages on your machine, and lay the measurement on top;
# - invent a schedule of your own and hold it against the known ones.
#
# **You need:** labs 04 and 06. No GPU, no network.
#
# The picture shows a batch, cut into six parts, on its way through four ranks. A box is one part on one rank, with its
# number: forward plain, backward hatched. White is waiting. In this lab you write this schedule, and a shorter one.

# %% tags=["parameters"]
RANKS = 2  # real processes in sections 4 and 8, where the model is cut in two: leave it at 2
FAST = False  # True: fewer and smaller steps, for a quick pass
SEED = 0

# %% tags=["stable"]
import os
import time
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from lockstep import data, viz
from lockstep.exercises import (
    answer,
    ask,
    check,
    diagnose,
    hint,
    mine,
    predict,
    progress,
    recall,
    reveal,
    solution,
    submit,
    whose,
)
from lockstep.parallel import pipeline
from lockstep.parallel.pipeline import Action, Pipeline, Schedule
from lockstep.trace.units import show_seconds, show_share
from lockstep.world import RunError, launch, simulate

torch.set_num_threads(1)

# %%
viz.gantt(pipeline.one_f_one_b(4, 6), "A pipeline of four ranks, the library's schedule")

# %% [markdown]
# Before you start, three questions from earlier labs. `hint("07.1")` helps a little more each time you call it, and
# after three different attempts `solution("07.1")` shows an answer.

# %%
recall("07")

# %% [markdown]
# ## 1. Many small batches (14 min)
#
# Lab 06 cut a model into *stages*, one on each rank, and saw a staircase: while one rank works, the others wait. The
# cure is to cut the batch as well. A *micro-batch* is a part of the batch. As soon as rank 0 has done the first one,
# rank 1 can begin with it, and rank 0 goes on with the second.
#
# The weights stay as they are until all micro-batches have been through, both ways. Their gradients are added up, and
# then comes one step of the optimizer. So nothing changes but the order of the work, and the order can be written down
# before anything runs. That is a *schedule*: for each rank, the list of its actions.
#
# **The tool: an action.** `Action(kind, chunk, micro_batch)` has three fields and prints as a short text. A *chunk* is
# a part of the model, counted from the input; as long as each rank has one, chunk and stage are the same thing. The kind
# is "F" for forward or "B" for backward. `Schedule.of` takes lists of actions, or of their texts, and does not run
# them: `prove()` says whether they can be run, `simulate()` when each would start.

# %% tags=["stable"]
rows = [
    [Action("F", 0, 0), Action("B", 0, 0)],
    ["1F0", "1B0"],
]
one_micro_batch = Schedule.of(rows, "one micro-batch")
print(one_micro_batch)
print(one_micro_batch.prove())
print("makespan", one_micro_batch.simulate(forward=1, backward=2).makespan)
print(Schedule.of([["0F0", "0B0"], ["1B0", "1F0"]]).prove())

# %% [markdown]
# The *makespan* is the time from the first start to the last end. In the simulator F takes one unit of time and B two,
# about what they take in a CNN (lab 03), and messages take none unless you say so.
#
# Predict: four ranks, eight micro-batches. Once each micro-batch goes there and back before the next one starts. Once
# all go forward, one right behind the other, and then all come back. How many times as long does the first way take?

# %% tags=["predict"]
predict("07.p1", None)

# %% [markdown]
# ### Exercise 07.1 · `gpipe`
#
# GPipe is the second of those ways: all forwards, then all backwards. Return a list of lists: for each rank its actions
# in order, stage r on rank r. When a rank *starts* an action is not yours to say; it starts as soon as the rank is free
# and what it needs has arrived. You choose the order, and no rank should wait longer than it must.


# %% tags=["exercise", "07.1"]
def gpipe(stages, micro_batches):
    """Return for each rank the list of its actions."""
    rows = []
    for r in range(stages):
        ### BEGIN SOLUTION
        forward = [Action("F", r, i) for i in range(micro_batches)]
        backward = [Action("B", r, i) for i in reversed(range(micro_batches))]
        rows.append(forward + backward)
        ### END SOLUTION
        ### BEGIN STUB
        # raise NotImplementedError("all forwards of rank r, then all its backwards")
        ### END STUB
    return rows


# %% tags=["check", "07.1"]
check("07.1", gpipe)

# %% [markdown]
# The same lists, simulated and drawn. On the right is how much of the time each rank is idle, and how many micro-batches
# it holds at most: those that have been forward and are not yet back.


# %%
def schedule_of(rows, name):
    """What an exercise has returned, as a schedule with a name."""
    return rows if isinstance(rows, Schedule) else Schedule.of(rows, name)


my_gpipe = mine("07.1")
first = schedule_of(my_gpipe(4, 8), "GPipe")
viz.gantt(first, f"GPipe, {whose('07.1')} function")

# %%
alone = pipeline.naive(4, 8).simulate().makespan
together = first.simulate().makespan
print(f"one at a time {alone:g}, GPipe {together:g} units of time")
reveal("07.p1", alone / together)

# %% [markdown]
# Not four times: the ranks start one after the other, and come to their end one after the other.

# %% [markdown]
# ## 2. The bubble (6 min)
#
# The white is called the *bubble*. Call the stages p and the micro-batches m. In GPipe rank 0 works for m(F + B) and
# waits while a gradient is on its way from the end of the pipeline: (p - 1)(F + B). So the makespan is
# (m + p - 1)(F + B), and the idle share is (p - 1)/(m + p - 1). For any other list of actions there may be no formula,
# but there is a program.
#
# ### Exercise 07.2 · `bubble` (stretch)
#
# Return the idle share of any schedule: the time in which ranks are idle from 0 to the makespan, over all ranks
# together, divided by the time of all ranks together. `costs` says what each kind takes, such as {"F": 1, "B": 2}.
# Later in this lab backward comes in two halves: I, the gradient of the input, which the chunk before waits for as it
# would for B, and W, the gradient of the weights, which nobody else waits for.


# %% tags=["exercise", "07.2"]
def bubble(actions, costs):
    """Return the idle share of `actions`, a list of actions for each rank, when a kind takes `costs[kind]`."""
    ### BEGIN SOLUTION
    last = max(action.chunk for row in actions for action in row)
    ends = {}  # of what is over: I as "B", since the same actions wait for both
    free, at = [0] * len(actions), [0] * len(actions)
    for _ in range(sum(map(len, actions))):  # in every round at least one rank gets on
        for r, row in enumerate(actions):
            if at[r] == len(row):
                continue
            kind, c, i = row[at[r]].kind, row[at[r]].chunk, row[at[r]].micro_batch
            needs = []
            if kind == "F" and c > 0:
                needs = [("F", c - 1, i)]
            elif kind in "BI" and c < last:
                needs = [("B", c + 1, i)]
            if all(need in ends for need in needs):
                start = max([free[r], *(ends[need] for need in needs)])
                free[r] = start + costs[kind]
                ends["B" if kind == "I" else kind, c, i] = free[r]
                at[r] += 1
    busy = sum(costs[action.kind] for row in actions for action in row)
    return 1 - busy / (len(actions) * max(free))
    ### END SOLUTION
    ### BEGIN STUB
    # ends = {}  # when each action that is over has ended
    # raise NotImplementedError("play the lists through, then divide")
    ### END STUB


# %% tags=["check", "07.2"]
check("07.2", bubble)

# %% [markdown]
# More micro-batches make the bubble smaller, more stages make it larger. The table is by the function above, or by the
# library's if you left it out.

# %%
my_bubble = mine("07.2")
print(f"bubble of GPipe, by {whose('07.2')} function")
print("micro-batches" + "".join(f"{m:>8}" for m in (1, 4, 8, 16, 32)))
for p in (2, 4, 8):
    shares = [my_bubble(pipeline.gpipe(p, m).actions, {"F": 1, "B": 2}) for m in (1, 4, 8, 16, 32)]
    print(f"{p:6} stages" + "".join(f"{show_share(share):>8}" for share in shares))

# %% [markdown]
# Two things stand against very many micro-batches. Small ones use a GPU badly. And GPipe holds the activations of all
# of them: a micro-batch's inputs to every layer have to stay until its backward.

# %% [markdown]
# ## 3. One forward, one backward (24 min)
#
# The last rank could go back with micro-batch 0 as soon as it has it. If every rank goes back as soon as it can, it may
# forget early what it held.
#
# Predict: four ranks, eight micro-batches, backward as early as possible. GPipe's makespan divided by the new one is?

# %% tags=["predict"]
predict("07.p2", None)

# %% [markdown]
# ### Exercise 07.3 · `one_f_one_b`
#
# *1F1B*: a rank begins with some forwards, its *warm-up*, then does one forward and one backward in turn, and ends with
# the backwards that are left. The last rank needs no warm-up. The rank before it has time for one forward until the
# first gradient comes, and so on. Write it so that rank r of p never holds more than p - r micro-batches, in the time of
# GPipe. There may be fewer micro-batches than stages.


# %% tags=["exercise", "07.3"]
def one_f_one_b(stages, micro_batches):
    """Return for each rank the list of its actions."""
    rows = []
    for r in range(stages):
        ### BEGIN SOLUTION
        warm_up = min(micro_batches, stages - 1 - r)
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(micro_batches):
            if warm_up + i < micro_batches:
                row.append(Action("F", r, warm_up + i))
            row.append(Action("B", r, i))
        rows.append(row)
        ### END SOLUTION
        ### BEGIN STUB
        # warm_up = ...
        # raise NotImplementedError("warm-up, pairs of F and B, the backwards that are left")
        ### END STUB
    return rows


# %% tags=["check", "07.3"]
check("07.3", one_f_one_b)

# %% [markdown]
# Compare the two makespans, and the bars on the right.

# %%
my_1f1b = mine("07.3")
second = schedule_of(my_1f1b(4, 8), "1F1B")
both = {f"GPipe, {whose('07.1')}": first, f"1F1B, {whose('07.3')}": second}
viz.gantt(both, "Eight micro-batches on four ranks")

# %%
reveal("07.p2", first.simulate().makespan / second.simulate().makespan)

# %% [markdown]
# Going back earlier does not help the last micro-batch, which still has to go all the way there and all the way back.
# The bubble is the same, only in other places. What 1F1B saves is memory, and memory is what you can pay a smaller
# bubble with: more micro-batches.
#
# ### Exercise 07.4 · `in_flight`
#
# How much does any schedule hold? Return a list: for each rank the most micro-batches that it has *in flight* at a
# time. F makes it one more. It stays until its gradients are all done: until B, or, where backward is split into I and
# W, until W, since the gradient of the weights needs the layer's input. Where a rank has several chunks, each chunk's
# input counts.


# %% tags=["exercise", "07.4"]
def in_flight(actions):
    """Return for each rank the most that it holds at a time."""
    ### BEGIN SOLUTION
    peaks = []
    for row in actions:
        held = most = 0
        for action in row:
            if action.kind == "F":
                held += 1
            elif action.kind in "BW":
                held -= 1
            most = max(most, held)
        peaks.append(most)
    return peaks
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("for each rank, the most that it holds at a time")
    ### END STUB


# %% tags=["check", "07.4"]
check("07.4", in_flight)

# %% [markdown]
# The table counts with it: what rank 0 of four holds, and the bubble, as the micro-batches get more.

# %%
my_in_flight = mine("07.4")
print(f"in flight on rank 0 of 4, by {whose('07.4')} function")
print(f"{'micro-batches':>13} {'GPipe':>6} {'1F1B':>6} {'bubble of both':>15}")
for m in (4, 8, 16, 32, 64):
    held = [my_in_flight(make(4, m).actions)[0] for make in (pipeline.gpipe, pipeline.one_f_one_b)]
    print(f"{m:13} {held[0]:6} {held[1]:6} {show_share(3 / (m + 3)):>15}")

# %% [markdown]
# GPipe holds the whole batch, however finely it is cut. 1F1B holds at most p parts of it, and they get smaller: with 64
# micro-batches rank 0 holds a sixteenth of the batch.

# %% [markdown]
# ## 4. The same lists, executed (16 min)
#
# Between the actions there are messages: the activation goes to the next rank, the gradient to the one before. You have
# not written a single one down, since they follow from the actions: before F of stage 2 its input arrives from stage 1.
# But *how* they are sent matters. The program below walks through a rank's list in the simplest way: receive what the
# action needs, do it, send on what it gives.
#
# A send that waits for its receiver, as `comm.send` does, is called *blocking*. GPipe runs with it. And 1F1B?


# %%
def walk(comm, rows, fused):
    """Go through this rank's list; sends one by one, or what lies between two actions as one exchange."""
    outgoing = []
    for action in rows[comm.rank]:
        step = 1 if action.kind == "F" else -1
        source, target = comm.rank - step, comm.rank + step
        arriving = [(torch.empty(4), source)] if 0 <= source < comm.size else []
        if fused:
            comm.exchange(outgoing, arriving)
        elif arriving:
            comm.recv(*arriving[0])
        with comm.span(action.kind, micro_batch=action.micro_batch, cost=1 if action.kind == "F" else 2):
            pass
        outgoing = [(torch.ones(4), target)] if 0 <= target < comm.size else []
        if outgoing and not fused:
            comm.send(*outgoing[0])
    if fused:
        comm.exchange(outgoing, [])


small = schedule_of(my_1f1b(2, 4), "1F1B")
print(f"GPipe with blocking sends: {simulate(walk, 2, my_gpipe(2, 4), fused=False).seconds:g} s")
try:
    simulate(walk, 2, small.actions, fused=False)
except RunError as report:
    print(report)

# %% [markdown]
# Look at what both want at that moment: rank 0 to send the activation of micro-batch 1, rank 1 to send the gradient of
# micro-batch 0. Each would receive right after. Lab 04's cure works here, too: one `exchange` in which both start
# together. The prover knows all of this from the lists alone, without running them.

# %% tags=["stable"]
print(pipeline.one_f_one_b(2, 4).prove())
print()
print(pipeline.gpipe(2, 4).prove())

# %%
fused_run = simulate(walk, 2, small.actions, fused=True)
viz.timeline(fused_run, title=f"1F1B, {whose('07.3')} function, each gap one exchange")

# %% [markdown]
# The library's `Pipeline` takes a schedule that has been proved, and runs it: real layers, real messages, sent
# asynchronously. Two processes, two cores, each with half of a small CNN. To predict the timeline you need what your
# machine takes for F and B of each stage and for a message. The cell measures those first, on both ranks at the same
# time, and then some steps. It takes about ten seconds here.


# %% tags=["experiment"]
def halves():
    """A small CNN in two stages of about the same work."""
    torch.manual_seed(SEED)
    front = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
    back = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(24, 56, 3, padding=1), nn.ReLU(), nn.Conv2d(56, 56, 3, padding=1))
    return [front, nn.Sequential(*back, nn.ReLU(), nn.Flatten(), nn.Linear(56 * 256, 10))]


def stage_seconds(comm, stage, x, times):
    """Medians of forward and backward of one micro-batch, both ranks working."""
    taken = []
    for _ in range(times + 1):
        comm.barrier()
        begun = time.perf_counter()
        y = stage(x)
        turned = time.perf_counter()
        y.backward(torch.ones_like(y))
        taken.append((turned - begun, time.perf_counter() - turned))
    return [median(each) for each in zip(*taken[1:], strict=True)]


def message_seconds(comm, like, times):
    """Half a round trip of one activation."""
    taken = []
    for _ in range(times):
        comm.barrier()
        begun = time.perf_counter()
        for sender in range(RANKS):
            if comm.rank == sender:
                comm.send(like, 1 - sender)
            else:
                comm.recv(like, sender)
        taken.append((time.perf_counter() - begun) / 2)
    return median(taken)


def on_two_ranks(comm, schedule, images, labels, steps):
    stages = halves()
    size = len(images) // schedule.micro_batches
    between = stages[0](images[:size]).detach()
    x = images[:size] if comm.rank == 0 else between.clone().requires_grad_()
    costs = stage_seconds(comm, stages[comm.rank], x, steps)
    hop = message_seconds(comm, between, 2 * steps)
    pipe = Pipeline(stages, comm, schedule, F.cross_entropy)
    for _ in range(steps):
        comm.barrier()
        for parameter in pipe.parameters():
            parameter.grad = None
        pipe.step(images, labels)
    return *costs, hop


STEPS = 3 if FAST else 5
images = data.load("shapes32", verbose=False)
X, Y = images.images[: 16 if FAST else 64], images.labels[: 16 if FAST else 64]
two = schedule_of(my_1f1b(RANKS, 4 if FAST else 8), "1F1B")
measured = launch(on_two_ranks, RANKS, two, X, Y, STEPS, timeout=120)
forward, backward, (hop, _) = zip(*measured.values, strict=True)
for r in range(RANKS):
    print(f"stage {r}: F {show_seconds(forward[r])}, B {show_seconds(backward[r])}")
print(f"a message: {show_seconds(hop)}")

# %% [markdown]
# Predicted above, measured below, in each rank's row, on one axis. The prediction knows five numbers and your list.

# %%
foreseen = two.simulate(forward=forward, backward=backward, transfer=hop)
viz.predicted_and_measured(two, foreseen, measured, f"1F1B, {whose('07.3')} function, on two ranks")

# %% [markdown]
# Where the two rows of a rank differ, something happened that the model does not know: Python between the actions,
# other programs on your cores, memory that two cores share. The order is the same, since that is what a schedule fixes,
# and the waits are in the same places. If your machine is busy, run the two cells again.

# %% [markdown]
# ## 5. Round and round: several chunks a rank (8 min)
#
# The bubble is (p - 1) times F + B of one chunk. With smaller chunks it gets smaller. So cut the model into v p chunks
# and give each rank v of them, not neighbours, but every p-th: the model goes round the ranks v times.
#
# Predict: four ranks, eight micro-batches, two chunks a rank. The bubble goes from 27 % to 16 %. By what factor does
# the number of messages grow?

# %% tags=["predict"]
predict("07.p3", None)

# %% [markdown]
# ### Exercise 07.5 · `interleaved` (stretch)
#
# 1F1B with `chunks` chunks a rank: chunk c is on rank c % stages. The micro-batches come in *rounds* of as many as there
# are stages (they are a multiple of it): a rank takes the p of a round through its first chunk, then the same p through
# its second, and so on, then the next round. Backward goes in the same order, but through the chunks from the last to
# the first. As in 1F1B there is a warm-up, then pairs, then the rest. The bubble is (p - 1)(F + B) of one chunk, and
# rank r holds at most (v - 1)p + 2(p - 1 - r) + 1 chunk inputs.


# %% tags=["exercise", "07.5"]
def interleaved(stages, micro_batches, chunks):
    ### BEGIN SOLUTION
    p, m, v = stages, micro_batches, chunks
    order = [(j, i) for first in range(0, m, p) for j in range(v) for i in range(first, first + p)]
    rows = []
    for r in range(p):
        forward = [Action("F", j * p + r, i) for j, i in order]
        backward = [Action("B", (v - 1 - j) * p + r, i) for j, i in order]
        warm_up = min((v - 1) * p + 2 * (p - 1 - r), m * v)
        row = forward[:warm_up]
        for f, b in zip(forward[warm_up:], backward, strict=False):
            row += [f, b]
        rows.append(row + backward[m * v - warm_up :])
    return rows
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("a list of actions for each rank")
    ### END STUB


# %% tags=["check", "07.5"]
check("07.5", interleaved)

# %% [markdown]
# Eight ranks, simulated, and the same model for both: where a rank has two chunks, each costs half of what a stage
# costs, and holds half of what it holds.

# %%
my_rounds = mine("07.5")
WIDE = 8 if FAST else 16
eight = {
    f"1F1B, {whose('07.3')}": schedule_of(my_1f1b(8, WIDE), "1F1B"),
    f"interleaved, two chunks a rank, {whose('07.5')}": schedule_of(my_rounds(8, WIDE, 2), "interleaved"),
}
viz.gantt(eight, f"{WIDE} micro-batches on eight ranks")

# %%
flat, rounded = schedule_of(my_1f1b(4, 8), "1F1B"), schedule_of(my_rounds(4, 8, 2), "interleaved")
crossings = [len(each.simulate().transfers) for each in (flat, rounded)]
print(f"messages: 1F1B {crossings[0]}, interleaved {crossings[1]}")
reveal("07.p3", crossings[1] / crossings[0])

# %% [markdown]
# There are 3 cuts between four chunks, and 7 between eight. When messages are dear, the bubble that was saved goes into
# waiting for them. The next cell plays both with a message that costs a share of F.
#
# By the way: as long as messages take no time, a warm-up of (v - 1)p + p - 1 - r forwards gives the same makespan and
# holds less. The usual one, with 2(p - 1 - r), has micro-batches to spare while a message is on its way.

# %%
print(f"{'a message takes':>16} {'1F1B':>8} {'interleaved':>12}")
for share in (0, 0.1, 0.3, 1.0):
    # the unit is F of a stage; a chunk of two takes half of it
    ends = flat.simulate(1, 2, transfer=share).makespan, rounded.simulate(0.5, 1, transfer=share).makespan
    print(f"{share:16} {ends[0]:8.1f} {ends[1]:12.1f}")

# %% [markdown]
# Try for yourself: which schedule is shortest, and which holds least? The model is the same whatever you choose. Looped
# BFS is GPipe with several chunks a rank; zero-bubble is that of section 7. The last two have two chunks a rank, placed
# there and back like a V, so that rank 0 has the first and the last; DualPipeV does a forward and a backward at once.

# %%
MAKERS = {
    f"1F1B, {whose('07.3')}": lambda p, m: schedule_of(my_1f1b(p, m), "1F1B"),
    f"GPipe, {whose('07.1')}": lambda p, m: schedule_of(my_gpipe(p, m), "GPipe"),
    "one at a time": pipeline.naive,
    "interleaved, 2 chunks": lambda p, m: pipeline.interleaved(p, m, 2),
    "interleaved, 4 chunks": lambda p, m: pipeline.interleaved(p, m, 4),
    "looped BFS, 2 chunks": lambda p, m: pipeline.looped_bfs(p, m, 2),
    "zero-bubble (ZB-H1)": pipeline.zero_bubble,
    "zero-bubble, V (ZB-V)": pipeline.zbv,
    "DualPipeV": pipeline.dualpipev,
}
four = {"interleaved, four chunks a rank, the library's": MAKERS["interleaved, 4 chunks"](4, 8)}
viz.gantt(four, "Eight micro-batches go round four ranks")

# %% tags=["widget"]
viz.pipeline_explorer(MAKERS, stages=4, micro_batches=8)

# %% [markdown]
# ## 6. Never stop: PipeDream (14 min)
#
# All schedules so far *flush*: before the weights change, the pipeline runs empty, and that is the bubble. PipeDream
# does not. It runs 1F1B for ever and lets each rank update its weights right after every backward, with that
# micro-batch's gradient. No bubble, but a new trouble: while micro-batch 5 is on its way, updates happen.
#
# Call *version* v of a stage its weights after v updates. The lists, with U for an update:

# %% tags=["stable"]
print(pipeline.pipedream(3, 5))

# %% [markdown]
# Follow micro-batch 3 on rank 0: its forward stands behind U0, its backward behind U2. If backward used the weights as
# they are then, it would give the gradient of no function at all: the activations were made by other weights.
# *Weight stashing* keeps the version that the forward used until the backward is done. So the gradient is right, but it
# belongs to old weights: that is the staleness of lab 05, in another place.
#
# On another rank the same micro-batch meets another version. With *vertical sync* it meets the same on all: every rank
# uses the version that rank 0 used, and keeps it as long.
#
# Predict: four stages, no vertical sync. How many updates lie between the weights that micro-batch 20 meets on rank 0
# and those that its gradient is added to?

# %% tags=["predict"]
predict("07.p4", None)

# %% [markdown]
# ### Exercise 07.6 · `stashed_version`
#
# Return two versions: the one that forward of `micro_batch` uses on `rank`, and the one that its backward uses, with
# weight stashing. Everything is counted from 0; `vertical_sync` is True or False. Training begins with version 0.


# %% tags=["exercise", "07.6"]
def stashed_version(micro_batch, rank, stages, vertical_sync):
    """Return a pair: the version of the weights in forward, and the one in backward."""
    ### BEGIN SOLUTION
    behind = stages - 1 if vertical_sync else stages - 1 - rank
    version = max(0, micro_batch - behind)
    return version, version
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("the versions that forward and backward use")
    ### END STUB


# %% tags=["check", "07.6"]
check("07.6", stashed_version)

# %% [markdown]
# Now train. Four stages on four simulated ranks, one update for each micro-batch of 32 digits, against the same net on
# one rank, where every gradient is fresh. Same start, same order of images, at a high learning rate and at a third of
# it. The pipeline logs which version each micro-batch met. It takes some seconds.


# %% tags=["experiment"]
def four_stages():
    torch.manual_seed(SEED)
    middle = [nn.Sequential(nn.Linear(48, 48), nn.Tanh()) for _ in range(2)]
    return [nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.Tanh()), *middle, nn.Linear(48, 10)]


def trains(comm, schedule, rate, images, labels, epochs):
    stages = four_stages() if schedule.chunks == 4 else [nn.Sequential(*four_stages())]
    pipe = Pipeline(stages, comm, schedule, F.cross_entropy, optimizer=lambda p: torch.optim.SGD(p, rate))
    generator, losses = torch.Generator().manual_seed(SEED), []
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=generator)
        pipe.step(images[order], labels[order])
        losses += [loss.item() for loss in pipe.losses]
    return losses, pipe.versions


UPDATES, EPOCHS = (24, 1) if FAST else (40, 3)
small_digits = data.load("digits", verbose=False)
XD, YD = small_digits.images[: 32 * UPDATES], small_digits.labels[: 32 * UPDATES]
runs = {
    (p, rate): simulate(trains, p, pipeline.pipedream(p, UPDATES), rate, XD, YD, EPOCHS, timeout=120)
    for rate in ((0.3,) if FAST else (0.3, 0.1))
    for p in (1, 4)
}

# %%
log = runs[4, 0.3].values[0][1]  # of rank 0, in its last epoch
use = next(line for line in log if line.micro_batch == 20)
print(f"micro-batch 20 on rank 0: {use.updated - use.forward} updates old; {use.held} versions kept")
my_version = mine("07.6")
base = log[0].forward
agree = [my_version(line.micro_batch, 0, 4, False) == (line.forward - base, line.backward - base) for line in log]
print(f"{whose('07.6')} function agrees with the log for {sum(map(bool, agree))} of {len(agree)} micro-batches")
reveal("07.p4", use.updated - use.forward)

# %% [markdown]
# The figure shows the loss, as the mean of eight updates each.

# %%
by_eight = {}
for (p, rate), run in runs.items():
    losses = run.values[-1][0]
    means = [sum(losses[at : at + 8]) / 8 for at in range(0, len(losses), 8)]
    line = "one rank: fresh" if p == 1 else "PipeDream on four ranks: stale"
    by_eight.setdefault(f"loss at learning rate {rate}", {})[line] = means
viz.curves(by_eight, "Staleness in the loss (simulated)", along="updates, in eights")

# %% [markdown]
# At the high rate the stale run falls behind and jumps: by the time a gradient arrives on rank 0, three more steps have
# been taken, away from where it was worked out. With smaller steps old weights are nearer to new ones, and staleness
# costs little. Flushing schedules have nothing of this: their gradients are those of one process but for rounding. That
# is one reason why large models are usually trained with a flush and a small bubble.

# %% [markdown]
# ## 7. Your own (3 min)
#
# A backward does two things. I is the gradient of the *input*, which the rank before is waiting for. W is the gradient
# of the *weights*, for which nobody waits. So W can be put off until there would be nothing else to do.
#
# ### Exercise 07.7 · `design` (stretch)
#
# Invent a schedule that is shorter than 1F1B. One stage a rank; backward may be B, or an I and a W, anywhere after it.
# With F = I = W = 1 and B = 2 its makespan has to be below 1F1B's for any p of at least 2, and no rank may have more
# than p micro-batches in flight, counted until W.


# %% tags=["exercise", "07.7"]
def design(stages, micro_batches):
    ### BEGIN SOLUTION
    rows = []
    for r in range(stages):
        warm_up = min(micro_batches, stages - 1 - r)
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(micro_batches):
            if warm_up + i < micro_batches:
                row.append(Action("F", r, warm_up + i))
            row.append(Action("I", r, i))
            if i >= r:
                row.append(Action("W", r, i - r))
        first = max(0, micro_batches - r)
        rows.append(row + [Action("W", r, i) for i in range(first, micro_batches)])
    return rows
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("a schedule of your own")
    ### END STUB


# %% tags=["check", "07.7"]
check("07.7", design)

# %% [markdown]
# The score: your schedule beside the known ones. No schedule of four ranks can end before 3m + p - 1, since the last
# rank cannot begin before p - 1.

# %%
my_design = mine("07.7")
own = schedule_of(my_design(4, 8), "design")
table = {
    "one at a time": pipeline.naive(4, 8),
    "GPipe": pipeline.gpipe(4, 8),
    "1F1B": pipeline.one_f_one_b(4, 8),
    "zero-bubble (ZB-H1)": pipeline.zero_bubble(4, 8),
    f"design, {whose('07.7')}": own,
}
print(f"{'4 ranks, 8 micro-batches':26} {'makespan':>9} {'bubble':>8}   in flight by rank")
for name, each in table.items():
    timing = each.simulate()
    mean = sum(timing.bubble) / len(timing.bubble)
    print(f"{name:26} {timing.makespan:9g} {show_share(mean):>8}   {', '.join(map(str, timing.in_flight))}")
least, theirs, yours = 3 * 8 + 4 - 1, second.simulate().makespan, own.simulate().makespan
print(f"score: {(theirs - yours) / (theirs - least):.0%} of what can be won over 1F1B")

# %%
viz.gantt({"1F1B, the library's": table["1F1B"], f"design, {whose('07.7')}": own}, f"1F1B, and {whose('07.7')} design")

# %% [markdown]
# ## 8. The same gradients, and the real thing (3 min)
#
# A pipeline may change the time, never the result. Two places need care. The *loss* is a mean over samples, and
# backward adds up: the loss of each micro-batch has to be scaled by its share of the batch.
#
# ### Exercise 07.8 · `micro_batch_gradients` (stretch)
#
# Cut the batch into `micro_batches` parts, as `tensor_split` does, and run forward and backward of one after the other,
# so that what is added to the gradients is that of `loss(model(inputs), targets)`. The parts may be of unequal size,
# and `loss` is a mean over its samples.


# %% tags=["exercise", "07.8"]
def micro_batch_gradients(model, loss, inputs, targets, micro_batches):
    ### BEGIN SOLUTION
    parts = zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True)
    for x, y in parts:
        share = len(x) / len(inputs)
        (share * loss(model(x), y)).backward()
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("forward and backward of each micro-batch, its loss scaled")
    ### END STUB


# %% tags=["check", "07.8"]
check("07.8", micro_batch_gradients)

# %% [markdown]
# The other place is *batch norm*: it sees one micro-batch at a time, so it normalises by other statistics than with the
# whole batch, and moves its running statistics once for each micro-batch. The first cannot be helped without talking.
# The second can: `DeferredBatchNorm2d` collects, and moves them once a step.

# %% tags=["stable"]
torch.manual_seed(0)
batch = torch.randn(16, 2, 4, 4) * torch.linspace(0.5, 2, 16).view(-1, 1, 1, 1)
for layer in (nn.BatchNorm2d(2), pipeline.DeferredBatchNorm2d(2)):
    whole = nn.BatchNorm2d(2)
    expected, outputs = whole(batch), torch.cat([layer(part) for part in batch.tensor_split(4)])
    if isinstance(layer, pipeline.DeferredBatchNorm2d):
        layer.commit()
    apart, moved = (outputs - expected).abs().max().item(), (layer.running_var - whole.running_var).abs().max().item()
    print(f"{type(layer).__name__:20} outputs differ by {apart:.2f}, running variance by {moved:.4f}")

# %% [markdown]
# Now the same net, the same two ranks and the same batch with `torch.distributed.pipelining`, step by step in turn with
# ours. It takes about ten seconds here.


# %% tags=["experiment"]
def in_turn(comm, schedules, images, labels, steps):
    from torch.distributed import pipelining

    found = {}
    for name, schedule in schedules.items():
        ours, theirs = halves(), halves()
        pipe = Pipeline(ours, comm, schedule, F.cross_entropy)
        stage = pipelining.PipelineStage(theirs[comm.rank], comm.rank, comm.size, torch.device("cpu"))
        real = getattr(pipelining, name)(stage, schedule.micro_batches, loss_fn=F.cross_entropy)
        given = {"ours": (pipe.step, (images, labels), {})}
        given["torch"] = (real.step, (images,), {}) if comm.rank == 0 else (real.step, (), {"target": labels})
        taken = {"ours": [], "torch": []}
        for _ in range(steps + 1):  # the first step of each finds out shapes
            for whom, (step, args, keywords) in given.items():
                for parameter in (ours if whom == "ours" else theirs)[comm.rank].parameters():
                    parameter.grad = None
                dist.barrier()
                begun = time.perf_counter()
                step(*args, **keywords)
                dist.barrier()
                taken[whom].append(time.perf_counter() - begun)
        pairs = zip(ours[comm.rank].parameters(), theirs[comm.rank].parameters(), strict=True)
        apart = max((a.grad - b.grad).abs().max().item() for a, b in pairs)
        found[name] = {whom: median(times[1:]) for whom, times in taken.items()}, apart
    return found


m = two.micro_batches
schedules = {"ScheduleGPipe": schedule_of(my_gpipe(RANKS, m), "GPipe"), "Schedule1F1B": two}
beside = launch(in_turn, RANKS, schedules, X, Y, STEPS, timeout=120)
print(f"median of {STEPS} steps, {len(X)} images in {m} micro-batches, two ranks")
for name in schedules:
    seconds, apart = beside.values[0][name][0], max(value[name][1] for value in beside.values)
    print(f"{name:14} ours {show_seconds(seconds['ours']):>8}, torch {show_seconds(seconds['torch']):>8}, ", end="")
    print(f"gradients differ by at most {apart:.1g}")
net = nn.Sequential(*halves())
for threads in sorted({1, os.cpu_count() or 1}):
    torch.set_num_threads(threads)
    begun = time.perf_counter()
    for _ in range(STEPS):
        F.cross_entropy(net(X), Y).backward()
    word = "thread" if threads == 1 else "threads"
    print(f"one process, {threads} {word}, whole batch: {show_seconds((time.perf_counter() - begun) / STEPS)} a step")
torch.set_num_threads(1)

# %% [markdown]
# The same lists in the same order take about as long here as there, and give the same gradients. Hold the step against
# one process with as many threads as you have cores: on one machine a pipeline is no gain in speed. It is for models
# that do not fit into one GPU.

# %% [markdown]
# ## 9. On real hardware, and what you know now (2 min)
#
# On GPUs the messages go through NCCL, from one GPU's memory to the other's. NCCL does not tell messages apart by a
# number, as gloo does, and carries out what two ranks send each other one after the other. So a pipeline either fuses
# opposite messages, as `walk` did, or gives every message one place in an order that all ranks share. `Pipeline` does
# the latter on its own wherever ranks have GPUs (`ordered=True` asks for it). Stages lie on GPUs that are neighbours,
# and between nodes if it must be: an activation of one micro-batch is small beside a model's gradients. This is a whole
# program; `model.py` has your stages and batches:
#
# ```
# import torch
# import torch.distributed as dist
# from lockstep.comm import from_torch
# from lockstep.parallel.pipeline import Pipeline, one_f_one_b
# from model import batches, loss, stages
#
# dist.init_process_group()
# comm = from_torch()
# pipe = Pipeline([stage.to(comm.device) for stage in stages], comm, one_f_one_b(comm.size, 16), loss)
# optimizer = torch.optim.SGD(pipe.parameters(), 0.1)
# for images, labels in batches:
#     optimizer.zero_grad()
#     pipe.step(images.to(comm.device), labels.to(comm.device))
#     optimizer.step()
# ```
#
# ```
# torchrun --nproc-per-node=4 program.py
# torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=HOST:29400 program.py
# ```
#
# **Summary**
# - A schedule is data: one list of actions a rank. The same lists are drawn, proved, simulated and executed.
# - The bubble of GPipe and of 1F1B is (p - 1)/(m + p - 1). 1F1B does not shorten it; it holds p - r in place of m.
# - Smaller chunks shrink the bubble and cost messages; splitting backward shrinks it for nothing but thought.
# - Without a flush there is no bubble, and the weights are stale. Stashing keeps the gradient that of a function.
# - Sends that wait turn 1F1B into a deadlock; one exchange for what goes both ways repairs it.
#
# Questions. Choose, say how sure you are, and read why.

# %%
ask("07.q1")

# %%
ask("07.q2")

# %%
ask("07.q3")

# %%
ask("07.q4")

# %%
ask("07.q5")

# %% [markdown]
# And a riddle: the run of a wrong function of this lab, or now and then of a right one. Run the cell again for
# another.

# %%
diagnose("07")

# %% [markdown]
# What you have done so far; `submit("07")` makes the file to hand in, if somebody asked you for it.

# %%
progress("07")

# %% [markdown]
# **References**
# - Y. Huang et al. (2019), "GPipe: Efficient training of giant neural networks using pipeline parallelism", NeurIPS.
# - D. Narayanan et al. (2019), "PipeDream: Generalized pipeline parallelism for DNN training", SOSP: weight stashing,
#   vertical sync.
# - S. Fan et al. (2021), "DAPPLE: A pipelined data parallel approach for training large models", PPoPP: 1F1B with a
#   flush.
# - D. Narayanan et al. (2021), "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC:
#   interleaved 1F1B.
# - P. Qi, X. Wan, G. Huang, M. Lin (2023), "Zero bubble pipeline parallelism", arXiv 2401.10241: backward in two halves.
# - DeepSeek-AI (2024), "DeepSeek-V3 technical report", section 3.2.1: DualPipe.
# - PyTorch documentation, `torch.distributed.pipelining` (2024).
