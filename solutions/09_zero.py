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
# # Lab 09 · ZeRO
#
# **Time:** 90 minutes, core exercises included. Exercises marked *stretch* come on top.
#
# **You will be able to**
# - say to the byte what a rank of data parallel training holds, and which of it every other rank holds as well;
# - share out optimizer state, gradients and parameters among ranks, and still take exactly the step of one process;
# - count what each stage sends, and say which memory no stage touches;
# - read a checkpoint that another number of ranks has written.
#
# **You need:** labs 03 to 05 (memory of training, reduce-scatter and all-gather, data parallel, hooks).

# %% tags=["parameters"]
RANKS = 2  # real processes in sections 6 and 7, each with one thread
FAST = False  # True: fewer repetitions, for a quick pass
SEED = 0

# %% [markdown]
# The picture shows a model of 7.5 billion parameters that is trained with Adam in mixed precision on 64 GPUs of 32
# GiB. With data parallel training it does not fit, however many GPUs there are. On the left what one of 64 ranks
# holds in each stage of ZeRO; on the right the three stages for other numbers of ranks. You will write the function
# that makes this picture, and the three stages.

# %% tags=["stable"]
import statistics
import tempfile
import time
import warnings
import weakref
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from lockstep import data, viz
from lockstep.cost import LayerCost, zero3_estimate
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
from lockstep.hardware import Cluster, Link, device, link
from lockstep.parallel import DistributedDataParallel, ZeRO
from lockstep.parallel.checkpoint import load_checkpoint, save_checkpoint
from lockstep.viz.zero import stage_explorer, stage_table, state_bars
from lockstep.world import launch, simulate

# %%
torch.set_num_threads(1)
BILLION = 10**9
V100 = device("V100")
stage_table(
    7_500_000_000, 64, V100.memory, "V100, 32 GiB", title="7.5 billion parameters, Adam, mixed precision (predicted)"
)

# %% [markdown]
# Three questions from earlier labs first; those that you missed come before the others.

# %%
recall("09")

# %% [markdown]
# ## 1. Everybody holds everything (14 min)
#
# In data parallel training every rank has its own images, and all else N times over: the parameters, their
# gradients, and what the optimizer keeps. Lab 03 counted these bytes on one device. In mixed precision with Adam
# that is 2 bytes a parameter, 2 for its gradient, and 12 for the optimizer: a master copy in 4 bytes and two means
# of 4 bytes each. 16 bytes a parameter, on every rank.
#
# ZeRO, the *zero redundancy optimizer*, shares these parts out. Who holds a *shard* holds the N-th part, and is the
# only one who does.
#
# | | parameters | gradients | optimizer |
# |---|---|---|---|
# | stage 0, data parallel | whole | whole | whole |
# | stage 1 | whole | whole | **shard** |
# | stage 2 | whole | **shard** | **shard** |
# | stage 3 | **shard** | **shard** | **shard** |
#
# Predict: any model, Adam, mixed precision, 1,024 ranks. How many times less does a rank hold in stage 2 than with
# data parallel training?

# %% tags=["predict"]
predict("09.p1", None)

# %% [markdown]
# ### Exercise 09.1 · `state_bytes`
#
# Return the bytes that one rank holds, as a dictionary with the keys `"parameters"`, `"gradients"` and
# `"optimizer"`. The stages are those of the table; `optimizer` is `"sgd"`, `"momentum"` or `"adam"` and `precision`
# `"fp32"` or `"mixed"`, as in lab 03, but the master copy of mixed precision counts here with the optimizer, as in
# the paper. Shards have equal length on all ranks: where the number of parameters does not divide, the last one is
# padded.


