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
# # Lab 10 · Compression
#
# **Time:** 90 minutes, core exercises included. Exercises marked *stretch* come on top.
#
# **You will be able to**
# - send a gradient in eight bits, in one bit, or as its largest numbers, and say what is lost;
# - keep what was not sent, so that nothing is lost for good;
# - count what a byte really costs: who has to hear it, and what it takes to make it small;
# - say for a network, a link and a number of ranks whether a compressor pays, or only looks as if it did.
#
# **You need:** labs 04 and 05 (rings, all-gather, data parallel training).

# %% tags=["parameters"]
RANKS = 2  # real processes in sections 5 and 6, each with one thread
FAST = False  # True: fewer steps, for a quick pass
SEED = 0

# %% [markdown]
# The picture shows one step of ResNet-50 on 16 GPUs that send their gradients in six ways, over links from 10 Mbit/s
# to 1 Tbit/s. Left, how many times as long as with *dense* gradients, sent whole, the step takes; right, its parts on
# the link of the dotted line. You will write some of these ways, and the function that says where they cross the black
# line (the upright marks). Note what the picture leaves out: whether the network still learns. Section 5 puts the two
# together, from your own run.

# %% tags=["stable"]
import math
import statistics
import time
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from lockstep import data, viz
from lockstep.comm.collectives import rabenseifner_all_reduce
from lockstep.compress import (
    DGC,
    ErrorFeedback,
    Int8,
    OneBit,
    PowerSGD,
    RandomK,
    TopK,
    as_torch_hook,
)
from lockstep.cost import Cost, seconds_of
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
from lockstep.hardware import Link, device, link
from lockstep.nn.models import resnet50
from lockstep.parallel import DistributedDataParallel
from lockstep.viz.break_even import GIGABIT, Step, break_even, break_even_explorer
from lockstep.viz.compression import Training, loss_against, recovered
from lockstep.world import launch, simulate

# %%
torch.set_num_threads(1)
GPU, TEN_GIGABIT = device("T4"), link("10GbE")
SHAPES = [p.shape for p in resnet50().parameters()]
COMPUTING = 3 * 2 * 4_089_184_256 * 32 / GPU.rate()  # 4.09 G multiply-adds forward, twice as many backward (lab 03)
WAYS = {  # the compressor, and how many rounds of N - 1 messages it needs
    "dense": (None, 2),
    "int8": (Int8(), 2),
    "1-bit": (ErrorFeedback(OneBit()), 1),
    "top-k 1 %": (ErrorFeedback(TopK(0.01)), 1),
    "random-k 1 %": (ErrorFeedback(RandomK(0.01)), 2),
    "PowerSGD rank 4": (ErrorFeedback(PowerSGD(4)), 4),
}


def resnet_step(way, ranks):
    """Bytes from closed forms; computing and compressing take the least that a T4 needs (lab 03's roofline)."""
    compressor, rounds = WAYS[way]
    if compressor is None:
        work, sent = Cost(), 8 * (ranks - 1) * sum(shape.numel() for shape in SHAPES)
    else:
        work = sum((compressor.compress_cost(s) + compressor.decompress_cost(s, ranks) for s in SHAPES), Cost())
        sent = sum(compressor.wire_bytes(s, ranks) for s in SHAPES)
    return Step(COMPUTING, seconds_of(work, GPU), sent / ranks, rounds * (ranks - 1))


break_even(
    {way: resnet_step(way, 16) for way in WAYS}, TEN_GIGABIT.bandwidth,
    "ResNet-50, 32 images on each of 16 T4, nothing hidden (predicted)", TEN_GIGABIT.latency,
)  # fmt: skip

# %% [markdown]
# Three questions from earlier labs first; those that you missed come before the others.

# %%
recall("10")

# %% [markdown]
# ## 1. Fewer bits (20 min)
#
# A gradient is a vector of 32-bit numbers. Do they all need 32 bits? With 8, a number becomes a *code*, a whole number
# from -127 to 127, and a *scale* says what a code of 1 is worth. A number then takes a quarter of the bytes.
#
# Two traps. The first: whoever adds up codes as they are gets nonsense, since int8 wraps around. Run this.

# %% tags=["stable"]
codes = torch.tensor([100], dtype=torch.int8)
print("100 + 100 in int8:", (codes + codes).item())
print("7.3 rounded down or up at random, 10 times:", [math.floor(7.3 + u / 10) for u in range(10)])

# %% [markdown]
# So the ranks exchange codes and scales, and everybody turns them back into numbers before adding. The second trap is
# rounding. The line above shows *stochastic rounding*: add a random number from 0 to 1 and round down (here ten
# equally spaced ones in place of random ones). 7.3 becomes 8 in 30 % of all cases and 7 in the others: wrong each
# time, right on average.
#
# Predict: a number of the gradient is 0.3 of a code in each of 100 steps, so that 30 codes should arrive in all. How
# many arrive when each step rounds to the *nearest* code?

# %% tags=["predict"]
predict("10.p1", None)

# %% [markdown]
# ### Exercise 10.1 · `quantize`
#
# Average `g`, this rank's gradient, over the ranks with a byte for each number on the wire: codes of int8, and a
# float32 scale for each `block` of neighbouring numbers (the last block may be shorter): its largest magnitude over
# 127. Why blocks? One large number makes the scale of all numbers that share it. Round each number at random to one of
# its two neighbouring codes, so that on average nothing is lost; draw for each number, and anew at each call. Return
# the mean as a new float32 tensor, the same on every rank.
#
# `comm.all_gather(tensor)` joins the tensors of all ranks; it takes any dtype.


