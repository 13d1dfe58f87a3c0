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
# # Lab 06 · Splitting the model
#
# **Time:** 75 minutes, core exercises included. Exercises marked *stretch* come on top.
#
# **You will be able to**
# - split a network by layers over devices and ranks, with gradients that find their way back;
# - say how long each device waits, and cut the network so that the slowest part is as fast as possible;
# - share out the neurons of a layer and the channels of a convolution, and count the collectives that it takes;
# - choose, layer by layer, the split that sends least.
#
# **You need:** labs 04 and 05 (collectives, data parallel), and a training loop in PyTorch.

# %% tags=["parameters"]
RANKS = 2  # real processes in section 5, each with one thread
FAST = False  # True: fewer repetitions, for a quick pass
SEED = 0

# %% [markdown]
# The picture shows VGG-16, cut into three parts with about equally many layers. Above, what each layer costs; below,
# what the cuts make of it. By the end of section 3 your own function will choose better cuts.

# %% tags=["stable"]
import math
import time
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F

from lockstep import viz
from lockstep.cost import LayerCost, profile, seconds_of
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
from lockstep.nn.models import vgg16
from lockstep.parallel import (
    ChannelParallelConv2d,
    ColumnParallelLinear,
    DeviceSplit,
    InputChannelParallelConv2d,
    RowParallel2d,
    RowParallelLinear,
)
from lockstep.trace import idle_share
from lockstep.viz.split import ChainLayer, layer_split, message_seconds, split_explorer
from lockstep.viz.split_traffic import split_traffic
from lockstep.world import launch, simulate

# %%
torch.set_num_threads(1)
IMAGES, GPU, PCIE = 32, device("T4"), link("PCIe3").bandwidth
NAMES = (
    "conv1_1 conv1_2 conv2_1 conv2_2 conv3_1 conv3_2 conv3_3 "
    "conv4_1 conv4_2 conv4_3 conv5_1 conv5_2 conv5_3 fc6 fc7 fc8"
).split()


def vgg_profile():
    """For each of VGG-16's layers with weights, ReLU and pooling included: what it costs, forward and backward."""
    with torch.device("meta"):  # shapes alone; the numbers would take 553 MB
        network = nn.Sequential(*vgg16().stages())
    whole = profile(network, (3, 224, 224), IMAGES)
    costs, chain, seconds = whole.layer_costs(), [], {}
    for i, name in enumerate(NAMES):
        own = [layer for layer in whole.layers if layer.name.split(".")[0] == str(i)]
        forward, backward = (
            sum(seconds_of(getattr(costs[layer.name], way), GPU) for layer in own) for way in ("forward", "backward")
        )
        memory = 12 * sum(layer.parameters for layer in own) + sum(layer.saved_bytes for layer in own)
        chain.append(ChainLayer(name, forward + backward, 4 * math.prod(own[-1].shape), memory))
        seconds[str(i)] = LayerCost(forward, backward)
    parameters = [sum(one.parameters for one in whole.layers if one.name.split(".")[0] == str(i)) for i in range(16)]
    return chain, seconds, parameters


vgg, vgg_seconds, vgg_parameters = vgg_profile()
EQUAL = [5, 11]  # the first layers of parts 1 and 2: parts of 5, 6 and 5 layers
TITLE = f"VGG-16, {IMAGES} images, three T4 over PCIe 3"
layer_split(vgg, EQUAL, PCIE, f"{TITLE}: equally many layers (predicted)")

# %% [markdown]
# Three questions from earlier labs first; those that you missed come before the others.

# %%
recall("06")

# %% [markdown]
# ## 1. One network, several devices (9 min)
#
# Data parallel training needs the whole model on every device. When it does not fit, it has to be split. The shortest
# way is *by layers*: the first layers on one device, the next ones on another. In one process that takes nothing but
# `to`: autograd remembers the move, and moves the gradients back.
#
# How large is VGG-16? Parameters, gradients and momentum take 12 bytes a parameter, and every image leaves
# activations behind (lab 03).

# %%
state = 12 * sum(vgg_parameters)
saved = (sum(layer.memory for layer in vgg) - state) / IMAGES
for images in (32, 256):
    print(f"{images:4} images: {(state + images * saved) / 1e9:5.1f} GB; a T4 has {GPU.memory / 1e9:.1f} GB")

# %% [markdown]
# This is the manual split. With GPUs it uses them; without, all three devices are the CPU, and the code is the same.
# The network has VGG-16's sixteen layers with a quarter of its channels, for 32×32 images.


# %%
def vgg_stages(width):
    """VGG-16's layers with `width` channels in the first block instead of 64, for images of 32x32 pixels."""
    stages, channels = [], 3
    for block, convolutions in enumerate((2, 2, 3, 3, 3)):
        for i in range(convolutions):
            wide = width * min(2**block, 8)
            pool = [nn.MaxPool2d(2)] if i == convolutions - 1 else []
            stages.append(nn.Sequential(nn.Conv2d(channels, wide, 3, padding=1), nn.ReLU(), *pool))
            channels = wide
    stages[-1].append(nn.Flatten())
    stages += [nn.Sequential(nn.Linear(channels, channels), nn.ReLU()) for _ in range(2)]
    return [*stages, nn.Linear(channels, 10)]


