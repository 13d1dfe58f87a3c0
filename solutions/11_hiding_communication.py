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
# # Lab 11 · Hiding communication
#
# **Time:** 60 minutes, core exercises included. Sections and exercises marked *stretch* come on top: nothing needs
# them later.
#
# **You will be able to**
# - find the chain of events that a run had to wait for, and say of everything else how much later it might have been;
# - choose a bucket size from a recorded step, and say why neither the smallest nor the largest is best;
# - write double buffering with asynchronous handles, without a buffer that is used too early;
# - say what hiding can bring at most, and what it cannot.
#
# **You need:** lab 05 (buckets, hooks, overlap); lab 07 or 09 for section 6, which is stretch.

# %% tags=["parameters"]
RANKS = 2  # real processes in sections 2 and 7, each with one thread
FAST = False  # True: fewer repetitions, for a quick pass
SEED = 0

# %% [markdown]
# The picture shows one and the same training step three times, on two simulated ranks joined by a slow link. Above,
# each gradient travels by itself when backward is over. In the middle they travel together, in one bucket. Below they
# travel in several buckets while backward still computes. Two rows are rank 0's. The narrow row says what the step
# had to wait for at each moment, on whichever rank. By the end of section 2 you will have made this picture yourself,
# and predicted its numbers.

# %% tags=["stable"]
import statistics
import time
from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F

from lockstep import data, viz
from lockstep.comm import predict_seconds
from lockstep.cost import LayerCost
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
from lockstep.hardware import Cluster, Link
from lockstep.parallel import (
    DistributedDataParallel,
    ZeRO,
    arrivals,
    best_bucket_bytes,
    gradients_of,
    next_forward,
    plan_buckets,
    predict_step,
    profile_of,
)
from lockstep.trace import Message, Span, Trace, critical_path, measures, overlap_share, slack, usage
from lockstep.viz.overlap import step_timelines
from lockstep.world import launch, simulate

# %% tags=["stable"]
torch.set_num_threads(1)
# Milliseconds of each layer forward, in the proportions of its multiply-adds; backward takes twice as long.
FORWARD = {"0": 0.1, "2": 1.5, "4": 3.0, "7": 1.5, "9": 3.0, "12": 0.8, "15": 0.1}
COSTS = {name: LayerCost(forward=1e-3 * ms, backward=2e-3 * ms) for name, ms in FORWARD.items()}
LINK = Link(latency=0.4e-3, bandwidth=35e6)  # 35 MB/s, 0.4 ms
NETWORK = Cluster.uniform(LINK)
WHOLE = 2**30  # bytes, more than the model has

# %%
digits = data.load("mnist5k", "train")
X, Y = data.Normalize.of(digits.images)(digits.images), digits.labels


def cnn():
    """The same numbers on every rank."""
    torch.manual_seed(SEED)
    widths = [1, 16, 32, 32, 64, 64, 64]
    convolutions = [nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, widths[1:], strict=False)]
    layers = []
    for place, convolution in enumerate(convolutions):
        layers += [convolution, nn.ReLU(), *([nn.MaxPool2d(2)] if place in (2, 4) else [])]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 7 * 7, 10))


def one_step(comm, bucket_bytes, slower=1):
    """A step with the library's DistributedDataParallel; with None each gradient travels by itself after backward.

    Returns when it began and ended.
    """
    costs = {name: LayerCost(slower * cost.forward, slower * cost.backward) for name, cost in COSTS.items()}
    F.cross_entropy(cnn()(X[:1]), Y[:1]).backward()  # the first pass of a process takes longer
    model = cnn()
    step = DistributedDataParallel(model, comm, bucket_bytes) if bucket_bytes else model
    comm.barrier()
    comm.charge(model, costs)
    begun = comm.now()
    F.cross_entropy(step(X[:1]), Y[:1]).backward()
    if bucket_bytes is None:
        for p in reversed(list(model.parameters())):
            comm.all_reduce(p.grad, op="mean")
    return begun, comm.now()


def only_the_step(run, begun=None, ended=float("inf")):
    """The trace of a run from `begun` on, by default from its first layer, and up to `ended`."""
    trace = run.trace
    if begun is None:
        begun = min(span.start for span in trace.spans if span.name.startswith("forward"))
    spans = [span for span in trace.spans if begun <= span.start and span.end <= ended]
    messages = [message for message in trace.messages if begun <= message.sent and message.received <= ended]
    return Trace.of(trace.ranks, spans, messages, trace.world)


WAYS = {"no bucket": None, "one bucket": WHOLE, "several buckets": 70_000}
traces = {name: only_the_step(simulate(one_step, 2, size, cluster=NETWORK)) for name, size in WAYS.items()}
step_timelines(traces, "A step on two ranks, the library's DistributedDataParallel")

# %% [markdown]
# Three questions from earlier labs first; those that you missed come before the others.

# %%
recall("11")