# %% tags=["exercise", "10.1"]
def quantize(comm, g, block):
    """Return the mean of `g` over the ranks, sent as int8 codes and a scale for each block."""
    ### BEGIN SOLUTION
    count = -(-len(g) // block)
    rows = F.pad(g, (0, count * block - len(g))).view(count, block)
    scales = rows.abs().amax(dim=1) / 127
    steps = rows / scales.where(scales > 0, 1).unsqueeze(1)
    codes = (steps + torch.rand_like(steps)).floor().clamp(-127, 127).to(torch.int8)
    all_codes = comm.all_gather(codes.flatten()[: len(g)]).view(comm.size, -1)
    all_scales = comm.all_gather(scales).view(comm.size, -1)
    wide = all_scales.repeat_interleave(block, dim=1)[:, : len(g)]
    return (all_codes * wide).mean(dim=0)
    ### END SOLUTION
    ### BEGIN STUB
    # rows = ...  # g as rows of `block` numbers, zeros after the last
    # scales = ...  # float32, one for each row; what becomes of a row of zeros?
    # codes = ...  # int8, each number rounded down or up at random
    # # send codes and scales, turn everyone's codes back into numbers, and average those
    # raise NotImplementedError("the mean over ranks, sent as int8")
    ### END STUB


# %% tags=["check", "10.1"]
check("10.1", quantize)

# %% [markdown]
# The network of this lab: small convolutions and one wide linear layer, for the digits of lab 05. The next cell trains
# it for a few steps and takes a gradient that we will look at again and again. Then your function sends it, on two
# simulated ranks that both have the same gradient. Errors are given as shares of its *length*, the root of the sum of
# its squared numbers.

# %%
digits = data.load("mnist5k", "train")
X, Y = data.Normalize.of(digits.images)(digits.images), digits.labels
ORDER = data.permutation(len(Y), SEED)


def cnn(seed=SEED):
    """The same numbers on every rank."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def batch_of(comm, step, each=16):
    """This rank's images of a step: `each` on every rank."""
    first = step * each * comm.size % (len(Y) - each * comm.size)
    own = ORDER[first : first + each * comm.size][comm.rank :: comm.size]
    return X[own], Y[own]


def a_gradient(steps=10):
    model = cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(X[64 * step : 64 * step + 64]), Y[64 * step : 64 * step + 64]).backward()
        optimizer.step()
    return {name: p.grad for name, p in model.named_parameters()}


GRADIENT = a_gradient()
G = torch.cat([g.flatten() for g in GRADIENT.values()])
PARAMETERS = len(G)
print(f"{PARAMETERS:,} parameters, {4 * PARAMETERS / 1e6:.2f} MB of gradient")

# %% tags=["experiment"]
my_quantize = mine("10.1")


def sent_as_int8(comm, block):
    before = comm.traffic.bytes_sent
    mean = my_quantize(comm, G, block)
    return mean, (comm.traffic.bytes_sent - before) / PARAMETERS


print(f"with {whose('10.1')} quantize, 2 ranks")
for block in (64, 1024, PARAMETERS):
    mean, per_number = simulate(sent_as_int8, 2, block).values[0]
    error = ((mean - G).norm() / G.norm()).item()
    print(
        f"a scale for {block:7,} numbers: {per_number:.3f} bytes a number, error {error:6.2%} of the gradient's length"
    )

steps = 100
nearest = sum(round(0.3) for _ in range(steps))
at_random = sum(math.floor(0.3 + torch.rand(()).item()) for _ in range(steps))
print(f"0.3 of a code in each of {steps} steps: {nearest} arrive rounded to the nearest, {at_random} rounded at random")

# %%
reveal("10.p1", nearest)

# %% [markdown]
# Nothing ever arrives: rounding to the nearest makes the same error in each step. Rounded at random, errors go both ways
# and cancel. Small blocks have smaller errors, for a few bytes more.
#
# A byte a number, that is a quarter of what a dense ring sends, on two ranks. In the all-gather every rank hears all
# others: N - 1 bytes a number, where a ring all-reduce takes 8(N-1)/N. On 8 ranks the two are equal. Section 2 comes
# back to this.

# %% [markdown]
# ### Exercise 10.2 · `one_bit` (stretch)
#
# How far can one go? To the sign. Return `(bits, low, high)`: a bit for each number of `g`, 1 where it is at least
# zero, eight neighbours to a byte of uint8 (the first byte holds the first eight; which bit of a byte comes first is
# up to you); the mean of the numbers below zero; and the mean of the others. A kind that has no numbers has mean 0.
# The receiver puts `high` where a bit is 1 and `low` where it is 0.


# %% tags=["exercise", "10.2"]
def one_bit(g):
    """Return (bits, low, high): eight numbers to a byte, and what the two kinds are on average."""
    ### BEGIN SOLUTION
    above = g >= 0
    padded = F.pad(above.to(torch.uint8), (0, -len(g) % 8)).view(-1, 8)
    bits = (padded << torch.arange(8)).sum(dim=1).to(torch.uint8)
    low, high = (g[kind].mean().item() if kind.any() else 0.0 for kind in (~above, above))
    return bits, low, high
    ### END SOLUTION


# %% tags=["check", "10.2"]
check("10.2", one_bit)

# %%
my_one_bit = mine("10.2")
bits, low, high = my_one_bit(G)
error = (G - torch.where(G >= 0, float(high), float(low))).norm() / G.norm()
print(
    f"with {whose('10.2')} one_bit: {8 * bits.nbytes / PARAMETERS:.2f} bits a number, error {error.item():.0%} of the length"
)

# %% [markdown]
# Thirty-two times fewer bytes, and most of the gradient is gone. Whether a network can learn from that is the question
# of section 3.

# %% [markdown]
# ## 2. Fewer numbers (17 min)
#
# Most numbers of a gradient are small. One could send the large ones alone: *top-k* sends the k numbers of largest
# magnitude, and where they are.
#
# Predict: the gradient's squared length is the sum of all squared numbers. How many percent of it do the largest 1 % of
# the numbers hold?

# %% tags=["predict"]
predict("10.p2", None)

