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
# # Lab 05 · Data parallel
#
# **Time:** 90 minutes, core exercises included. Exercises marked *stretch* come on top.
#
# **You will be able to**
# - share out the images of an epoch so that every rank trains and none is seen twice;
# - average gradients so that many small shards make exactly the step of one big batch;
# - send gradients while backward still computes, and read from a timeline how much of that is hidden;
# - train with your own data parallelism and measure it beside PyTorch's;
# - say what a larger batch and a stale gradient cost in accuracy, not only what they save in seconds.
#
# **You need:** lab 04 (all-reduce, the price of a message), and a training loop in PyTorch.

# %% tags=["parameters"]
RANKS = 2  # real processes, each with one thread
FAST = False  # True: shorter training, for a quick pass
SEED = 0

# %% [markdown]
# The picture is a real run: on each rank three training steps of the same network with its own images. Gradients
# travel in the thin rows, beside the computation. At the end of section 4 your own code will draw this picture.

# %% tags=["stable"]
import math
import os
import time

import torch
from IPython.display import display
from matplotlib.figure import Figure
from torch.nn.functional import cross_entropy

from lockstep import data, viz
from lockstep.comm import Central, predict_seconds
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
from lockstep.nn import LARS, LeNet
from lockstep.parallel import DistributedDataParallel, ParameterServer
from lockstep.trace import overlap_share
from lockstep.train import averaged_by, train, wrapped_by
from lockstep.viz.buckets import ReadyGradient, bucket_player, bucket_timeline
from lockstep.world import launch, simulate

# %%
torch.set_num_threads(1)
digits, held_out = data.load("mnist5k", "train"), data.load("mnist5k", "test", verbose=False)
normalize = data.Normalize.of(digits.images)
X, Y = normalize(digits.images), digits.labels
X_held_out, Y_held_out = normalize(held_out.images), held_out.labels


def some_steps(comm, images, labels):
    model = LeNet()
    wrapped = DistributedDataParallel(model, comm, bucket_bytes=50_000)
    for _ in range(3):
        with comm.span("forward"):
            loss = cross_entropy(wrapped(images), labels)
        with comm.span("backward"):
            loss.backward()


SHOWN = 64 if FAST else 256  # images of each step
launch(some_steps, RANKS, X[:SHOWN], Y[:SHOWN])  # the first run starts the machinery
run = launch(some_steps, RANKS, X[:SHOWN], Y[:SHOWN])
viz.timeline(run, title=f"Three training steps on {RANKS} ranks, the library's DistributedDataParallel")

# %% [markdown]
# Three questions from earlier labs first; those that you missed come before the others.

# %%
recall("05")

# %% [markdown]
# ## 1. One model, many shards (12 min)
#
# *Data parallel* training puts the whole model on every rank and divides the *images*. In each step a rank works on
# its shard of the batch; then the ranks put their gradients together and all take the same step. Their models stay
# equal for as long as three things hold: they begin equal, they take equal steps, and no image is missed or counted
# twice. The third comes first.
#
# An *epoch* goes through all images once. Which rank takes which image in which epoch must be known to every rank
# without asking. So each rank shuffles *all* indices in the same way, from `seed` and `epoch`, and takes its own part.
#
# A random generator of one's own is three lines. This one draws the same numbers wherever it runs, and whatever else
# draws random numbers does not notice:

# %% tags=["stable"]
own = torch.Generator()
own.manual_seed(7)
print(torch.randint(100, (5,), generator=own).tolist())

# %% [markdown]
# ### Exercise 05.1 · `shard`
#
# Return the indices of the images that `rank` of `size` works on in `epoch`, as a list or a 1-D tensor. Over all
# ranks each of 0 to `n - 1` comes exactly once, and the sizes of the ranks' parts differ by at most one. The order
# is shuffled, another one in each epoch; equal arguments give equal indices. Leave the global generators
# (`torch.manual_seed` and the like) alone: dropout draws from them.


# %% tags=["exercise", "05.1"]
def shard(n, rank, size, epoch, seed):
    """Return the indices of the images that `rank` of `size` works on in `epoch`."""
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return order[rank::size].tolist()
    ### END SOLUTION
    ### BEGIN STUB
    # generator = torch.Generator()
    # # what does its seed depend on?
    # order = ...  # all n indices, shuffled
    # raise NotImplementedError("return this rank's part of the order")
    ### END STUB


# %% tags=["check", "05.1"]
check("05.1", shard)

# %% [markdown]
# What your function makes of ten images and two ranks, over three epochs:

# %%
my_shard = mine("05.1")
for epoch in range(3):
    print(f"epoch {epoch}:", "  ".join(f"rank {r} {list(my_shard(10, r, 2, epoch, SEED))}" for r in range(2)))

# %% [markdown]
# A shuffled batch may by chance hold no 7 at all. A *stratified* sampler deals out every class evenly, so each step
# has the classes in the shares that the whole set has. The library's `DistributedSampler` does it when it gets the
# labels; the table counts the digits in rank 0's first batch of 20, in both ways.

# %%
for words, what in (("shuffled", len(Y)), ("stratified", Y)):
    sampler = data.DistributedSampler(what, rank=0, size=RANKS, seed=SEED)
    first = next(iter(sampler.batches(20 * RANKS)))
    print(f"{words:10}  images of digits 0 to 9: {torch.bincount(Y[first], minlength=10).tolist()}")

# %% [markdown]
# Two more things stand between the disk and the network. Pixels are *normalised*, shifted and scaled so that their
# mean is 0 and their deviation 1, with the figures of the *training* images on every rank; and labels may be given
# *one-hot*, as rows with a 1 at the class. Both can be undone:

# %%
one_hot = data.OneHot(10)
print(f"mean {X.mean():.4f}, deviation {X.std():.4f}; undone, the pixels differ by at most", end=" ")
print(f"{(normalize.inverse(X) - digits.images).abs().max():.0e}")
print(
    "label",
    Y[0].item(),
    "one-hot",
    one_hot(Y[:1])[0].int().tolist(),
    "and back",
    one_hot.inverse(one_hot(Y[:1])).item(),
)