class ByHand(nn.Module):
    def __init__(self, layers, devices):
        super().__init__()
        self.devices = devices
        self.front = nn.Sequential(*layers[:5]).to(devices[0])
        self.middle = nn.Sequential(*layers[5:11]).to(devices[1])
        self.back = nn.Sequential(*layers[11:]).to(devices[2])

    def forward(self, x):
        x = self.front(x.to(self.devices[0]))
        x = self.middle(x.to(self.devices[1]))
        return self.back(x.to(self.devices[2]))


GPUS = torch.cuda.device_count()
DEVICES = [f"cuda:{i % GPUS}" for i in range(3)] if GPUS else ["cpu"] * 3


def outcome(make):
    """Output and gradients of a fresh network with the same numbers each time."""
    torch.manual_seed(SEED)
    model = make(vgg_stages(16))
    y = model(torch.randn(4, 3, 32, 32))
    y.square().mean().backward()
    return torch.cat([y.flatten().cpu(), *(p.grad.flatten().cpu() for p in model.parameters())]).detach()


whole = outcome(lambda layers: nn.Sequential(*layers))
split = {"by hand": ByHand, "DeviceSplit": lambda layers, devices: DeviceSplit(layers, EQUAL, devices)}
for words, make in split.items():
    apart = (outcome(lambda layers, make=make: make(layers, DEVICES)) - whole).abs().max()
    print(f"{words:12} on {DEVICES}: output and gradients differ from the whole network's by at most {apart:.0e}")

# %% [markdown]
# `DeviceSplit` is the library's form of it, for any list of cuts. Both compute exactly what the whole network does.
# What they do not do is compute at the same time: the second device has nothing to work on until the first is done.
#
# Predict: VGG-16 is on three devices, as in the picture at the top. One batch goes forward and back. Which share of
# the time is a device idle, on average over the three? Give a number from 0 to 1.

# %% tags=["predict"]
predict("06.p1", None)

# %% [markdown]
# ## 2. Over ranks (14 min)
#
# When the devices belong to different processes, `to` is not enough: a message between ranks is numbers, and
# autograd does not see it. At such a border somebody has to hand the gradient over. The next cell does it inside
# one process. Run it before you go on. `y.backward(gradient)` starts backward in the middle of a chain: `gradient`
# is what the loss changes per unit of each number of `y`, and has the shape of `y`.

# %% tags=["stable"]
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x**2  # the layers of rank 0

arrived = y.detach().requires_grad_()  # on rank 1: the same numbers, without a history
loss = (3 * arrived).sum()  # the layers of rank 1, and the loss
loss.backward()
print("rank 1: backward ends at what arrived, with the gradient", arrived.grad.tolist())

y.backward(arrived.grad)  # rank 0 goes on with it
print("rank 0: the gradient of x is", x.grad.tolist())

# %% [markdown]
# ### Exercise 06.1 · `split_layers`
#
# One pass, forward and backward, of a network that is split by layers. All ranks are given the same list `layers`,
# and rank r has those from one cut to the next: with `cuts` [5, 11] rank 1 has layers 5 to 10. `x` holds the images
# on rank 0; on every other rank it is a tensor to be filled with what the rank before sends, and already has the
# right shape. `loss(y)` makes the loss of the network's output. Afterwards each rank has the gradients of its own
# layers' parameters. The last rank returns the loss, the others None.
#
# You need `comm.send(tensor, dst)` and `comm.recv(tensor, src)`, which fills the tensor, from lab 04. A cut carries
# one activation forward and one gradient back.


# %% tags=["exercise", "06.1"]
def split_layers(comm, layers, cuts, x, loss):
    """Run one pass of the whole network, of which this rank has the layers between two cuts."""
    ### BEGIN SOLUTION
    first, last = comm.rank == 0, comm.rank == comm.size - 1
    bounds = [0, *cuts, len(layers)]
    stage = nn.Sequential(*layers[bounds[comm.rank] : bounds[comm.rank + 1]])
    if not first:
        comm.recv(x, comm.rank - 1)
        x.requires_grad_()
    y = stage(x)
    if last:
        value = loss(y)
        value.backward()
    else:
        comm.send(y, comm.rank + 1)
        gradient = torch.empty_like(y)
        comm.recv(gradient, comm.rank + 1)
        y.backward(gradient)
    if not first:
        comm.send(x.grad, comm.rank - 1)
    return value if last else None
    ### END SOLUTION
    ### BEGIN STUB
    # stage = ...  # an nn.Sequential of this rank's layers
    # # forward: receive (not on rank 0), run the stage, send on (not on the last rank)
    # # backward: the other way round
    # raise NotImplementedError("receive, run the stage, send on; then the gradients the other way")
    ### END STUB


