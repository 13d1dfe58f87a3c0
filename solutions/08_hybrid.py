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
# # Lab 08 · Hybrid
#
# **Time:** 75 minutes, core exercises included. Exercises marked *stretch* come on top.
#
# **You will be able to**
# - fold ranks into a mesh with named axes, and make the groups along each;
# - all-reduce over nodes with fast links inside and slow ones between, and say what that saves and what it does not;
# - train convolutions data parallel and linear layers shared out, and switch between the two in the middle of a network;
# - place three kinds of parallelism on a network of two levels, and count the bytes on each.
#
# **You need:** labs 04 to 07 (collectives, data parallel, splitting the model, pipelines).

# %% tags=["parameters"]
RANKS = 4  # real processes in sections 3 and 5, each with one thread; an even number
FAST = False  # True: fewer repetitions, for a quick pass
SEED = 0

# %% [markdown]
# Lab 05 shared out the images, lab 06 the neurons of a layer, lab 07 the layers. Nothing keeps you from doing all
# three. The picture shows eight ranks on two nodes of four GPUs, folded into a mesh of 2 × 2 × 2. On the right is what
# a training step sends, for a made-up network of 48 pairs of linear layers, and where. By the end you will have written
# the groups on the left and the bytes on the right.

# %% tags=["stable"]
import math
import time
from itertools import permutations
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F

from lockstep import viz
from lockstep.comm import Mesh, MeshShape, RingAllReduce, bytes_by_axis
from lockstep.comm import bytes_by_link as measured_by_link
from lockstep.comm.collectives import ring_all_reduce
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
from lockstep.hardware import Cluster, Link, cluster, device, link
from lockstep.parallel import DistributedDataParallel, Hybrid, WeirdTrick, weird_trick_bytes
from lockstep.parallel.pipeline import one_f_one_b
from lockstep.parallel.weird_trick import SCHEMES
from lockstep.trace import Trace
from lockstep.viz.link_bytes import link_bytes
from lockstep.viz.mesh import PlanSizes, mesh_explorer, mesh_plan, seconds_of_axes
from lockstep.world import launch, simulate

# %%
torch.set_num_threads(1)
PAIRS, WIDTH, HIDDEN, ROWS = 48, 8192, 32768, 65536  # ROWS: inputs of a step, of all ranks together
weights = PAIRS * 2 * WIDTH * HIDDEN
SIZES = PlanSizes(
    gradients=4 * weights,
    activations=PAIRS * 2 * ROWS * WIDTH * 4,  # an all-reduce forward and one backward for each pair
    boundary=ROWS * WIDTH * 4,
    state=12 * weights,  # parameters, gradients, momentum
)
print(f"{weights / 1e9:.1f} billion weights, {SIZES.state / 1e9:.0f} GB with gradients and momentum")
PICTURE = f"48 pairs of linear layers, 8 A100, counted by {whose('08.5')} bytes_by_link"
mesh_plan({"data": 2, "pipeline": 2, "tensor": 2}, cluster("4xA100 x 2"), SIZES, mine("08.5"), PICTURE)

# %% [markdown]
# Three questions from earlier labs first; those that you missed come before the others.

# %%
recall("08")

# %% [markdown]
# ## 1. A mesh (14 min)
#
# A **device mesh** folds ranks into a box with named axes, as you fold 24 hours into days. With
# `{"data": 2, "pipeline": 2, "tensor": 2}` rank 5 has the coordinates data 1, pipeline 0, tensor 1: the *last* axis
# varies fastest, so ranks 4 and 5 are neighbours along tensor. Machines number their GPUs in the same way, and that is
# why the order matters: neighbours along the last axis sit in one machine.
#
# Along each axis a rank talks to those that differ from it on that axis alone. For that it needs a **process group**:
# a communicator of some of the ranks. `comm.split(color, key)` makes them. All ranks call it at once; those that give
# the same `color`, a whole number, land in one communicator, in the order of `key`. Run the example.


# %% tags=["stable"]
def by_parity(comm):
    group = comm.split(comm.rank % 2, comm.rank)  # color, key
    total = group.all_reduce(torch.tensor(comm.rank))
    return f"rank {comm.rank} is number {group.rank} of {group.size}, and the ranks of its group add up to {total}"


print(*simulate(by_parity, 5).values, sep="\n")

# %% [markdown]
# ### Exercise 08.1 · `mesh`
#
# `axes` maps the names of the axes to their sizes, which multiply to `comm.size`. Return two dictionaries, both with one
# entry for each axis: this rank's `coordinates`, and its `groups`. A group is a communicator of the ranks that differ
# from this one on that axis alone, each with its coordinate as rank.
#
# `reversed(axes)` gives the names from the last to the first.


# %% tags=["exercise", "08.1"]
def mesh(comm, axes):
    """Return this rank's coordinates and its groups, each by the name of an axis."""
    ### BEGIN SOLUTION
    coordinates, groups, stride = {}, {}, 1
    for name in reversed(axes):
        coordinates[name] = comm.rank // stride % axes[name]
        first = comm.rank - coordinates[name] * stride
        groups[name] = comm.split(first, comm.rank)
        stride *= axes[name]
    return coordinates, groups
    ### END SOLUTION
    ### BEGIN STUB
    # coordinates, groups = {}, {}
    # # for each axis: where am I, and who differs from me on it alone?
    # raise NotImplementedError("return the coordinates and the groups of this rank, each by axis")
    ### END STUB