# %% [markdown]
# Reading and decoding images takes time too. *Prefetching* hides it: other processes make the next batches ready
# while this one computes, `data.Loader(images, batch, sampler, workers=2)` here and `torch.utils.data.DataLoader`
# underneath. `data.Cache` keeps what was read once for later epochs. The digits of this lab lie in memory, so there
# is nothing to hide.

# %% [markdown]
# ## 2. The gradient of the big batch (14 min)
#
# The loss of a batch is the mean of its images' losses. So its gradient is the mean of the images' gradients, and a
# mean can be put together from parts. That is why data parallel training works at all: ranks that divide a batch
# among themselves can make exactly the step that one process makes with the whole of it.
#
# Predict: 2 ranks with 32 images each take 20 steps. One process takes 20 steps with the same 64 images. What is the
# largest difference between a parameter there and here, in the end?

# %% tags=["predict"]
predict("05.p1", None)

# %% [markdown]
# ### Exercise 05.2 · `average_gradients`
#
# Backward has run; each rank's loss was the mean over its own `samples`. Change every trained parameter's `.grad`,
# on every rank, into the gradient of the mean over *all* samples. The ranks may have unequal numbers of them; one
# may have none, but in all there is at least one. A gradient that is None counts as zeros, and every rank has to
# make the same calls in the same order.
#
# A parameter is *frozen* when its `requires_grad` is False: it is not trained, on any rank, and its `.grad` stays
# None. It is *tied* when two layers share it; `model.parameters()` gives it once, and it has one gradient. As in lab
# 04, `comm.all_reduce(tensor)` adds up tensors over the ranks, in place; with `op="mean"` it takes their mean.


# %% tags=["exercise", "05.2"]
def average_gradients(model, comm, samples):
    """Make each `.grad` the gradient of the mean loss over the samples of all ranks."""
    ### BEGIN SOLUTION
    total = comm.all_reduce(torch.tensor(float(samples)))
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad *= samples / total
            comm.all_reduce(parameter.grad)
    ### END SOLUTION
    ### BEGIN STUB
    # total = ...  # samples of all ranks together
    # for parameter in model.parameters():
    #     ...  # frozen? without a gradient? how much does this rank count?
    # raise NotImplementedError("make every gradient that of the mean over all samples")
    ### END STUB


# %% tags=["check", "05.2"]
check("05.2", average_gradients)

# %% [markdown]
# Now the comparison that you predicted: on each rank every second image of the batch, and one process with all of
# them.

# %% tags=["experiment"]
my_average = mine("05.2")


def twenty_steps(comm, images, labels, average):
    torch.manual_seed(SEED)  # the same parameters on every rank
    model = LeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(20):
        batch = torch.arange(64 * step, 64 * (step + 1))[comm.rank :: comm.size] % len(labels)
        optimizer.zero_grad()
        cross_entropy(model(images[batch]), labels[batch]).backward()
        average(model, comm, len(batch))
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


divided = launch(twenty_steps, 2, X[:640], Y[:640], my_average).values
whole = launch(twenty_steps, 1, X[:640], Y[:640], lambda *_: None).values[0]
print(f"with {whose('05.2')} average_gradients, after 20 steps:")
print(f"rank 0 and rank 1 differ by at most          {(divided[0] - divided[1]).abs().max():.1e}")
print(f"two ranks and one process differ by at most  {(divided[0] - whole).abs().max():.1e}")

# %%
reveal("05.p1", (divided[0] - whole).abs().max().item())

# %% [markdown]
# Not nothing, and not more than rounding. A sum of 64 numbers in another order is rounded in another way. The two
# ranks agree to the last bit, since both got the same bytes from the same all-reduce.
#
# The weights matter as soon as the shards differ, as they do in the last step of an epoch. The next cell gives one
# rank 8 images and the other 56, and looks at the error of the gradient, relative to its length.

# %% tags=["experiment"]
model = LeNet()


def gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


cross_entropy(model(X[:64]), Y[:64]).backward()
exact = gradient(model)


def uneven(comm, model, average):
    part = slice(0, 8) if comm.rank == 0 else slice(8, 64)
    model.zero_grad()
    cross_entropy(model(X[part]), Y[part]).backward()
    average(model, comm, part.stop - part.start)
    return gradient(model)


def mean_of_means(model, comm, samples):
    for p in model.parameters():
        comm.all_reduce(p.grad, op="mean")


for words, average in (("ranks count alike", mean_of_means), (f"weighted, {whose('05.2')} function", my_average)):
    found = simulate(uneven, 2, model, average).values[0]
    print(f"{words:34} relative error {(found - exact).norm() / exact.norm():.1e}")

# %% [markdown]
# Some layers know of the batch, and there the equality ends. *Dropout* draws its mask from the global generator, and
# the ranks have to draw *different* masks: the same mask everywhere would leave out the same units for every image
# of the batch. *Batch norm* uses the mean and variance of the images that it sees, so each rank normalises by its
# own few; section 7 mends that.

# %% [markdown]
# ## 3. What it costs (8 min)
#
# Before all-reduce became usual, gradients went through one machine: everybody sends to rank 0, which adds up and
# sends the result back, a *parameter server* in its synchronous form. The library keeps it as `Central()`. Count the
# bytes that the busiest rank sends in one step, on more and more ranks.
#
# Predict: with 16 ranks, how many times as many bytes does rank 0 send with `Central()` as a rank in a ring?

# %% tags=["predict"]
predict("05.p2", None)


# %% tags=["experiment"]
def one_step(comm, exchange):
    torch.manual_seed(SEED)
    model = torch.nn.Linear(100, 100)
    wrapped = DistributedDataParallel(model, comm, exchange=exchange)
    before = comm.traffic.bytes_sent
    wrapped(torch.ones(1, 100)).sum().backward()
    return comm.traffic.bytes_sent - before


print(f"{'ranks':>5} {'through rank 0':>15} {'ring':>10}   bytes sent by the busiest rank in a step")
for ranks in (2, 16) if FAST else (2, 4, 8, 16):
    busiest = [max(simulate(one_step, ranks, exchange).values) for exchange in (Central(), None)]
    print(f"{ranks:5} {busiest[0]:15,} {busiest[1]:10,}")

# %%
reveal("05.p2", busiest[0] / busiest[1])