# %% [markdown]
# ## 1. What a run waits for (20 min)
#
# A rank does two kinds of things at the same time, in two *streams*. In one it computes, one thing after the other.
# In the other it communicates. `async_op=True` puts a collective into the second stream and gives a *handle* back at
# once; `handle.wait()` holds the first stream up until the second has come that far. Everything between launch and
# wait goes on at the same time. Here `comm.span(..., cost=5e-3)` is a computation of 5 ms. Run this, then put the
# line with `wait` right below `launched`: now the third number has the 5 ms on top, since nothing is hidden any more.


# %% tags=["stable"]
def two_streams(comm):
    gradient = torch.ones(100_000)
    begun = comm.now()
    handle = comm.all_reduce(gradient, async_op=True)
    launched = comm.now()
    with comm.span("compute", cost=5e-3):
        pass
    computed = comm.now()
    handle.wait()
    return [round(1000 * (t - begun), 2) for t in (launched, computed, comm.now())]


print("launched, computed, waited for (ms, simulated):", *simulate(two_streams, 2, cluster=NETWORK).values[0])

# %% [markdown]
# So a run is a *graph*. Its events are computations and messages. An event waits for others: a computation for what
# its rank did before, a message for both of its ranks, a computation after `wait()` for the message. Each event
# begins as soon as all that it waits for has ended. The last event ends when it does because something before it
# ended when it did, and so on back to the beginning. This chain is the *critical path*. Whatever is not on it may as
# well take a little longer.
#
# Predict: two ranks train data parallel. Rank 1 computes 20 % slower than rank 0. You put a GPU into rank 0 that is
# *twice* as fast. By how many milliseconds does a step of about 40 ms get shorter?

# %% tags=["predict"]
predict("11.p1", None)

# %% [markdown]
# A trace has all that is needed. Here is one to play with: rank 0 computes for 2 ms and rank 1 for 3 ms, rank 1 sends
# rank 0 a message, and rank 0 computes for 1 ms more. `events_of` is there for you to use: it brings spans and messages
# into one form, and leaves out those that wait. (`critical_path` of the library comes after the exercise.)


# %% tags=["stable"]
def small(comm):
    with comm.span("first", cost=[2e-3, 3e-3][comm.rank]):
        numbers = torch.ones(21_000)
    if comm.rank == 1:
        comm.send(numbers, 0)
    else:
        comm.recv(numbers, 1)
        with comm.span("last", cost=1e-3):
            pass


def events_of(trace):
    """(begin, end, ranks, the span or message itself) of all that takes time; spans that only wait are no events."""
    found = [(s.start, s.end, {s.rank}, s) for s in trace.spans if s.kind == "compute"]
    return found + [(m.sent, m.received, {m.src, m.dst}, m) for m in trace.messages]


example = simulate(small, 2, cluster=NETWORK).trace
for span in example.spans:
    print(f"span     rank {span.rank} {span.kind:8} {span.name:6} {1e3 * span.start:.1f} to {1e3 * span.end:.1f} ms")
for begin, end, ranks, event in events_of(example):
    print(f"event    {type(event).__name__:8} of ranks {ranks}: {1e3 * begin:.1f} to {1e3 * end:.1f} ms")

# %% [markdown]
# ### Exercise 11.1 · `critical_path`
#
# Return the critical path of a trace as a list of the spans and messages themselves, in order of time. It ends with
# the event that ends last. Before each event stands the one that ended last, at or before its begin, on one of its
# ranks.
#
# `events_of(trace)` lists all events as (begin, end, set of ranks, the span or message itself); a message has two
# ranks. In the example above the path is rank 1's `first`, the message, rank 0's `last`. Where two events ended at
# the same time, either will do.


# %% tags=["exercise", "11.1"]
def critical_path_of(trace):
    """Return the spans and messages that the run had to wait for, in order of time."""
    ### BEGIN SOLUTION
    events = events_of(trace)
    path, before = [], events
    while before:
        start, _, ranks, event = max(before, key=lambda one: one[1])
        path.append(event)
        before = [one for one in events if one[1] <= start and one[2] & ranks]
    return path[::-1]
    ### END SOLUTION
    ### BEGIN STUB
    # path, before = [], []  # before: the events that may be the next one on the way back
    # while before:
    #     ...  # of these the one that ended last; which events had ended on one of its ranks before it began?
    # raise NotImplementedError("return the chain of computations and messages that ends last, in order of time")
    ### END STUB


# %% tags=["check", "11.1"]
check("11.1", critical_path_of)

# %% [markdown]
# Now a real step: the network of this lab on two ranks, rank 1 slower by a fifth, in buckets of 70,000 bytes. How
# much of the path is computation, and whose? `slack` is the library's: how much later an event might have ended
# without the step ending later.

# %% tags=["experiment"]
my_path = mine("11.1")


def uneven(speed):
    return only_the_step(simulate(one_step, 2, 70_000, cluster=NETWORK, speed=speed))


def told(event):
    if isinstance(event, Message):
        return f"message {event.src} to {event.dst}"
    return f"rank {event.rank} {event.name}"