# %% tags=["check", "06.1"]
check("06.1", split_layers)

# %% [markdown]
# Now VGG-16 on three simulated T4. The network that really runs has 4 channels instead of 64, and 2 small images;
# each rank's clock is charged with the seconds of the profile at the top. Its messages are 12,544 times as small as
# VGG-16's, and the simulated link is that much slower than PCIe 3, so they take as long.

# %% tags=["experiment"]
my_split = mine("06.1")
SMALLER = (64 // 4) * (224 // 32) ** 2 * (IMAGES // 2)
NETWORK = Cluster.uniform(Link(latency=link("PCIe3").latency, bandwidth=PCIE / SMALLER), GPU)


def prepared(comm, cuts, width, images):
    """A narrow VGG-16, and images on rank 0 or an empty activation on the others."""
    torch.manual_seed(SEED)
    layers = vgg_stages(width)
    with torch.no_grad():  # the shapes at the cuts
        shapes = [nn.Sequential(*layers[:cut])(torch.zeros(1, 3, 32, 32)).shape[1:] for cut in cuts]
    return layers, torch.zeros(images, *shapes[comm.rank - 1]) if comm.rank else torch.randn(images, 3, 32, 32)


def loss(y):
    return y.square().mean()


def one_pass(comm, split, cuts):
    layers, x = prepared(comm, cuts, 4, 2)
    comm.charge(nn.ModuleList(layers), vgg_seconds)
    split(comm, layers, cuts, x, loss)


def simulated(cuts):
    return simulate(one_pass, len(cuts) + 1, my_split, cuts, cluster=NETWORK)


run = simulated(EQUAL)
viz.timeline(run, f"VGG-16 on three T4, {whose('06.1')} split_layers, equally many layers")

# %%
idle = idle_share(run.trace)
reveal("06.p1", sum(idle) / len(idle))

# %% [markdown]
# A staircase: down through the ranks, and up again. At every moment one of three devices works, or a message is on
# its way. So with p devices each is idle for about (p - 1)/p of the time, on average: two thirds here, 98 % with 64
# devices. The split solves a problem of memory, not of time. (The white lines inside the boxes are the borders of
# layers.)

# %% [markdown]
# ## 3. Where to cut (15 min)
#
# In the picture at the top part 1 takes eight times as long as part 2. The last three layers hold 89 % of the
# parameters and cost almost no time; the early ones cost time, and memory for activations. Try it by hand first:
# change `BY_HAND`, run the cell, and look at the slowest part under the title.

# %%
print(f"the last three layers hold {sum(vgg_parameters[-3:]) / sum(vgg_parameters):.0%} of the parameters")
BY_HAND = [4, 9]  # the first layers of parts 1 and 2
layer_split(vgg, BY_HAND, PCIE, f"{TITLE}: cut by hand (predicted)")

# %% [markdown]
# ### Exercise 06.2 · `balanced_partition`
#
# Let a function do it. `costs[i]` are the seconds of layer i, forward and backward. A cut behind layer i has a
# price too: its activation goes over, its gradient comes back, and both parts beside the cut are busy with that for
# `communication[i]` seconds. The time of a part is that of its layers and of its one or two cuts. The largest time of
# all parts is the *bottleneck*. Return the `parts - 1` cuts with the smallest bottleneck, each the index of the first
# layer of a next part. Every part has at least one layer, and behind the last one nothing is sent: `communication` has
# one number fewer than `costs`. Where several lists of cuts are best, give any.
#
# Trying all cuts is a right answer here. For a thousand layers in 64 parts it would not end; hint 3 leads to a way
# that does.


# %% tags=["exercise", "06.2"]
def balanced_partition(costs, parts, communication):
    """Return the cuts that make the slowest of `parts` contiguous parts as fast as possible."""
    ### BEGIN SOLUTION
    n, carried = len(costs), [0, *communication, 0]

    def seconds(a, b):
        return carried[a] + sum(costs[a:b]) + carried[b]

    best = {b: (seconds(0, b), []) for b in range(1, n + 1)}
    for part in range(1, parts):
        best = {
            b: min((max(best[a][0], seconds(a, b)), [*best[a][1], a]) for a in range(part, b))
            for b in range(part + 1, n + 1)
        }
    return best[n][1]
    ### END SOLUTION


# %% tags=["check", "06.2"]
check("06.2", balanced_partition)

# %% [markdown]
# Your function on VGG-16, with messages over PCIe 3. The bottleneck is what it made small.

# %%
my_partition = mine("06.2")
costs = [layer.seconds for layer in vgg]
BALANCED = list(my_partition(costs, 3, message_seconds(vgg, PCIE)))
layer_split(vgg, BALANCED, PCIE, f"{TITLE}: {whose('06.2')} balanced_partition (predicted)")

# %% [markdown]
# How much does the link count? On a slow one, cuts move to where activations are small, and at some point a split
# costs more than it is worth.


# %%
def slowest_part(cuts, carried):
    """The bottleneck: milliseconds of the slowest part, its messages included."""
    bounds, both = [0, *cuts, len(costs)], [0, *carried, 0]
    return 1000 * max(sum(costs[a:b]) + both[a] + both[b] for a, b in zip(bounds, bounds[1:], strict=False))


print(f"all layers on one T4: {1000 * sum(costs):.0f} ms")
for name in ("NVLink2", "PCIe3", "10GbE", "1GbE"):
    carried = message_seconds(vgg, link(name).bandwidth)
    cuts = list(my_partition(costs, 3, carried))
    print(f"{name:8} cuts {cuts!s:9} slowest part {slowest_part(cuts, carried):6.0f} ms")

# %% [markdown]
# Predict: one batch goes through the balanced parts, forward and back, over PCIe 3 again. How many times as fast is
# this pass as the one with equally many layers? (1 means as fast.)

# %% tags=["predict"]
predict("06.p2", None)

# %% [markdown]
# Three splits, twice: simulated as above, and on three real processes with a quarter of VGG-16's channels. There a rank
# counts as idle while it waits in a send or a receive, and when it has finished. This takes some seconds.


# %% tags=["experiment"]
def two_passes(comm, split, cuts, images):
    for _ in range(2):  # the first one of a process takes longer
        layers, x = prepared(comm, cuts, 16, images)
        comm.barrier()
        with comm.span("pass"):
            split(comm, layers, cuts, x, loss)


def measured_idle(run):
    """The mean share of the last pass, as long as it is on rank 0, in which a rank does not compute."""
    spans, busy = run.trace.spans, []
    last = [[s for s in spans if s.rank == rank and s.name == "pass"][-1] for rank in range(run.trace.ranks)]
    for whole in last:
        inside = [s for s in spans if s.rank == whole.rank and whole.start <= s.start < whole.end]
        busy.append(
            whole.end - whole.start - sum(s.end - s.start for s in inside if s.kind in ("send", "recv", "wait"))
        )
    return 1 - sum(busy) / len(busy) / (last[0].end - last[0].start)


simulations = {}
print(f"{'':14} {'cuts':9} {'slowest part':>13} {'one pass':>9} {'idle':>6} {'idle, measured':>15}")
for words, cuts in {"equal counts": EQUAL, "by hand": BY_HAND, "balanced": BALANCED}.items():
    simulations[words] = run = simulated(cuts)
    real = launch(two_passes, 3, my_split, cuts, 4 if FAST else 32, timeout=120)
    print(
        f"{words:14} {cuts!s:9} {slowest_part(cuts, message_seconds(vgg, PCIE)):10.0f} ms {1000 * run.seconds:6.0f} ms",
        end=" ",
    )
    print(f"{sum(idle_share(run.trace)) / 3:6.0%} {measured_idle(real):15.0%}")

# %%
reveal("06.p2", simulations["equal counts"].seconds / simulations["balanced"].seconds)

# %% [markdown]
# As fast, within the time of the messages. A batch has to go through all layers in any case, one after the other, and
# it does not matter on which device they are: balance moves idle time from one device to another. What it buys comes
# in lab 07. There several parts of a batch are under way at the same time, and then everything moves at the pace of
# the slowest part. The timeline below puts the two runs under each other.

# %% tags=["experiment"]
viz.timeline(
    simulations["equal counts"],
    f"VGG-16 on three T4, {whose('06.1')} split_layers, {whose('06.2')} cuts",
    compare=simulations["balanced"],
    labels=("equal", "balanced"),
)

# %% [markdown]
# Time is not all that a cut decides. Move the sliders: bottleneck, bytes over the cuts and memory of the parts
# follow. Can you find cuts with less memory in the largest part? What does the bottleneck say to that?

# %% tags=["widget"]
split_explorer(vgg, BALANCED, PCIE, f"{TITLE} (predicted)")

# %% [markdown]
# ## 4. Neurons shared out (23 min)
#
# The other way to split goes *through* the layers, so that all devices work at the same time on the same images:
# *tensor parallel*. A linear layer of 1,000 neurons on 4 ranks makes 250 on each. There are two ways to cut its
# weights, named after the matrix that `x` is multiplied by.
#
# | | a rank has | it needs | and makes |
# |---|---|---|---|
# | *column-parallel* | some neurons, all their weights | the whole input | some outputs, complete |
# | *row-parallel* | of every neuron some weights | some inputs | all outputs, as terms of a sum |
#
# In both, autograd has to be told what a collective means backward. Here is how, once more, with a function that
# does nothing forward and turns the gradient round (Ganin and Lempitsky 2015 train a network *against* a second one
# with it). `forward` returns a copy, or a view, and leaves its input to whoever else needs it.


# %% tags=["stable"]
class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient  # one entry for each argument of forward


x = torch.tensor([1.0, 2.0], requires_grad=True)
(3 * Reverse.apply(x)).sum().backward()
print("without Reverse the gradient would be [3, 3]; with it:", x.grad.tolist())

# %% [markdown]
# ### Exercise 06.3 · `column_parallel_linear`
#
# `x`, (images, inputs), is the same on every rank. `weight`, (own, inputs), and `bias`, (own,), are this rank's
# neurons; other ranks may have another number of them. Return their outputs, (images, own).
#
# Forward nobody has to send anything. But every number of `x` acts on the loss through the neurons of *all* ranks,
# and the layers before need the whole gradient: after backward `x.grad` has to be, on every rank, what the whole
# layer gives. Gradients of the weights are this rank's own. Backward may send as much as one all-reduce of a tensor
# like `x`, which may also be images that need no gradient. `comm.all_reduce(tensor)` adds up in place and returns the
# tensor.


# %% tags=["exercise", "06.3"]
def column_parallel_linear(comm, x, weight, bias):
    """Return this rank's features of a linear layer; backward gives `x` the gradient of the whole layer."""

    ### BEGIN SOLUTION
    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone())

    return F.linear(CopyToRanks.apply(x), weight, bias)
    ### END SOLUTION
    ### BEGIN STUB
    # class CopyToRanks(torch.autograd.Function):
    #     @staticmethod
    #     def forward(ctx, x): ...
    #
    #     @staticmethod
    #     def backward(ctx, gradient): ...
    #
    # raise NotImplementedError("return this rank's features of the output")
    ### END STUB