# %% [markdown]
# Rank 0 sends a whole gradient to each of the others; in a ring every rank sends less than two, however many there
# are. That is why training left the middle machine. Section 8 comes back to it, for another reason.
#
# The other cost is the number of messages. Your function makes an all-reduce for each parameter, after backward, and
# each pays the latency. The next cell records one backward pass of LeNet on this machine, in one process, and makes a
# *profile* of it: seconds for each layer. Later `comm.charge(model, profile)` moves a simulated rank's clock by these
# seconds each time a layer runs, on ranks that are joined by a link of 1 Gbit/s. Forward is charged with half of
# backward's: it multiplies once by each weight, backward twice, for the gradients of the inputs and of the weights.

# %% tags=["experiment"]
BATCH = 64 // RANKS  # images of one rank
LINK = Link(latency=50e-6, bandwidth=125e6)  # 1 Gbit/s
NETWORK = Cluster.uniform(LINK)


def record(model, images, labels):
    """When each gradient was ready, and each layer's seconds: medians over some steps."""
    clock, ready, layers = time.perf_counter, {}, {}
    hooks = [
        p.register_post_accumulate_grad_hook(lambda p: ready.setdefault(p, []).append(clock() - begun))
        for p in model.parameters()
    ]
    for _ in range(4 if FAST else 12):
        loss = cross_entropy(model(images), labels)
        begun = clock()
        loss.backward()
        model.zero_grad()
    for hook in hooks:
        hook.remove()
    seconds = {name: torch.tensor(ready[p][1:]).median().item() for name, p in model.named_parameters()}
    before = 0.0
    for name, when in sorted(seconds.items(), key=lambda pair: pair[1]):
        layer = name.rpartition(".")[0]
        layers[layer] = layers.get(layer, 0.0) + when - before
        before = when
    gradients = [ReadyGradient(name, p.nbytes, seconds[name]) for name, p in model.named_parameters()]
    return gradients, {layer: LayerCost(forward=s / 2, backward=s) for layer, s in layers.items()}


gradients, profile = record(LeNet(), X[:BATCH], Y[:BATCH])
for g in sorted(gradients, key=lambda g: g.ready):
    print(f"{1000 * g.ready:6.2f} ms  {g.name:22} {g.bytes:8,} bytes")

# %% [markdown]
# The last layer's gradients come first, the first convolution's last, and most bytes are ready early. Now your
# function on two such ranks: the orange all-reduces stand one after the other *behind* backward, and nothing is
# computed meanwhile.


# %% tags=["experiment"]
def naive_step(comm, average):
    torch.manual_seed(SEED)
    model = LeNet()
    comm.charge(model, profile)
    part = slice(comm.rank * 4, comm.rank * 4 + 4)  # few images: the seconds come from the recording
    loss = cross_entropy(model(X[part]), Y[part])
    loss.backward()
    average(model, comm, 4)


naive = simulate(naive_step, 2, my_average, cluster=NETWORK)
viz.timeline(naive, title=f"A step with {whose('05.2')} average_gradients, 1 Gbit/s")

# %% [markdown]
# ## 4. Buckets, sent behind the backward pass (26 min)
#
# Two changes shrink the orange part. *Buckets*: small gradients travel together, so that fewer
# latencies are paid. *Overlap*: a bucket is sent as soon as its last gradient is ready, while backward still computes
# the layers before it.
#
# ### Exercise 05.3 · `make_buckets`
#
# Return a list of buckets, each a list of indices into `parameters`. Go from the last parameter to the first, since
# that is about the order in which gradients become ready, and leave out the frozen ones. The open bucket closes as
# soon as it holds `bucket_bytes` or more, and also when the next trained parameter has another dtype, since a bucket
# becomes one flat tensor.


# %% tags=["exercise", "05.3"]
def make_buckets(parameters, bucket_bytes):
    """Return buckets of indices into `parameters`, in the order in which they will be sent."""
    ### BEGIN SOLUTION
    buckets, filled, dtype = [], bucket_bytes, None
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        if not parameter.requires_grad:
            continue
        if filled >= bucket_bytes or parameter.dtype != dtype:
            buckets.append([])
            filled, dtype = 0, parameter.dtype
        buckets[-1].append(index)
        filled += parameter.nbytes
    return buckets
    ### END SOLUTION


# %% tags=["check", "05.3"]
check("05.3", make_buckets)

# %% [markdown]
# From here on `make_buckets` is yours once it has passed, and the library's until then.

# %%
make_buckets = mine("05.3")

# %% [markdown]
# How do you learn that a gradient is ready, in the middle of backward? By a *hook*: a function that autograd calls.
# Run this worked example before you go on. `register_post_accumulate_grad_hook` calls the function each time when
# the parameter's `.grad` is complete; what the hook does, backward waits for.

# %% tags=["stable"]
layers = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
names = {parameter: name for name, parameter in layers.named_parameters()}
order = []
for parameter in layers.parameters():
    parameter.register_post_accumulate_grad_hook(lambda p: order.append((names[p], list(p.grad.shape))))

loss = layers(torch.ones(4, 2)).sum()
order.append("backward begins")
loss.backward()
order.append("backward has ended")
print(*order, sep="\n")

# %% [markdown]
# And how do you send without waiting? `async_op=True` makes a collective return a *handle* at once. The tensor belongs
# to the call until `handle.wait()` has returned; only then the result is in it.


# %%
def send_and_go_on(comm):
    flat = torch.full((3,), float(comm.rank))
    handle = comm.all_reduce(flat, op="mean", async_op=True)
    meanwhile = sum(range(1000))  # the ranks compute while the numbers travel
    handle.wait()
    return meanwhile, flat.tolist()


print(simulate(send_and_go_on, 2).values)

# %% [markdown]
# ### Exercise 05.4 · `OverlappedDDP`
#
# A class with three duties.
# - `OverlappedDDP(model, comm, bucket_bytes)` copies rank 0's parameters and buffers to all ranks, and registers a
#   hook on every trained parameter. When the last gradient of a bucket is ready, one asynchronous all-reduce of the
#   bucket starts, as one flat tensor, and backward goes on.
# - `finish()` is called after backward. It waits, puts the means over the ranks into `.grad`, and forgets the handles.
# - The attribute `sync` is True at first. While somebody has set it to False, backward only adds up gradients, as it
#   does without you, and nothing is sent. The next backward with `sync` sends the sums.
#
# You may count on it that in every backward each trained parameter gets a gradient. What you need:
# `comm.broadcast(t, src)` copies the tensor `t` of rank `src` to all ranks, in place, parameters included.
# `make_buckets(list(model.parameters()), bucket_bytes)` wants a list. And a hook is given its parameter, not an index:
# keep a dict by parameter, like `names` above.