step = uneven({1: 0.8})
path = my_path(step)
ms = Counter()
for event in path:
    kind = "messages" if isinstance(event, Message) else f"computation of rank {event.rank}"
    ms[kind] += 1e3 * (event.received - event.sent if kind == "messages" else event.seconds)
print(f"{whose('11.1')} critical_path: {len(path)} events of {len(slack(step))}, {sum(ms.values()):.1f} ms in all")
print(", ".join(f"{kind} {time:.1f} ms" for kind, time in ms.items()))
print("slack, library:")
for one in sorted(slack(step), key=lambda one: -one.seconds)[:5]:
    print(f"  {told(one.event):22} might have ended {1e3 * one.seconds:4.1f} ms later")

# %%
seconds_of_step = [run.window[1] - run.window[0] for run in (step, uneven({0: 2.0, 1: 0.8}))]
print(f"rank 0 as it was {1e3 * seconds_of_step[0]:.2f} ms, twice as fast {1e3 * seconds_of_step[1]:.2f} ms")

# %%
reveal("11.p1", round(1e3 * (seconds_of_step[0] - seconds_of_step[1]), 1), "ms")

# %% [markdown]
# Nothing. Rank 0's computation is not on the path; it only waits longer now. Before you make anything faster, ask
# what the run waits for. (Make rank 1 faster and the step gets shorter, until something else is the path.)
#
# ## 2. How many buckets? (16 min)
#
# Back to equal ranks. Three numbers decide about a bucket: when its last gradient is ready, how long its reduction
# takes, and when the link is free. The first comes from a trace: `profile_of` reads what each layer took, and
# `gradients_of` when each gradient is ready. The second is lab 04's formula.

# %%
profile = profile_of(cnn(), traces["no bucket"])
gradients = gradients_of(cnn(), profile)


def reduce_seconds(nbytes):
    return predict_seconds("ring_all_reduce", nbytes, 2, LINK.latency, LINK.bandwidth)


for gradient in gradients:
    print(
        f"{gradient.name:9} ready at {1e3 * gradient.ready:4.1f} ms, {gradient.bytes:7,} bytes, "
        f"alone on the link for {1e3 * reduce_seconds(gradient.bytes):.1f} ms"
    )

# %% [markdown]
# Forward takes 10 ms and backward 20, and there are 14 gradients. Predict: into how many buckets should they go, so
# that the step is shortest? (1 is one bucket for all, 14 a bucket for each. The sizes tried below make 1, 2, 3, 5, 6
# or 14 of them.)

# %% tags=["predict"]
predict("11.p2", None)

# %% [markdown]
# ### Exercise 11.2 · `best_bucket`
#
# Return the one of `sizes` with which the last reduction ends first; of several that end together, any. `gradients`
# is a list of (ready, bytes) in the order in which they become ready. The open bucket closes as soon as it holds
# `size` bytes or more, and the last one with the last gradient. A reduction takes `seconds(bytes)`, where bytes are
# those of the whole bucket. It begins when its bucket is closed *and* the reduction before it has ended.


# %% tags=["exercise", "11.2"]
def best_bucket(gradients, seconds, sizes):
    """Return the bucket size, one of `sizes`, with which the last reduction ends first."""

    ### BEGIN SOLUTION
    def last_end(size):
        free, held = 0.0, 0
        for i, (ready, nbytes) in enumerate(gradients):
            held += nbytes
            if held >= size or i == len(gradients) - 1:
                free = max(free, ready) + seconds(held)
                held = 0
        return free

    return min(sizes, key=last_end)
    ### END SOLUTION
    ### BEGIN STUB
    # def last_end(size):
    #     free, held = ...  # when the link is free; the bytes in the open bucket
    #     for i, gradient in enumerate(gradients):
    #         ...  # into the bucket with it; if that closes the bucket, when does its reduction end?
    #
    # raise NotImplementedError("return the size whose last reduction ends first")
    ### END STUB


# %% tags=["check", "11.2"]
check("11.2", best_bucket)

# %% [markdown]
# Your choice for this step, beside the predicted step for each size. The library does the same from a trace or a
# measured profile (4 bytes: each gradient by itself): `best_bucket_bytes` tries sizes, and `plan_buckets` cuts
# wherever it wants, so that nothing is better.

# %%
my_best = mine("11.2")
SIZES = [4, 20_000, 40_000, 70_000, 150_000, 200_000, 300_000, WHOLE]
chosen = my_best([(g.ready, g.bytes) for g in gradients], reduce_seconds, SIZES)
steps = {size: predict_step(cnn(), profile, 2, LINK.latency, LINK.bandwidth, bucket_bytes=size) for size in SIZES}
print(f"{'bucket size':>13} {'buckets':>8} {'on the link':>12} {'hidden':>7} {'step':>9}")
for size, one in steps.items():
    moving = sum(end - begin for begin, end in one.exchanges)
    mark = f"  <- {whose('11.2')} best_bucket" if size == chosen else ""
    print(
        f"{size:13,} {len(one.exchanges):8} {1e3 * moving:9.1f} ms {1 - one.exposed / moving:7.0%} "
        f"{1e3 * one.seconds:6.1f} ms{mark}"
    )