# %% tags=["check", "06.3"]
check("06.3", column_parallel_linear)

# %% [markdown]
# A second layer follows. If it is row-parallel, it takes the outputs just as they lie there: rank r's neurons of
# the first layer are rank r's inputs of the second. A ReLU between them acts on each number alone and does not
# mind.
#
# Predict: a column-parallel layer, a ReLU, a row-parallel layer, with the same images on all ranks before and the
# whole output on all ranks after. How many collectives does each rank take part in, forward and backward together?

# %% tags=["predict"]
predict("06.p3", None)

# %% [markdown]
# ### Exercise 06.4 · `row_parallel_linear`
#
# `x`, (images, own), are this rank's features. `weight`, (outputs, own), has a column for each of them, which is a
# *row* of what `x` is multiplied by, `weight.T`. `bias`, (outputs,), is the same on every rank. Return the outputs of the whole layer, (images, outputs), on every
# rank.
#
# Behind this layer all ranks go on alike, with the same numbers and the same loss. So backward begins with the same
# gradient everywhere; afterwards `x.grad` and `weight.grad` are those of this rank's part, and `bias.grad` that of
# the whole layer. Think about what backward has to send before you copy a class from lab 05: there, every rank had
# a loss of its own. No pass may send more than it needs.


# %% tags=["exercise", "06.4"]
def row_parallel_linear(comm, x, weight, bias):
    """Return all features of a linear layer, of whose inputs this rank has a part."""

    ### BEGIN SOLUTION
    class SumOverRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return comm.all_reduce(y.clone())

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return SumOverRanks.apply(F.linear(x, weight)) + bias
    ### END SOLUTION