# %%
squares = G.square().sort(descending=True).values
shares = {percent: (squares[: PARAMETERS * percent // 100].sum() / squares.sum()).item() for percent in (1, 10, 50)}
print(", ".join(f"the largest {percent} % of the numbers hold {share:.0%}" for percent, share in shares.items()))
reveal("10.p2", round(100 * shares[1]), "%")

# %% [markdown]
# ### Exercise 10.3 · `top_k`
#
# Send the `k` numbers of `g` that are largest in magnitude, and their places, to all ranks. Return `(mean, sent)`: the
# mean over ranks of these sparse gradients, dense, and the bytes that this rank has sent for it; leave `g` as it is.
# The places differ from rank to rank, so they have to travel as well; as int32 they take 4 bytes each, as int64 8. In
# an all-gather around a ring a rank passes on its own part and the parts of others: N - 1 parts in all.


# %% tags=["exercise", "10.3"]
def top_k(comm, g, k):
    """Return the mean over ranks of everybody's k largest numbers, and the bytes that this rank has sent."""
    ### BEGIN SOLUTION
    places = g.abs().topk(k).indices
    values = g[places]
    places = places.to(torch.int32)
    all_values, all_places = comm.all_gather(values), comm.all_gather(places)
    mean = torch.zeros_like(g).index_add_(0, all_places, all_values) / comm.size
    return mean, (comm.size - 1) * (values.nbytes + places.nbytes)
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("the mean of what all ranks sent, and the bytes that this rank sent")
    ### END STUB


# %% tags=["check", "10.3"]
check("10.3", top_k)

# %% [markdown]
# A hundredth of the numbers, twice the bytes for each: a fiftieth of the traffic, one would think. The cell after the
# prediction counts. (Two rings of 128 ranks would pass 65,000 messages. It sends as many bytes in 4,000, by lab 04's
# doubling.)
#
# Predict: 128 ranks average a gradient with top-k, k = 1 % of the numbers. How many times as many bytes does a rank send
# as with a dense ring all-reduce?

# %% tags=["predict"]
predict("10.p3", None)


# %% tags=["experiment"]
my_top_k = mine("10.3")
NUMBERS = 3_200


def doubling_all_gather(comm, tensor):
    """Swap all that is there with the rank at a distance of 1, 2, 4, ...: as many bytes as in a ring, in lg N messages."""
    joined, distance = tensor, 1
    while distance < comm.size:
        other, theirs = comm.rank ^ distance, torch.empty_like(joined)
        comm.exchange([(joined, other)], [(theirs, other)])
        joined = torch.cat([joined, theirs] if comm.rank < other else [theirs, joined])
        distance *= 2
    return joined


def bytes_of_both(comm):
    ring = comm.all_gather
    comm.all_gather = lambda *tensor, **more: ring(*tensor, **more) if more else doubling_all_gather(comm, *tensor)
    g = torch.randn(NUMBERS)
    before = comm.traffic.bytes_sent
    my_top_k(comm, g, NUMBERS // 100)
    between = comm.traffic.bytes_sent
    rabenseifner_all_reduce(comm, g)
    return between - before, comm.traffic.bytes_sent - between


factors = {}
for ranks in (2, 8, 32, 128):
    gathered, ring = simulate(bytes_of_both, ranks, timeout=60).values[0]
    factors[ranks] = gathered / ring
    print(
        f"{ranks:4} ranks: top-k 1 % sends {gathered:7,} bytes a rank, dense {ring:7,}: {factors[ranks]:.2f} times as many"
    )
print(f"N k / n on 128 ranks: {128 * 0.01:.2f}")
print("for 90 % less traffic k/n must be at most", {n: f"{0.1 / n:.3%}" for n in (2, 8, 32, 128)})

# %%
reveal("10.p3", round(factors[128], 2))

# %% [markdown]
# *More*, not less. A ring adds up on the way, and what travels never grows: each rank sends 2(N-1)/N gradients,
# however many ranks there are. Sparse gradients with places of their own cannot be added up on the way without
# growing, so everybody gets everybody's: N - 1 parts of 8k bytes. The ratio is N·k/n. Top-k at 1 % sends less than
# dense below 100 ranks, and saves 90 % up to 10.
#
# *Random-k* has no such trouble. If all ranks draw the same places, from a shared seed, nobody has to send a place,
# and a ring adds up the values. Only, random numbers are not the largest ones. The next cell compares what both keep
# of the gradient, and what they cost on 16 ranks. (The library goes tensor by tensor, your functions take all numbers
# at once. The largest 1 % of each tensor keep less than the largest 1 % of all; two means for each tensor keep more
# than two for all.) 1-bit has the same trouble as top-k, and so has an int8 that is gathered, as yours is. In the
# library each rank turns everyone's codes of *one part* into numbers, averages them, and sends the mean as codes: a
# quarter of dense, however many ranks there are.

# %%
RING = 2 * 15 * 4 * PARAMETERS  # bytes that 16 ranks send, dense


def kept(compressor):
    """The share of the squared length that arrives."""
    left = [compressor.decompress(compressor.compress(g, name)) - g for name, g in GRADIENT.items()]
    return 1 - sum(error.square().sum() for error in left).item() / G.square().sum().item()


print(f"{'':14} keeps of the squared length   bytes of 16 ranks, dense = 1")
for name, compressor in {
    "int8": Int8(), "1-bit": OneBit(), "top-k 1 %": TopK(0.01), "random-k 1 %": RandomK(0.01), "PowerSGD rank 1": PowerSGD(1),
}.items():  # fmt: skip
    sent = sum(compressor.wire_bytes(g.shape, 16) for g in GRADIENT.values())
    print(f"{name:15} {kept(compressor):26.1%} {sent / RING:30.4f}")

# %% [markdown]
# ## 3. What was not sent (17 min)
#
# Top-k throws away 99 % of the numbers in each step, and the same small numbers each time. *Error feedback* throws away
# nothing: what was not sent, the *residual*, is added to the gradient of the next step. A small number that comes
# again and again grows in the residual until it is among the largest.
#
# ### Exercise 10.4 · `error_feedback`
#
# `average(x)` compresses `x`, exchanges it, and returns `(mean, sent)`: the mean of what all ranks sent, and what this
# rank sent of `x`. Give it this step's gradient `g` together with what earlier steps have left, `residual`. Return the
# mean, and what is left now. Call `average` once (it talks to the other ranks, and may draw random numbers), and leave
# `g` as it is.


# %% tags=["exercise", "10.4"]
def error_feedback(average, g, residual):
    """Return (mean, residual): what arrives on every rank, and what this rank has still to send."""
    ### BEGIN SOLUTION
    corrected = g + residual
    mean, sent = average(corrected)
    return mean, corrected - sent
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("the mean, and what is left")
    ### END STUB


# %% tags=["check", "10.4"]
check("10.4", error_feedback)

# %% [markdown]
# Is it true that nothing is lost? The next cell sends 20 gradients on two ranks with your `top_k`, with and without your
# `error_feedback`: this lab's gradient with fresh noise in each step and on each rank. After each step it compares the
# sum of all that has arrived with the sum of all gradients.

# %% tags=["experiment"]
my_feedback = mine("10.4")


def top_k_average(comm, x):
    """(mean, sent) of the largest 1 %, as `error_feedback` wants it."""
    k = max(1, len(x) // 100)
    mean, _ = my_top_k(comm, x, k)
    places = x.abs().topk(k).indices
    return mean, torch.zeros_like(x).index_copy_(0, places, x[places])


def gaps(comm, feedback, steps):
    residual, arrived, wanted, found = torch.zeros_like(G), torch.zeros_like(G), torch.zeros_like(G), []
    for _ in range(steps):
        g = G + G.abs().mean() * torch.randn_like(G)
        if feedback:
            mean, residual = my_feedback(partial(top_k_average, comm), g, residual)
        else:
            mean, _ = top_k_average(comm, g)
        arrived += mean
        wanted += comm.all_reduce(g, op="mean")
        found.append(((arrived - wanted).norm() / wanted.norm()).item())
    return found


steps = 5 if FAST else 20
viz.curves(
    {"share that is missing": {
        words: simulate(gaps, 2, feedback, steps, timeout=60).values[0]
        for words, feedback in (("without feedback", False), ("with feedback", True))
    }},
    f"Sum of what arrived against sum of gradients, {whose('10.3')} top_k, {whose('10.4')} error_feedback",
    along="step", shares=("share that is missing",),
)  # fmt: skip

# %% [markdown]
# Without feedback the same share is missing in each step, for ever. With it the residual grows ever more slowly, since
# large numbers are sent, and its share of a growing sum falls: *sum of what was sent + last residual = sum of
# gradients*. What feedback costs is time, since small numbers arrive late, and memory: a residual as large as the
# model, on every rank.
#
# **Momentum correction.** Late is not the same as in time when the optimizer has momentum. Take a number whose gradient
# is 1 in each of ten steps, and which is sent in the tenth.

# %% tags=["stable"]
velocity = waiting = accumulated = moved_dense = 0.0
for _ in range(10):
    velocity = 0.9 * velocity + 1  # momentum before compression ...
    moved_dense += velocity
    accumulated += velocity  # ... and the residual of velocities
    waiting += 1  # the residual of gradients; the optimizer's momentum sees it in step 10
print(f"moved after ten steps: dense {moved_dense:.1f}, feedback {waiting:.1f}, momentum correction {accumulated:.1f}")

# %% [markdown]
# *Deep gradient compression* therefore puts momentum before compression: a rank keeps velocities of its own, and feeds
# back what it has not sent of *them*. What is sent is set to zero in the velocity, too, so that nothing old pushes on
# (*masking*). And it begins gently, with a *sparsity warm-up*: in the first epochs more is sent, since gradients change
# quickly then and late ones mislead. The optimizer itself has no momentum any more.

# %%
gentle = DGC(0.001, momentum=0.9, warm_up=40)
print("sent in steps 0, 10, 20, 30 and 40:", [f"{gentle.fraction_at(step):.4%}" for step in (0, 10, 20, 30, 40)])

# %% [markdown]
# ## 4. Fewer dimensions, fewer steps (6 min)
#
# Three more ideas, each with a stretch exercise. Read on if you keep to the core; their pictures come all the same, made
# with the library.
#
# A gradient of a linear layer is a matrix, a sum of one thin product for each image, and often close to a product of
# two thin matrices of r columns each (such a product has, as a matrix, *rank* r). *PowerSGD* sends these, P and Q:
# (rows + columns)·r numbers instead of rows·columns. Both come from products that are linear in the gradient, so a
# ring may add them up.
#
# ### Exercise 10.5 · `power_sgd` (stretch)
#
# Average `m`, a matrix of float32 on each rank, as a product of two thin matrices: `P`, the mean of `m @ q` with its
# columns made orthonormal, and `Q`, the mean of `m.T @ P`. `q` has the shape (columns of `m`, r) and is the same on all
# ranks. Return `P @ Q.T` and the `q` that the next step starts from.


# %% tags=["exercise", "10.5"]
def power_sgd(comm, m, q):
    """Return the mean of `m` as a product of two thin matrices, and the next step's `q`."""
    ### BEGIN SOLUTION
    p = torch.linalg.qr(comm.all_reduce(m @ q, op="mean")).Q
    q = comm.all_reduce(m.T @ p, op="mean")
    return p @ q.T, q
    ### END SOLUTION


# %% tags=["check", "10.5"]
check("10.5", power_sgd)

# %% tags=["experiment"]
my_power = mine("10.5")
MATRIX = GRADIENT["5.weight"]


def errors_of_power(comm, r, rounds):
    """The error after each round on the same matrix; the basis of a round is where the next one starts."""
    q, found = torch.randn(MATRIX.shape[1], r, generator=torch.Generator().manual_seed(SEED)), []
    for _ in range(rounds):
        near, q = my_power(comm, MATRIX, q)
        found.append(f"{((near - MATRIX).norm() / MATRIX.norm()).item():.0%}")
    return found


singular = torch.linalg.svdvals(MATRIX)
print(f"{MATRIX.shape[0]} x {MATRIX.shape[1]} gradient, with {whose('10.5')} power_sgd: error in rounds 1 to 4")
for r in (1, 2, 4, 8):
    found = simulate(errors_of_power, 2, r, 4).values[0]
    least = (singular[r:].norm() / singular.norm()).item()
    smaller = MATRIX.numel() / (sum(MATRIX.shape) * r)
    print(f"r = {r}: {smaller:5.1f} times smaller, error {' '.join(found)}; the best such product has {least:.0%}")

# %% [markdown]
# One round is a poor basis; but the next step starts where this one ended, and gradients of neighbouring steps are
# alike. With feedback the rest comes later.
#
# *Compressed sensing* sends random sums: `y = phi @ g` with fewer rows than columns, linear again. If g has few numbers
# that are not zero, they can be found from y: go down the slope of |y - phi x|², keep the k largest numbers, repeat
# (*iterative hard thresholding*).
#
# ### Exercise 10.6 · `sense_and_recover` (stretch)
#
# Send nothing but `phi @ g`, and return the mean gradient, which has at most `k` numbers that are not zero. Find it from
# the mean measurements `y` by iterative hard thresholding: go down the slope of `|y - phi @ x|**2`, keep the `k` numbers
# of largest magnitude, and again, until nothing changes. That takes some dozens of rounds here, not ten. The rows of
# `phi` are orthonormal.


# %% tags=["exercise", "10.6"]
def sense_and_recover(comm, g, phi, k):
    """Return the k-sparse mean of `g` over the ranks, found from the mean of `phi @ g`."""
    ### BEGIN SOLUTION
    y = comm.all_reduce(phi @ g, op="mean")
    x = torch.zeros_like(g)
    for _ in range(1000):
        slope = phi.T @ (y - phi @ x)
        used = slope * (x != 0) if x.any() else slope
        length = used.square().sum() / (phi @ used).square().sum().clamp(min=1e-30)
        ahead = x + length.clamp(min=1) * slope
        places = ahead.abs().topk(k).indices
        new = torch.zeros_like(g).index_copy_(0, places, ahead[places])
        if torch.allclose(new, x, rtol=0, atol=1e-7):
            break
        x = new
    return x
    ### END SOLUTION


# %% tags=["check", "10.6"]
check("10.6", sense_and_recover)

# %% [markdown]
# 1,024 numbers from 320 measurements, twice: 30 of them not zero, as the method wants it; and 1,024 numbers of this
# lab's gradient. What is exact lies on the dashed line.

# %% tags=["experiment"]
my_sense = mine("10.6")
PHI = torch.linalg.qr(torch.randn(1024, 320, generator=torch.Generator().manual_seed(SEED))).Q.T.contiguous()


def sensed(comm, g):
    return my_sense(comm, g, PHI, 30)


torch.manual_seed(SEED)
sparse = torch.zeros(1024).index_copy_(0, torch.randperm(1024)[:30], torch.randn(30))
several = MATRIX.flatten()[:1024].contiguous()
found = {
    words: (g, simulate(sensed, 2, g).values[0]) for words, g in (("30 of 1,024", sparse), ("a gradient", several))
}
small = several.abs().sort().values[:-30]
print(f"the gradient without its 30 largest numbers has {(small.norm() / several.norm()).item():.0%} of its length")
recovered(
    found,
    f"1,024 numbers from 320 measurements, {whose('10.6')} sense_and_recover",
)

# %% [markdown]
# Exact on the left. On the right worse than had one sent the 30 largest numbers themselves: all that is not among them
# leaks into the measurements. Gradients of convolutional networks are not sparse; with feedback the library can train on
# such sums nevertheless (`CompressedSensing`), but it learns from little more than the largest numbers.
#
# Finally one may send the same numbers less often. In *local SGD* ranks train by themselves for some steps, and then
# average their weights.
#
# ### Exercise 10.8 · `local_sgd` (stretch)
#
# Call `step(i)` for `i` from 0 to `steps - 1`, each of which changes `parameters` in place with this rank's own images.
# After every `every` steps, and after the last step, replace the parameters by their mean over the ranks, in place.
# Send nothing else. (10.7 is in the next section.)


# %% tags=["exercise", "10.8"]
def local_sgd(comm, parameters, step, steps, every):
    """Train for `steps` steps, and average the parameters every `every` steps and after the last one."""
    ### BEGIN SOLUTION
    for i in range(steps):
        step(i)
        if (i + 1) % every == 0 or i == steps - 1:
            flat = torch.cat([p.detach().flatten() for p in parameters])
            comm.all_reduce(flat, op="mean")
            for p, mean in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                p.data.copy_(mean.view_as(p))
    ### END SOLUTION


# %% tags=["check", "10.8"]
check("10.8", local_sgd)

# %% [markdown]
# ## 5. Does it pay? (22 min)
#
# A compressor saves bytes and costs time. It pays if the bytes would have taken longer than the compressing. That
# depends on the link: below some bandwidth, the *break-even*, it pays, above it does not.
#
# ### Exercise 10.7 · `pays_off`
#
# Return a dictionary with three numbers for `ranks` ranks that average `n` float32 numbers: `"dense"`, the seconds of
# a ring all-reduce; `"compressed"`, the seconds with the compressor, its own `seconds` of compressing included; and
# `"break_even"`, the bandwidth below which the compressor is faster: 0 if it never is, `math.inf` if it always is.
# Bandwidths are in bytes a second; leave latency out, and let a ring divide its numbers evenly. `method` is `"top-k"`,
# which gathers `k` values and their 4-byte indices from every rank, or `"random-k"`, which adds up `k` values by a
# ring, at places that all ranks know.


# %% tags=["exercise", "10.7"]
def pays_off(n, ranks, k, method, seconds, bandwidth):
    """Return the seconds dense and compressed, and the bandwidth below which the compressor is faster."""
    ### BEGIN SOLUTION
    ring = 2 * (ranks - 1) / ranks
    before = ring * 4 * n
    after = (ranks - 1) * 8 * k if method == "top-k" else ring * 4 * k
    if after >= before:
        break_even = 0.0
    else:
        break_even = (before - after) / seconds if seconds else math.inf
    return {"dense": before / bandwidth, "compressed": seconds + after / bandwidth, "break_even": break_even}
    ### END SOLUTION


# %% tags=["check", "10.7"]
check("10.7", pays_off)

# %% [markdown]
# Your function, for this lab's network: what compressing costs is measured on this machine, and beside it the least that
# a T4 needs. What a rank has to make of the parts of others grows with their number, so it is timed for each number of
# ranks.

# %% tags=["experiment"]
my_pays_off = mine("10.7")


def working_seconds(compressor, ranks):
    """Of compressing, and of putting together what `ranks` sent: processor time here, and the least on the GPU."""
    taken = []
    for _ in range(3 if FAST else 5):
        begun = time.thread_time()
        for g in GRADIENT.values():
            payload = compressor.compress(g)
            if isinstance(compressor, TopK):
                compressor.combine([payload] * ranks)
            else:
                compressor.decompress(payload)
        taken.append(time.thread_time() - begun)
    work = [compressor.compress_cost(g.shape) + compressor.decompress_cost(g.shape, ranks) for g in GRADIENT.values()]
    return min(taken), seconds_of(sum(work, Cost()), GPU)


def below(bandwidth):
    return f"below {bandwidth / GIGABIT:,.2f} Gbit/s" if bandwidth else "never"


print(f"1 % of {PARAMETERS:,} numbers, {whose('10.7')} pays_off; compressing and break-even")
for method, compressor in (("top-k", TopK(0.01)), ("random-k", RandomK(0.01))):
    for ranks in (2, 16, 128):
        said = []
        for seconds in working_seconds(compressor, ranks):
            end = my_pays_off(PARAMETERS, ranks, PARAMETERS // 100, method, seconds, 1)["break_even"]
            said.append(f"{1e3 * seconds:7.3f} ms, {below(end):20}")
        print(f"{method:8} {ranks:4} ranks: this machine {said[0]} a T4 at best {said[1]}")

# %% [markdown]
# On 128 ranks top-k has no break-even: it sends more than dense, so no link is slow enough.
#
# Now all of it together. The next cell trains the CNN on two real processes with dense gradients and in eight other
# ways: int8, top-k and local SGD are your functions, the others the library's. It is the longest cell of this lab.
#
# Predict: on a link of 10 Gbit/s, how many times as long as a dense step does a step with top-k 1 % take here?

# %% tags=["predict"]
predict("10.p4", None)


# %% tags=["experiment"]
class Yours:
    """An exchange of `DistributedDataParallel` made of your functions: `average(comm, flat)` gives (mean, sent)."""

    exact = False

    def __init__(self, average, feedback=None):
        self.average, self.feedback, self.residuals = average, feedback, {}

    def start(self, comm, bucket):
        if self.feedback is None:
            mean, _ = self.average(comm, bucket.flat)
        else:  # by name, for a bucket's parameters may change places (PyTorch's do after the first step)
            parts = dict(zip(bucket.names, bucket.parts, strict=True))
            before = torch.cat([self.residuals.get(n, torch.zeros_like(p)).flatten() for n, p in parts.items()])
            mean, left = self.feedback(partial(self.average, comm), bucket.flat, before)
            self.residuals |= dict(zip(parts, left.split([p.numel() for p in parts.values()]), strict=True))
        bucket.flat.copy_(mean)
        return self

    def wait(self):
        pass  # it is there already


def int8_average(comm, x):
    return my_quantize(comm, x, 1024), x


EXCHANGES = {
    "dense": lambda: None,
    "int8": lambda: Yours(int8_average),
    "1-bit": lambda: ErrorFeedback(OneBit()),
    "1-bit, no feedback": OneBit,
    "top-k 1 %": lambda: Yours(top_k_average, my_feedback),
    "top-k 1 %, no feedback": lambda: Yours(top_k_average),
    "random-k 20 %": lambda: ErrorFeedback(RandomK(0.2)),
    "PowerSGD rank 2": lambda: ErrorFeedback(PowerSGD(2)),
    "local SGD, 8 steps": None,
}
if FAST:
    EXCHANGES = {way: make for way, make in EXCHANGES.items() if way.startswith(("dense", "top-k", "local"))}
my_local = mine("10.8")
LR = 0.1


def train(comm, way, steps):
    """Losses; of a step on average this rank's processor seconds, clock's seconds and bytes; its shortest step."""
    model, losses, ends = cnn(), [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    make = EXCHANGES[way]
    forward = model if make is None else DistributedDataParallel(model, comm, exchange=make())

    def step(i):
        images, labels = batch_of(comm, i)
        loss = F.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        forward.zero_grad()
        losses.append(loss.item())
        ends.append(comm.now())

    comm.barrier()
    before = torch.tensor([time.thread_time(), comm.now(), comm.traffic.bytes_sent], dtype=torch.float64)
    if make is None:
        my_local(comm, list(model.parameters()), step, steps, 8)
    else:
        for i in range(steps):
            step(i)
    after = torch.tensor([time.thread_time(), comm.now(), comm.traffic.bytes_sent], dtype=torch.float64)
    shortest = min(end - begin for begin, end in zip(ends, ends[1:], strict=False))
    return losses, ((after - before) / steps).tolist(), shortest


def some_ways(comm, steps):
    """Each way for its number of steps, after one another."""
    return {way: train(comm, way, count) for way, count in steps.items()}


STEPS = 16 if FAST else 100
learned = launch(some_ways, RANKS, dict.fromkeys(EXCHANGES, STEPS), timeout=300).values
losses = {way: [sum(pair) / RANKS for pair in zip(*(v[way][0] for v in learned), strict=True)] for way in EXCHANGES}
working = {way: max(v[way][1][0] for v in learned) for way in EXCHANGES}
for way in EXCHANGES:
    last = statistics.mean(losses[way][-10:])
    print(
        f"{way:23} loss of the last ten of {STEPS} steps {last:.3f}; {1e3 * working[way]:5.1f} ms of a processor a step"
    )

# %% [markdown]
# Look at the two ways without feedback beside the same ways with it.
#
# A step lasts as long as the processor works, on computing and compressing, and as long as the link takes. The first you
# have just measured. The second comes from the simulated world, where every message of these same functions meets a
# link: a slow one, 20 Mbit/s, or a fast one, 10 Gbit/s. The next cell adds the two up and draws the loss against bytes, and
# against seconds on either link. The target is a loss 1.3 times as high as the one that dense gradients end with.

# %% tags=["experiment"]
LINKS = {"20 Mbit/s": Link(50e-6, 0.02 * GIGABIT), "10 Gbit/s": TEN_GIGABIT}
FEW = {way: 8 if make is None else 2 for way, make in EXCHANGES.items()}  # local SGD sends once in 8 steps
moved = {name: simulate(some_ways, RANKS, FEW, cluster=way, timeout=60).values[0] for name, way in LINKS.items()}
trainings = {
    way: Training(
        losses[way],
        moved["10 Gbit/s"][way][1][2],
        {name: working[way] + found[way][1][1] for name, found in moved.items()},
    )
    for way in EXCHANGES
}
dense = trainings["dense"]
TARGET = round(1.3 * dense.smooth[-1], 2)
YOURS = " and ".join(dict.fromkeys(whose(f"10.{i}") for i in (1, 3, 4, 8)))
loss_against(trainings, TARGET, f"A CNN on {RANKS} ranks, {YOURS} functions; loss measured, links simulated")

# %%
fast = {way: run.step_seconds["10 Gbit/s"] / dense.step_seconds["10 Gbit/s"] for way, run in trainings.items()}
reveal("10.p4", round(fast["top-k 1 %"], 2))

# %% [markdown]
# Read the table from left to right. The column of bytes is what papers like to show: nearly all of it is blue. The
# column of the slow link is nearly all blue as well: there compression pays. On the fast link the same runs with the
# same bytes are mostly hatched: they only look as if they paid. And two ways are hatched everywhere, because what they
# do not send is lost. (A way is there as soon as a mean of ten steps touches the target, even if it goes up again:
# compare the last losses above.) The next cell lists them from your run. (Local SGD compresses nothing, and sends once
# in eight steps; its loss is that of each rank's own weights, between averages.)

# %%
for name in LINKS:
    pays, looks = [], []
    reached = dense.steps_to(TARGET)
    for way, run in trainings.items():
        steps = run.steps_to(TARGET)
        if run is dense or steps is None or reached is None:
            continue
        sooner = steps * run.step_seconds[name] < reached * dense.step_seconds[name]
        fewer = steps * run.step_bytes < reached * dense.step_bytes
        if fewer:
            (pays if sooner else looks).append(way)
    print(f"{name}: pays: {', '.join(pays) or 'none'}; fewer bytes, yet not sooner: {', '.join(looks) or 'none'}")
print("never there:", ", ".join(way for way, run in trainings.items() if run.steps_to(TARGET) is None) or "none")

# %% [markdown]
# Is the sum right? A *paced* run (lab 05) of two of the ways, on real processes whose messages take as long as on the
# slow link; the shortest of some steps. Where the cores are busy with other work they take longer than the sum.

# %% tags=["experiment"]
paced = launch(some_ways, RANKS, {"dense": 8, "top-k 1 %": 8}, pace=True, link=LINKS["20 Mbit/s"], timeout=60).values
for way in paced[0]:
    took, said = max(v[way][2] for v in paced), trainings[way].step_seconds["20 Mbit/s"]
    print(f"{way:10} a step at 20 Mbit/s: {1e3 * took:5.1f} ms paced, {1e3 * said:5.1f} ms as the sum")

# %% [markdown]
# How it looks on other links and with more ranks, for ResNet-50, is what the figure at the top says: it is this table's
# *seconds*, with closed forms in place of your run. Choose another number of ranks below: which ways are above the
# black line on *every* slow link with 128 ranks? From which link on does nothing pay much any more?

# %%
break_even(
    {way: resnet_step(way, 128) for way in WAYS}, GIGABIT, "ResNet-50, 32 images on each of 128 T4 (predicted)",
    TEN_GIGABIT.latency,
)  # fmt: skip

# %% tags=["widget"]
break_even_explorer(
    list(WAYS), resnet_step, latency=TEN_GIGABIT.latency, note="(ResNet-50, T4, predicted)", first=("all", 16, GIGABIT)
)

# %% [markdown]
# ## 6. The real thing (4 min)
#
# PyTorch's `DistributedDataParallel` has the same seam, called *communication hook*: a function that gets a bucket and
# returns a future of its mean. `as_torch_hook` makes one of any exchange, yours as well. The next cell takes the same
# steps with the library's data parallel wrapper and with PyTorch's, on real processes: milliseconds of the shortest step,
# and how far apart the two models are afterwards. The last line is PyTorch's own PowerSGD.


# %% tags=["experiment"]
def some_steps(comm, wrap, steps):
    """Milliseconds of the shortest step, and all parameters afterwards."""
    model = cnn().to(comm.device)
    forward, taken = wrap(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for i in range(steps):
        images, labels = (part.to(comm.device) for part in batch_of(comm, i))
        comm.barrier()
        begun = time.perf_counter()
        F.cross_entropy(forward(images), labels).backward()
        optimizer.step()
        forward.zero_grad()
        taken.append(1000 * (time.perf_counter() - begun))
    return min(taken), nn.utils.parameters_to_vector(model.parameters()).detach()


def by_lockstep(comm, make, model):
    return DistributedDataParallel(model, comm, exchange=make())


def by_torch(make, model):
    ddp, exchange = nn.parallel.DistributedDataParallel(model), make()
    if exchange is not None:
        ddp.register_comm_hook(*as_torch_hook(exchange, model=model))
    return ddp


def torchs_own(model):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as own

    ddp = nn.parallel.DistributedDataParallel(model)
    ddp.register_comm_hook(own.PowerSGDState(None, 2, start_powerSGD_iter=2), own.powerSGD_hook)
    return ddp


def on_both(comm, steps):
    found = {
        way: (
            some_steps(comm, partial(by_lockstep, comm, make), steps),
            some_steps(comm, partial(by_torch, make), steps),
        )
        for way, make in EXCHANGES.items()
        if way in ("dense", "int8", "1-bit", "top-k 1 %", "PowerSGD rank 2")
    }
    return found, some_steps(comm, torchs_own, steps)[0]


found, own = launch(on_both, RANKS, 3 if FAST else 6, timeout=300).values[0]
print(f"{'':23} {'lockstep':>12} {'torch DDP':>12}   largest difference of a parameter")
for way, ((ours, one), (theirs, other)) in found.items():
    print(f"{way:23} {ours:9.1f} ms {theirs:9.1f} ms   {(one - other).abs().max().item():.0e}")
print(f"{'PyTorch PowerSGD rank 2':23} {'':12} {own:9.1f} ms")

# %% [markdown]
# Both come to the same parameters, up to the last digits; with int8 they differ by what rounding at random makes
# different in each run. The milliseconds are those of a loopback without pacing: there is no network in them, so
# dense has an advantage. `bench/compress.py` measures PowerSGD and PyTorch's in pairs, with intervals.

# %% [markdown]
# ## 7. On real hardware, and what you know now (4 min)
#
# With **NCCL** and GPUs, codes are packed by kernels at the speed of the GPU's memory, so compressing takes a small part of
# what it takes a CPU: the first figure counts it that way, as a lower bound. But links are faster as well, and dense
# gradients hide behind backward (lab 05), so that much of what one could save costs nothing anyway. Compression pays where the
# network is the slow part: between machines with ordinary Ethernet, between sites. The usual first step is no compressor at
# all: 16-bit gradients, half the bytes, no bookkeeping.
#
# This line trains with top-k and feedback on two ranks; `int8`, `onebit`, `randomk:0.01` and `powersgd:2` are others, and
# PyTorch's own script needs one line more, `ddp.register_comm_hook(*as_torch_hook(ErrorFeedback(PowerSGD(2))))`.
#
# ```
# torchrun --nproc-per-node=2 -m lockstep.train --strategy ddp --compress topk:0.01 --feedback
# ```
#
# **Summary**
# - Fewer bits: scales by block, rounding at random. Codes are never added; numbers are.
# - Fewer numbers: what cannot be added on the way has to be gathered, and costs N·k/n of a ring.
# - Feedback makes compressors work that are wrong on average, too (*biased*): what is sent + what is left = what there was.
# - With momentum, what is late has to bring its momentum along.
# - PowerSGD, random-k and compressed sensing are linear, so rings add them up. Linear is not enough: it has to fit the
#   gradient, too.
# - A compressor pays below its break-even, which falls as compressing takes longer and, where payloads are gathered, with
#   more ranks; and only if the loss falls as before.
#
# Four questions. Choose, say how sure you are, and read why.

# %%
ask("10.q1")

# %%
ask("10.q2")

# %%
ask("10.q3")

# %%
ask("10.q4")

# %% [markdown]
# And a riddle: a run of one of this lab's functions with a fault in it, or now and then a right one. Which fault is
# it? Run the cell again for another.

# %%
diagnose("10")

# %% [markdown]
# What you have done so far; `submit("10")` makes the file to hand in, if somebody asked you for it.

# %%
progress("10")

# %% [markdown]
# **References**
# - F. Seide, H. Fu, J. Droppo, G. Li, D. Yu (2014), "1-Bit Stochastic Gradient Descent and its Application to
#   Data-Parallel Distributed Training of Speech DNNs", Interspeech: section 3, feedback and packing.
# - D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic (2017), "QSGD: Communication-Efficient SGD via Gradient
#   Quantization and Encoding", NeurIPS: unbiased rounding and its variance.
# - A. Aji, K. Heafield (2017), "Sparse Communication for Distributed Gradient Descent", EMNLP.
# - Y. Lin, S. Han, H. Mao, Y. Wang, W. Dally (2018), "Deep Gradient Compression", ICLR: section 3, momentum correction,
#   masking, warm-up.
# - S. Stich, J.-B. Cordonnier, M. Jaggi (2018), "Sparsified SGD with Memory", NeurIPS; S. Karimireddy et al. (2019),
#   "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML.
# - T. Vogels, S. Karimireddy, M. Jaggi (2019), "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
#   Optimization", NeurIPS: algorithm 1.
# - T. Blumensath, M. Davies (2010), "Normalized Iterative Hard Thresholding", IEEE J. Sel. Topics Signal Processing 4(2).
# - S. Stich (2019), "Local SGD Converges Fast and Communicates Little", ICLR.
# - S. Agarwal, H. Wang, S. Venkataraman, D. Papailiopoulos (2022), "On the Utility of Gradient Compression in Distributed
#   Training Systems", MLSys: when it pays, measured.