plan = plan_buckets(gradients, reduce_seconds)
sizes = [len(bucket) for bucket in plan.buckets]
print(f"cut anywhere  {len(plan.buckets):8} {'':20} {1e3 * plan.end:6.1f} ms: {sizes} gradients each")
best = best_bucket_bytes(cnn(), profile, 2, LINK.latency, LINK.bandwidth)
print(f"of all powers of two, the library's best_bucket_bytes chooses {best:,}")

# %%
reveal("11.p2", len(steps[chosen].exchanges))

# %% [markdown]
# Not one, and not fourteen. One bucket is full when backward is over, and hides nothing. With a bucket for each
# gradient the link pays 14 times two latencies; it falls behind and is still busy when backward has been over for
# long. Look at the column *hidden*, too: with a size of 4 bytes a larger share is hidden than with 300,000, and the
# step takes longer all the same, because there is more to hide.
#
# Now the three timelines, with your bucket size below. First in the simulated world; the dashed line is what
# `predict_step` said.

# %% tags=["experiment"]
WAYS = {"no bucket": None, "one bucket": WHOLE, f"{len(steps[chosen].exchanges)} buckets": chosen}
settings = cnn(), profile, 2, LINK.latency, LINK.bandwidth
predicted = {}
for name, size in WAYS.items():
    options = {"bucket_bytes": 1, "overlap": False} if size is None else {"bucket_bytes": size}
    predicted[name] = predict_step(*settings, **options).seconds
traces = {name: only_the_step(simulate(one_step, 2, size, cluster=NETWORK)) for name, size in WAYS.items()}
step_timelines(traces, f"A step, {whose('11.2')} best_bucket below", predicted)

# %% [markdown]
# Then on real processes. They are *paced*: each layer lasts as long as it is charged, each message as long as it
# would on a link, by sleeping. So two processes overlap as two GPUs would, however many cores are here. Everything
# takes many times as long as above, so that what else this machine does hardly matters. It takes some seconds.
# In a real run the critical path has gaps, time that is lost between two events, and it may lead over the other rank.

# %% tags=["experiment"]
SLOWER = 6 if FAST else 15
slow_link = Link(latency=SLOWER * LINK.latency, bandwidth=LINK.bandwidth / SLOWER)


def one_after_the_other(comm, sizes, slower):
    return [one_step(comm, size, slower) for size in sizes]


run = launch(one_after_the_other, RANKS, list(WAYS.values()), SLOWER, pace=True, link=slow_link, timeout=120)
paced = {}
for name, times in zip(WAYS, zip(*run.values, strict=True), strict=True):
    begins, ends = zip(*times, strict=True)
    paced[name] = only_the_step(run, min(begins), max(ends))
later = {name: SLOWER * seconds for name, seconds in predicted.items()} if RANKS == 2 else None
step_timelines(paced, f"{SLOWER} times slower, {RANKS} processes, {whose('11.2')} best_bucket below", later)

# %% [markdown]
# What is left exposed in the last row? The bucket with the first layers' gradients. Its last gradient is ready when
# backward is over, so nothing of *this* backward can hide it. Something else could: the next forward pass.
#
# ## 3. What is needed first
#
# *Stretch, about 10 minutes; go on with section 4 if you keep to the core.*
#
# The optimizer steps each layer by itself, and the next forward pass begins with layer 0. It could begin as soon as
# layer 0's gradient has arrived, while those of the last layers are still on their way. But they were ready first,
# and travel first. On a slow link a queue builds up, and layer 0 is last in it. So let the most urgent one go first:
# *priority order*.
#
# ### Exercise 11.3 · `priority_order` (stretch)
#
# Return the layers in the order in which their gradients are sent. Layer i's gradient is ready at `ready[i]` and
# takes `seconds[i]` on the link. Whenever the link is free, the lowest layer of those that are ready goes next; when
# none is ready, the link waits until one is. A transfer that has begun is not interrupted. Leave both lists as they
# are: the next cell needs them again.


# %% tags=["exercise", "11.3"]
def priority_order(ready, seconds):
    """Return the numbers of the layers in the order in which they are sent."""
    ### BEGIN SOLUTION
    order, free, left = [], 0.0, set(range(len(ready)))
    while left:
        free = max(free, min(ready[layer] for layer in left))
        first = min(layer for layer in left if ready[layer] <= free)
        free += seconds[first]
        left.remove(first)
        order.append(first)
    return order
    ### END SOLUTION


# %% tags=["check", "11.3"]
check("11.3", priority_order)

# %% [markdown]
# The seven layers of the network on a link of a third of the bandwidth, one transfer for each layer. When does the
# next forward pass end, if each of its layers waits for its own gradient only?

