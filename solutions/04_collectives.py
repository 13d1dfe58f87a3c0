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
# # Lab 04 · Talking: collectives
#
# **Time:** 75 minutes, core exercises included; those marked *stretch* come on top.
#
# **You will be able to**
# - make ranks exchange messages without ever waiting for each other in a circle;
# - write the all-reduce that training uses, a ring, for a tensor of any length, and count its bytes;
# - predict the seconds of a collective from two numbers that you measure on your own machine;
# - choose an algorithm by message size and number of ranks, and read the hang of a program that gives no report.
#
# **You need:** labs 00 and 03. No GPU, no network.
#
# The picture is one step of a ring all-reduce among four ranks. A row is a rank, a column is a part of the tensor, and
# a cell says whose numbers have been added up in it. In this lab you write the function that does this.

# %% tags=["parameters"]
RANKS = 4  # how many processes work together in this lab
FAST = False  # True: smaller tensors and fewer ranks, for a quick pass
SEED = 0

# %%
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from matplotlib.figure import Figure

from lockstep import hardware, viz
from lockstep.comm import bus_bandwidth, collectives
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
from lockstep.trace.units import show_bytes, show_seconds
from lockstep.world import RunError, fit_collective, launch, simulate, time_collectives
from lockstep.world.calibrate import fit_link

torch.manual_seed(SEED)
viz.ring(collectives.ring_all_reduce, ranks=4, step=2, title="Ring all-reduce, the library's")

# %% [markdown]
# Before you start, three questions from earlier labs. As always, `hint("04.1")` helps a little more each time you call
# it, and after three different attempts `solution("04.1")` shows an answer.

# %%
recall("04")

# %% [markdown]
# ## 1. A message needs two (10 min)
#
# All that ranks do together is made of *messages*: one rank calls `comm.send(tensor, dst)`, another one
# `comm.recv(tensor, src)`, which fills the tensor that it is given. Both calls return when the message is over, so
# each waits for the other side. That is where deadlocks come from. In the next cell two ranks want to swap their
# tensors, and both begin with the polite half.


# %%
def both_send(comm):
    other = 1 - comm.rank
    mine_first, theirs = torch.full((2,), float(comm.rank)), torch.zeros(2)
    comm.send(mine_first, other)
    comm.recv(theirs, other)


try:
    simulate(both_send, 2)
except RunError as report:
    print(report)

# %% [markdown]
# Each waits in `send` for a `recv` that stands one line further down. Some libraries let small messages through and
# hang only when the tensor grows; here and with gloo a send always waits.
#
# Collectives have the same trap in another form: all ranks make the same calls in the *same order*. Here rank 0 adds
# up `a` first and the others `b`. Plain PyTorch would hang, or add up what does not belong together; `comm` numbers
# the calls and says who called what.


# %%
def another_order(comm):
    a, b = torch.ones(4), torch.ones(2)
    for tensor in (a, b) if comm.rank == 0 else (b, a):
        comm.all_reduce(tensor)


try:
    simulate(another_order, 3)
except RunError as report:
    print(report)

# %% [markdown]
# **The tool: a send that you can leave behind.** `comm.isend` starts to send and returns at once, with a *handle*.
# Until `handle.wait()` has returned, the tensor belongs to the communication: do not change it. `irecv` is its
# counterpart, and `comm.exchange([(tensor, dst)], [(tensor, src)])` starts several sends and receives and waits for
# all of them: it takes two lists of pairs. A rank that returns before it has waited for a handle is told so.
#
# Whatever you receive with fills the tensor that you give it, which must have the shape and the dtype of what is sent;
# otherwise the run ends with an error. A rank cannot send to itself.


# %%
def starts_and_waits(comm):
    tensor = torch.arange(3.0)
    if comm.rank == 0:
        handle = comm.isend(tensor, 1)  # on its way
        other_work = sum(range(1000))  # meanwhile this rank may do something else
        handle.wait()  # from here on `tensor` may be changed again
        return other_work
    comm.recv(tensor, 0)
    return tensor.tolist()


simulate(starts_and_waits, 2).values

# %% [markdown]
# ### Exercise 04.1 · `exchange`
#
# The ranks stand in a ring. The *right* neighbour of a rank is the next one, and that of the last rank is rank 0.
# Every rank sends `outgoing` to the right and fills `incoming` with what comes from the left. When the function
# returns, both tensors are free to be changed. There are at least two ranks, and it must not take longer when there are
# more.