# %% tags=["exercise", "05.4"]
class OverlappedDDP:
    """Averages gradients over ranks while backward runs."""

    ### BEGIN SOLUTION
    def __init__(self, model, comm, bucket_bytes):
        self.comm, self.sync, self.started = comm, True, []
        parameters = list(model.parameters())
        for tensor in [*parameters, *model.buffers()]:
            comm.broadcast(tensor, src=0)
        for indices in make_buckets(parameters, bucket_bytes):
            bucket = [parameters[i] for i in indices]
            ready = []
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda p, b=bucket, r=ready: self.count(p, b, r))

    def count(self, parameter, bucket, ready):
        if self.sync:
            ready.append(parameter)
            if len(ready) == len(bucket):
                ready.clear()
                flat = torch.cat([p.grad.flatten() for p in bucket])
                self.started.append((bucket, flat, self.comm.all_reduce(flat, op="mean", async_op=True)))

    def finish(self):
        for bucket, flat, handle in self.started:
            handle.wait()
            for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                parameter.grad.copy_(part.view_as(parameter))
        self.started = []

    ### END SOLUTION
    ### BEGIN STUB
    # def __init__(self, model, comm, bucket_bytes):
    #     raise NotImplementedError("copy rank 0's parameters and buffers, make buckets, register hooks")
    #
    # def finish(self):
    #     raise NotImplementedError("wait for the reductions and put the means into .grad")
    ### END STUB


# %% tags=["check", "05.4"]
check("05.4", OverlappedDDP)

# %% [markdown]
# The same two ranks on the same link as in section 3, now with your class and buckets of 50,000 bytes.
#
# Predict: of the time in which gradients travel, which share will be hidden behind backward? Give it as a number from
# 0 to 1, like 0.5 for half.

# %% tags=["predict"]
predict("05.p3", None)

# %% tags=["experiment"]
my_ddp = mine("05.4")


def overlapped_step(comm, ddp_class, bucket_bytes, costs, parts=1, sync_all=False):
    cross_entropy(LeNet()(X[:4]), Y[:4]).backward()  # the first pass of a process takes longer
    torch.manual_seed(SEED + comm.rank)  # unequal at first: the constructor has to mend that
    model = LeNet()
    ddp = ddp_class(model, comm, bucket_bytes)
    comm.barrier()
    charged = comm.charge(model, costs)
    for part in range(parts):
        ddp.sync = sync_all or part == parts - 1
        images = slice(4 * (parts * comm.rank + part), 4 * (parts * comm.rank + part + 1))
        cross_entropy(model(X[images]), Y[images]).backward()
        if ddp.sync:
            ddp.finish()
    charged.remove()


def only_the_step(run):
    """The run without the broadcasts of the constructor: from the first computation on."""
    begun = min(span.start for span in run.trace.spans if span.kind == "compute")
    keep = [s for s in run.trace.spans if s.start >= begun], [m for m in run.trace.messages if m.sent >= begun]
    return type(run.trace).of(run.trace.ranks, *keep, run.trace.world)


overlapped = only_the_step(simulate(overlapped_step, 2, my_ddp, 50_000, profile, cluster=NETWORK))
viz.timeline(
    naive.trace,
    f"A step, 1 Gbit/s: {whose('05.2')} average_gradients and {whose('05.4')} OverlappedDDP",
    compare=overlapped,
    labels=("naive", "overlapped"),
)

# %%
reveal("05.p3", overlap_share(overlapped))

# %% [markdown]
# The thin rows carry the buckets. Only the last one, with the gradients of the first layers, has nothing left to hide
# behind.
#
# How large should a bucket be? Below is the recorded backward pass again. The upper part shows one size; the lower
# one the time that is *exposed*, in which a step only waits, for all sizes. Seconds of a reduction come from lab
# 04's formula for a ring of two ranks on this link.


# %%
def reduce_seconds(nbytes):
    return predict_seconds("ring_all_reduce", nbytes, 2, LINK.latency, LINK.bandwidth)


SIZES = (1, 50_000, 300_000) if FAST else (1, 20_000, 50_000, 300_000)
bucket_timeline(
    gradients, 50_000, reduce_seconds, SIZES, "LeNet's gradients in buckets (recorded; reductions predicted)"
)

# %% [markdown]
# Move the slider and watch the line under the title. At 1 byte every gradient travels alone: each pays two
# latencies, and all together they are on their way for longer. At 300,000 bytes there is one bucket, which is full
# when backward has ended; nothing of it is hidden.

# %% tags=["widget"]
bucket_player(gradients, reduce_seconds, SIZES, "LeNet's gradients in buckets (recorded; reductions predicted)")

# %% [markdown]
# **Accumulation without sync.** Four backward passes before one step make a batch four times as large in the same
# memory (lab 03). Only the last of them needs to send. PyTorch calls it `no_sync()`; in your class it is `sync`.
# Count the reductions of rank 0:

# %%
for words, sync_all in (("sent after each of 4 passes", True), ("sync in the last pass only", False)):
    run = only_the_step(simulate(overlapped_step, 2, my_ddp, 50_000, profile, 4, sync_all, cluster=NETWORK))
    count = sum(s.kind == "collective" and s.rank == 0 for s in run.spans)
    print(f"{words:28} {count:3} reductions, {1000 * (run.window[1] - run.window[0]):5.1f} ms (simulated)")

# %% [markdown]
# ## 5. The real thing (6 min)
#
# Now train for real, in processes, with both of your pieces of code, with the library's `DistributedDataParallel`,
# and with PyTorch's. A *strategy* is a function that is given communicator, model and optimizer, and returns the
# step; so PyTorch's is ten lines. `averaged_by` and `wrapped_by` make strategies of your function and your class.


# %%
def torch_ddp(comm, model, optimizer):
    wrapped = torch.nn.parallel.DistributedDataParallel(model)

    def step(images, labels, batch):
        optimizer.zero_grad()
        loss = cross_entropy(wrapped(images), labels, reduction="sum") / batch
        (loss * comm.size).backward()  # DistributedDataParallel takes the mean over ranks
        optimizer.step()
        return comm.all_reduce(loss.detach().double()).item()

    return step