# %%
my_order = mine("11.3")
layers = list(FORWARD)
ready = [max(g.ready for g in gradients if g.name.startswith(f"{name}.")) for name in layers]
travel = [
    predict_seconds(
        "ring_all_reduce",
        sum(g.bytes for g in gradients if g.name.startswith(f"{name}.")),
        2,
        LINK.latency,
        LINK.bandwidth / 3,
    )
    for name in layers
]
backward_ends, forward = max(ready), [1e-3 * ms for ms in FORWARD.values()]
for name, order in (
    ("as they become ready", sorted(range(7), key=lambda layer: ready[layer])),
    (f"{whose('11.3')} priority_order", my_order(ready, travel)),
):
    arrived = arrivals(order, ready, travel)
    ends = next_forward(arrived, forward, backward_ends)
    print(
        f"{name:24} {order}: layer 0 arrives at {1e3 * arrived[0]:5.1f} ms, all at {1e3 * max(arrived):5.1f} ms, "
        f"the next forward ends at {1e3 * ends[-1]:5.1f} ms"
    )
print(f"if forward waits for all:                         it ends at {1e3 * (max(arrived) + sum(forward)):5.1f} ms")

# %% [markdown]
# The bytes are the same, and all have arrived at the same time as before. Only who waits has changed.
#
# ## 4. Two buffers (18 min)
#
# Gradients are not all that travels. Batches come from a disk, activations from the stage before, parameters from
# other ranks. It is the same everywhere: one side makes a block, it travels, the other side uses it. With one buffer
# on each side nothing is made or used while a block travels. With two on each side, block 1 travels while block 0 is
# used and block 2 is made: *double buffering*.
#
# Predict: making a block takes 2 ms, sending it 3 ms, using it 4 ms. With one buffer on each side 20 blocks take 142
# ms: 2 for making the first, then for each of them 3 on the link and 4 in use, while the next one is made. How many
# milliseconds do they take with two buffers on each side?

# %% tags=["predict"]
predict("11.p3", None)

# %% [markdown]
# And with *three* buffers on each side?

# %% tags=["predict"]
predict("11.p4", None)

# %% [markdown]
# `isend` and `irecv` give handles, too. Until `wait()` has returned, the buffer belongs to the call. Whoever sends
# must not write into it: the old block may still be on its way. Whoever receives must not read from it, and must not
# use it for anything else. The simulated world finds out who writes too early:


# %%
def too_early(comm):
    buffer = torch.ones(10_000)
    if comm.rank == 0:
        handle = comm.isend(buffer, dst=1)
        buffer += 1  # the next block, into the same buffer
        handle.wait()
    else:
        comm.recv(buffer, src=0)


try:
    simulate(too_early, 2)
except Exception as error:
    print(str(error).splitlines()[0])

# %% [markdown]
# ### Exercise 11.4 · `double_buffer`
#
# Two ranks, and blocks 0 to `count` - 1, at least one. On rank 0 `work(i, buffer)` *makes* block i: it fills the
# buffer. On rank 1 `work(i, buffer)` *uses* block i, which must be in the buffer. Every rank has a list of two
# `buffers` and touches no others. Write both ranks' part, so that making, sending and using go on at the same time,
# and a buffer is never touched while a call has it.
#
# `comm.isend(buffer, dst=1)` and `comm.irecv(buffer, src=0)` return handles. Every handle has to be waited for at
# some time, also the last ones.


# %% tags=["exercise", "11.4"]
def double_buffer(comm, count, buffers, work):
    """Rank 0 makes and sends, rank 1 receives and uses, both with two buffers."""
    ### BEGIN SOLUTION
    handles = [None, None]
    if comm.rank == 0:
        for i in range(count):
            if handles[i % 2] is not None:
                handles[i % 2].wait()
            work(i, buffers[i % 2])
            handles[i % 2] = comm.isend(buffers[i % 2], dst=1)
        for handle in handles[:count]:
            handle.wait()
    else:
        handles[0] = comm.irecv(buffers[0], src=0)
        for i in range(count):
            if i + 1 < count:
                handles[(i + 1) % 2] = comm.irecv(buffers[(i + 1) % 2], src=0)
            handles[i % 2].wait()
            work(i, buffers[i % 2])
    ### END SOLUTION
    ### BEGIN STUB
    # handles = ...  # of the call that has buffer 0, and buffer 1; None while no call has it
    # if comm.rank == 0:
    #     for i in range(count):
    #         ...  # does a call still have buffer i % 2? wait for it; then fill, launch, go on
    #     ...  # which calls are left?
    # else:
    #     ...  # launch the receive of block 0
    #     for i in range(count):
    #         ...  # launch the next receive, if there is a next block; wait for this one; use it
    # raise NotImplementedError("rank 0 makes and sends, rank 1 receives and uses, both with two buffers")
    ### END STUB


# %% tags=["check", "11.4"]
check("11.4", double_buffer)

# %% [markdown]
# Your function with eight blocks as a timeline, for each rank above; below it the same with blocking `send` and
# `recv`. The thin row under a rank shows what is on the link while the rank goes on working: the first box is block 0,
# the second block 1, and so on.