# %% tags=["exercise", "04.1"]
def exchange(comm, outgoing, incoming):
    """Send `outgoing` to the right neighbour and fill `incoming` from the left one."""
    right = (comm.rank + 1) % comm.size
    left = (comm.rank - 1) % comm.size
    ### BEGIN SOLUTION
    sending = comm.isend(outgoing, right)
    comm.recv(incoming, left)
    sending.wait()
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("send `outgoing` to the right and fill `incoming` from the left")
    ### END STUB


# %% tags=["check", "04.1"]
check("04.1", exchange)

# %% [markdown]
# Your own run as a picture, in real processes. Look at where the arrows start: with a good exchange all ranks send at
# about the same time.

# %%
my_exchange = mine("04.1")


def neighbours(comm, numbers):
    given, got = torch.full((numbers,), float(comm.rank)), torch.zeros(numbers)
    comm.barrier()  # a collective that moves no tensor: nobody goes on before all are here
    my_exchange(comm, given, got)
    return int(got[0])


run = launch(neighbours, RANKS, 250_000 if FAST else 2_000_000)
print("each rank has received from rank", run.values)
viz.timeline(run, title=f"exchange, {whose('04.1')} function, on {RANKS} ranks")

# %% [markdown]
# ## 2. The hot spot (7 min)
#
# The plain way to add up everybody's tensors: all send theirs to rank 0, which adds them up and sends the sum back.
# The cell after the prediction runs it.
#
# Predict: eight ranks add up tensors of 4 MB, once through rank 0 and once by the ring of the first picture, on the
# same network. How many times as long does the way through rank 0 take?

# %% tags=["predict"]
predict("04.p1", None)

# %%
NETWORK = hardware.Link(10e-6, 1e9, "10 µs and 1 GB/s between every two ranks")


def through_rank_0(comm, tensor):
    if comm.rank > 0:
        comm.send(tensor, 0)
        comm.recv(tensor, 0)
        return
    part = torch.empty_like(tensor)
    for other in range(1, comm.size):
        comm.recv(part, other)
        tensor += part
    for other in range(1, comm.size):
        comm.send(tensor, other)


def adds_up(comm, algorithm, numbers):
    tensor = torch.full((numbers,), float(comm.rank))
    algorithm(comm, tensor)
    return tensor[:1].sum().item()


central = simulate(adds_up, 8, through_rank_0, 1_000_000, cluster=NETWORK)
by_ring = simulate(adds_up, 8, collectives.ring_all_reduce, 1_000_000, cluster=NETWORK)

# %% [markdown]
# The figure shows how many bytes each rank sends and receives, and how long each way takes on this network.


# %%
def traffic_figure(runs, title):
    """Bytes sent (plain) and received (hatched) by every rank of each run, side by side."""
    figure, said = Figure(figsize=(9.4, 3.2)), []
    axes = figure.subplots(1, len(runs), sharey=True)
    figure.subplots_adjust(left=0.07, right=0.99, top=0.8, bottom=0.14, wspace=0.05)
    for axis, (name, run) in zip(axes, runs.items(), strict=True):
        places = range(len(run.traffic))
        sent = [one.bytes_sent / 1e6 for one in run.traffic]
        got = [one.bytes_received / 1e6 for one in run.traffic]
        axis.bar([p - 0.2 for p in places], sent, 0.38, color="#0072B2", edgecolor="black", label="sent")
        axis.bar([p + 0.2 for p in places], got, 0.38, color="#E69F00", edgecolor="black", hatch="//", label="received")
        axis.set(title=f"{name}: {show_seconds(run.seconds)}", xlabel="rank", xticks=list(places))
        axis.grid(axis="y", alpha=0.4)
        most = max(sent), sent.index(max(sent))
        said.append(
            f"{name}, {show_seconds(run.seconds)}: rank {most[1]} sends most, {most[0]:.1f} MB, the least is "
            f"{min(sent):.1f} MB."
        )
    axes[0].set_ylabel("MB")
    axes[0].legend()
    figure.suptitle(title)
    return viz.Figure(figure, alt=f"{title}. " + " ".join(said))


traffic_figure(
    {"through rank 0": central, "ring, the library's": by_ring}, "All-reduce of 4 MB among 8 ranks (simulated)"
)

# %%
reveal("04.p1", central.seconds / by_ring.seconds)

# %% [markdown]
# Rank 0 is a *hot spot*: its link carries seven tensors in and seven out, one after the other, while the others' links
# are idle most of the time. Adding ranks makes it worse. In the ring all links work all the time, and each carries
# less than two tensors. The ratio of the two times is nearly the number of ranks.