# %% tags=["exercise", "09.1"]
def state_bytes(parameters, ranks, stage, optimizer, precision):
    """Return the bytes of parameters, gradients and optimizer that one rank holds."""
    ### BEGIN SOLUTION
    width = 2 if precision == "mixed" else 4
    kept = {"sgd": 0, "momentum": 4, "adam": 8}[optimizer] + (4 if precision == "mixed" else 0)
    shard = -(-parameters // ranks)
    return {
        "parameters": width * (shard if stage >= 3 else parameters),
        "gradients": width * (shard if stage >= 2 else parameters),
        "optimizer": kept * (shard if stage >= 1 else parameters),
    }
    ### END SOLUTION
    ### BEGIN STUB
    # width = ...  # bytes of a parameter, and of its gradient
    # kept = ...  # bytes that the optimizer keeps for a parameter, the master copy among them
    # shard = ...  # numbers in a shard
    # raise NotImplementedError("bytes of parameters, gradients and optimizer on one rank")
    ### END STUB


# %% tags=["check", "09.1"]
check("09.1", state_bytes)

# %% [markdown]
# Your function makes the paper's first table: GB on a rank for two models, in the stages 1, 2 and 3.

# %%
my_state = mine("09.1")


def gigabytes(parameters, ranks, stage):
    return sum(my_state(parameters, ranks, stage, "adam", "mixed").values()) / 1e9


print(f"with {whose('09.1')} state_bytes")
print(f"{'ranks':>6} {'7.5 billion parameters':^26}   {'128 billion':^26}")
for ranks in (1, 4, 16, 64, 256, 1024):
    sizes = [[f"{gigabytes(many * BILLION // 10, ranks, stage):8.2f}" for stage in (1, 2, 3)] for many in (75, 1280)]
    print(f"{ranks:6} {' '.join(sizes[0])}   {' '.join(sizes[1])}")

# %%
reveal("09.p1", gigabytes(7_500_000_000, 1024, 0) / gigabytes(7_500_000_000, 1024, 2))

# %% [markdown]
# Not 1,024 times. Stage 2 leaves the 2 bytes of the parameters whole, so with ever more ranks it comes to an eighth
# of the 16 bytes, and to no less. Stage 1 leaves 4 bytes and comes to a quarter. Only stage 3 has no such end.

# %%
stage_table(
    7_500_000_000, 64, V100.memory, "V100, 32 GiB", state_bytes=my_state,
    title=f"7.5 billion parameters, Adam, mixed, {whose('09.1')} state_bytes (predicted)",
)  # fmt: skip

# %% [markdown]
# Other models, numbers of ranks, optimizers and GPUs, in the same figure. Which is the first stage in which a
# trillion parameters fit, and on how many ranks?

# %% tags=["widget"]
MODELS = {
    "7.5 billion": 7_500_000_000, "128 billion": 128_000_000_000, "1 trillion": 10**12, "1.5 billion": 1_500_000_000,
    "VGG-16": 138_357_544, "ResNet-50": 25_557_032,
}  # fmt: skip
GPUS = {
    f"{name}, {device(name).memory / 2**30:.0f} GiB": device(name).memory for name in ("V100", "A100", "H100", "T4")
}
stage_explorer(MODELS, GPUS, my_state, "(predicted)")

# %% [markdown]
# What is *not* in the picture: activations. They belong to the images of a rank, which nobody else has, so there is
# nothing redundant about them. Section 6 measures what the stages make of them.

# %% [markdown]
# ## 2. One flat tensor (11 min)
#
# How does one cut a model into N equal parts? Layers have all kinds of sizes. Lay all parameters end to end instead,
# as one flat tensor, and cut that. A cut may go through the middle of a layer; nobody minds, since an optimizer such
# as Adam treats each number by itself.
#
# Two things about memory first. A parameter can be a *window* into a flat tensor: assigning to `.data` changes where
# its numbers are, and nothing else. And a slice is such a window too; it keeps the whole tensor alive. Run this
# before you go on.

# %% tags=["stable"]
layer = nn.Linear(3, 2)
flat = torch.cat([p.detach().flatten() for p in layer.parameters()])
start = 0
for p in layer.parameters():
    p.data = flat[start : start + p.numel()].view(p.shape)
    start += p.numel()
flat.fill_(0.5)
print("the layer sees what happens to the flat tensor:", layer.weight.tolist(), layer.bias.tolist())

part = flat[:4]
print("a slice of 4 numbers keeps", part.untyped_storage().nbytes(), "bytes alive", end=", ")
print("its clone", part.clone().untyped_storage().nbytes())

# %% [markdown]
# ### Exercise 09.2 · `shard_flat`
#
# Lay the tensors end to end, pad the flat tensor with zeros at its end until `size` divides it, and return the shard
# of `rank`: a 1-D tensor of the same dtype, equally long on every rank, in memory of its own and without a history.
# Pad no more than needed.
#
# Why zeros? Padding gets a gradient of zero, adds nothing to a norm, and stays zero for ever.


# %% tags=["exercise", "09.2"]
def shard_flat(tensors, rank, size):
    """Return this rank's shard of all tensors, flat and padded."""
    ### BEGIN SOLUTION
    flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
    shard = -(-len(flat) // size)
    padded = F.pad(flat, (0, shard * size - len(flat)))
    return padded[rank * shard : (rank + 1) * shard].clone()
    ### END SOLUTION
    ### BEGIN STUB
    # flat = ...  # all numbers, end to end
    # shard = ...  # how many each rank has
    # raise NotImplementedError("this rank's shard of all tensors, flat and padded")
    ### END STUB


# %% tags=["check", "09.2"]
check("09.2", shard_flat)

# %% [markdown]
# The other way would be to deal out whole tensors, the largest first, always to the rank that has least. PyTorch's
# `ZeroRedundancyOptimizer` does that. The next cell compares the two for VGG-16 on 4 ranks; what counts is the
# largest share, since all GPUs are equally large.

# %%
my_shard = mine("09.2")
CHANNELS, NEURONS = [3, 64, 64, 128, 128, *[256] * 3, *[512] * 6], [512 * 7 * 7, 4096, 4096, 1000]  # VGG-16
sizes = [size for a, b in zip(CHANNELS, CHANNELS[1:], strict=False) for size in (9 * a * b, b)]
sizes += [size for a, b in zip(NEURONS, NEURONS[1:], strict=False) for size in (a * b, b)]
dealt = [0] * 4
for size in sorted(sizes, reverse=True):
    dealt[dealt.index(min(dealt))] += size
thousands = [torch.zeros(size // 1000) for size in sizes]  # a thousandth of each tensor is enough to see it
flat = [1000 * len(my_shard(thousands, rank, 4)) for rank in range(4)]
print(f"of {sum(sizes):,} parameters, millions on ranks 0 to 3")
print("whole tensors:", [f"{held / 1e6:.1f}" for held in dealt])
print(f"flat, {whose('09.2')} shard_flat:", [f"{held / 1e6:.1f}" for held in flat])

# %% [markdown]
# ## 3. Stage 1: a step on a shard (20 min)
#
# In lab 04 you made an all-reduce from two halves. After the *reduce-scatter* each rank has the mean of its own
# chunk; the *all-gather* brings the chunks to everybody. Stage 1 puts the optimizer between the halves:
# reduce-scatter the gradients, step the own chunk of the *parameters*, all-gather the new parameters. State is then
# needed for that chunk alone.
#
# Predict: 4 ranks train a network. How many times as many bytes does a rank send in a step of stage 1 as with data
# parallel training, where gradients are all-reduced?

# %% tags=["predict"]
predict("09.p2", None)

# %% [markdown]
# Two things that were easy as long as every rank had the whole gradient need all ranks now.
#
# *Clipping.* Long gradients are scaled down so that their norm is at most `max_norm`. The norm is that of the whole
# gradient, of which a rank has a shard.
#
# *Overflow.* In fp16 a gradient may become infinite. Such a step must be left out, by all ranks or by none. But
# after a reduce-scatter only *one* rank has the infinite number in its shard.
#
# ### Exercise 09.3 · `zero1_step`
#
# Backward has run, and each of `parameters` has this rank's gradient in `.grad`. `shard` is this rank's shard of
# them, an `nn.Parameter` cut as in 09.2; `optimizer.step()` steps it by its `.grad`.
# - Give `shard` the mean of the ranks' gradients. If the norm of the *whole* mean is above `max_norm`, scale it by
#   `max_norm / norm`.
# - If any number of the whole mean is infinite or NaN, no rank steps.
# - After the step all ranks have all new parameters, in `parameters`, and every `.grad` is None, that of `shard` too.
# - Return whether the step was taken, True or False.
#
# Send no more than an all-reduce would, beside single numbers. `comm.reduce_scatter(flat, op="mean")` gives this
# rank's chunk, `comm.all_gather(shard)` all chunks joined, and `comm.all_reduce` takes a tensor of one number as
# well. To write into a parameter past autograd, use `p.data.copy_(...)`.


# %% tags=["exercise", "09.3"]
def zero1_step(comm, parameters, shard, optimizer, max_norm):
    """Average, clip and step on this rank's shard; bring the new parameters home; return whether it was done."""
    ### BEGIN SOLUTION
    flat = torch.cat([p.grad.flatten() for p in parameters])
    padded = F.pad(flat, (0, shard.numel() * comm.size - len(flat)))
    shard.grad = comm.reduce_scatter(padded, op="mean")
    norm = comm.all_reduce(shard.grad.square().sum()).sqrt()
    finite = bool(norm.isfinite())
    if finite:
        shard.grad *= (max_norm / norm).clamp(max=1)
        optimizer.step()
    parts = comm.all_gather(shard)[: len(flat)].split([p.numel() for p in parameters])
    for p, part in zip(parameters, parts, strict=True):
        p.data.copy_(part.view_as(p))
        p.grad = None
    shard.grad = None
    return finite
    ### END SOLUTION
    ### BEGIN STUB
    # flat = ...  # all gradients, end to end, padded like the shards
    # shard.grad = ...
    # # the norm: what does each rank know of it, and who has to hear?
    # # step, or not; then bring the parameters home and let the gradients go
    # raise NotImplementedError("average into the shard's gradient, agree, step, gather")
    ### END STUB


# %% tags=["check", "09.3"]
check("09.3", zero1_step)

# %% [markdown]
# Now the network of this lab: two convolutions and two linear layers for the digits of lab 05, as a list of four
# parts. Beside it Adam in a few lines, so that you see all that it keeps: two numbers for each parameter. (Any
# optimizer of PyTorch would do that treats each number by itself.)

# %%
digits = data.load("mnist5k", "train")
X, Y = data.Normalize.of(digits.images)(digits.images), digits.labels


def cnn(hidden=256):
    """The same numbers on every rank."""
    torch.manual_seed(SEED)
    return [
        nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        nn.Sequential(nn.Linear(32 * 7 * 7, hidden), nn.ReLU()),
        nn.Linear(hidden, 10),
    ]


class Adam:
    def __init__(self, parameters, lr=1e-3):
        self.parameters, self.lr, self.steps = list(parameters), lr, 0
        self.state = {p: {"m": torch.zeros_like(p.data), "v": torch.zeros_like(p.data)} for p in self.parameters}

    def step(self):
        self.steps += 1
        for p in self.parameters:
            m, v = self.state[p].values()
            m.lerp_(p.grad, 0.1)
            v.lerp_(p.grad**2, 0.001)
            p.data -= self.lr * m / (1 - 0.9**self.steps) / ((v / (1 - 0.999**self.steps)).sqrt() + 1e-8)


# %% [markdown]
# Some steps on 4 simulated ranks with your function, the same on one rank with all images, and the library's data
# parallel training, clipped by PyTorch's own `clip_grad_norm_`. All three should agree; then compare the bytes.

# %% tags=["experiment"]
my_step = mine("09.3")
STEPS, MAX_NORM = 2 if FAST else 5, 1.0


def batch_of(comm, step):
    """This rank's part of 32 images."""
    own = torch.arange(32 * step, 32 * (step + 1))[comm.rank :: comm.size]
    return X[own], Y[own]


def train_stage_1(comm):
    model = nn.Sequential(*cnn())
    parameters = list(model.parameters())
    shard = nn.Parameter(my_shard(parameters, comm.rank, comm.size))
    optimizer = Adam([shard])
    before = comm.traffic.bytes_sent
    for step in range(STEPS):
        images, labels = batch_of(comm, step)
        F.cross_entropy(model(images), labels).backward()
        my_step(comm, parameters, shard, optimizer, MAX_NORM)
    sent = (comm.traffic.bytes_sent - before) / STEPS
    return nn.utils.parameters_to_vector(parameters).detach(), sent


def train_data_parallel(comm):
    model = nn.Sequential(*cnn())
    wrapped = DistributedDataParallel(model, comm)
    optimizer = Adam(model.parameters())
    before = comm.traffic.bytes_sent
    for step in range(STEPS):
        images, labels = batch_of(comm, step)
        F.cross_entropy(wrapped(images), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        wrapped.zero_grad()
    return nn.utils.parameters_to_vector(model.parameters()).detach(), (comm.traffic.bytes_sent - before) / STEPS


sharded, alone = (simulate(train_stage_1, n, timeout=60).values for n in (4, 1))
parallel = simulate(train_data_parallel, 4, timeout=60).values
print(f"with {whose('09.3')} zero1_step and {whose('09.2')} shard_flat, after {STEPS} steps with Adam:")
print(f"ranks 0 and 3 differ by at most                  {(sharded[0][0] - sharded[3][0]).abs().max():.0e}")
print(f"four ranks and one differ by at most             {(sharded[0][0] - alone[0][0]).abs().max():.0e}")
print(f"stage 1 and data parallel differ by at most      {(sharded[0][0] - parallel[0][0]).abs().max():.0e}")
print(f"bytes that rank 0 sends in a step: stage 1 {sharded[0][1]:,.0f}, data parallel {parallel[0][1]:,.0f}")

# %%
reveal("09.p2", sharded[0][1] / parallel[0][1])

# %% [markdown]
# The same bytes, to a few. An all-reduce *is* a reduce-scatter and an all-gather, 2(N-1)/N of the model; only what
# is gathered has changed, parameters instead of gradients. So stage 1 costs nothing, and there is hardly a reason to
# train without it. (Where Adam's numbers differ in the last digits, it is because sums are rounded in another order,
# and Adam divides by small ones.)

# %% [markdown]
# ## 4. Stage 2: gradients that do not stay (5 min)
#
# In stage 1 all gradients are whole when backward ends. Yet as soon as a bucket of them has been averaged, a rank
# needs its shard and no more. Lab 05's hooks know when a bucket is full. The reduction starts there, and the whole
# gradients go right after it.
#
# ### Exercise 09.4 · `zero2` (stretch)
#
# Run `loss.backward()`. As soon as all gradients of `buckets[i]`, a list of parameters, are there, average them over
# the ranks so that this rank's shard arrives, add it to `shards[i].grad`, which may be None, and set the `.grad` of
# those parameters to None. `shards[i]` is cut as in 09.2 from the tensors of `buckets[i]`. Gradients come in any order,
# and those of another bucket may come in between. At no time may more than a few buckets' gradients be whole. The
# function is called once for each part of a batch, and gradients of parts add up; leave no hook behind.


# %% tags=["exercise", "09.4"]
def zero2(comm, loss, buckets, shards):
    """Run backward; average each bucket as soon as it is full, and keep this rank's shard of it alone."""

    ### BEGIN SOLUTION
    def reduce(bucket, shard):
        flat = torch.cat([p.grad.flatten() for p in bucket])
        for p in bucket:
            p.grad = None
        padded = F.pad(flat, (0, shard.numel() * comm.size - len(flat)))
        own = comm.reduce_scatter(padded, op="mean")
        shard.grad = own if shard.grad is None else shard.grad + own

    def hook(bucket, shard, ready):
        def accumulated(parameter):
            ready.append(parameter)
            if len(ready) == len(bucket):
                reduce(bucket, shard)

        return accumulated

    hooks = []
    for bucket, shard in zip(buckets, shards, strict=True):
        accumulated = hook(bucket, shard, [])
        hooks += [p.register_post_accumulate_grad_hook(accumulated) for p in bucket]
    loss.backward()
    for handle in hooks:
        handle.remove()
    ### END SOLUTION


# %% tags=["check", "09.4"]
check("09.4", zero2)

# %% [markdown]
# What it does to memory: eight equal layers, a bucket each, on 4 ranks. Each time when a gradient has arrived, the
# cell adds up all gradients that are there, whole ones and shards.

# %% tags=["experiment"]
my_zero2 = mine("09.4")


def gradients_held(comm, stage):
    torch.manual_seed(SEED)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))
    buckets = [list(layer.parameters()) for layer in reversed(model)]
    shards = [nn.Parameter(my_shard(bucket, comm.rank, comm.size)) for bucket in buckets]
    held = []

    def look(_):
        held.append(sum(t.grad.nbytes for t in (*model.parameters(), *shards) if t.grad is not None) / 1000)

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(look)
    loss = model(torch.ones(2, 64)).square().mean()
    if stage == 2:
        my_zero2(comm, loss, buckets, shards)
    else:
        loss.backward()
    return held


held = {f"stage {stage}": simulate(gradients_held, 4, stage).values[0] for stage in (1, 2)}
viz.curves(
    {"kilobytes of gradients": held},
    f"Gradients on one of 4 ranks while backward runs, {whose('09.4')} zero2",
    along="gradients that have arrived",
)

# %% [markdown]
# ## 5. Stage 3: whole only while it computes (20 min)
#
# What is left are the parameters. In stage 3 a rank holds a shard of every layer, and nothing else. Before a layer
# computes, the ranks gather it; afterwards they let it go; in backward they gather it once more.
#
# Predict: reduce-scatter and all-gather of a whole model send 1 volume each, where a *volume* is (N-1)/N of the
# model's bytes. Data parallel training sends 2 in a step. How many volumes does stage 3 send?

# %% tags=["predict"]
predict("09.p3", None)

# %% [markdown]
# Two mechanisms first. `fill` makes a layer's parameters windows into a flat tensor, as in section 2, and `free`
# takes their memory away: a single number, *expanded* to the parameter's shape, takes 4 bytes whatever its size.


# %% tags=["stable"]
def fill(layer, flat):
    """Make the layer's parameters windows into `flat`, which may be longer."""
    start = 0
    for p in layer.parameters():
        p.data = flat[start : start + p.numel()].view(p.shape)
        start += p.numel()


def free(layer):
    """Let the layer's parameters keep their shapes and next to no memory."""
    for p in layer.parameters():
        p.data = p.new_zeros(1).expand(p.shape)


layer = nn.Linear(100, 50)
shapes = [list(p.shape) for p in layer.parameters()]
free(layer)
print("freed:", [p.untyped_storage().nbytes() for p in layer.parameters()], "bytes; shapes are the same:", end=" ")
print([list(p.shape) for p in layer.parameters()] == shapes)
fill(layer, torch.ones(5052))
print("filled: one image of ones gives", layer(torch.ones(1, 100))[0, :2].tolist(), "...")

# %% [markdown]
# That would be all, if there were not autograd. When a layer computes, autograd saves what backward will need, the
# weights among it, and whatever is saved stays in memory, freed or not. So forward has to go past autograd.
#
# Inside the `forward` of an `autograd.Function` nothing is recorded. Its `backward` can compute the same once more,
# this time recorded, and ask for the gradients: activation checkpointing, as in lab 03. Here for a layer that stays
# where it is. `torch.autograd.grad(y, inputs, dy)` gives the gradients of all inputs as a tuple, and touches no
# `.grad`.


# %% tags=["stable"]
class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return layer(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            y = layer(leaf)
        found = torch.autograd.grad(y, [leaf, *layer.parameters()], dy)
        print("gradients of", [list(g.shape) for g in found])
        return found[0]  # an entry for each argument of forward


x = torch.ones(1, 100, requires_grad=True)
Again.apply(x).sum().backward()
print("x gets", x.grad[0, :3].tolist(), "...")

# %% [markdown]
# ### Exercise 09.5 · `zero3`
#
# Return `layer(x)`. The parameters of `layer` have been freed; `shard`, an `nn.Parameter`, is this rank's shard of
# them, cut as in 09.2. Gather the layer, compute, free it; in backward gather it once more, and free it again. After
# backward, `shard.grad` is the mean over the ranks of this rank's part of the layer's gradient, and `x` has the
# gradient that the layer gives it. A layer may be any module that computes the same a second time (dropout would not).
# Between forward and backward nothing whole stays, in no variable.
#
# `fill` and `free` are there for you to use. If `shard` is an input of your Function, autograd itself puts what your
# `backward` returns for it into `shard.grad`.


# %% tags=["exercise", "09.5"]
def zero3(comm, layer, shard, x):
    """Return layer(x), with the layer whole only while it computes, forward and backward."""

    ### BEGIN SOLUTION
    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            ctx.save_for_backward(x, shard)
            fill(layer, comm.all_gather(shard))
            y = layer(x)
            free(layer)
            return y

        @staticmethod
        def backward(ctx, dy):
            x, shard = ctx.saved_tensors
            fill(layer, comm.all_gather(shard))
            with torch.enable_grad():
                again = x.detach().requires_grad_()
                y = layer(again)
            dx, *gradients = torch.autograd.grad(y, [again, *layer.parameters()], dy)
            free(layer)
            flat = torch.cat([g.flatten() for g in gradients])
            padded = F.pad(flat, (0, shard.numel() * comm.size - len(flat)))
            return dx, comm.reduce_scatter(padded, op="mean")

    return Whole.apply(x, shard)
    ### END SOLUTION
    ### BEGIN STUB
    # class Whole(torch.autograd.Function):
    #     @staticmethod
    #     def forward(ctx, x, shard): ...
    #
    #     @staticmethod
    #     def backward(ctx, dy): ...
    #
    # raise NotImplementedError("gather, compute, let go, in both passes")
    ### END STUB


# %% tags=["check", "09.5"]
check("09.5", zero3)

# %% [markdown]
# A step of your function as a timeline: six equal layers on two simulated ranks, joined by a slow link. A layer is
# charged 0.3 ms forward and 0.6 ms backward (chosen so that gathering and computing take about equally long). Below
# it the same step with the library's `ZeRO`, stage 3.

# %% tags=["experiment"]
my_zero3 = mine("09.5")
SLOW = Cluster.uniform(Link(latency=20e-6, bandwidth=5e8))


def six_layers():
    torch.manual_seed(SEED)
    return nn.Sequential(*(nn.Linear(256, 256) for _ in range(6)))


def stage_3_step(comm):
    model = six_layers()
    shards = [nn.Parameter(my_shard(list(layer.parameters()), comm.rank, comm.size)) for layer in model]
    for layer in model:
        free(layer)
    comm.charge(model, {str(i): LayerCost(forward=3e-4, backward=6e-4) for i in range(6)})
    x = torch.ones(4, 256)
    for layer, shard in zip(model, shards, strict=True):
        x = my_zero3(comm, layer, shard, x)
    x.square().mean().backward()


def library_step(comm):
    model = six_layers()
    sharded = ZeRO(model, Adam, comm, stage=3, unit_bytes=1)  # each layer travels by itself
    comm.barrier()
    comm.charge(model, {str(i): LayerCost(forward=3e-4, backward=6e-4) for i in range(6)})
    sharded(torch.ones(4, 256)).square().mean().backward()


def from_the_first_gather(run):
    """Without what happens before the step."""
    begun = min(span.start for span in run.trace.spans if span.name == "forward 0") - 3e-4
    keep = [s for s in run.trace.spans if s.start >= begun], [m for m in run.trace.messages if m.sent >= begun]
    return type(run.trace).of(run.trace.ranks, *keep, run.trace.world)


traces = [from_the_first_gather(simulate(step, 2, cluster=SLOW)) for step in (stage_3_step, library_step)]
viz.timeline(
    traces[0],
    f"A step of stage 3: {whose('09.5')} zero3, and the library's with prefetch",
    compare=traces[1],
    labels=("zero3", "library"),
)

# %% [markdown]
# Two differences. Above, each layer waits for its own gather. The library *prefetches*: while one layer computes,
# the next one is on its way, in the thin rows, and reductions travel beside backward as in lab 05. And the library
# does not compute forward twice: in place of a weight autograd saves the weight's *place* in the flat tensor
# (`torch.autograd.graph.saved_tensors_hooks`), and when backward asks for the weight, it is looked up there,
# gathered anew.

# %% [markdown]
# ## 6. Measured: bytes by stage (7 min)
#
# All three stages of yours, and data parallel training, on real processes: one step of the CNN with Adam in fp32. At
# the end of backward, before the step, each rank adds up the memory behind its parameters, gradients and optimizer.


# %% tags=["experiment"]
def memory_of(tensors):
    """Bytes, each piece of memory once."""
    return sum({id(s): s.nbytes() for s in (t.untyped_storage() for t in tensors)}.values())


def one_step(comm, stage, images, labels):
    layers = cnn()
    model = nn.Sequential(*layers)
    parameters = list(model.parameters())
    groups = [list(layer.parameters()) for layer in reversed(layers)] if stage > 1 else [parameters]
    shards = [nn.Parameter(my_shard(group, comm.rank, comm.size)) for group in groups] if stage else []
    optimizer = Adam(shards or parameters)
    images, labels = images[comm.rank :: comm.size], labels[comm.rank :: comm.size]
    if stage == 3:
        for layer in layers:
            free(layer)
        for layer, shard in zip(layers, reversed(shards), strict=True):
            images = my_zero3(comm, layer, shard, images)
        loss = F.cross_entropy(images, labels)
    else:
        loss = F.cross_entropy(model(images), labels)
    if stage == 2:
        my_zero2(comm, loss, groups, shards)
    else:
        loss.backward()
    held = {"parameters": memory_of([*parameters, *shards] if stage == 3 else parameters)}
    held["gradients"] = memory_of([t.grad for t in (*parameters, *shards) if t.grad is not None])
    held["optimizer"] = memory_of([t for state in optimizer.state.values() for t in state.values()])
    held["copy of the shard"] = memory_of(shards) if stage in (1, 2) else 0
    if stage == 1:
        my_step(comm, parameters, shards[0], optimizer, MAX_NORM)
        return held
    for p in parameters if stage == 0 else ():
        comm.all_reduce(p.grad, op="mean")
    optimizer.step()
    for layer, shard in zip(reversed(layers), shards if stage == 2 else (), strict=stage == 2):
        whole = comm.all_gather(shard)
        fill(layer, whole)
    return held


def every_stage(comm, images, labels):
    found = []
    for stage in range(4):
        before = comm.traffic.bytes_sent
        held = one_step(comm, stage, images, labels)
        found.append((held, comm.traffic.bytes_sent - before))
    return found


PARAMETERS = sum(p.numel() for layer in cnn() for p in layer.parameters())
NAMES = ("data parallel", "stage 1", "stage 2", "stage 3")
run = launch(every_stage, RANKS, X[:32], Y[:32])
measured = {name: held for name, (held, _) in zip(NAMES, run.values[0], strict=True)}
formula = {name: my_state(PARAMETERS, RANKS, stage, "adam", "fp32") for stage, name in enumerate(NAMES)}
FUNCTIONS = " and ".join(dict.fromkeys(whose(f"09.{i}") for i in range(1, 6))) + " functions"
state_bars(
    measured, formula, f"Bytes of a rank, {PARAMETERS:,} parameters, {RANKS} ranks, fp32, {FUNCTIONS} (measured)"
)

# %%
for name in NAMES:
    apart = {part: int(measured[name][part] - size) for part, size in formula[name].items()}
    print(f"{name:14} measured less formula, in bytes: {apart}")

# %% [markdown]
# To the byte, but for padding, where layers are cut one by one, and for the single number that each freed parameter
# has left. The dotted part is yours alone. Your shard in stages 1 and 2 is a *copy* of a part of the parameters. In
# mixed precision it would be the master copy in fp32, which is needed anyway and which the formula counts with the
# optimizer. The library's shard in fp32 is a window into the flat tensor instead, and takes nothing.
#
# The library in mixed precision, which is what the paper counts: parameters and gradients in 2 bytes, the
# optimizer's part with a master copy of 4. `zero.bytes()` adds up what a rank holds; the formula is your function
# once more.


# %% tags=["experiment"]
def in_two_bytes(comm, stage, images, labels):
    sharded = ZeRO(nn.Sequential(*cnn()), Adam, comm, stage, precision="bf16")
    F.cross_entropy(sharded(images), labels).backward()
    return sharded.bytes()


print(f"on one of 4 ranks, measured / {whose('09.1')} state_bytes")
for stage in (1, 2, 3):
    found = simulate(in_two_bytes, 4, stage, X[:8], Y[:8], timeout=60).values[0]
    said = my_state(PARAMETERS, 4, stage, "adam", "mixed")
    print(f"stage {stage}:", ", ".join(f"{part} {found[part]:,} / {said[part]:,}" for part in found))

# %% [markdown]
# 16 bytes a parameter on one rank, and on many what the table at the top says; the few bytes over are padding.
#
# Now the bytes that the four of them send in a whole step, from the simulated world, where every byte is counted.

# %% tags=["experiment"]
volume = 4 * PARAMETERS * 3 / 4
sent = [bytes_sent for _, bytes_sent in simulate(every_stage, 4, X[:8], Y[:8], timeout=60).values[0]]
for name, nbytes in zip(NAMES, sent, strict=True):
    print(f"{name:14} a rank of 4 sends {nbytes:10,} bytes, {nbytes / volume:.2f} volumes")

# %%
reveal("09.p3", round(sent[3] / volume, 2))

# %% [markdown]
# Three: gather for forward, gather for backward, reduce-scatter of the gradients. After the step nobody gathers,
# since the next forward does. So stage 3 sends half as much again as data parallel training, and holds N times less.
#
# Predict: the images of a rank stay the same. How many times less memory do the *activations* take in stage 3 on 4
# ranks than in stage 1?

# %% tags=["predict"]
predict("09.p4", None)


# %% tags=["experiment"]
def activations_kept(comm, stage, images, labels):
    """Bytes of inputs and outputs of all layers that are still held when forward has ended."""
    model = nn.Sequential(*cnn())
    sharded = ZeRO(model, Adam, comm, stage)
    seen = {}

    def note(_, inputs, output):
        for tensor in (*inputs, output):
            storage = tensor.untyped_storage()
            seen[id(storage)] = weakref.ref(storage)  # looks, and holds nothing

    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(note)
    loss = F.cross_entropy(sharded(images), labels)
    kept = sum(storage.nbytes() for ref in seen.values() if (storage := ref()) is not None)
    return kept, sharded.bytes()["parameters"], loss.item()


kept = {stage: simulate(activations_kept, 4, stage, X[:32], Y[:32]).values[0] for stage in (1, 3)}
for stage, (activations, parameters, _) in kept.items():
    print(
        f"stage {stage}, a rank of 4, 32 images: parameters {parameters:9,} bytes, activations {activations:9,} bytes"
    )

# %%
reveal("09.p4", kept[1][0] / kept[3][0])

# %% [markdown]
# Not at all. Nobody else has these images, so there is nothing to share out. That is why an estimate from the
# formula alone can be far too low: users have reported 20 GB in use where such an estimate said half a gigabyte
# (DeepSpeed issue 4527). Against activations there are fewer images on a rank, and computing forward twice (lab 03),
# as your `zero3` does.

# %% [markdown]
# ## 7. The real thing (4 min)
#
# PyTorch has both ends: `ZeroRedundancyOptimizer` is stage 1, and `fully_shard` of `torch.distributed.fsdp`, called
# FSDP2, is stage 3. Its name for gather, compute, free is *fully sharded data parallel*. The next cell trains the
# same CNN, with a wider linear layer, in five ways on real processes: milliseconds of a step, and what each rank
# holds of parameters and of Adam's state. It takes some seconds.


# %% tags=["experiment"]
def fsdp2(comm, layers):
    from torch.distributed.fsdp import fully_shard

    for layer in layers:
        fully_shard(layer)
    model = fully_shard(nn.Sequential(*layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model, optimizer, optimizer, model.parameters


def zero_redundancy(comm, layers):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    return model, optimizer, optimizer.optim, model.parameters


def lockstep_zero(stage, comm, layers):
    model = ZeRO(nn.Sequential(*layers), partial(torch.optim.Adam, lr=1e-3), comm, stage=stage)
    own = [unit.shard if stage == 3 else unit.flat for unit in model.units]
    return model, model, model.optimizer, lambda: own


def some_seconds(comm, make, images, labels, repetitions):
    warnings.simplefilter("ignore")  # torch's reduce-scatter warns of its own new name
    model, optimizer, inner, parameters = make(comm, [layer.to(comm.device) for layer in cnn(512)])
    images, labels = (part[comm.rank :: comm.size].to(comm.device) for part in (images, labels))
    taken = []
    for _ in range(repetitions):
        comm.barrier()
        begun = time.perf_counter()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        if comm.device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)

    def local(tensor):
        return tensor.to_local() if hasattr(tensor, "to_local") else tensor

    state = [t for one in inner.state.values() for t in one.values() if isinstance(t, torch.Tensor)]
    return statistics.median(taken[1:]), sum(local(p).nbytes for p in parameters()), sum(local(t).nbytes for t in state)


WAYS = {
    "stage 1: ZeroRedundancyOptimizer": zero_redundancy,
    "stage 1: lockstep's ZeRO": partial(lockstep_zero, 1),
    "stage 2: lockstep's ZeRO": partial(lockstep_zero, 2),
    "stage 3: FSDP2": fsdp2,
    "stage 3: lockstep's ZeRO": partial(lockstep_zero, 3),
}


def every_way(comm, images, labels, repetitions):
    return {name: some_seconds(comm, make, images, labels, repetitions) for name, make in WAYS.items()}


values = launch(every_way, RANKS, X[:16], Y[:16], 3 if FAST else 6, timeout=120).values
print(f"{'':34} {'a step':>9}   MB of parameters and of Adam's state, by rank")
for name in WAYS:
    seconds = max(value[name][0] for value in values)
    shares = ", ".join(f"{value[name][1] / 1e6:.2f} + {value[name][2] / 1e6:.2f}" for value in values)
    print(f"{name:34} {1000 * seconds:6.1f} ms   {shares}")

# %% [markdown]
# Look at the first line. One linear layer has nearly all the parameters, and `ZeroRedundancyOptimizer` gives it to
# one rank whole: the other one holds next to nothing, and nothing is saved where it counts. FSDP2 cuts every
# parameter along its first dimension, and gathers layer by layer; whoever calls `fully_shard` says what a layer is.
#
# The milliseconds of one small network on one machine are not a ranking. `bench/zero.py` measures pairs in turn, with
# intervals.

# %% [markdown]
# ## 8. Saved by four, loaded by three (5 min)
#
# Where every rank holds a shard, every rank saves a shard. And then a GPU fails, and three ranks want to go on. A
# checkpoint of shards belongs to a number of ranks, unless somebody cuts it anew: *resharding*.
#
# ### Exercise 09.6 · `reshard` (stretch)
#
# The checkpoint holds `elements` numbers in the shards of `old_size` ranks, cut and padded as in 09.2. With
# `read(source, start, stop)` you get numbers `start` to `stop - 1` of old rank `source`'s shard. Return the shard,
# padded with zeros, that `rank` has among `size` ranks. Read no number that you do not need: a model that needs
# sharding does not fit into one rank whole.


# %% tags=["exercise", "09.6"]
def reshard(read, elements, old_size, rank, size):
    """Return this rank's shard among `size` ranks, read from the shards of `old_size` ranks."""
    ### BEGIN SOLUTION
    old, new = -(-elements // old_size), -(-elements // size)
    start, stop = rank * new, min((rank + 1) * new, elements)
    parts = []
    for source in range(old_size):
        first, last = max(start, source * old), min(stop, (source + 1) * old)
        if first < last:
            parts.append(read(source, first - source * old, last - source * old))
    missing = new - sum(len(part) for part in parts)
    return torch.cat([*parts, torch.zeros(missing)])
    ### END SOLUTION


# %% tags=["check", "09.6"]
check("09.6", reshard)

# %% [markdown]
# The CNN on 4 ranks for some steps, saved by your shards of the parameters *and* of Adam's two means; then loaded by
# 3 ranks, which take as many steps again. Beside it one process that never stopped. (Batches of 24 images, which
# both 4 and 3 divide.)

# %% tags=["experiment"]
my_reshard = mine("09.6")
HALF = 1 if FAST else 5


def reader(checkpoint, i):
    """Reads the i-th tensor of an old rank; a file on a disk would be read in the same way."""
    return lambda source, start, stop: checkpoint[source][0][i][start:stop]


def train_on(comm, first, last, checkpoint=None):
    """Steps `first` to `last - 1`, from a checkpoint: for each old rank its shard, both means, and the count of steps."""
    model = nn.Sequential(*cnn())
    parameters = list(model.parameters())
    shard = nn.Parameter(my_shard(parameters, comm.rank, comm.size))
    optimizer = Adam([shard])
    tensors = [shard.data, *optimizer.state[shard].values()]
    if checkpoint:
        for i, tensor in enumerate(tensors):
            tensor.copy_(my_reshard(reader(checkpoint, i), PARAMETERS, len(checkpoint), comm.rank, comm.size))
        optimizer.steps = checkpoint[0][1]
        fill(model, comm.all_gather(shard))
    losses = []
    for step in range(first, last):
        own = torch.arange(24 * step, 24 * (step + 1))[comm.rank :: comm.size]
        loss = F.cross_entropy(model(X[own]), Y[own])
        loss.backward()
        my_step(comm, parameters, shard, optimizer, MAX_NORM)
        losses.append(comm.all_reduce(loss.detach().clone(), op="mean").item())
    return [tensor.clone() for tensor in tensors], optimizer.steps, losses


by_four = simulate(train_on, 4, 0, HALF, timeout=60).values
by_three = simulate(train_on, 3, HALF, 2 * HALF, by_four, timeout=60).values
(undisturbed,) = simulate(train_on, 1, 0, 2 * HALF, timeout=60).values
print(f"saved by 4 ranks, loaded by 3 with {whose('09.6')} reshard; mean loss of each step")
print("4 ranks, then 3:", " ".join(f"{loss:.4f}" for loss in by_four[0][2] + by_three[0][2]))
print("one process:    ", " ".join(f"{loss:.4f}" for loss in undisturbed[2]))

# %% [markdown]
# The count of steps is a part of the state as well: Adam divides by it, and a run that forgets it begins anew with
# steps that are too long.
#
# In files, the library does the same through `torch.distributed.checkpoint`. Each rank writes what it holds, by the
# names of the parameters, so that neither the number of ranks nor the stage has to be the same when it is loaded. A
# checkpoint that was not finished does not count; the last whole one does. Here two ranks in stage 3 save, and three
# in stage 1 load.


# %% tags=["experiment"]
def save_or_load(comm, stage, folder, load):
    sharded = ZeRO(nn.Sequential(*cnn()), partial(torch.optim.Adam, lr=1e-3), comm, stage)
    if load:
        found = load_checkpoint(folder, sharded)
        if comm.rank == 0:
            print(f"{comm.size} ranks have loaded step {found.step}")
    else:
        images, labels = batch_of(comm, 0)
        F.cross_entropy(sharded(images), labels).backward()
        sharded.step()
        save_checkpoint(folder, sharded, step=1)
    return nn.utils.parameters_to_vector(sharded.full_state_dict().values())


if FAST:
    print("left out in a quick pass")
else:
    with tempfile.TemporaryDirectory() as folder:
        saved = simulate(save_or_load, 2, 3, folder, False, timeout=60).values[0]
        loaded = simulate(save_or_load, 3, 1, folder, True, timeout=60).values[0]
    print("what was saved and what was loaded are equal:", torch.equal(saved, loaded))

# %% [markdown]
# ## 9. On real hardware, and what you know now (4 min)
#
# With **NCCL** and GPUs all of this stays as it is, and prefetch begins to pay: gathers run on the GPU beside the
# computation. Whether they hide depends on the batch: the bytes of a step stay the same, and more images compute
# longer. On slow links between machines it is usual to shard inside a machine only, and to all-reduce between
# machines.
#
# *Offload* takes the optimizer's part out of the GPU altogether: a rank's shard of it lies in the memory of the CPU,
# gradients of the shard go there each step and new parameters come back. How long does that take for 7.5 billion
# parameters on 64 ranks, with 2 bytes each way? And what stays on the GPU? (DeepSpeed's estimate counts 18 bytes a
# parameter, and four bytes for each parameter of the largest layer, which has to be whole at some time. It leaves
# activations out.) The library offloads with `ZeRO(..., offload=True)`; without a GPU that changes nothing.

# %%
moved = 2 * 2 * 7.5e9 / 64
print(f"{moved / 1e6:.0f} MB a step over PCIe 3: {1000 * moved / link('PCIe3').bandwidth:.0f} ms")
for offload in ("nothing", "optimizer", "all"):
    size = zero3_estimate(7_500_000_000, 100_000_000, 64, offload) / 1e9
    print(f"offload of {offload:9} {size:5.2f} GB on a GPU (DeepSpeed's estimate, largest layer 100 million)")

# %% [markdown]
# This line trains with stage 3 on two ranks, with gloo here and with NCCL where there are two GPUs; `zero1` and
# `zero2` are the other stages, `--precision bf16` is mixed precision, and with `--checkpoint-dir` and `--resume`
# another number of ranks goes on where these stopped.
#
# ```
# torchrun --nproc-per-node=2 -m lockstep.train --strategy zero3
# ```
#
# **Summary**
# - Data parallel training holds parameters, gradients and optimizer state N times. ZeRO shares them out: state, then
#   gradients, then parameters.
# - One flat, padded tensor makes equal shards, whatever the layers look like. Padding is zero and stays zero.
# - Stages 1 and 2 send what data parallel training sends, 2 volumes. Stage 3 sends 3.
# - Norms and overflows belong to the whole: ranks agree by one number before anybody steps.
# - What autograd has saved is not freed. Stage 3 works because forward goes past autograd, or saves places instead
#   of weights.
# - Activations stay as they are.
#
# Four questions. Choose, say how sure you are, and read why.

# %%
ask("09.q1")

# %%
ask("09.q2")

# %%
ask("09.q3")

# %%
ask("09.q4")

# %% [markdown]
# And a riddle: a run of one of this lab's functions with a fault in it, or now and then a right one. Which fault is
# it? Run the cell again for another.

# %%
diagnose("09")

# %% [markdown]
# What you have done so far; `submit("09")` makes the file to hand in, if somebody asked you for it.

# %%
progress("09")

# %% [markdown]
# **References**
# - S. Rajbhandari, J. Rasley, O. Ruwase, Y. He (2020), "ZeRO: Memory Optimizations Toward Training Trillion Parameter
#   Models", SC20: sections 3 and 5 for the bytes, 7 for what is sent.
# - J. Ren et al. (2021), "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC.
# - Y. Zhao et al. (2023), "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 16(12).
# - P. Micikevicius et al. (2018), "Mixed Precision Training", ICLR.
# - D. Kingma, J. Ba (2015), "Adam: A Method for Stochastic Optimization", ICLR.