# %% tags=["check", "06.4"]
check("06.4", row_parallel_linear)

# %% [markdown]
# The two together, for 1,000 neurons between 256 inputs and 256 outputs, on 4 ranks. Beside it two layers that do
# not know of each other: the first gathers its outputs, so that every rank has them all, and the second takes its
# part of them.

# %% tags=["experiment"]
my_column, my_row = mine("06.3"), mine("06.4")
WHOSE = " and ".join(dict.fromkeys([whose("06.3"), whose("06.4")])) + " functions"


def two_layers(inputs=256, hidden=1000, outputs=256):
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def own_pair(comm, column, row, model):
    """Your two functions as a network: this rank's part of the weights of `model`."""

    def part(tensor, dim):
        return tensor.detach().tensor_split(comm.size, dim)[comm.rank].clone().requires_grad_()

    w1, b1, w2 = part(model[0].weight, 0), part(model[0].bias, 0), part(model[2].weight, 1)
    b2 = model[2].bias.detach().clone().requires_grad_()
    return lambda x: row(comm, torch.relu(column(comm, x, w1, b1)), w2, b2), [w1, b1, w2, b2]


def pair_step(comm, gathers, images):
    model = two_layers()
    if gathers:
        first, second = ColumnParallelLinear(model[0], comm, gather=True), RowParallelLinear(model[2], comm, split=True)
        forward, neurons = nn.Sequential(first, model[1], second), first.out_features
    else:
        forward, own = own_pair(comm, my_column, my_row, model)
        neurons = len(own[1])
    x = images.clone().requires_grad_()
    before = comm.traffic.bytes_sent
    with comm.span("step"):
        y = forward(x)
        y.square().sum().backward()
    return y.detach(), x.grad, neurons, comm.traffic.bytes_sent - before