# %% [markdown]
# ## 3. The ring, chunk by chunk (24 min)
#
# A ring all-reduce has two halves. Cut the tensor into as many *chunks* as there are ranks.
#
# 1. **Reduce-scatter.** At each step every rank sends one chunk to the right, receives one from the left, and adds it
#    to its own. The chunk that it has just added to leaves next. After p - 1 steps every chunk has passed all p ranks,
#    and every rank holds one *finished* chunk. With which chunk a rank begins, before it has added to any, decides
#    where each of them comes to rest: follow one for p - 1 steps to the right.
# 2. **All-gather.** The finished chunks go round the ring once more, this time taking the place of what they meet.
#
# Which chunk leaves where is the whole art. The picture at the top is the second step for four ranks: read off which
# chunk each rank passes on, and which one it has just received.
#
# ### Exercise 04.2 · `ring_reduce_scatter`
#
# All ranks hand in a 1-D tensor of the same length. Rank r returns chunk r of the sum, where `tensor.tensor_split(p)`
# says what the chunks are: if p does not divide the length, the first ones are longer by one, and some may be empty. It
# gives a tuple of views: what you write into a chunk is written into `tensor`, which you may change here. One chunk
# leaves at each step, to the right; a ring that turns to the left on all ranks is as good. You may use your `exchange`
# or any of the calls of section 1.


# %% tags=["exercise", "04.2"]
def ring_reduce_scatter(comm, tensor):
    """Return this rank's chunk of the sum over all ranks."""
    right = (comm.rank + 1) % comm.size
    left = (comm.rank - 1) % comm.size
    ### BEGIN SOLUTION
    chunks = tensor.clone().tensor_split(comm.size)
    for step in range(comm.size - 1):
        outgoing = chunks[(comm.rank - step - 1) % comm.size]
        incoming = chunks[(comm.rank - step - 2) % comm.size]
        arrived = torch.empty_like(incoming)
        comm.exchange([(outgoing, right)], [(arrived, left)])
        incoming += arrived
    return chunks[comm.rank]
    ### END SOLUTION
    ### BEGIN STUB
    # chunks = ...
    # raise NotImplementedError("p - 1 steps: a chunk leaves to the right, one comes from the left and is added")
    ### END STUB


# %% tags=["check", "04.2"]
check("04.2", ring_reduce_scatter)

# %% [markdown]
# The next figure is recorded from that function: what every rank holds just before the last step.

# %%
reduce_scatter = mine("04.2")
viz.ring(reduce_scatter, ranks=4, step=3, title=f"Reduce-scatter, {whose('04.2')} function")

# %% [markdown]
# ### Exercise 04.3 · `ring_all_gather` (stretch)
#
# The other half. Rank r hands in its finished `chunk`; `sizes` lists how long everybody's chunk is. Every rank returns
# all chunks joined, chunk 0 first. What came in at one step goes out at the next, and nothing is added. The skeleton
# has a place for every chunk.


# %% tags=["exercise", "04.3"]
def ring_all_gather(comm, chunk, sizes):
    """Return the chunks of all ranks, joined in the order of the ranks."""
    chunks = [torch.empty(size, dtype=chunk.dtype) for size in sizes]
    chunks[comm.rank] = chunk
    ### BEGIN SOLUTION
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(comm.size - 1):
        outgoing = chunks[(comm.rank - step) % comm.size]
        incoming = chunks[(comm.rank - step - 1) % comm.size]
        comm.exchange([(outgoing, right)], [(incoming, left)])
    return torch.cat(chunks)
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("pass on what came last, until everyone has everything")
    ### END STUB


# %% tags=["check", "04.3"]
check("04.3", ring_all_gather)

# %%
all_gather = mine("04.3")

# %% [markdown]
# ### Exercise 04.4 · `ring_all_reduce`
#
# Now the whole ring: leave the sum over all ranks in the 1-D `tensor` that was handed in, *in place*. It may have any
# length: one that p does not divide, one shorter than p, or none at all. The cells above have made `reduce_scatter`
# and `all_gather`, which are your functions or the library's, and you may call them; or you write it as one loop, and
# number the chunks as you like.


# %% tags=["exercise", "04.4"]
def ring_all_reduce(comm, tensor):
    """Leave the sum over all ranks in `tensor`."""
    ### BEGIN SOLUTION
    sizes = [len(chunk) for chunk in tensor.tensor_split(comm.size)]
    finished = reduce_scatter(comm, tensor)
    tensor.copy_(all_gather(comm, finished, sizes))
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("leave the sum over all ranks in `tensor`")
    ### END STUB