# %% tags=["check", "08.1"]
check("08.1", mesh)

# %% [markdown]
# Your mesh at work, on eight simulated ranks. Each group adds up the numbers of its ranks.

# %%
my_mesh = mine("08.1")


def members(comm, axes):
    coordinates, groups = my_mesh(comm, axes)
    return coordinates, {name: groups[name].all_gather(torch.tensor([comm.rank])).tolist() for name in axes}


AXES = {"data": 2, "pipeline": 2, "tensor": 2}
print(f"{whose('08.1')} mesh of {AXES}")
for rank, (coordinates, groups) in enumerate(simulate(members, 8, AXES).values):
    print(f"rank {rank}: {coordinates}, talks to {groups}")

# %% [markdown]
# `lockstep.comm.Mesh(comm, axes)` is the library's: `mesh["data"]` is a communicator, `mesh["data", "tensor"]` one over
# two axes, `mesh.coordinates` the rest.
#
# Making groups is a collective. In PyTorch every process has to call `new_group` for *every* group, those it does not
# belong to included; with our `split` every rank calls once for each axis. Who makes only his own groups waits for
# ever, or talks to strangers.

# %% [markdown]
# ## 2. All-reduce on two levels (14 min)
#
# Two nodes of four A100. Inside a node NVLink carries 300 GB/s from each GPU, between nodes InfiniBand 25 GB/s. All
# eight ranks average 400 MB of gradients. A ring in the order of the ranks does not know about nodes.
#
# Think first: 0 → 1 → 2 → 3 → 4 → … → 7 → 0. A **hierarchical all-reduce** does it on two levels: first add up inside
# each node, then across, then tell the node.
#
# Predict: how many times as many bytes cross between the two nodes, in both directions together, in the flat ring
# as in the hierarchical all-reduce? (1 means equally many.)

# %% tags=["predict"]
predict("08.p1", None)

# %% [markdown]
# Predict as well: how many times as long does the flat ring take?

# %% tags=["predict"]
predict("08.p2", None)

# %% [markdown]
# ### Exercise 08.2 · `hierarchical_all_reduce`
#
# `inside` is a communicator of the ranks of this node, `across` one of the ranks that have this rank's place in all
# nodes: the two axes of a mesh `{"node": k, "gpu": m}`. Afterwards `tensor`, 1-D, holds on every rank the sum over
# all ranks, in place.
#
# A rank of a node of m may send no more across than an all-reduce of an m-th of the tensor does, and inside no more
# than an all-reduce of all of it. From lab 04: `inside.reduce_scatter(tensor)` returns this rank's chunk of the sum, and
# `inside.all_gather(chunk, sizes)` puts chunks together, where `sizes` are the lengths of all chunks. The chunks are
# those of `tensor.tensor_split(m)`.


# %% tags=["exercise", "08.2"]
def hierarchical_all_reduce(inside, across, tensor):
    """Sum `tensor` over all ranks, in place, sending as little as possible between nodes."""
    ### BEGIN SOLUTION
    sizes = [len(chunk) for chunk in tensor.tensor_split(inside.size)]
    own = inside.reduce_scatter(tensor)
    across.all_reduce(own)
    tensor.copy_(inside.all_gather(own, sizes))
    ### END SOLUTION


# %% tags=["check", "08.2"]
check("08.2", hierarchical_all_reduce)

# %% [markdown]
# Your function against the flat ring, on the two simulated nodes. The tensor is 400 times as small as 400 MB, and the
# links that much slower, so that each message takes as long.

# %% tags=["experiment"]
my_hierarchical = mine("08.2")
SMALLER = 400


def slower(on, factor):
    """The cluster with bandwidths divided by `factor`."""
    within, between = (Link(one.latency, one.bandwidth / factor) for one in (on.within, on.between))
    return Cluster(on.device, on.per_node, within, between)


def flat(comm, elements):
    ring_all_reduce(comm, torch.ones(elements))