# %% [markdown]
# All runs see the same batches of 64 images and begin with the same parameters; each rank has one thread. The last
# line is the fair opponent: one process with all cores.

# %% tags=["experiment"]
CORES = os.cpu_count()
plans = {
    "1 rank": (1, "none", 1),
    f"{RANKS} ranks, {whose('05.2')} average_gradients": (RANKS, averaged_by(my_average), 1),
    f"{RANKS} ranks, {whose('05.4')} OverlappedDDP": (RANKS, wrapped_by(my_ddp, 50_000), 1),
    f"{RANKS} ranks, lockstep's": (RANKS, "ddp", 1),
    f"{RANKS} ranks, PyTorch's": (RANKS, torch_ddp, 1),
    f"1 rank, {CORES} threads": (1, "none", CORES),
}
results = {}
for name, (ranks, strategy, threads) in plans.items():
    options = {"epochs": 1, "batch": 64, "fast": FAST, "threads": threads, "seed": SEED, "timeout": 300}
    results[name] = launch(train, ranks, strategy, verbose=False, **options).values[0]

base = results["1 rank"].seconds
print(f"{'':42} {'s':>6} {'ms/step':>8} {'speed-up':>9} {'right':>7}")
for name, result in results.items():
    per_step = 1000 * result.seconds / len(result.losses)
    print(f"{name:42} {result.seconds:6.2f} {per_step:8.1f} {base / result.seconds:9.2f} {result.accuracy:7.1%}")

# %% [markdown]
# The loss of every step, of all these runs: the curves lie on each other, since all of them take the steps of the big
# batch. What differs is how fast they come.