# %% tags=["check", "04.4"]
check("04.4", ring_all_reduce)

# %% [markdown]
# The figure shows where the two halves meet: every rank has one finished chunk, which leaves next.

# %%
my_ring = mine("04.4")
ring_title = f"Ring all-reduce, {whose('04.4')} function"
viz.ring(my_ring, ranks=4, step=4, title=ring_title)

# %% [markdown]
# Go through it step by step with the slider. Follow one chunk from the rank where it sets out until it is finished.

# %% tags=["widget"]
viz.ring_player(my_ring, ranks=3 if FAST else 4, title=ring_title)

# %% [markdown]
# **How much does it send?** Each of the 2(p - 1) steps sends a chunk, the p-th part of the tensor's n bytes.
#
# Predict: you go from 8 ranks to 64, with the same tensor. By what factor does the number of bytes grow that *each*
# rank sends?

# %% tags=["predict"]
predict("04.p2", None)

# %%
MANY = 16 if FAST else 64
numbers = 64_000
few = simulate(adds_up, 8, my_ring, numbers)
many = simulate(adds_up, MANY, my_ring, numbers, timeout=60)
for run in (few, many):
    own = run.traffic[0]
    share = own.bytes_sent / (4 * numbers)
    print(f"{len(run.traffic):3} ranks: each sends {share:.2f} n bytes in {own.messages_sent} messages")

# %%
reveal("04.p2", many.traffic[0].bytes_sent / few.traffic[0].bytes_sent)

# %% [markdown]
# 2(p - 1)/p never reaches 2: that is why rings carry training on thousands of GPUs, and no algorithm sends less
# (Patarasu and Yuan 2009). What grows with the ranks is the number of messages. Whether that matters is a question of
# time.

# %% [markdown]
# ## 4. Fewer messages (9 min)
#
# Every message costs time even when it is empty. For short tensors one wants few messages after one another.
#
# A **tree** spreads a tensor from one rank: whoever has it sends it on, so the number of ranks that have it doubles at
# each level. **Recursive doubling** is an all-reduce of that kind: at each step every rank swaps its whole tensor with
# the one at distance 1, 2, 4 and so on, and adds. **Rabenseifner's** algorithm swaps halves of what is left, then
# quarters, until every rank has one finished chunk, and goes the same way back. The last two pair ranks up, so they
# like powers of two; for other numbers the surplus ranks are *folded*: they hand their tensor to a neighbour before,
# and get the result after, one message of the whole tensor each.
#
# The table counts what the library's functions do, in the simulated world: the most messages that one rank sends, and
# the most bytes, for a tensor of n bytes.

# %%
ALGORITHMS = {
    "through rank 0": collectives.central_all_reduce,
    "ring": collectives.ring_all_reduce,
    "recursive doubling": collectives.recursive_doubling_all_reduce,
    "Rabenseifner": collectives.rabenseifner_all_reduce,
}
print(f"{'':20}" + "".join(f"{p:>17} ranks" for p in (4, 6, 8)))
for name, algorithm in ALGORITHMS.items():
    counted = []
    for p in (4, 6, 8):
        traffic = simulate(adds_up, p, algorithm, 960).traffic
        most = max(one.messages_sent for one in traffic), max(one.bytes_sent for one in traffic) / 3840
        counted.append(f"{most[0]} messages, {most[1]:.2f} n")
    print(f"{name:20}" + "".join(f"{text:>23}" for text in counted))

# %% [markdown]
# ### Exercise 04.5 · `tree_broadcast` (stretch)
#
# Copy the tensor of rank `src` to all ranks, in place, along a tree: with p ranks there are p - 1 messages in all, and
# the last rank has its tensor after as many levels as the logarithm of p to base 2, rounded up. It has to work for any
# p and any `src`.


# %% tags=["exercise", "04.5"]
def tree_broadcast(comm, tensor, src):
    """Leave in `tensor` what rank `src` has handed in."""
    ### BEGIN SOLUTION
    place = (comm.rank - src) % comm.size  # counted from the source
    have = 1
    while have < comm.size:
        if place < have and place + have < comm.size:
            comm.send(tensor, (comm.rank + have) % comm.size)
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % comm.size)
        have *= 2
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("give the tensor of rank `src` to all ranks")
    ### END STUB


# %% tags=["check", "04.5"]
check("04.5", tree_broadcast)

# %% [markdown]
# The tree as a picture: eight ranks, three levels. A rank is pale while it waits for its turn.

# %%
my_tree = mine("04.5")