# %% tags=["experiment"]
def blocking(comm, count, buffers, work):
    for i in range(count):
        if comm.rank == 0:
            work(i, buffers[0])
            comm.send(buffers[0], 1)
        else:
            comm.recv(buffers[0], 0)
            work(i, buffers[0])


def any_buffers(comm, count, buffers, work):
    """Double buffering with as many buffers as there are: a queue of what is on its way."""
    way, many = [], len(buffers)
    if comm.rank == 1:
        way = [comm.irecv(buffers[i], 0) for i in range(min(many, count))]
    for i in range(count):
        if comm.rank == 1 or len(way) == many:
            way.pop(0).wait()
        work(i, buffers[i % many])
        if comm.rank == 0:
            way.append(comm.isend(buffers[i % many], 1))
        elif i + many < count:
            way.append(comm.irecv(buffers[i % many], 0))
    for handle in way:
        handle.wait()


def moved(comm, how, count, many, make_ms, use_ms):
    """Blocks of 91 kB, 3 ms on the link; make_ms, use_ms: of each block."""

    name, costs = ("use", use_ms) if comm.rank else ("make", make_ms)

    def work(i, buffer):
        with comm.span(name, micro_batch=i, cost=1e-3 * costs[i]):
            buffer.fill_(i) if comm.rank == 0 else buffer.sum()

    how(comm, count, [torch.zeros(22_750) for _ in range(many)], work)


def with_transfers(trace):
    """The trace, with every message beside the work of both its ranks."""
    beside = [Span(m.src, "send", "send", m.sent, m.received, stream=1) for m in trace.messages]
    beside += [Span(m.dst, "recv", "recv", m.sent, m.received, stream=1) for m in trace.messages]
    return Trace.of(trace.ranks, [*trace.spans, *beside], trace.messages, trace.world)


mine_and_blocking = [
    simulate(moved, 2, how, 8, 2, [2.0] * 8, [4.0] * 8, cluster=NETWORK).trace for how in (mine("11.4"), blocking)
]
viz.timeline(
    with_transfers(mine_and_blocking[0]),
    f"Eight blocks: {whose('11.4')} double_buffer, and blocking calls",
    compare=mine_and_blocking[1],
    labels=("two buffers", "blocking"),
)

# %%
COUNT = 20
even = [2.0] * COUNT, [4.0] * COUNT
uneven_blocks = [2.0] * COUNT, [2.0 if i % 3 else 8.0 for i in range(COUNT)]  # 4 ms on average, too
times = {}
for words, (make_ms, use_ms) in (("4 ms each", even), ("8, 2, 2 ms in turn", uneven_blocks)):
    for many in (1, 2, 3, 4):
        run = simulate(moved, 2, any_buffers, COUNT, many, make_ms, use_ms, cluster=NETWORK)
        times[words, many] = 1e3 * run.seconds
    shown = ", ".join(f"{many} buffer{'s' * (many > 1)} {times[words, many]:5.1f} ms" for many in (1, 2, 3, 4))
    print(f"{COUNT} blocks, used in {words:18}: {shown} (simulated)")

# %%
reveal("11.p3", round(times["4 ms each", 2], 1), "ms")

# %%
reveal("11.p4", round(times["4 ms each", 3], 1), "ms")

# %% [markdown]
# In the long run each block takes as long as the slowest of the three, 4 ms: the others are hidden. Only the first
# block has to be made and sent before anything can be used. A third buffer brings nothing here, since rank 1 never
# waits any more. It helps where times vary, in the second line: then there is a block in stock while a slow one is
# made.
#
# **Batches.** The library's `prefetch` is double buffering for batches: a thread makes the next one while this one is
# used, and on a GPU copies it on a stream of its own. Here a loader that sleeps for each batch as long as computing
# takes, as if it read from a slow disk.


# %% tags=["experiment"]
def slow_batches(count, seconds):
    for i in range(count):
        time.sleep(seconds)
        yield X[4 * i : 4 * (i + 1)], Y[4 * i : 4 * (i + 1)]


def train_on(batches):
    model, taken = cnn(), []
    begun = time.perf_counter()
    for images, labels in batches:
        F.cross_entropy(model(images), labels).backward()
        taken.append(time.perf_counter() - begun)
        begun = time.perf_counter()
    return statistics.median(taken)


BATCHES = 4 if FAST else 10
train_on([(X[:4], Y[:4])] * 2)  # the first passes of a process take longer
alone = train_on([(X[:4], Y[:4])] * BATCHES)
print(f"computing alone               {1e3 * alone:5.1f} ms a batch (measured)")
for words, batches in (
    ("loading and computing in turn", slow_batches(BATCHES, alone)),
    ("with prefetch", data.prefetch(slow_batches(BATCHES, alone))),
):
    print(f"{words:29} {1e3 * train_on(batches):5.1f} ms a batch (measured)")