def on_two_levels(comm, elements):
    levels = Mesh(comm, {"node": 2, "gpu": comm.size // 2})
    my_hierarchical(levels["gpu"], levels["node"], torch.ones(elements))


NODES = slower(cluster("4xA100"), SMALLER)
WHOSE = f"{whose('08.2')} hierarchical_all_reduce"
runs, ways = {}, {}
for words, program in (("flat ring", flat), (WHOSE, on_two_levels)):
    runs[words] = run = simulate(program, 8, 100_000_000 // SMALLER, cluster=NODES)
    ways[words] = {where: SMALLER * size for where, size in measured_by_link(run.trace.messages, NODES).items()}
    sent = [
        sum(size for dst, (_, size) in one.sent_to.items() if dst // 4 != r // 4) for r, one in enumerate(run.traffic)
    ]
    print(
        f"{words:45} {1000 * run.seconds:5.1f} ms; MB each rank sends across: {[round(SMALLER * s / 1e6) for s in sent]}"
    )
link_bytes(ways, "All-reduce of 400 MB over 2 nodes of 4 (simulated)")

# %%
reveal("08.p1", ways["flat ring"]["between"] / ways[WHOSE]["between"])

# %%
reveal("08.p2", runs["flat ring"].seconds / runs[WHOSE].seconds)

# %% [markdown]
# Not four or eight times fewer bytes: the ring goes from one node to the other once and back once, whatever its length.
# But *one* GPU of each node carries all of it, 700 MB, while the slow links of the others are idle; and since every
# step of a ring waits for the slowest link, all eight move at its pace. On two levels all four links of a node carry a
# quarter each. Look at the timeline: a short part inside, the slow part across, a short part inside.

# %% tags=["experiment"]
viz.timeline(runs[WHOSE], f"All-reduce of 400 MB over 2 nodes of 4, {WHOSE}; bytes and links 1/{SMALLER}")

# %% [markdown]
# (NCCL comes to the same by other ways: several rings, each of which crosses at another GPU, and trees. See Jeaugey 2019.)

# %% [markdown]
# ## 3. One weird trick (26 min)
#
# In 2014 Alex Krizhevsky trained AlexNet on eight GPUs with an observation about its two kinds of layers. The next cell
# counts, as you did in lab 03.

# %% tags=["stable"]
# kernel, channels in, channels out, side of the outputs; and inputs, outputs
CONVOLUTIONS = [(11, 3, 64, 55), (5, 64, 192, 27), (3, 192, 384, 13), (3, 384, 256, 13), (3, 256, 256, 13)]
LINEAR = [(9216, 4096), (4096, 4096), (4096, 1000)]

PARAMETERS = {
    "convolutions": [k * k * a * b + b for k, a, b, _ in CONVOLUTIONS],
    "linear layers": [a * b + b for a, b in LINEAR],
}
MACS = {
    "convolutions": [k * k * a * b * side**2 for k, a, b, side in CONVOLUTIONS],
    "linear layers": [a * b for a, b in LINEAR],
}
OUTPUTS = {
    "convolutions": sum(b * side**2 for _, _, b, side in CONVOLUTIONS),
    "linear layers": sum(b for _, b in LINEAR),
}
everything = sum(map(sum, PARAMETERS.values()))
for kind in PARAMETERS:
    print(
        f"{kind:14} {sum(PARAMETERS[kind]):11,} parameters ({sum(PARAMETERS[kind]) / everything:6.2%}), "
        f"{sum(MACS[kind]) / sum(map(sum, MACS.values())):5.1%} of the multiply-adds, {OUTPUTS[kind]:8,} outputs an image"
    )

# %% [markdown]
# Convolutions have few weights and large activations, linear layers many weights and small activations. So let the
# convolutions be data parallel, where gradients of weights travel, and share out the neurons of the linear layers,
# where activations travel. That is the **one weird trick**. Its speed-ups, with 2014's GPUs:
#
# | GPUs | hours | speed-up |
# |---:|---:|---:|
# | 1 | 98.05 | 1 |
# | 2 | 50.24 | 1.95 |
# | 4 | 26.20 | 3.74 |
# | 8 | 15.68 | 6.25 |
#
# (Krizhevsky 2014, AlexNet on ImageNet.)
#
# In the middle of the network somebody has to switch. Where the convolutions end, each rank has *some images, all
# features*. A linear layer that is shared out needs all images on every rank, and gives *all images, some neurons*.
# Then back: each rank wants all neurons of its own images. As a table with a row for each image and a column for each
# neuron, a rank has columns and wants rows. The collective for that is the **all-to-all**: rank i has something else
# for every rank j.


# %% tags=["stable"]
def columns_to_rows(comm):
    own = 10 * torch.arange(3).unsqueeze(1) + comm.rank  # column `rank` of a 3 x 3 table: one row an image
    stacked = comm.all_to_all(own)  # row j of it goes to rank j
    return own.flatten().tolist(), stacked.flatten().tolist()


for rank, (column, row) in enumerate(simulate(columns_to_rows, 3).values):
    print(f"rank {rank} has the column {column}, and after the all-to-all the row {row}")

# %% [markdown]
# What arrives is *stacked*: the block of rank 0, below it that of rank 1, and so on. With uneven numbers of rows,
# `comm.all_to_all(t, send_sizes, recv_sizes)` is told how many rows go to each rank and come from each.
#
# ### Exercise 08.3 · `weird_trick`
#
# One linear layer, with a switch before and behind it. Rank r has `images[r]` images, and all of them have equally
# many neurons: `x`, (own images, inputs), `weight`, (own neurons, inputs), `bias`, (own neurons,). Compute this rank's
# neurons for the images of *all* ranks, and return all neurons, in rank order, of this rank's *own* images: (own
# images, all neurons).
#
# Behind it each rank goes on with a loss of its own images, and the sum of the losses counts. After backward `x.grad`,
# `weight.grad` and `bias.grad` are what one process would have, each rank's part of it. Backward sends as much as
# forward. Two functions of the kind of lab 06 do it. For each ask: what does its backward bring to whom? One of the two
# backwards is a collective that you have used in this lab already:
# `comm.reduce_scatter(tensor, sizes=...)`, with sizes in *elements*, returns a flat chunk.


# %% tags=["exercise", "08.3"]
def weird_trick(comm, x, weight, bias, images):
    """Return all neurons of this rank's images; each rank computes its own neurons of everybody's."""
    ### BEGIN SOLUTION
    own, r = images[comm.rank], comm.rank

    class AllImages(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return comm.all_gather(x, images)

        @staticmethod
        def backward(ctx, gradient):
            rows = [n * gradient.shape[1] for n in images]
            return comm.reduce_scatter(gradient, sizes=rows).view(images[r], -1)

    class AllNeurons(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            parts = comm.all_to_all(y, images, [own] * comm.size)
            return torch.cat(parts.split(own), dim=1)

        @staticmethod
        def backward(ctx, gradient):
            parts = torch.cat(gradient.chunk(comm.size, dim=1))
            return comm.all_to_all(parts, [own] * comm.size, images)

    return AllNeurons.apply(F.linear(AllImages.apply(x), weight, bias))
    ### END SOLUTION
    ### BEGIN STUB
    # class AllImages(torch.autograd.Function):
    #     @staticmethod
    #     def forward(ctx, x): ...  # own images -> everybody's images
    #
    #     @staticmethod
    #     def backward(ctx, gradient): ...
    #
    # class AllNeurons(torch.autograd.Function):
    #     @staticmethod
    #     def forward(ctx, y): ...  # own neurons of all images -> all neurons of own images
    #
    #     @staticmethod
    #     def backward(ctx, gradient): ...
    #
    # raise NotImplementedError("return all neurons of this rank's own images")
    ### END STUB


# %% tags=["check", "08.3"]
check("08.3", weird_trick)

# %% [markdown]
# Now a whole network: AlexNet's layers for 32×32 images, with a quarter of its channels and neurons. Your function
# stands in for each of its three linear layers. Four *real* processes play two nodes of two: ranks 0 and 1, ranks 2
# and 3. The run is paced: messages take as long as over 100 Gbit/s Ethernet, and all collectives are sent message by
# message, so that every byte is counted and not assumed.
#
# Four ways: pure data parallel; your function; the library's `WeirdTrick`; and `WeirdTrick` inside the nodes alone,
# with data parallel between them. The last is a mesh `{"data": 2, "tensor": 2}`. All four must give the same
# gradients. This takes some seconds.


# %% tags=["experiment"]
class AlexNetShaped(nn.Module):
    def __init__(self):
        super().__init__()
        channels = (3, 16, 48, 96, 64, 64)
        layers = []
        for i, (a, b) in enumerate(zip(channels, channels[1:], strict=False)):
            layers += [nn.Conv2d(a, b, 3, stride=2 if i == 0 else 1, padding=1), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if i in (0, 1, 4) else []
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.classifier = nn.Sequential(
            nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 12)
        )

    def stages(self):
        return [self.features, self.classifier]

    def forward(self, x):
        return self.classifier(self.features(x))


def batch(comm, images):
    generator = torch.Generator().manual_seed(SEED + 1)
    x, labels = torch.randn(comm.size * images, 3, 32, 32, generator=generator), torch.arange(comm.size * images) % 12
    return x.split(images)[comm.rank], labels.split(images)[comm.rank]


def data_parallel(comm, model, x, labels):
    wrapped = DistributedDataParallel(model, comm, exchange=RingAllReduce())

    def step():
        F.cross_entropy(wrapped(x), labels).backward()
        return model.features[0].weight.grad

    return step


def with_my_trick(comm, model, x, labels):
    linear = [layer for layer in model.classifier if isinstance(layer, nn.Linear)]
    own = [
        [p.detach().tensor_split(comm.size)[comm.rank].clone().requires_grad_() for p in (one.weight, one.bias)]
        for one in linear
    ]
    images = [len(x)] * comm.size

    def step():
        y = model.features(x)
        for i, (weight, bias) in enumerate(own):
            y = my_trick(comm, y if i == 0 else torch.relu(y), weight, bias, images)
        (F.cross_entropy(y, labels) / comm.size).backward()
        for parameter in model.features.parameters():
            ring_all_reduce(comm, parameter.grad)
        return model.features[0].weight.grad

    return step


def with_the_library(comm, model, x, labels, axes):
    trick = WeirdTrick(model, Mesh(comm, axes))

    def step():
        trick.step(x, labels, F.cross_entropy)
        return trick.convolutions.module[0].weight.grad

    return step


def one_step(comm, way, images, *more):
    torch.manual_seed(SEED)
    step = way(comm, AlexNetShaped(), *batch(comm, images), *more)
    comm.barrier()
    with comm.span("step"):
        gradient = step()
    return gradient


def step_alone(run):
    """The trace of the span "step"; what came before only set up."""
    begun = min(span.start for span in run.trace.spans if span.name == "step")
    spans = [span for span in run.trace.spans if span.start >= begun and span.name != "step"]
    messages = [message for message in run.trace.messages if message.sent >= begun]
    return Trace.of(run.trace.ranks, spans, messages, run.trace.world)


IMAGES_EACH = 4 if FAST else 16


def counted_run(*arguments):
    if FAST:  # the same messages, without processes
        return simulate(one_step, RANKS, *arguments)
    return launch(one_step, RANKS, *arguments, pace=True, link="100GbE", timeout=120)


my_trick = mine("08.3")
MINE = f"{whose('08.3')} weird_trick"
WAYS = {
    "data parallel": (data_parallel,),
    MINE: (with_my_trick,),
    "WeirdTrick over all ranks": (with_the_library, {"tensor": RANKS}),
    "WeirdTrick inside nodes, data between": (with_the_library, {"data": RANKS // 2, "tensor": 2}),
}
TWO_BY_TWO = Cluster(device("A100"), 2, link("NVLink3"), link("HDR"))  # for counting: ranks 0, 1 | 2, 3
sent, first = {}, None
for words, (way, *more) in WAYS.items():
    run = counted_run(way, IMAGES_EACH, *more)
    sent[words] = measured_by_link(step_alone(run).messages, TWO_BY_TWO)
    first = run.values[0] if first is None else first
    apart = max((one - first).abs().max().item() for one in run.values) / first.abs().max().item()
    print(f"{words:40} {sum(sent[words].values()):11,} bytes, gradient of the first convolution differs by {apart:.0e}")
link_bytes(sent, f"AlexNet-shaped network, {RANKS} ranks with {IMAGES_EACH} images each, {MINE} ({run.trace.world})")

# %% [markdown]
# The trick sends a fraction of the bytes, for the same gradients. (The last way sends little inside the nodes; between
# them each rank averages the gradients of its part of the linear layers. Four ranks are too few for it to pay.)
#
# Every byte of that can be foreseen. With N ranks, B images of all ranks together, P parameters in the convolutions,
# and linear layers of F → H → H → K numbers, a rank sends in a step
#
# $$2\,\frac{N-1}{N}\,\Bigl(P + B\,(F + H + H) + \frac{B\,K}{N}\Bigr) \text{ numbers,}$$
#
# an all-reduce of gradients, and forward and backward an all-gather in front of each linear layer and an all-to-all
# behind the last. Data parallel sends 2 (N − 1)/N times *all* parameters. `weird_trick_bytes` is the formula; what is
# measured beyond it are some numbers that ranks tell each other (how many images each has).

# %%
model = AlexNetShaped()
P = sum(p.numel() for p in model.features.parameters())
whole = sum(p.numel() for p in model.parameters())
foreseen = {
    "data parallel": RANKS * 2 * (RANKS - 1) / RANKS * 4 * whole,
    "WeirdTrick over all ranks": RANKS * weird_trick_bytes(P, (256, 1024, 1024, 12), IMAGES_EACH * RANKS, RANKS),
}
for words, size in foreseen.items():
    measured = sum(sent[words].values())
    print(f"{words:28} foreseen {size:12,.0f}, measured {measured:11,}, {measured - size:+,.0f} bytes")
print(
    f"data parallel sends {sum(sent['data parallel'].values()) / sum(sent[MINE].values()):.1f} times what {MINE} sends"
)

# %% [markdown]
# Predict: the real AlexNet on **64** GPUs, 128 images on each, numbers of 4 bytes. How many times as many bytes does a
# rank send in pure data parallel as with the trick?

# %% tags=["predict"]
predict("08.p3", None)

# %%
ratios = {}
for gpus in (2, 4, 8, 16, 32, 64):
    data = 2 * (gpus - 1) / gpus * 4 * sum(map(sum, PARAMETERS.values()))
    trick = weird_trick_bytes(sum(PARAMETERS["convolutions"]), (9216, 4096, 4096, 1000), 128 * gpus, gpus)
    ratios[gpus] = data / trick
    print(
        f"{gpus:3} GPUs: data parallel {data / 1e6:4.0f} MB, the trick {trick / 1e6:5.0f} MB, {ratios[gpus]:4.1f} times as many"
    )
reveal("08.p3", ratios[64])

# %% [markdown]
# *Fewer* than with the trick. Gradients are as large as the weights, however many ranks there are. Activations are of
# the whole batch, which grows with the ranks. So the trick pays for a few GPUs; beyond that, use it inside nodes of,
# say, eight, and data parallel between them, which is a mesh. Hybrids are not better in general; they have more knobs.
#
# ### When what is sent
#
# The formula says how much, not when. Krizhevsky's section 4 has three schemes. **(a)** All images come together at
# once; every rank holds all of them. **(b)** The ranks take turns: one sends its images to all others, the linear
# layers run forward and backward for those, then the next. **(c)** In each turn *every* rank sends a K-th of its images
# (K ranks). In (b) and (c) the next turn's images travel while this turn's are computed, and only one turn's are held.
#
# Here are the three on four simulated machines with a T4 each and 10 Gbit/s between them, with the seconds of AlexNet
# and 128 images on each. (The network that really runs is small, and the links are slower to match.)

# %% tags=["experiment"]
T4, IMAGES, SHRUNK = device("T4"), 128, 32 * (128 // 8)
ETHERNET = Cluster.uniform(Link(link("10GbE").latency, link("10GbE").bandwidth / SHRUNK), T4)
layer_seconds = {kind: [2 * IMAGES * macs / T4.rate() for macs in own] for kind, own in MACS.items()}


class Narrow(nn.Module):
    """Linear layers of a 32nd of AlexNet's widths, 288 -> 128 -> 128 -> 32, behind small convolutions."""

    def __init__(self):
        super().__init__()
        convolutions = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
        self.features = nn.Sequential(
            *convolutions, nn.Conv2d(16, 8, 3, padding=1), nn.AdaptiveAvgPool2d(6), nn.Flatten()
        )
        self.classifier = nn.Sequential(
            nn.Linear(288, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 32)
        )

    def stages(self):
        return [self.features, self.classifier]


def by_scheme(comm, scheme):
    torch.manual_seed(SEED)
    trick = WeirdTrick(Narrow(), Mesh(comm, {"tensor": comm.size}), scheme=scheme)
    turns = 1 if scheme == "a" else comm.size  # of all images together, each rank has a part of the neurons
    conv = sum(layer_seconds["convolutions"])
    linear = [seconds / turns for seconds in layer_seconds["linear layers"]]
    costs = {f"linear.layers.{2 * i}": LayerCost(one, 2 * one) for i, one in enumerate(linear)}
    comm.charge(trick, costs | {"convolutions.module.0": LayerCost(conv, 2 * conv)})
    generator = torch.Generator().manual_seed(comm.rank)
    x, labels = torch.randn(8, 3, 12, 12, generator=generator), torch.arange(8)
    comm.barrier()
    with comm.span("step"):
        trick.step(x, labels, F.cross_entropy)


schemes = {scheme: simulate(by_scheme, 4, scheme, cluster=ETHERNET, timeout=30) for scheme in "abc"}
for scheme, run in schemes.items():
    began, ended = step_alone(run).window
    most = max(map(sum, SCHEMES[scheme]([IMAGES] * 4)))
    print(f"scheme ({scheme}): {1000 * (ended - began):5.1f} ms a step, {most} images at once in the linear layers")
viz.timeline(
    step_alone(schemes["b"]),
    "One weird trick on four T4 over 10 Gbit/s, schemes (b) and (c)",
    compare=step_alone(schemes["c"]),
    labels=("(b)", "(c)"),
)

# %% [markdown]
# The three send the same bytes. In (b) one rank at a time sends its images, and the links of the others are idle; in (a)
# and (c) every link carries its share all the time. It is the insight of section 2 again. Over this network (c) is no
# faster than (a), since there is more to send than to compute behind; but it holds a quarter of the images at once.
# Krizhevsky goes one step further and updates the weights of the linear layers after every turn, with the gradients of
# a smaller batch, which is no longer the same training.

# %% [markdown]
# ## 4. Three axes at once (14 min)
#
# Data × pipeline × tensor: each axis has its own traffic.
#
# | axis | ranks along it have | along it travel |
# |---|---|---|
# | data | the same weights, other images | gradients, once a step |
# | pipeline | other layers | activations and their gradients, at the cuts |
# | tensor | other parts of the same layers | activations in every layer, forward and backward |
#
# `lockstep.parallel.Hybrid` puts together what you built in labs 05, 06 and 07 along the axes of a mesh. Nothing in it
# is new: along tensor, pairs of layers; along pipeline, a schedule of micro-batches; along data, gradients in buckets.
# Here it trains a small stack of pairs on 2 × 2 × 2 simulated ranks, on two nodes of four. Which bytes go where?

# %% tags=["experiment"]
STAGES, SHAPE = 2, MeshShape(AXES)
FOUR = cluster("4xA100 x 2")


def stack():
    """Two stages, each two pairs of 64 -> 256 -> 64 behind a layer norm."""
    torch.manual_seed(SEED)
    pair = lambda: [nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)]  # noqa: E731
    return [nn.Sequential(*pair(), *pair()) for _ in range(STAGES)]


def hybrid_step(comm, axes, images):
    hybrid = Hybrid(stack(), Mesh(comm, axes), nn.MSELoss(), one_f_one_b(axes["pipeline"], micro_batches=4))
    own = images // axes["data"]
    x = torch.randn(own, 64, generator=torch.Generator().manual_seed(hybrid.mesh.coordinates["data"]))
    hybrid.step(x, x)  # the first one tells shapes
    comm.barrier()
    with comm.span("step"):
        loss = hybrid.step(x, x)
    return loss, sum(p.nbytes for p in hybrid.parameters())


run = simulate(hybrid_step, 8, AXES, 64, cluster=FOUR, timeout=30)
moved = step_alone(run).messages
print(f"loss on the last stage: {run.values[-1][0].item():.4f}")
for axes, size in sorted(bytes_by_axis(moved, SHAPE).items()):
    print(f"along {', '.join(axes):9} {size:10,} bytes")
print(f"by link: {measured_by_link(moved, FOUR)}")

# %% [markdown]
# ### Exercise 08.4 · `place` (stretch)
#
# The order of the axes decides which of them stay inside a node. In a step every rank sends `sent[name]` bytes to the
# next rank along each axis, the last one to the first. Nodes have `per_node` consecutive ranks. Return the order of the
# axes, a tuple of names with the one that varies fastest last, in which the fewest bytes cross between nodes.
# `permutations(axes)` gives all orders.


# %% tags=["exercise", "08.4"]
def place(axes, sent, per_node):
    """Return the order of the axes in which the fewest bytes cross between nodes."""

    ### BEGIN SOLUTION
    def between_nodes(order):
        total, stride = 0, 1
        for name in reversed(order):
            for rank in range(math.prod(axes.values())):
                at = rank // stride % axes[name]
                following = rank + ((at + 1) % axes[name] - at) * stride
                if rank // per_node != following // per_node:
                    total += sent[name]
            stride *= axes[name]
        return total

    return min(permutations(axes), key=between_nodes)
    ### END SOLUTION


# %% tags=["check", "08.4"]
check("08.4", place)

# %% [markdown]
# ### Exercise 08.5 · `bytes_by_link` (stretch)
#
# Now the bytes themselves. `axes` has the sizes of "data", "pipeline" and "tensor" in some order. In a step every data
# group all-reduces `gradients` bytes and every tensor group `activations` bytes, by rings: of n bytes over k ranks each
# rank sends 2 (k − 1)/k · n to the next along the axis. A pipeline is a line: a rank sends `boundary` bytes to the next
# stage, and as many back to the one before. Return `{"within": ..., "between": ...}`: the bytes of all ranks together,
# inside nodes of `per_node` consecutive ranks and between them.


# %% tags=["exercise", "08.5"]
def bytes_by_link(axes, per_node, gradients, activations, boundary):
    """Return the bytes of a step, of all ranks together, within nodes and between them."""
    ### BEGIN SOLUTION
    found, stride = {"within": 0, "between": 0}, 1
    reduced = {"data": gradients, "tensor": activations}
    for name in reversed(axes):
        k = axes[name]
        for rank in range(math.prod(axes.values())):
            at = rank // stride % k
            if name == "pipeline":
                size, targets = boundary, [to for to in (at - 1, at + 1) if to in range(k)]
            else:
                size, targets = 2 * (k - 1) / k * reduced[name], [(at + 1) % k]
            for to in targets:
                other = rank + (to - at) * stride
                found["within" if rank // per_node == other // per_node else "between"] += size
        stride *= k
    return found
    ### END SOLUTION


# %% tags=["check", "08.5"]
check("08.5", bytes_by_link)

# %% [markdown]
# Your count beside the measured one, for the Hybrid above. Each pair of layers needs an all-reduce forward and one
# backward, of half of the images on each data rank.

# %%
my_count = mine("08.5")
half = 64 // AXES["data"] * 64 * 4  # bytes of an activation of a data rank's images
counted = my_count(AXES, 4, run.values[0][1], 2 * 2 * half, half)
measured = measured_by_link(moved, FOUR)
for where in ("within", "between"):
    print(f"{where:8} counted by {whose('08.5')} function {counted[where]:9,.0f}, measured {measured[where]:9,}")

# %% [markdown]
# What is measured beyond the count are a few numbers: losses, and how many samples each rank has.
#
# Now large: the network of the picture at the top on 64 GPUs, eight nodes of eight A100. Its state fills four GPUs at
# least, so it has to be split. The mesh is data 2, pipeline 4, tensor 8, and the last axis varies fastest.
#
# Predict: somebody reverses the order, so that *data* varies fastest and tensor slowest. How many times as long does
# sending take?

# %% tags=["predict"]
predict("08.p4", None)

# %%
LARGE, EIGHT = {"data": 2, "pipeline": 4, "tensor": 8}, cluster("8xA100 x 8")
print("A rank sends to the next along each axis:")
gradients, activations, boundary = SIZES.on_a_rank(LARGE)
to_next = {"data": gradients, "pipeline": 2 * boundary, "tensor": 2 * 7 / 8 * activations}
print({name: f"{size / 1e9:.1f} GB" for name, size in to_next.items()})
print(f"{whose('08.4')} place puts them in the order {mine('08.4')(LARGE, to_next, 8)}")
times = {
    order: sum(seconds_of_axes({name: LARGE[name] for name in order}, EIGHT, SIZES).values())
    for order in permutations(LARGE)
}
for order, seconds in sorted(times.items(), key=lambda pair: pair[1]):
    print(f"{' x '.join(order):26} {1000 * seconds:6.0f} ms of sending")
reveal("08.p4", times["tensor", "pipeline", "data"] / times["data", "pipeline", "tensor"])

# %% tags=["experiment"]
TITLE = f"48 pairs of linear layers, A100 in nodes of eight, counted by {whose('08.5')} bytes_by_link"
mesh_plan(LARGE, EIGHT, SIZES, my_count, TITLE)

# %% [markdown]
# The heaviest axis stays where links are fast; the rule "tensor inside a node, data across" is this figure in words.
# Bytes alone do not choose a plan: pipelines have bubbles (lab 07), tensor-parallel all-reduces have nothing to hide
# behind, gradients hide behind backward (lab 05). Move the sliders. Which meshes of 64 GPUs fit into memory? Which of
# them sends for the shortest time? What if *tensor* is longer than a node?

# %% tags=["widget"]
mesh_explorer(LARGE, EIGHT, SIZES, my_count, TITLE)

# %% [markdown]
# ## 5. The real thing, and its other names (4 min)
#
# PyTorch's mesh is `init_device_mesh`, with the same convention: the last axis varies fastest. The next cell runs, on
# four real processes, a pair of linear layers that is tensor parallel along one axis and data parallel along the other,
# PyTorch's beside ours, and holds both against one process.


# %% tags=["experiment"]
def pair_of_layers():
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))


def torch_hybrid(comm, model, images):
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    grid = init_device_mesh(comm.device.type, (2, comm.size // 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(model, grid["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = images.chunk(2)[grid["data"].get_local_rank()]

    def step():
        model.zero_grad()
        model(x).square().mean().backward()
        for parameter in model.parameters():
            own = parameter.grad.to_local()
            distributed.all_reduce(own, group=grid.get_group("data"))
            own /= 2
        return model[0].weight.grad.full_tensor()

    same = distributed.get_process_group_ranks(grid.get_group("tensor"))
    return step, same


def our_hybrid(comm, model, images):
    folded = Mesh(comm, {"data": 2, "tensor": comm.size // 2})
    hybrid = Hybrid([model], folded, lambda y, target: y.square().mean())
    x = images.chunk(2)[folded.coordinates["data"]]

    def step():
        for parameter in hybrid.parameters():
            parameter.grad = None
        hybrid.step(x, x)
        own = next(hybrid.parameters()).grad  # this rank's neurons of the first layer
        return folded["tensor"].all_gather(own)

    return step, folded["tensor"].all_gather(torch.tensor([comm.rank], device=comm.device)).tolist()


def measured_step(comm, make, repetitions):
    images = torch.randn(64, 256, generator=torch.Generator().manual_seed(SEED)).to(comm.device)
    want = pair_of_layers().to(comm.device)
    want(images).square().mean().backward()
    step, neighbours = make(comm, pair_of_layers().to(comm.device), images)
    taken = []
    for _ in range(repetitions):
        comm.barrier()
        begun = time.perf_counter()
        gradient = step()
        taken.append(time.perf_counter() - begun)
    return median(taken[1:]), (gradient - want[0].weight.grad).abs().max().item(), neighbours


for words, make in {"PyTorch": torch_hybrid, "lockstep's Hybrid": our_hybrid}.items():
    runs = launch(measured_step, RANKS, make, 3 if FAST else 12, timeout=120).values
    groups = sorted({tuple(neighbours) for _, _, neighbours in runs})
    print(
        f"{words:18} {1000 * runs[0][0]:6.1f} ms a step, gradient differs by {runs[0][1]:.0e}, tensor groups {groups}"
    )

# %% [markdown]
# The same ideas, in the words of other libraries:
#
# | there | in our words | where it is written |
# |---|---|---|
# | TensorFlow `MirroredStrategy` | data parallel on the devices of one machine, all-reduce in every step | TensorFlow guide, "Distributed training" |
# | TensorFlow `MultiWorkerMirroredStrategy` | the same over several machines | same guide |
# | TensorFlow `ParameterServerStrategy` | a parameter server (lab 05); workers do not wait for each other | same guide |
# | Horovod `DistributedOptimizer` | data parallel; its *tensor fusion* are our buckets, its *process sets* our groups | Horovod docs, "Tensor Fusion", "API" |
# | DeepSpeed `PipeModelDataParallelTopology` | a mesh pipeline × data × tensor (there "model"), the last varying fastest | DeepSpeed, `deepspeed/runtime/pipe/topology.py` |
# | Megatron-LM `--tensor-model-parallel-size`, `--pipeline-model-parallel-size` | a mesh pipeline × data × tensor; data is what is left of the ranks | Megatron Core docs, `initialize_model_parallel` |
# | JAX `Mesh` with `NamedSharding`, `PartitionSpec` | a mesh; for each dimension of a tensor the axis along which it is shared out, collectives are put in by the compiler | JAX docs, `jax.sharding` |
# | JAX `create_hybrid_device_mesh` | a mesh on a network of two levels, axes in the order of how much they send | JAX docs, `jax.experimental.mesh_utils` |
# | PyTorch `init_device_mesh`, `parallelize_module` | a mesh; tensor parallel along one axis | PyTorch docs, `torch.distributed` |

# %% [markdown]
# ## 6. On real hardware, and what you know now (3 min)
#
# With GPUs your functions stay as they are, and NCCL carries the collectives. Two things change. Groups cost memory
# and time to make, so make them once. And two groups of one rank must not have collectives under way at the same time in
# different orders on different ranks, or NCCL hangs. `torchrun` numbers ranks node by node, so the last axis of the mesh
# stays inside a machine as long as it is no longer than the machine has GPUs. On two machines with four GPUs each:
#
# ```
# torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$HOST:29500 \
#     -m lockstep.train --strategy hybrid --mesh data=2,pipeline=2,tensor=2
# ```
#
# On this machine, with two processes: `torchrun --nproc-per-node=2 -m lockstep.train --strategy hybrid --mesh data=2`.
#
# **Summary**
# - A mesh folds ranks into axes, the last varying fastest; a group along an axis has all other coordinates in common.
# - Making groups is a collective: all ranks, the same order.
# - Two levels of all-reduce hardly save bytes between nodes; they let all links carry them.
# - Where weights are few, send gradients; where activations are few, send activations; switch by all-gather and all-to-all.
# - The trick's bytes grow with the batch of all ranks, data parallel's do not.
# - The axis that sends most belongs on the fastest links. Count before you order.
#
# Four questions. Choose, say how sure you are, and read why.

# %%
ask("08.q1")

# %%
ask("08.q2")

# %%
ask("08.q3")

# %%
ask("08.q4")

# %% [markdown]
# And a riddle: a run of one of this lab's functions with a fault in it, or now and then a right one. Which fault is
# it? Run the cell again for another.

# %%
diagnose("08")

# %% [markdown]
# What you have done so far; `submit("08")` makes the file to hand in, if somebody asked you for it.

# %%
progress("08")

# %% [markdown]
# **References**
# - A. Krizhevsky (2014), "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997, section 4.
# - X. Jia et al. (2018), "Highly Scalable Deep Learning Training System with Mixed-Precision: Training ImageNet in Four
#   Minutes", arXiv:1807.11205: the hierarchical all-reduce.
# - D. Narayanan et al. (2021), "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC:
#   tensor inside a node, pipeline and data across.
# - M. Shoeybi et al. (2019), "Megatron-LM", arXiv:1909.08053.
# - S. Jeaugey (2019), "Massively Scale Your Deep Learning Training with NCCL 2.4", NVIDIA developer blog.
# - A. Sergeev, M. Del Balso (2018), "Horovod: fast and easy distributed deep learning in TensorFlow", arXiv:1802.05799.