def grows(comm):
    my_tree(comm, torch.ones(10_000), 0)


viz.timeline(simulate(grows, 8, cluster=NETWORK), title=f"tree_broadcast, {whose('04.5')} function, on 8 ranks")

# %% [markdown]
# ## 5. What it costs, here (18 min)
#
# The *alpha-beta model*: a message of m bytes takes **latency + m / bandwidth**. A collective takes as long as its
# longest row of messages that have to wait for each other:
#
# | algorithm | messages after one another | bytes of each |
# |---|---|---|
# | ring all-reduce | 2(p - 1) | n / p |
# | tree broadcast | log2 p, rounded up | n |
# | recursive doubling all-reduce | log2 p, rounded down; 2 more if p is no power of two | n |
#
# ### Exercise 04.6 · `predict_seconds`
#
# Write the table as a function. `algorithm` is "ring_all_reduce", "tree_broadcast" or "recursive_doubling_all_reduce";
# `nbytes` is the whole tensor's size, which `ranks` divides in every case that is checked. Latency is in seconds,
# bandwidth in bytes per second. A single rank sends nothing, which takes no time.


# %% tags=["exercise", "04.6"]
def predict_seconds(algorithm, nbytes, ranks, latency, bandwidth):
    """Return the seconds that `algorithm` takes for `nbytes` over `ranks` ranks."""
    ### BEGIN SOLUTION
    if algorithm == "ring_all_reduce":
        return 2 * (ranks - 1) * (latency + nbytes / ranks / bandwidth)
    whole = latency + nbytes / bandwidth
    if algorithm == "tree_broadcast":
        return (ranks - 1).bit_length() * whole
    doublings = ranks.bit_length() - 1
    folds = 0 if ranks == 2**doublings else 2
    return (doublings + folds) * whole
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("seconds of `algorithm` from its messages and its bytes")
    ### END STUB


# %% tags=["check", "04.6"]
check("04.6", predict_seconds)

# %% [markdown]
# Now hold it against this machine. The cell below measures three things in real processes, for tensors from 4 bytes
# up: one exchange with the neighbours, the ring, and the backend's own all-reduce. It takes some seconds. From the
# *exchange alone* it fits latency and bandwidth.
#
# Predict: one exchange of 16,384 bytes against one of 4 bytes, which are 4,096 times fewer. How many times as long
# does it take on this machine?

# %% tags=["predict"]
predict("04.p3", None)

# %% tags=["experiment"]
SIZES = [4 * 16**k for k in range(6 if FAST else 7)]  # bytes
TOGETHER = max(2, min(RANKS, os.cpu_count() or 2))  # ranks that have a core each