# %% [markdown]
# ## 5. How much was hidden?
#
# *Stretch, about 8 minutes.*
#
# The share in the pictures is *hidden / (hidden + exposed)*: of all the time in which something of a rank's moves,
# the part in which the rank also computes. It is easily counted wrong: two transfers at the same time are one piece
# of time, and ranks with much and with little to send must not count alike.
#
# ### Exercise 11.5 · `overlap_share` (stretch)
#
# `computing[r]` and `moving[r]` are lists of (begin, end) of rank r, in any order; intervals of one list may overlap.
# Return the hidden share over all ranks together, None when nothing moves.


# %% tags=["exercise", "11.5"]
def overlap_share_of(computing, moving):
    """Return hidden seconds / seconds in which something moves, over all ranks together."""
    ### BEGIN SOLUTION
    hidden = total = 0.0
    for works, transfers in zip(computing, moving, strict=True):
        times = sorted({time for pair in (*works, *transfers) for time in pair})
        for begin, end in zip(times, times[1:], strict=False):
            if any(a <= begin and end <= b for a, b in transfers):
                total += end - begin
                if any(a <= begin and end <= b for a, b in works):
                    hidden += end - begin
    return hidden / total if total else None
    ### END SOLUTION


# %% tags=["check", "11.5"]
check("11.5", overlap_share_of)

# %%
my_share = mine("11.5")
for name, trace in traces.items():
    share = my_share(measures.computing(trace), measures.transfers(trace))
    exposed = sum(u.exposed for u in usage(trace)) / trace.ranks
    print(
        f"{name:12} {whose('11.5')} overlap_share {share:4.0%}, the library's {overlap_share(trace):4.0%}; "
        f"exposed {1e3 * exposed:4.1f} ms, step {1e3 * (trace.window[1] - trace.window[0]):.1f} ms (simulated)"
    )

# %% [markdown]
# A share is no goal. What counts is the exposed time, on the critical path. And hiding is not free on a GPU: the
# kernels of a reduction take some of its multiprocessors and of its memory's bandwidth, so what computes beside them
# gets slower.
#
# ## 6. The same everywhere
#
# *Stretch, about 4 minutes.*
#
# **Stage 3 of ZeRO** (lab 09) gathers each layer before it computes. While one layer computes, the next one is
# gathered into another buffer: double buffering, with parameters as blocks. **A pipeline** (lab 07) sends activations
# while it computes the next micro-batch: your `double_buffer`, with rank 0 as the first stage and rank 1 as the
# second. Here is stage 3 with the library, six equal layers on two ranks. What does its step wait for?


# %% tags=["experiment"]
class Resting:
    """An optimizer that is never asked to step."""

    def __init__(self, parameters):
        self.parameters, self.state = list(parameters), {}


def stage_3(comm, layer_ms):
    torch.manual_seed(SEED)
    model = nn.Sequential(*(nn.Linear(128, 128) for _ in range(6)))
    sharded = ZeRO(model, Resting, comm, stage=3, unit_bytes=1)  # each layer by itself
    comm.barrier()
    costs = {str(i): LayerCost(forward=1e-3 * layer_ms, backward=2e-3 * layer_ms) for i in range(6)}
    comm.charge(model, costs)
    begun = comm.now()
    sharded(torch.ones(4, 128)).square().mean().backward()
    return begun


for layer_ms in (0.5, 1.5, 4.0):
    run = simulate(stage_3, 2, layer_ms, cluster=NETWORK)
    trace = only_the_step(run, max(run.values))
    path = critical_path(trace)
    moving = sum(m.received - m.sent for m in path if isinstance(m, Message))
    seconds = trace.window[1] - trace.window[0]
    print(
        f"{layer_ms:3.1f} ms a layer: {1e3 * seconds:5.1f} ms, hidden {overlap_share(trace):4.0%}, "
        f"of the critical path {moving / seconds:4.0%} are messages (simulated)"
    )

# %% [markdown]
# The bytes are the same each time. With small layers the path is the link, from end to end; with large ones it is the
# computation, and hiding has done all that it can: the first layer's parameters and the last gradients to leave have
# nothing to hide behind. Between the two lies the batch size at which prefetch begins to
# pay.
#
# ## 7. The real thing (4 min)
#
# PyTorch's `DistributedDataParallel` does what you have chosen by hand: `bucket_cap_mb` is the size, 25 MiB unless
# you say otherwise, and the first bucket holds at most 1 MiB, so that something is on its way early. Both on real
# processes, not paced: milliseconds of a step for three sizes. It takes some seconds.


# %% tags=["experiment"]
def real_steps(comm, images, labels, repetitions):
    found = {}
    for size in (20_000, 150_000, WHOLE):
        makers = {
            "PyTorch's": lambda m, s=size: nn.parallel.DistributedDataParallel(m, bucket_cap_mb=s / 2**20),
            "lockstep's": lambda m, s=size: DistributedDataParallel(m, comm, bucket_bytes=s),
        }
        for name, make in makers.items():
            model, taken = make(cnn()), []
            for _ in range(repetitions):
                comm.barrier()
                begun = time.perf_counter()
                F.cross_entropy(model(images), labels).backward()
                taken.append(time.perf_counter() - begun)
                model.zero_grad()
            found[name, size] = statistics.median(taken[2:])
    return found