images = torch.randn(32, 256, generator=torch.Generator().manual_seed(SEED))
x = images.clone().requires_grad_()
want = two_layers()(x)
want.square().sum().backward()
counts = {}
for words, gathers in ((f"a pair, {WHOSE}", False), ("gathered between", True)):
    run = simulate(pair_step, 4, gathers, images)
    y, dx, neurons, sent = run.values[0]
    begun = next(span.start for span in run.trace.spans if span.name == "step" and span.rank == 0)
    named = [s.name for s in run.trace.spans if s.kind == "collective" and s.rank == 0 and s.start >= begun]
    apart = max(((a - b).norm() / b.norm()).item() for a, b in ((y, want.detach()), (dx, x.grad)))
    counts[gathers] = len(named)
    print(
        f"{words}: {neurons} neurons on rank 0, {sent:,} bytes sent by it, {len(named)} collectives: {', '.join(named)}"
    )
    print(f"{'':4}output and input gradient differ from one process by {apart:.0e}, relative to their norm")

# %%
reveal("06.p3", counts[False])

# %% [markdown]
# One all-reduce forward, of the outputs, and one backward, of the gradient of the inputs. The thousand neurons
# between never travel, and the pair can grow wider without sending a byte more. Megatron-LM splits transformers in
# this way (Shoeybi et al. 2019); the two functions are called f and g there, and each is the other one's backward.

# %% [markdown]
# ## 5. The real thing (4 min)
#
# PyTorch does the same with `parallelize_module`: a plan names each layer's style, and the model stays as it is. On
# real processes, a network of 512 inputs, 2,048 neurons and 512 outputs, 64 images; every rank has one thread.
# The last column is the largest difference between the output and one process's. Two ranks have half the product each
# and two all-reduces of 131 kB on top; a network as small as this gains little or nothing by it, all the less where
# other programs use the cores.