def measure(comm, sizes, budget):
    buffer = torch.empty(max(sizes) // 4)
    calls = {
        "exchange": lambda x: my_exchange(comm, x, buffer[: len(x)]),
        "ring": lambda x: my_ring(comm, x),
        "backend": comm.all_reduce,
    }
    time_collectives(comm, calls, sizes[:1], budget)  # the first messages set up connections
    return time_collectives(comm, calls, sizes, budget)


measured = launch(measure, TOGETHER, SIZES, 0.06 if FAST else 0.2, timeout=300).values[0]
latency, bandwidth, residual = fit_link(measured["exchange"])
print(f"{TOGETHER} ranks here: a step takes {show_seconds(latency)} + bytes / ({show_bytes(bandwidth)}/s)")

# %%
by_size = dict(measured["exchange"])
reveal("04.p3", by_size[16384] / by_size[4])

# %% [markdown]
# Short messages cost the latency and little else, so programs pack small tensors together. Where the second term
# takes over depends on the machine: at latency × bandwidth.
#
# The table and the figure set the prediction beside what was measured. *Bus bandwidth* is the bytes that one rank's
# link must have carried, 2(p - 1)/p · n, per second; it lets you compare runs with different numbers of ranks (NVIDIA
# nccl-tests).

# %%
my_law = mine("04.6")
predicted = {n: my_law("ring_all_reduce", n, TOGETHER, latency, bandwidth) for n in SIZES}
found = {way: dict(points) for way, points in measured.items()}
print(f"{'bytes':>12} {'predicted':>10} {'ring':>10} {'backend':>10}   bus bandwidth of ring, backend")
for n in SIZES:
    row = f"{n:12,} {show_seconds(predicted[n]):>10}"
    row += "".join(f" {show_seconds(found[way][n]):>10}" for way in ("ring", "backend"))
    bus = [show_bytes(bus_bandwidth("all_reduce", n, TOGETHER, found[way][n])) + "/s" for way in ("ring", "backend")]
    print(row + f"   {bus[0]:>12} {bus[1]:>12}")
errors = {way: median(abs(predicted[n] / found[way][n] - 1) for n in SIZES) for way in ("ring", "backend")}
print(f"median error of the prediction: {errors['ring']:.0%} for the ring, {errors['backend']:.0%} for the backend")
steps = fit_collective("ring_all_reduce", TOGETHER, measured["ring"])
print(f"fitted to the ring itself: a step takes {show_seconds(steps[0])} + bytes / ({show_bytes(steps[1])}/s),")
print(f"and then the median error is {steps[2]:.0%}")


# %%
def log_log_figure():
    figure = Figure(figsize=(8, 4.2))
    axis = figure.add_axes((0.09, 0.12, 0.89, 0.8))
    titles = f"ring, {whose('04.4')} function", "the backend's all-reduce"
    for way, title, mark, color in zip(("ring", "backend"), titles, "os", ("#0072B2", "#D55E00"), strict=True):
        axis.loglog(SIZES, [found[way][n] for n in SIZES], mark, color=color, markersize=8, label=f"{title}, measured")
    dense = [4 * 2**k for k in range((SIZES[-1] // 4).bit_length())]
    law = f"ring by {whose('04.6')} predict_seconds"
    for (alpha, rate), line, source in (
        ((latency, bandwidth), "--", "from exchanges alone"),
        (steps[:2], ":", "fitted to the ring"),
    ):
        seconds = [my_law("ring_all_reduce", n, TOGETHER, alpha, rate) for n in dense]
        axis.loglog(dense, seconds, line, color="black", label=f"{law}, {source}")
    axis.set(xlabel="bytes of the tensor", ylabel="seconds")
    axis.minorticks_off()
    axis.grid(alpha=0.4)
    axis.legend()
    title = f"All-reduce on {TOGETHER} ranks of this machine: predicted and measured"
    axis.set_title(title)
    ends = [
        f"{n:,} bytes: predicted {show_seconds(predicted[n])}, ring {show_seconds(found['ring'][n])}, backend "
        f"{show_seconds(found['backend'][n])}"
        for n in (SIZES[0], SIZES[-1])
    ]
    errs = f"Median error for the ring {errors['ring']:.0%}, fitted to the ring itself {steps[2]:.0%}."
    return viz.Figure(figure, alt=f"{title}. {'; '.join(ends)}. {errs}")


log_log_figure()

# %% [markdown]
# The dashed line knows nothing of the ring but the table of its messages. What it leaves out is the gap to the
# circles: the additions, the memory that each new tensor needs, Python itself, and whatever else your cores were
# doing. The dotted line has the same form, but latency and bandwidth of the ring's own steps, with all of that in
# them. A ring of Python calls pays more for a step than the backend, which is one call.
#
# ### Exercise 04.7 · `choose` (stretch)
#
# Write `choose(nbytes, ranks, latency, bandwidth)`. It returns the name of the fastest of three all-reduces:
# "ring_all_reduce", "recursive_doubling_all_reduce" or "rabenseifner_all_reduce". Rabenseifner's takes 2k messages,
# where k is the logarithm of p to base 2, rounded down, which carry 2(1 - 1/2^k) n bytes in all together, plus two
# messages of n bytes each if p is no power of two. You have the other two.


# %% tags=["exercise", "04.7"]
def choose(nbytes, ranks, latency, bandwidth):
    ### BEGIN SOLUTION
    k = ranks.bit_length() - 1
    folds = 0 if ranks == 2**k else 2
    whole = latency + nbytes / bandwidth
    seconds = {
        "ring_all_reduce": 2 * (ranks - 1) * (latency + nbytes / ranks / bandwidth),
        "recursive_doubling_all_reduce": (k + folds) * whole,
        "rabenseifner_all_reduce": 2 * k * latency + 2 * (1 - 1 / 2**k) * nbytes / bandwidth + folds * whole,
    }
    return min(seconds, key=seconds.get)
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("the name of the fastest all-reduce")
    ### END STUB


# %% tags=["check", "04.7"]
check("04.7", choose)

# %% [markdown]
# The map shows the choice for each size and number of ranks on InfiniBand HDR, a network of computing centres that
# carries 200 Gbit/s, with published numbers: which algorithm is the fastest by the model.

# %%
my_choice = mine("04.7")
MARKS = {
    "recursive_doubling_all_reduce": ("o", "#D55E00", "recursive doubling"),
    "rabenseifner_all_reduce": ("^", "#009E73", "Rabenseifner"),
    "ring_all_reduce": ("s", "#0072B2", "ring"),
}


def choice_map(link):
    sizes, counts = [4 * 4**k for k in range(14)], [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    chosen = {(n, p): my_choice(n, p, link.latency, link.bandwidth) for n in sizes for p in counts}
    figure = Figure(figsize=(8, 4.2))
    axis = figure.add_axes((0.08, 0.23, 0.9, 0.63))
    for name, (mark, color, label) in MARKS.items():
        places = [(n, counts.index(p)) for (n, p), best in chosen.items() if best == name]
        axis.plot(*zip(*places, strict=True), mark, color=color, markersize=9, label=label) if places else None
    axis.set_xscale("log")
    axis.minorticks_off()
    axis.set(xlabel="bytes of the tensor", ylabel="ranks", yticks=range(len(counts)), yticklabels=counts)
    figure.legend(loc="lower center", ncols=3, frameon=False)
    title = f"The fastest all-reduce by {whose('04.7')} choose (predicted)"
    axis.set_title(f"{title}\n{show_seconds(link.latency)} and {show_bytes(link.bandwidth)}/s")
    few, many = (", ".join(f"{p} ranks {MARKS[chosen[n, p]][2]}" for p in (8, 24, 64)) for n in (sizes[0], sizes[-1]))
    return viz.Figure(figure, alt=f"{title}. At {sizes[0]} bytes: {few}. At {sizes[-1]:,} bytes: {many}.")


choice_map(hardware.link("HDR"))

# %% [markdown]
# ## 6. Who sits beside whom (3 min)
#
# A network is rarely the same between all ranks: the eight GPUs of a node, which is one computer, talk over NVLink,
# links from GPU to GPU; nodes talk over InfiniBand, which is slower. The
# same ring, on simulated nodes of eight A100, in two orders: once the ranks of a node are neighbours in the ring, once
# each neighbour is on another node. The third run is the library's: it adds up inside the nodes first (lab 08 takes
# that up).


# %% tags=["experiment"]
NODES = 2 if FAST else 4


def scattered(comm, numbers):
    # the same ranks in another order: all in part 0, numbered anew by growing `key`
    dealt = comm.split(0, key=comm.size // 8 * (comm.rank % 8) + comm.rank // 8)
    tensor = torch.ones(numbers)
    collectives.ring_all_reduce(dealt, tensor)


def inside_first(comm, tensor):
    collectives.hierarchical_all_reduce(comm, tensor, 8)


ranks, numbers = 8 * NODES, 1_000_000
runs = {
    "ring, node by node": simulate(adds_up, ranks, collectives.ring_all_reduce, numbers, timeout=60),
    "ring, ranks dealt out to nodes": simulate(scattered, ranks, numbers, timeout=60),
    "inside the nodes first": simulate(adds_up, ranks, inside_first, numbers, timeout=60),
}
print(f"4 MB among {ranks} ranks on {NODES} nodes (simulated)")
for name, run in runs.items():
    crossing = sum(m.bytes for m in run.trace.messages if m.src // 8 != m.dst // 8) / 1e6
    count = f"{len(run.trace.messages):,} messages"
    print(f"{name:32} {show_seconds(run.seconds):>9}, {crossing:8,.1f} MB between nodes, {count}")

# %% [markdown]
# All three give the same sum. The order in which ranks sit in the ring decides how many bytes leave a node. The two
# rings take equally long, because here each GPU has a network card of its own and every step waits for the slowest
# link; where a node shares one card, the second ring would queue for it. The third run takes fewer steps over the slow
# links.

# %% [markdown]
# ## 7. The real thing, and a hang without help (3 min)
#
# What you have written is `torch.distributed.all_reduce`. Side by side, on the same tensor, in the same processes:


# %% tags=["experiment"]
def side_by_side(comm, numbers):
    ours = torch.rand(numbers)
    theirs = ours.clone()
    times = time_collectives(comm, {"ours": lambda x: my_ring(comm, x), "torch": dist.all_reduce}, [4 * numbers])
    my_ring(comm, ours)
    dist.all_reduce(theirs)
    return times, (ours - theirs).abs().max().item(), theirs.abs().max().item()


times, apart, largest = launch(side_by_side, TOGETHER, 1_000_000).values[0]
print(f"ring_all_reduce, {whose('04.4')}:     {show_seconds(times['ours'][0][1])} for 4 MB on {TOGETHER} ranks")
print(f"torch.distributed.all_reduce: {show_seconds(times['torch'][0][1])}")
print(f"largest difference {apart:.1g}, largest number {largest:.2f}")

# %% [markdown]
# Outside this course nobody writes a report for you. Below is a plain program, as `torchrun` runs it, with the oldest
# bug of all: a collective inside `if rank == 0`. It prints nothing and would sit there for half an hour, PyTorch's
# usual time limit. Two lines make such a hang readable, and belong into every training program: a short `timeout`, and
# `faulthandler`, which prints where a process is after some seconds.
#
# The cell runs it for a few seconds and shows, for each rank, the stack it was in. Find the line of each rank before
# you read on.

# %% tags=["experiment"]
PROGRAM = """
import faulthandler
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=4))
faulthandler.dump_traceback_later(2)
loss = torch.tensor(float(dist.get_rank()))
if dist.get_rank() == 0:
    dist.all_reduce(loss)
    print("mean loss", loss / 2)
dist.barrier()
"""


def stacks_of_a_hang():
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "train.py")
        program.write_text(PROGRAM.lstrip())
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command += ["--log-dir", folder, "--redirects", "3", str(program)]
        subprocess.run(command, capture_output=True, timeout=60)
        for log in sorted(Path(folder).glob("*/attempt_0/*/stderr.log")):
            dump = log.read_text().partition("Timeout (")[2].partition("Traceback")[0]
            print(f"rank {log.parent.name}, innermost call first:")
            for line in re.findall(r'File ".*?([^/\\"]+)", line (\d+) in (.+)', dump):
                print("  {}, line {}, in {}".format(*line))


print("train.py")
for number, line in enumerate(PROGRAM.strip().splitlines(), 1):
    print(f"{number:4}  {line}")
if FAST:
    print("left out when FAST: starting torchrun takes several seconds")
else:
    try:
        stacks_of_a_hang()
    except subprocess.TimeoutExpired:
        print("torchrun has not come to an end within a minute on this machine")

# %% [markdown]
# Rank 0 is in `all_reduce`, rank 1 is further down in `barrier`: two different collectives, each waiting for the
# other. Do not ask why rank 1 hangs; ask why the two are not in the same line. The cure is to take the call out of the
# `if`, and to leave only the `print` in it.

# %% [markdown]
# ## 8. On real hardware, and what you know now (1 min)
#
# With one GPU a rank the messages go through NCCL, over NVLink or the network card. NCCL has rings and trees of its
# own and chooses between them by size, as you did. It runs on the GPU beside your computation, so a hang shows only
# when somebody waits for a result: the two lines of section 7 matter even more there. This program runs your ring on
# two ranks, wherever `torchrun` finds them; `ring.py` is a file with your function in it:
#
# ```
# import torch.distributed as dist
# from lockstep.comm import from_torch
# from ring import my_ring, tensor
# dist.init_process_group()
# my_ring(from_torch(), tensor)
# ```
#
# ```
# torchrun --nproc-per-node=2 program.py
# ```
#
# **Summary**
# - A message needs two. Whoever sends and receives at the same time uses a handle, or one `exchange`.
# - Every rank makes the same collectives in the same order.
# - A ring moves less than two tensors for each rank, however many there are, in 2(p - 1) messages.
# - Latency + bytes / bandwidth: short tensors want few messages, long ones few bytes.
#
# Questions. Choose, say how sure you are, and read why.

# %%
ask("04.q1")

# %%
ask("04.q2")

# %%
ask("04.q3")

# %%
ask("04.q4")

# %% [markdown]
# And a riddle: the run of a wrong function of this lab, or now and then of a right one. Run the cell again for
# another.

# %%
diagnose("04")

# %% [markdown]
# What you have done so far; `submit("04")` makes the file to hand in, if somebody asked you for it.

# %%
progress("04")

# %% [markdown]
# **References**
# - P. Patarasu, X. Yuan (2009), "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of
# Parallel and Distributed Computing 69(2), 117-124: the ring, and that no all-reduce sends less.
# - R. Thakur, R. Rabenseifner, W. Gropp (2005), "Optimization of collective communication operations in MPICH",
#   International Journal of High Performance Computing Applications 19(1), 49-66: trees, doubling, and when to use
#   which.
# - R. Rabenseifner (2004), "Optimization of collective reduction operations", ICCS 2004, LNCS 3036, 1-9.
# - R. W. Hockney (1994), "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel Computing
#   20(3), 389-398: latency and bandwidth as a model.
# - NVIDIA, nccl-tests, doc/PERFORMANCE.md: bus bandwidth; NCCL documentation, "Environment variables": rings and
#   trees.