values = launch(real_steps, RANKS, X[:2], Y[:2], 4 if FAST else 8, timeout=120).values
for size in (20_000, 150_000, WHOLE):
    slowest = {name: max(v[name, size] for v in values) for name in ("PyTorch's", "lockstep's")}
    shown = ", ".join(f"{name} {1e3 * seconds:5.1f} ms" for name, seconds in slowest.items())
    print(f"buckets of {size:13,} bytes, {RANKS} processes: {shown} (measured)")

# %% [markdown]
# Between two processes of one machine the link is its memory, and there is little to hide. That is why this lab
# measures paced runs: the direction of an effect must not depend on your laptop.
#
# On a GPU the two streams of section 1 are *CUDA streams*, queues of kernels that the GPU works off side by side, and
# what joins them is an *event*: `record` puts it into one stream, `wait_event` lets another stream wait for it, and
# the program does not stand still. The next cell shows copies to the GPU beside a computation, timed with events.
# Without a GPU it says what it would show.


# %% tags=["experiment"]
def copies_beside_kernels(many=8, n=4096):
    host = [torch.randn(n, n).pin_memory() for _ in range(many)]
    weight, side = torch.randn(n, n, device="cuda"), torch.cuda.Stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def copied(i):
        with torch.cuda.stream(side):
            block, there = host[i].to("cuda", non_blocking=True), torch.cuda.Event()
            there.record(side)
        return block, there

    def one_after_the_other():
        for block in host:
            block.to("cuda", non_blocking=True) @ weight

    def with_two_buffers():
        coming = copied(0)
        for i in range(many):
            block, there = coming
            coming = copied(i + 1) if i + 1 < many else None
            torch.cuda.current_stream().wait_event(there)
            block.record_stream(torch.cuda.current_stream())
            block @ weight

    for words, work in (("one stream", one_after_the_other), ("two streams", with_two_buffers)):
        work()
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        print(f"{words:12} {begin.elapsed_time(end):6.1f} ms (measured with CUDA events)")


if torch.cuda.is_available():
    copies_beside_kernels()
else:
    print("No GPU here. With one, this cell multiplies eight matrices that come from the CPU's memory: first on one")
    print("stream, a copy and then a product, and then with the copies on a stream of their own, one block ahead.")
    print("A step then takes as long as the slower of copy and product, in place of their sum.")

# %% [markdown]
# ## 8. On real hardware, and what you know now (2 min)
#
# With **NCCL** an all-reduce is a kernel on a stream of its own; `handle.wait()` does not stop the program, it lets
# the compute stream wait for an event. So a program that waits right after it has launched looks harmless, and hides
# nothing. And a buffer that is used too early is an error that nobody reports: the numbers are wrong, now and then. A
# profiler (`torch.profiler`, or Nsight Systems) shows both streams; look for what the last kernel of a step waited
# for.
#
# This line trains with overlapped buckets on two ranks, with gloo here and with NCCL where there are two GPUs:
#
# ```
# torchrun --nproc-per-node=2 -m lockstep.train --strategy ddp
# ```
#
# **Summary**
# - A run is as long as its critical path. What is not on it has slack, and making it faster changes nothing.
# - A bucket waits for its last gradient and for the link. Many small ones pay latencies, one large one hides nothing;
#   the best lies between and can be worked out from a recorded step.
# - The last bucket is exposed. Only the next forward pass can hide it, if what it needs first is sent first.
# - Two buffers let making, sending and using go on at the same time. The slowest of them is the speed; a third buffer
#   helps only where times vary.
# - From launch to `wait()` a buffer belongs to the call.
# - Hiding can at best turn a sum into a maximum, of what may go on at the same time: forward has no gradients of its
#   own step to hide. Beyond that, send less.
#
# Four questions. Choose, say how sure you are, and read why.

# %%
ask("11.q1")

# %%
ask("11.q2")

# %%
ask("11.q3")

# %%
ask("11.q4")

# %% [markdown]
# And a riddle: a run of one of this lab's functions with a fault in it, or now and then a right one. Which fault is
# it? Run the cell again for another.

# %%
diagnose("11")

# %% [markdown]
# What you have done so far; `submit("11")` makes the file to hand in, if somebody asked you for it.

# %%
progress("11")

# %% [markdown]
# **References**
# - S. Li et al. (2020), "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 13(12):
#   buckets and overlap.
# - A. Jayarajan et al. (2019), "Priority-based Parameter Propagation for Distributed DNN Training", MLSys.
# - Y. Peng et al. (2019), "A Generic Communication Scheduler for Distributed DNN Training Acceleration", SOSP.
# - H. Zhang et al. (2017), "Poseidon: An Efficient Communication Architecture for Distributed Deep Learning on GPU
#   Clusters", USENIX ATC: sending each layer as soon as backward has it.
# - J. Kelley, M. Walker (1959), "Critical-Path Planning and Scheduling", Eastern Joint Computer Conference.