# %%
def loss_figure():
    styles = zip(results.items(), ("-", "--", "-.", ":", "--", ":"), ("o", "s", "^", "D", "v", "x"), strict=True)
    colors = ("#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7")
    figure = Figure(figsize=(9.4, 3.6))
    figure.set_layout_engine("constrained")
    by_step, by_seconds = figure.subplots(1, 2, sharey=True)
    for ((name, result), line, marker), color in zip(styles, colors, strict=True):
        losses = torch.tensor(result.losses)
        look = {
            "linestyle": line,
            "marker": marker,
            "markevery": max(1, len(losses) // 6),
            "color": color,
            "markersize": 4,
        }
        by_step.plot(losses, label=name, **look)
        by_seconds.plot(torch.linspace(0, result.seconds, len(losses)), losses, **look)
    by_step.set(xlabel="step", ylabel="loss", title="by step")
    by_seconds.set(xlabel="seconds of training (measured)", title="by seconds")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    ends = ", ".join(f"{name} {result.losses[-1]:.3f} after {result.seconds:.2f} s" for name, result in results.items())
    return viz.Figure(figure, alt=f"Loss by step and by seconds, batch 64. Last losses: {ends}.")


loss_figure()

# %% [markdown]
# And your class in real processes, three steps. What overlaps here overlaps on real cores: gloo moves the bytes with
# threads of its own, which need a core too when all are busy computing.


# %% tags=["experiment"]
def measured_steps(comm, ddp_class, images, labels):
    model = LeNet()
    ddp = ddp_class(model, comm, 50_000)
    for _ in range(3):
        with comm.span("forward"):
            loss = cross_entropy(model(images), labels)
        with comm.span("backward"):
            loss.backward()
        ddp.finish()


run = launch(measured_steps, RANKS, my_ddp, X[:SHOWN], Y[:SHOWN])
viz.timeline(only_the_step(run), title=f"Three steps with {whose('05.4')} OverlappedDDP")

# %% [markdown]
# Four ranks need four cores, which you may not have. A *paced* run is the way out: real processes with real messages,
# which sleep until as much time has passed as the recording and the link say. Sleeping needs no core. The simulated
# world says beforehand how long the step will take. Layers and link are ten times as slow here as in section 3, so that
# the little that four ranks really compute is lost in the waiting.

# %% tags=["experiment"]
SLOWER = 10
slow_profile = {name: LayerCost(SLOWER * c.forward, SLOWER * c.backward) for name, c in profile.items()}
slow_link = Link(SLOWER * LINK.latency, LINK.bandwidth / SLOWER)
what = (overlapped_step, 4, my_ddp, 50_000, slow_profile)
paced = only_the_step(launch(*what, pace=True, link=slow_link))
simulated = only_the_step(simulate(*what, cluster=Cluster.uniform(slow_link)))
for world, trace in (("simulated", simulated), ("paced", paced)):
    print(f"a step on 4 ranks, 0.1 Gbit/s, {world:9}: {1000 * (trace.window[1] - trace.window[0]):5.0f} ms")
viz.timeline(paced, title=f"A step with {whose('05.4')} OverlappedDDP on 4 ranks, 0.1 Gbit/s")

# %% [markdown]
# ## 6. Larger batches, longer steps (6 min)
#
# More ranks usually mean a larger batch: each keeps its images, so that its cores stay busy. An epoch then has fewer
# steps, and each image takes less time. Is training over sooner, too?
#
# The next experiment answers with a small CNN in one process. Two runs have the same learning rate, one with batches
# of 16 and one with batches of 256. Predict: how many times as many *images* does the large batch need until 80 % of
# the held-out digits are right?

# %% tags=["predict"]
predict("05.p4", None)


# %% tags=["experiment"]
def small_cnn():
    """Two convolutions and two linear layers, initialised as He et al. (2015) propose."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, stride=2), torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 5, stride=2), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(256, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10),
    )  # fmt: skip
    for layer in net:
        if hasattr(layer, "weight"):
            torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            torch.nn.init.zeros_(layer.bias)
    return net


@torch.no_grad()
def share_right(net):
    return (net(X_held_out).argmax(dim=1) == Y_held_out).double().mean().item()


def train_small(batch, epochs, lr_of_step, optimizer=None, seed=SEED):
    """Seconds of training and accuracy, four times an epoch."""
    torch.manual_seed(seed)
    net = small_cnn()
    opt = optimizer(net) if optimizer else torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    steps, seconds, curve = len(Y) // batch, 0.0, []
    for step in range(int(epochs * steps)):
        begun = time.perf_counter()
        chosen = data.permutation(len(Y), seed, step // steps)[batch * (step % steps) : batch * (step % steps + 1)]
        for group in opt.param_groups:
            group["lr"] = lr_of_step(step)
        opt.zero_grad()
        cross_entropy(net(X[chosen]), Y[chosen]).backward()
        opt.step()
        seconds += time.perf_counter() - begun
        if (step + 1) % max(1, steps // 4) == 0:
            curve.append((seconds, share_right(net)))
    return curve


def first_at(curve, wanted):
    """When so many are right for the first time: seconds, and epochs."""
    at = next((k for k, (_, right) in enumerate(curve) if right >= wanted), None)
    return (math.nan, math.nan) if at is None else (curve[at][0], (at + 1) / 4)


BASE_LR, WANTED = 0.015, 0.1 if FAST else 0.8
small_batch = train_small(16, 0.25 if FAST else 1, lambda step: BASE_LR)
large_batch = train_small(256, 0.5 if FAST else 4, lambda step: BASE_LR)
print(f"{'':9} {'ms/step':>8} {'images/s':>9}  until {WANTED:.0%} are right")
for batch, curve in ((16, small_batch), (256, large_batch)):
    rate = len(curve) / 4 * len(Y) / curve[-1][0]
    seconds, epochs = first_at(curve, WANTED)
    print(f"batch {batch:3} {1000 * batch / rate:8.1f} {rate:9,.0f}  {epochs:4.2f} epochs, {seconds:5.2f} s")

# %%
reveal("05.p4", first_at(large_batch, WANTED)[1] / first_at(small_batch, WANTED)[1])

# %% [markdown]
# The large batch takes in more images a second, and throws much of that away: however exact its gradient is, a step
# is one step, where the small batch makes 16. So take it 16 times as long: the **linear scaling rule** (Goyal et al.
# 2017). It fails where the gradient changes over that distance, above all at the very start; hence the **warm-up**,
# in which the rate rises from the small batch's to the scaled one, a little at every step.
#
# ### Exercise 05.5 · `scaled_lr` (stretch)
#
# The learning rate of step `step`, counted from 0. The full rate is `base_lr * batch / base_batch`. Over the first
# `warmup_epochs` epochs of `steps_per_epoch` steps it rises evenly from `base_lr`, at step 0, to the full rate,
# which the first step after the warm-up has. From then on it stays. `warmup_epochs` may be 0.


# %% tags=["exercise", "05.5"]
def scaled_lr(step, steps_per_epoch, base_lr, base_batch, batch, warmup_epochs):
    """Return the learning rate of `step`."""
    ### BEGIN SOLUTION
    full_lr = base_lr * batch / base_batch
    warmup_steps = warmup_epochs * steps_per_epoch
    if step >= warmup_steps:
        return full_lr
    return base_lr + (full_lr - base_lr) * step / warmup_steps
    ### END SOLUTION


# %% tags=["check", "05.5"]
check("05.5", scaled_lr)

# %% [markdown]
# Four ways to train with batches of 256: the small batch's rate; the scaled rate at once; the scaled rate after a
# warm-up of two epochs; and LARS (You et al. 2017), which gives each layer a rate of its own, in proportion to the
# size of its weights and against that of its gradient. How a run ends depends on where it starts, so each way gets
# two starts, shared out to the ranks. Thick lines are means, thin ones single starts; the legend says where the
# means end.

# %% tags=["experiment"]
my_lr = mine("05.5")
PER_EPOCH, STARTS, LONG = len(Y) // 256, 2, 0.25 if FAST else 3


def lars(net):
    return LARS(net.parameters(), lr=1.0, momentum=0.9, trust=0.01)


WAYS = {
    "rate of batch 16": (lambda s: BASE_LR, None),
    "scaled, no warm-up": (lambda s: my_lr(s, PER_EPOCH, BASE_LR, 16, 256, 0), None),
    "scaled, warm-up of 2 epochs": (lambda s: my_lr(s, PER_EPOCH, BASE_LR, 16, 256, 2), None),
    "LARS": (lambda s: 1.0, lars),
}


def from_some_starts(comm):
    own = range(SEED + comm.rank, SEED + STARTS, comm.size)
    return {way: [[r for _, r in train_small(256, LONG, *how, seed)] for seed in own] for way, how in WAYS.items()}


parts = launch(from_some_starts, RANKS, timeout=300).values
curves = {way: torch.tensor([curve for part in parts for curve in part[way]]) for way in WAYS}


def batch_figure():
    figure = Figure(figsize=(9.4, 3.4))
    figure.set_layout_engine("constrained")
    axis = figure.subplots()
    looks = (("-", "o", "#0072B2"), ("--", "X", "#D55E00"), ("-.", "s", "#009E73"), (":", "D", "#CC79A7"))
    for (way, starts), (line, marker, color) in zip(curves.items(), looks, strict=True):
        epochs = torch.arange(1, starts.shape[1] + 1) * LONG / starts.shape[1]
        axis.plot(epochs, 100 * starts.T, linestyle=line, color=color, linewidth=0.6)
        label = f"{way}: {starts[:, -1].mean():.0%}"
        axis.plot(
            epochs, 100 * starts.mean(dim=0), label=label, linestyle=line, marker=marker, color=color, linewidth=2
        )
    axis.set(xlabel="epochs with batches of 256", ylabel="held-out digits right (%)", ylim=(0, 102))
    axis.legend(title="mean in the end", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, handlelength=4)
    title = f"A batch of 256 with {whose('05.5')} scaled_lr, {STARTS} starts (measured)"
    axis.set_title(title)
    ends = "; ".join(f"{way} " + ", ".join(f"{r:.0%}" for r in starts[:, -1]) for way, starts in curves.items())
    return viz.Figure(figure, alt=f"{title}. Held-out digits right in the end, by start: {ends}.")


batch_figure()

# %% [markdown]
# At 16 times the rate some starts are lost in the first steps and come back late or never, which you may or may not
# have seen: two starts are few. With more of them (`bench/large_batch.py`) the warm-up helps on average, not every
# time. For 4,000 digits, batches of 256 are at the limit of the rule: even with a warm-up it does about as well as the
# small rate, and it is the rate for each layer that pays. On ImageNet there is more room. ResNet-50 has 23.60 %
# error with batches of 256, 23.74 % with 8,192 and a gradual warm-up, and 24.84 % with 8,192 and none (Goyal et al.
# 2017, table 1).

# %% [markdown]
# ## 7. What the batch is made of (5 min)
#
# Exercises 05.7 and 05.8 are here, since they are about batches too; 05.6 is in section 8.
#
# Batch norm subtracts the mean of the batch. With 2 images on each rank that is the mean of 2, and the same image
# comes out differently on another rank. *Synchronised* batch norm takes the mean over all ranks: one collective in
# forward. In backward an image has an influence on every other one's output, so there is one more.
#
# `comm` is outside autograd. A `torch.autograd.Function` says what backward does; here for a sum over ranks, whose
# backward is again a sum over ranks. What `forward` returns is an ordinary result, and `ctx` carries over what
# `backward` will need:


# %%
class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, comm):
        ctx.comm = comm
        return comm.all_reduce(tensor.clone())

    @staticmethod
    def backward(ctx, gradient):
        return ctx.comm.all_reduce(gradient.clone()), None  # one entry for each argument of forward


def squared_sum(comm):
    own = torch.tensor(float(comm.rank + 1), requires_grad=True)
    total = SumOverRanks.apply(own, comm)
    (total**2).backward()
    return total.item(), own.grad.item()


print(simulate(squared_sum, 2).values, "each rank's loss is the square of 1 + 2; both losses depend on each number")

# %% [markdown]
# ### Exercise 05.7 · `sync_batch_norm` (stretch)
#
# `x` has shape (images, channels, height, width); a rank may have no images. Subtract each channel's mean over the
# images of all ranks, divide by the square root of its variance plus `eps`, multiply by `weight`, add `bias`; both
# have shape (channels,), a number for each channel. The variance is the *biased* one: the mean of the squared
# deviations, divided by the count and not by one less. Backward gives the gradient of `x` through the whole batch.
# Those of `weight` and `bias` are this rank's part, since data parallel training adds them up later. One collective
# in forward, one in backward.


# %% tags=["exercise", "05.7"]
def sync_batch_norm(comm, x, weight, bias, eps):
    """Return batch norm of `x` over the images of all ranks."""

    ### BEGIN SOLUTION
    def wide(per_channel):
        return per_channel.view(1, -1, 1, 1)

    class Normalise(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            count = torch.full_like(weight, x[:, 0].numel())
            own = torch.stack([x.sum((0, 2, 3)), (x * x).sum((0, 2, 3)), count])
            sums, squares, count = comm.all_reduce(own)
            mean = sums / count
            scale = (squares / count - mean**2 + eps).rsqrt()
            normal = (x - wide(mean)) * wide(scale)
            ctx.save_for_backward(normal, weight, scale, count)
            return normal * wide(weight) + wide(bias)

        @staticmethod
        def backward(ctx, dy):
            normal, weight, scale, count = ctx.saved_tensors
            own = torch.stack([dy.sum((0, 2, 3)), (dy * normal).sum((0, 2, 3))])
            mean_dy, mean_dy_normal = comm.all_reduce(own.clone()) / count
            dx = (dy - wide(mean_dy) - normal * wide(mean_dy_normal)) * wide(weight * scale)
            return dx, own[1], own[0]

    return Normalise.apply(x, weight, bias)
    ### END SOLUTION


# %% tags=["check", "05.7"]
check("05.7", sync_batch_norm)

# %% [markdown]
# The next cell looks at what it is for: how far two ranks with 4 digits each come out from one process with all 8.

# %% tags=["experiment"]
my_norm = mine("05.7")


def normalised(comm, images, own_only):
    part = images[comm.rank :: comm.size]
    if own_only:
        return torch.nn.functional.batch_norm(part, None, None, training=True)
    return my_norm(comm, part, torch.ones(1), torch.zeros(1), 1e-5)


together = torch.nn.functional.batch_norm(X[:8], None, None, training=True)
for words, own_only in (("each rank by its own", True), (f"{whose('05.7')} sync_batch_norm", False)):
    values = simulate(normalised, 2, X[:8], own_only).values
    apart = max((values[r] - together[r::2]).abs().max() for r in range(2))
    print(f"{words:32} pixels differ from the whole batch's by at most {apart:.1e}")

# %% [markdown]
# The accuracy of the whole has the same trap as the gradient of the whole: ranks have unequal numbers of images.
#
# ### Exercise 05.8 · `distributed_accuracy` (stretch)
#
# On every rank, return the share of images that are answered rightly, over the images of all ranks. The answer is
# the class with the largest of `logits`, (images, classes). A label of -1 marks padding, which does not count. A
# rank may have no images; in all at least one counts.


# %% tags=["exercise", "05.8"]
def distributed_accuracy(comm, logits, labels):
    """Return the share of right answers over the images of all ranks."""
    ### BEGIN SOLUTION
    right = (logits.argmax(dim=1) == labels).sum()
    counted = (labels >= 0).sum()
    right, counted = comm.all_reduce(torch.stack([right, counted]))
    return (right / counted).item()
    ### END SOLUTION


# %% tags=["check", "05.8"]
check("05.8", distributed_accuracy)

# %% [markdown]
# When every rank goes by this number, all of them stop training at the same step. A rank that stops when its *own*
# loss is small enough leaves the others waiting for ever.

# %% [markdown]
# ## 8. Nobody waits (7 min)
#
# A synchronous step takes as long as the slowest rank. In *asynchronous* training a parameter server has the
# weights. A worker takes them, computes a gradient, hands it in, and goes on with the newest weights, whatever the
# others do. The price is *staleness*: while a worker computes, others have changed the weights, and its gradient
# belongs to old ones.
#
# Predict: 8 equally fast workers. How many updates does a gradient come late, on average?

# %% tags=["predict"]
predict("05.p5", None)

# %% [markdown]
# ### Exercise 05.6 · `async_step` (stretch)
#
# `server` has `parameters` (a tensor), `version` (how many updates it has made) and `lr`. A worker computed
# `gradient` with the parameters of `version`. Apply it as plain SGD does, however late it comes, and leave
# `gradient` as it is; count the update; return the staleness, which is how many updates the server has made since
# that version, this one not counted.


# %% tags=["exercise", "05.6"]
def async_step(server, gradient, version):
    """Apply a gradient that belongs to `version`; return how many updates late it is."""
    ### BEGIN SOLUTION
    staleness = server.version - version
    server.parameters -= server.lr * gradient
    server.version += 1
    return staleness
    ### END SOLUTION


# %% tags=["check", "05.6"]
check("05.6", async_step)

# %% [markdown]
# Eight workers take turns. The loss is half the squared distance of one parameter from 0, so its gradient is the
# parameter itself, as the worker knows it.

# %%
my_async_step = mine("05.6")


class Server:
    def __init__(self, lr):
        self.parameters, self.version, self.lr = torch.ones(1), 0, lr


def take_turns(workers, lr, updates=240):
    server = Server(lr)
    taken = [(server.parameters.clone(), 0)] * workers
    staleness = []
    for update in range(updates):
        gradient, version = taken[update % workers]
        staleness.append(my_async_step(server, gradient.clone(), version))
        taken[update % workers] = server.parameters.clone(), server.version
    return sum(staleness[workers:]) / len(staleness[workers:]), server.parameters.abs().item()


for lr in (0.05, 0.1, 0.3):
    ends = [f"{take_turns(workers, lr)[1]:9.1e}" for workers in (1, 2, 8)]
    print(f"learning rate {lr:4}: distance after 240 updates with 1, 2 and 8 workers {' '.join(ends)}")

# %%
reveal("05.p5", take_turns(8, 0.05)[0])

# %% [markdown]
# Every other worker makes one update meanwhile. And staleness costs learning rate: at a rate at which one worker
# arrives, eight may swing further and further away.
#
# So some systems bound it: *bounded staleness* of k lets the fastest worker be k steps ahead of the slowest, then it
# has to wait (Ho et al. 2013). With k = 0 that is synchronous training. The next cell runs four simulated ranks, one
# of which takes four times as long, for one virtual second each.

# %% tags=["experiment"]
STEP, SECONDS = 0.01, 0.1 if FAST else 0.6  # virtual seconds of a step on a fast rank, and of the run


def serve(comm, staleness):
    torch.manual_seed(SEED)
    net = small_cnn()
    server = ParameterServer(net, lambda parameters: torch.optim.SGD(parameters, lr=0.02), comm, staleness=staleness)
    steps = 0
    with server:
        while comm.now() < SECONDS:
            chosen = torch.randint(len(Y), (16,))
            with comm.span("gradient", cost=STEP):
                cross_entropy(net(X[chosen]), Y[chosen]).backward()
            server.step()
            steps += 1
    return steps, server.staleness, share_right(net)


print(f"{'':28} {'images':>7} {'mean staleness':>15} {'right':>7}   in {SECONDS} s (simulated)")
for words, staleness in (("synchronous", 0), ("at most 3 steps ahead", 3), ("asynchronous", None)):
    run = simulate(serve, 4, staleness, speed={3: 0.25}, timeout=60, cluster=NETWORK)
    steps, late, right = zip(*run.values, strict=True)
    mean = sum(map(sum, late)) / sum(steps)
    print(f"{words:28} {16 * sum(steps):7,} {mean:15.1f} {right[0]:7.1%}")
    if staleness in (0, None):
        print(f"{'':28} steps of ranks 0 to 3: {steps}")

# %% [markdown]
# The synchronous ranks all make as many steps as the slow one. A bound of 3 lets the fast ones run 3 steps ahead,
# and then they wait for it all the same: a bound evens out hiccups, not a rank that is always slow. Asynchronous
# ranks take in more images in the same time, with stale gradients, and on real machines with a result that cannot be
# repeated: who comes first differs from run to run. That is one reason why large jobs are mostly synchronous, on
# machines that are equally fast.

# %% [markdown]
# ## 9. On real hardware, and what you know now (6 min)
#
# With GPUs the ranks talk through **NCCL**, and your functions stay as they are. Three things change. A collective
# runs on the GPU itself, beside the computation, so overlap costs no core. Hooks run when a gradient is *queued*,
# not when it is computed; NCCL keeps the order. And the links are faster, but so is the computation: the ratio of
# the two decides what can be hidden, as it does here. Overlap saved 38.0 % of a ResNet-50 step with NCCL and 26.8 %
# with gloo (Li et al. 2020). For batch norm PyTorch has `torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)`.
#
# This line trains on two ranks, with gloo here and with NCCL where there are two GPUs:
#
# ```
# torchrun --nproc-per-node=2 -m lockstep.train --strategy ddp
# ```
#
# `--strategy central`, `async` and `ssp` are the other ways of this lab.
#
# **Summary**
# - Equal start, equal steps, disjoint and covering shards: then many ranks are one process with a big batch.
# - A mean over unequal shards needs weights: samples over total, for gradients, statistics and accuracy alike.
# - A bucket is sent when its last gradient is ready; what is left exposed is the last bucket.
# - Ranks decide together or not at all: a number of one rank's own must not end a loop.
# - Larger batches need longer steps and a gentle start; stale gradients need shorter ones.
#
# Four questions. Choose, say how sure you are, and read why.

# %%
ask("05.q1")

# %%
ask("05.q2")

# %%
ask("05.q3")

# %%
ask("05.q4")

# %% [markdown]
# And a riddle: a run of one of this lab's functions with a fault in it, or now and then a right one. Which fault is
# it? Run the cell again for another.

# %%
diagnose("05")

# %% [markdown]
# What you have done so far; `submit("05")` makes the file to hand in, if somebody asked you for it.

# %%
progress("05")

# %% [markdown]
# **References**
# - P. Goyal et al. (2017), "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", arXiv:1706.02677.
# - S. Li et al. (2020), "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 13(12).
# - Y. You, I. Gitman, B. Ginsburg (2017), "Large Batch Training of Convolutional Networks", arXiv:1708.03888.
# - Q. Ho et al. (2013), "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS.
# - M. Li et al. (2014), "Scaling Distributed Machine Learning with the Parameter Server", OSDI.
# - S. Ioffe, C. Szegedy (2015), "Batch Normalization", ICML.
# - K. He, X. Zhang, S. Ren, J. Sun (2015), "Delving Deep into Rectifiers", ICCV: how the small CNN is initialised.