# %% tags=["experiment"]
def torch_pair(comm, model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    ranks = init_device_mesh("cuda" if comm.device.type == "cuda" else "cpu", (comm.size,))
    return parallelize_module(model, ranks, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def library_pair(comm, model):
    return nn.Sequential(ColumnParallelLinear(model[0], comm), nn.ReLU(), RowParallelLinear(model[2], comm))


def student_pair(comm, model):
    return own_pair(comm, my_column, my_row, model)[0]


def seconds_of_a_step(comm, make, repetitions):
    model = two_layers(512, 2048, 512).to(comm.device)
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(SEED)).to(comm.device).requires_grad_()
    want = model(x).detach()
    forward, taken = make(comm, model), []
    for _ in range(repetitions):
        comm.barrier()
        begun = time.perf_counter()
        y = forward(x)
        y.square().sum().backward()
        if comm.device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
    return median(taken[1:]), (y.detach() - want).abs().max().item()


ways = {
    "1 rank": (1, lambda comm, model: model),
    f"{RANKS} ranks, {WHOSE}": (RANKS, student_pair),
    f"{RANKS} ranks, lockstep's layers": (RANKS, library_pair),
    f"{RANKS} ranks, PyTorch's parallelize_module": (RANKS, torch_pair),
}
for words, (ranks, make) in ways.items():
    seconds, apart = launch(seconds_of_a_step, ranks, make, 3 if FAST else 12, timeout=120).values[0]
    print(f"{words:48} {1000 * seconds:7.1f} ms a step, output differs by {apart:.0e}")

# %% [markdown]
# ## 6. Channels and rows shared out (4 min)
#
# A convolution is a linear layer that is applied at every place, so its channels can be shared out as neurons are.
# Unlike neurons between two layers, channels often have to be put together again: for a layer that mixes them all,
# such as the next convolution. (By *input* channels it is row-parallel, and such a pair works as well.)
#
# ### Exercise 06.5 · `channel_parallel_conv` (stretch)
#
# `x`, (images, channels, height, width), is the same on every rank. `weight` and `bias` are this rank's output
# channels, of which rank r has `channels[r]`. Return *all* output channels, in the order of the ranks, on every
# rank. Behind it all ranks go on alike. No pass may send more than it needs. `comm.all_gather(tensor, sizes)` joins the ranks' tensors along dimension
# 0, where rank r has `sizes[r]`.


# %% tags=["exercise", "06.5"]
def channel_parallel_conv(comm, x, weight, bias, padding, channels):
    """Return all output channels of a convolution, of which this rank computes `channels[comm.rank]`."""

    ### BEGIN SOLUTION
    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone())

    class GatherChannels(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return comm.all_gather(y.transpose(0, 1).contiguous(), channels).transpose(0, 1)

        @staticmethod
        def backward(ctx, gradient):
            return gradient.split(channels, dim=1)[comm.rank]

    return GatherChannels.apply(F.conv2d(CopyToRanks.apply(x), weight, bias, padding=padding))
    ### END SOLUTION


# %% tags=["check", "06.5"]
check("06.5", channel_parallel_conv)

# %% [markdown]
# A third way is *by rows of the image*: every rank has all weights and a strip of each image, and neighbours exchange
# the rows at the border that both need, the halo (lab 01 has met it inside a block of threads). The library's
# `RowParallel2d` does that.
#
# PyTorch's sharded tensors accept convolutions as well. Look at what comes back: the next cell runs one convolution
# on two real ranks in each of the three ways, the library's beside PyTorch's, and holds both against one process.

# %% tags=["experiment"]
my_conv = mine("06.5")


def one_convolution():
    torch.manual_seed(SEED)
    return nn.Conv2d(4, 6, 3, padding=1), torch.randn(2, 4, 8, 8)


def convolutions(comm):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    conv, x = (one.to(comm.device) for one in one_convolution())
    want, found = conv(x).detach(), {}
    mesh = init_device_mesh("cuda" if comm.device.type == "cuda" else "cpu", (comm.size,))

    def part(tensor, dim):
        return tensor.detach().tensor_split(comm.size, dim)[comm.rank].contiguous()

    def judged(y):
        return tuple(y.shape), (y - want).abs().max().item() if y.shape == want.shape else None

    def sharded(weight, bias, images):
        try:
            tensors = (conv.weight, weight), (conv.bias, bias), (x, images)
            w, b, image = (distribute_tensor(tensor.detach(), mesh, [how]) for tensor, how in tensors)
            return judged(F.conv2d(image, w, b, padding=1).full_tensor())
        except (RuntimeError, NotImplementedError) as error:
            return f"{type(error).__name__}: {error}".splitlines()[0][:70]

    whole, rows = Replicate(), RowParallel2d(conv, comm, 8)(part(x, 2)).detach()
    found["output channels"] = (
        judged(ChannelParallelConv2d(conv, comm, gather=True)(x).detach()),
        sharded(Shard(0), Shard(0), whole),
    )
    found["input channels"] = (
        judged(InputChannelParallelConv2d(conv, comm)(part(x, 1)).detach()),
        sharded(Shard(1), whole, Shard(1)),
    )
    joined = comm.all_gather(rows.movedim(2, 0).contiguous()).movedim(0, 2)
    found["rows"] = judged(joined), sharded(whole, whole, Shard(2))
    mine = my_conv(comm, x, part(conv.weight, 0), part(conv.bias, 0), 1, [3, 3])
    return tuple(want.shape), judged(mine.detach()), found


def in_words(outcome, want):
    if isinstance(outcome, str):
        return f"refuses: {outcome}"
    shape, apart = outcome
    right = apart is not None and apart < 1e-5
    said = f"differs by {apart:.0e}" if apart is not None else f"shape {shape} instead of {want}"
    return f"{'right' if right else 'WRONG'}, {said}"


want, own, found = launch(convolutions, 2, timeout=60).values[0]
print(f"{'output channels':16} {whose('06.5')} channel_parallel_conv: {in_words(own, want)}")
for split, (ours, theirs) in found.items():
    print(f"{split:16} lockstep: {in_words(ours, want):32} torch {torch.__version__}: {in_words(theirs, want)}")

silent = [split for split, (_, theirs) in found.items() if "WRONG" in in_words(theirs, want)]
if silent:
    print(f"\nWithout an error, torch gives a wrong tensor when a convolution is split by {', by '.join(silent)}.")
else:
    print("\nThis version of torch gives no wrong tensor for any of the three.")

# %% [markdown]
# Where it says WRONG, no exception was raised: a tensor came back as if it were the right one. Two threads in PyTorch's
# tracker report it (pytorch issues 186129 and 191926). Compare a split layer with the whole one before you train
# with it, as this cell does; it takes a minute.

# %% [markdown]
# ## 7. Which split talks least (3 min)
#
# What travels in one step, forward and backward, for one layer with a batch of B images? In data parallel,
# gradients of the parameters. In all others, activations and their gradients, which grow with the batch.
#
# | split | forward | backward |
# |---|---|---|
# | `"data"` | | all-reduce of the gradients of the parameters |
# | `"layers"`: whole on one rank, between two others | send the outputs | send the gradient of the inputs |
# | `"column"`, alone | all-gather of the outputs | all-reduce of the gradient of the inputs |
# | `"row"`, alone | all-reduce of the outputs | all-gather of the gradient of the inputs |
# | `"pair"`, column then row | all-reduce of the second's outputs | all-reduce of the gradient of the first's inputs |
#
# Predict: VGG-16's second convolution, conv1_2, with 32 images of 224×224 on 4 ranks. Sharing out its channels
# (`"column"`) sends how many times as many bytes as data parallel?

# %% tags=["predict"]
predict("06.p4", None)

# %% [markdown]
# ### Exercise 06.6 · `bytes_per_step` (stretch)
#
# Return the bytes that a rank sends in one step, from the table. `inputs` and `outputs` are numbers per image, of a
# pair those of its first and of its second layer. `parameters` is how many the layer has, whichever kind of layer it
# is, and a number takes 4 bytes. From lab 04: an all-gather of n bytes sends (p
# - 1)/p n from each rank, an all-reduce twice that.


# %% tags=["exercise", "06.6"]
def bytes_per_step(split, inputs, outputs, parameters, batch, ranks):
    """Return the bytes that a rank sends in one step for a layer that is split in the way `split`."""
    ### BEGIN SOLUTION
    gather = 4 * (ranks - 1) / ranks
    if split == "data":
        return 2 * gather * parameters
    if split == "layers":
        return 4 * batch * (inputs + outputs)
    if split == "column":
        return gather * batch * (outputs + 2 * inputs)
    if split == "row":
        return gather * batch * (2 * outputs + inputs)
    return 2 * gather * batch * (inputs + outputs)
    ### END SOLUTION


# %% tags=["check", "06.6"]
check("06.6", bytes_per_step)

# %%
my_bytes = mine("06.6")
outputs = [layer.output_bytes // (4 * IMAGES) for layer in vgg]
inputs = [3 * 224 * 224, *outputs[:-1]]
sizes = list(zip(inputs, outputs, vgg_parameters, strict=True))
table = {split: [my_bytes(split, *size, IMAGES, 4) for size in sizes] for split in ("data", "layers", "column")}
reveal("06.p4", table["column"][1] / table["data"][1])

# %% [markdown]
# All of VGG-16, layer by layer:

# %%
split_traffic(NAMES, table, f"VGG-16, {IMAGES} images, 4 ranks: bytes a rank sends, {whose('06.6')} bytes_per_step")

# %% [markdown]
# Two networks in one. Convolutions have few weights and large activations, so data parallel sends least, by a
# factor of 31,000 in the first layer. The fully connected layers are the other way round: 617 MB of gradients for fc6
# against 5 MB when its neurons are shared out. Nothing forces one split on all layers; lab 08 gives each kind its
# own.
#
# (`"layers"` in the figure is what a layer would send that is alone between two cuts. A real split pays it at its
# cuts only, which is why so few bytes travel there.)

# %% [markdown]
# ## 8. On real hardware, and what you know now (3 min)
#
# With GPUs, ranks talk through **NCCL**, and your functions stay as they are. A tensor-parallel layer waits for its
# all-reduce in the middle of the forward pass, with nothing to hide it behind, so it stays inside one machine where
# links are fast. A split by layers sends little and rarely, so its cuts may lie between machines. NCCL has no sends
# in both directions at once unless they are posted together, which your `split_layers` does not need: each cut is
# crossed one way at a time.
#
# PyTorch's pair as a program of its own; save it as `pair.py`. The last line runs it, with gloo here and with NCCL
# where there are GPUs:
#
# ```
# import torch
# from torch import distributed, nn
# from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
#
# kind = "cuda" if torch.cuda.is_available() else "cpu"
# distributed.init_process_group()
# ranks = distributed.device_mesh.init_device_mesh(kind, (distributed.get_world_size(),))
# if kind == "cuda":
#     torch.cuda.set_device(ranks.get_local_rank())
# torch.manual_seed(0)
# model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to(kind)
# model = parallelize_module(model, ranks, {"0": ColwiseParallel(), "2": RowwiseParallel()})
# loss = model(torch.ones(8, 1024, device=kind)).square().mean()
# loss.backward()
# print(ranks.get_local_rank(), loss.item())
# distributed.destroy_process_group()
# ```
#
# ```
# torchrun --nproc-per-node=2 pair.py
# ```
#
# **Summary**
# - Split by layers, a model fits; one batch at a time, p devices are idle for (p - 1)/p of the time, balanced or not.
# - A message has no history. At a border the receiver keeps the gradient of what arrived and sends it back.
# - The bottleneck is the slowest part, its messages included; it is found exactly, by trying all cuts or cleverly.
# - Column, then row: one all-reduce each way, and what lies between never travels. The bias comes after the sum.
# - Where all ranks compute the same loss, gradients are already whole. Adding them up makes them too large.
# - Few weights, large activations: split the data. Many weights, small activations: split the layer.
#
# Four questions. Choose, say how sure you are, and read why.

# %%
ask("06.q1")

# %%
ask("06.q2")

# %%
ask("06.q3")

# %%
ask("06.q4")

# %% [markdown]
# And a riddle: a run of one of this lab's functions with a fault in it, or now and then a right one. Which fault is
# it? Run the cell again for another.

# %%
diagnose("06")

# %% [markdown]
# What you have done so far; `submit("06")` makes the file to hand in, if somebody asked you for it.

# %%
progress("06")

# %% [markdown]
# **References**
# - K. Simonyan, A. Zisserman (2015), "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR:
#   VGG-16.
# - M. Shoeybi et al. (2019), "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism",
#   arXiv:1909.08053, section 3.
# - D. Narayanan et al. (2019), on PipeDream, which lab 07 is about, SOSP, section 3.1, where cuts are balanced.
# - N. Dryden et al. (2019), "Improving Strong-Scaling of CNN Training by Exploiting Finer-Grained Parallelism",
#   IPDPS.
# - Y. Ganin, V. Lempitsky (2015), "Unsupervised Domain Adaptation by Backpropagation", ICML: turning gradients round.
