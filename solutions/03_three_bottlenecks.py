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
# # Lab 03 · The three bottlenecks
#
# **Time:** 75 minutes, core exercises included; those marked *stretch* come on top.
#
# **You will be able to**
# - work out the parameters and multiply-adds of a network by hand, and say which layers hold them;
# - predict to the byte what a training step keeps in memory, and see it measured beside your prediction;
# - say what Adam, mixed precision, gradient accumulation and activation checkpointing do to that memory, and what each
#   costs;
# - tell whether computation, memory or the network limits a step, before you rent the machine.
#
# **You need:** labs 00 and 02. No GPU, no network.
#
# The picture is where this lab ends up: what four networks need in memory for one training step, part by part. Nothing
# was run to draw it. Of the parts you know *activations* from lab 00; section 3 is about the others. *Workspace* are
# the gradients of activations on their way back, as many as exist at one time. (A GiB is 2^30 bytes, as memories are
# sold; smaller amounts are in MB of 10^6 bytes.)

# %% tags=["parameters"]
RANKS = 8  # how many GPUs share the work in section 6
FAST = False  # True: fewer and smaller networks, for a quick pass
SEED = 0

# %%
import time
from math import prod

import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint_sequential
from torch.utils.flop_counter import FlopCounterMode

from lockstep import cost, hardware, viz
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
from lockstep.nn.models import alexnet, resnet18, resnet50, vgg11, vgg16
from lockstep.trace.units import show_bytes, show_seconds
from lockstep.viz.memory import memory_bars, memory_curve, memory_explorer

torch.manual_seed(SEED)
torch.set_num_threads(1)  # one stream of instructions, so that seconds can be compared
MB, GIB = 1e6, 2**30
IMAGE = (3, 224, 224)
with torch.device("meta"):  # tensors with a shape and no numbers: they take no memory
    networks = {"AlexNet": alexnet(), "ResNet-18": resnet18()}
    if not FAST:
        networks |= {"VGG-16": vgg16(), "ResNet-50": resnet50()}
print(f"One training step of {len(networks)} networks is walked through, operation by operation. This takes a while.")
profiles = {name: cost.profile(model, IMAGE, batch=32) for name, model in networks.items()}
memory_bars(
    {name: cost.training_memory(one, "momentum") for name, one in profiles.items()},
    title="One training step with 32 images of 224x224, SGD with momentum, fp32 (predicted)",
)

# %% [markdown]
# Before you start, three questions from earlier labs. As always, `hint("03.1")` helps a little more each time you call
# it, and after three different attempts `solution("03.1")` shows an answer.

# %%
recall("03")

# %% [markdown]
# ## 1. Computation (14 min)
#
# The work of a convolution is counted in **multiply-adds**, MACs for short: one multiplication and the addition of its
# product. A processor's speed is given in FLOPs, and a multiply-add is two of them.
#
# One number of the output sees a window of K x K pixels in every channel of the input, and multiplies each of those
# numbers with a weight. All pixels of an output channel use the same weights; every output channel has its own. So a
# convolution makes **K · K · C_in · C_out · H' · W' / g** multiply-adds for one image, where H' x W' is the size of
# its *output* and g is 1 for an ordinary convolution. With g *groups* the channels are dealt out into g parts, and an
# output channel sees only those input channels that are in its own part.
#
# Predict: VGG-16 has 13 convolutions and 3 linear layers. The three linear layers hold 89 % of its parameters
# (123.6 of 138.4 million, as the figure of this section counts). Which share of its multiply-adds do they make, in per
# cent?

# %% tags=["predict"]
predict("03.p1", None)

# %% [markdown]
# ### Exercise 03.1 · `conv_cost`
#
# Return two numbers: the parameters of a convolution, and its multiply-adds for one image. The kernel is `kernel` x
# `kernel`, `groups` divides both numbers of channels. With `bias` there is one more parameter for each output channel;
# adding it is no multiplication, so by the field's convention it counts as no multiply-add.


# %% tags=["exercise", "03.1"]
def conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    """Return (parameters, multiply-adds for one image)."""
    ### BEGIN SOLUTION
    seen = in_channels // groups * kernel * kernel  # numbers that one output number is made of
    weights = out_channels * seen
    return weights + (out_channels if bias else 0), weights * out_height * out_width
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("return the number of parameters and of multiply-adds for one image")
    ### END STUB


# %% tags=["check", "03.1"]
check("03.1", conv_cost)

# %% [markdown]
# Now use it on a whole network. A linear layer is a convolution with a 1x1 kernel on a single pixel. The cell adds up
# your numbers over all layers, and sets those beside it that `cost.profile` finds by watching every operation of the
# model while it runs on tensors without numbers.

# %%
my_conv_cost = mine("03.1")
CHOSEN = "AlexNet" if FAST else "VGG-16"
chosen = networks[CHOSEN]
found = cost.profile(chosen, IMAGE)  # all layers on tensors without numbers, forward and backward


def worked_out(layer, shape):
    """(parameters, multiply-adds) of a layer whose output has this shape, without the batch."""
    if isinstance(layer, nn.Linear):
        return my_conv_cost(layer.in_features, layer.out_features, 1, 1, 1, 1, True)
    how = layer.in_channels, layer.out_channels, layer.kernel_size[0]
    return my_conv_cost(*how, *shape[1:], layer.groups, layer.bias is not None)


modules = dict(chosen.named_modules())
mine_by_layer = {
    layer.name: worked_out(modules[layer.name], layer.shape[1:])
    for layer in found.layers
    if layer.kind in ("Conv2d", "Linear")
}
totals = [sum(column) for column in zip(*mine_by_layer.values(), strict=True)]
print(f"{CHOSEN}             parameters   multiply-adds")
print(f"{whose('03.1') + ' conv_cost':22}{totals[0]:>12,} {totals[1]:>15,}")
print(f"{'cost.profile':22}{found.parameters:>12,} {found.macs:>15,}")
print(f"back through the layers: {found.backward_macs / found.macs:.2f} times as many multiply-adds")

# %% [markdown]
# Backward costs twice as much as forward: each layer computes one gradient for its weights and one for its input, and
# each takes as many multiply-adds as the forward pass. Only the first layer saves one, since nobody asks for the
# gradient of the image.
#
# The figure shows for each layer its share of the parameters (plain, to the left) and of the multiply-adds (hatched, to
# the right).


# %%
def shares_figure(title):
    names, costs = list(mine_by_layer), list(mine_by_layer.values())
    parameters, macs = ([100 * one[i] / totals[i] for one in costs] for i in (0, 1))
    figure = Figure(figsize=(9.4, 0.9 + 0.23 * len(names)))
    left, right = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.13, right=0.97, top=1 - 0.55 / figure.get_figheight(), bottom=0.13, wspace=0.06)
    left.barh(names, parameters, color="#0072B2", edgecolor="black")
    right.barh(names, macs, color="#E69F00", edgecolor="black", hatch="//")
    for axis, values, what in ((left, parameters, "parameters"), (right, macs, "multiply-adds")):
        axis.set(xlabel=f"% of the {what}", xlim=(0, 1.18 * max(values)))
        axis.bar_label(axis.containers[0], [f"{value:.1f}" for value in values], padding=3, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    left.invert_yaxis()
    figure.suptitle(title)
    said = "; ".join(f"{n} {p:.1f} % and {m:.1f} %" for n, p, m in zip(names, parameters, macs, strict=True))
    return viz.Figure(figure, alt=f"{title}. Share of parameters and of multiply-adds: {said}.")


shares_figure(f"Where {CHOSEN} has its parameters and its work, {whose('03.1')} conv_cost")

# %%
print(f"the linear layers of {CHOSEN}:")
linear = [mine_by_layer[layer.name] for layer in found.layers if layer.kind == "Linear"]
reveal("03.p1", 100 * sum(macs for _, macs in linear) / totals[1], unit="%")

# %% [markdown]
# Parameters and work live in different places. A linear layer uses each of its weights once an image, a convolution
# once for every pixel of its output. That one fact decides how a network is best split: lab 08 gives the two kinds of
# layers to the machines in two different ways (Krizhevsky 2014).

# %% [markdown]
# ## 2. Memory: what is kept (18 min)
#
# *Activations* are tensors kept on the way forward for the way back. In the first figure they are most of the memory,
# except in AlexNet, which has many parameters and small activations: 0.11 of 0.84 GiB. Each kind of layer keeps what
# its backward pass needs and nothing else:
#
# | layer | keeps | bytes in float32 |
# |---|---|---|
# | convolution | its input | 4 for each number |
# | ReLU | its *output*, which is positive where the gradient passes | 4 for each number |
# | ReLU in place | the same; it writes its output where its input was | 4 for each number |
# | max pooling | its input, and where each maximum was | 4 for each number of the input, 8 for each of the output |
# | batch norm | its input, and for each channel the mean and one over the standard deviation | 4 for each number |
#
# Two layers may keep the *same* tensor, the output of a ReLU and the input of the next convolution, say. It is there
# once. A tensor that nobody keeps is gone as soon as the next layer has read it.
#
# **The tool: watch what is kept.** PyTorch calls the first function of `saved_tensors_hooks` for each tensor that it
# puts away, and the second one when it takes it out again. Two tensors share their memory when their
# `untyped_storage()` is one and the same.

# %%
layers = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 2, 3, bias=False))


def note(tensor):
    what = "a weight" if isinstance(tensor, nn.Parameter) else "memory " + hex(tensor.untyped_storage().data_ptr())[-4:]
    print(f"kept: {list(tensor.shape)!s:18} {show_bytes(tensor.nbytes):>8}  {what}")
    return tensor


with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
    layers(torch.rand(2, 3, 8, 8))

# %% [markdown]
# The ReLU and the second convolution name the same memory: one piece, kept twice.
#
# Predict: the ReLUs of VGG-11 work in place. Build it with ordinary ones instead, which write their output into new
# memory. By what factor do the bytes that are kept for backward grow?

# %% tags=["predict"]
predict("03.p2", None)

# %% [markdown]
# ### Exercise 03.2 · `saved_activations`
#
# `image` is the shape (channels, height, width) of one image, and `layers` a list of pairs: what kind of layer it is,
# and the shape of its output for one image. The kinds are "conv", "batch_norm", "relu", "relu_in_place" and
# "max_pool". Return the bytes that the chain keeps for `batch` images in float32: each piece of memory once, weights
# left out. The first layer is a convolution.


# %% tags=["exercise", "03.2"]
def saved_activations(batch, image, layers):
    """Return the bytes kept for backward, each piece of memory once."""
    kept = {}  # from a piece of memory to its bytes
    piece, size = 0, 4 * batch * prod(image)  # where the current tensor is, and how many bytes it has
    ### BEGIN SOLUTION
    extra = 0  # bytes of what is no activation
    for place, (kind, shape) in enumerate(layers, start=1):
        output = 4 * batch * prod(shape)
        if not kind.startswith("relu"):
            kept[piece] = size
        if kind == "batch_norm":
            extra += 8 * shape[0]
        if kind == "max_pool":
            extra += 2 * output
        if kind != "relu_in_place":
            piece, size = place, output
        if kind.startswith("relu"):
            kept[piece] = size
    return sum(kept.values()) + extra
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("walk along the chain: who keeps which piece of memory?")
    ### END STUB


# %% tags=["check", "03.2"]
check("03.2", saved_activations)

# %% [markdown]
# Your function on the convolutional part of a VGG-11 for small images, against what PyTorch really keeps when that
# network runs.

# %%
my_saved = mine("03.2")
KINDS = {"Conv2d": "conv", "BatchNorm2d": "batch_norm", "ReLU": "relu", "MaxPool2d": "max_pool"}


def chain(model, image):
    """The layers of a chain as the exercise wants them."""
    modules = dict(model.named_modules())
    described = []
    for layer in cost.profile(model, image).layers:
        kind = KINDS[layer.kind]
        in_place = getattr(modules[layer.name], "inplace", False)
        described.append((f"{kind}_in_place" if in_place else kind, layer.shape[1:]))
    return described


def with_ordinary_relus(model):
    for layer in model.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False
    return model


features, batch, small = vgg11(10, 32).features, 8, (3, 32, 32)
by_hand = my_saved(batch, small, chain(features, small))
in_place = cost.measure_saved_bytes(features, torch.rand(batch, *small))
ordinary = cost.measure_saved_bytes(with_ordinary_relus(features), torch.rand(batch, *small))
print(f"VGG-11 for small images, {batch} of them, bytes kept for backward")
print(f"  {whose('03.2') + ' saved_activations':30} {by_hand:>12,}")
print(f"  {'cost.profile':30} {cost.profile(features, small, batch).saved_bytes:>12,}")
print(f"  {'measured':30} {in_place:>12,}")
print(f"  {'measured, ordinary ReLUs':30} {ordinary:>12,}")

# %%
reveal("03.p2", ordinary / in_place)

# %% [markdown]
# Not a byte. An ordinary ReLU makes a second tensor, but nobody keeps the first: the convolution before it has no use
# for its own output. What an in-place ReLU saves is one tensor for the moment in which both exist. (Some layers do keep
# their output, a sigmoid for one. A ReLU in place after one of those is an error, and PyTorch says so.)

# %% [markdown]
# ## 3. Memory: all parts (17 min)
#
# Besides activations, a step holds the **parameters**, a **gradient** for each, and the **optimizer state**: plain SGD
# keeps nothing from one step to the next, momentum keeps a velocity for each parameter, Adam keeps two means, of the
# gradient and of its square. Each of these numbers takes 4 bytes in float32, *fp32* for short.
#
# **Mixed precision** (Micikevicius et al. 2018) computes in 16 bits, which an A100 does 16 times as fast as in fp32
# (312 and 19.5 TFLOP/s in NVIDIA's datasheet of 2021). Parameters, gradients and activations take 2 bytes a number. An
# update, though, is often so small that in 16 bits the parameter would not change at all. So a **master copy** of the
# parameters is kept in fp32 to which the updates are added, and the optimizer's state stays in fp32 with it.
# (PyTorch's `torch.autocast` is a relative that saves less: it leaves parameters and gradients in fp32, casts a copy
# of the weights in each layer, and keeps activations in 16 bits.)
#
# Predict: training with Adam, you go from fp32 to mixed precision. By what factor does the memory of parameters,
# gradients, master copy and optimizer state together shrink?

# %% tags=["predict"]
predict("03.p3", None)

# %% [markdown]
# ### Exercise 03.3 · `training_memory`
#
# Return a dictionary with the bytes of five parts: "parameters", "gradients", "master", "optimizer" and "activations".
# `parameters` and `activations` count *numbers*, `optimizer` is "sgd", "momentum" or "adam", and `precision` is "fp32"
# or "mixed". In fp32 there is no master copy: that part is 0.


# %% tags=["exercise", "03.3"]
def training_memory(parameters, activations, optimizer, precision):
    """Return the bytes of the five parts."""
    ### BEGIN SOLUTION
    mixed = precision == "mixed"
    width = 2 if mixed else 4
    state = {"sgd": 0, "momentum": 4, "adam": 8}[optimizer]
    return {
        "parameters": width * parameters,
        "gradients": width * parameters,
        "master": 4 * parameters if mixed else 0,
        "optimizer": state * parameters,
        "activations": width * activations,
    }
    ### END SOLUTION


# %% tags=["check", "03.3"]
check("03.3", training_memory)

# %%
my_memory = mine("03.3")


def bytes_per_parameter(optimizer, precision):
    return sum(my_memory(1_000_000, 0, optimizer, precision).values()) / 1_000_000


print(f"bytes for each parameter, {whose('03.3')} training_memory")
print(f"{'':10}{'fp32':>6}{'mixed':>7}")
for optimizer in ("sgd", "momentum", "adam"):
    print(f"{optimizer:10}{bytes_per_parameter(optimizer, 'fp32'):6.0f}{bytes_per_parameter(optimizer, 'mixed'):7.0f}")

# %%
reveal("03.p3", bytes_per_parameter("adam", "fp32") / bytes_per_parameter("adam", "mixed"))

# %% [markdown]
# Sixteen bytes either way: 4 + 4 + 8, or 2 + 2 + 4 + 8. What mixed precision halves is the activations. Those sixteen
# bytes are the starting point of lab 09, which deals them out to the ranks.
#
# **Predict, then measure.** The next cell predicts every part of a training step of ResNet-18, with Adam, from shapes
# alone. The one after it takes two real steps and measures the second. (The first one is different, since the optimizer
# has no state yet.) It counts the memory of the tensors that are alive after each operation: what the operating system
# reports for a process would be mostly PyTorch itself.

# %%
BATCH = 2 if FAST else 16
resnet = resnet18(10, 32)  # the variant for small images
small_profile = cost.profile(resnet, small, BATCH)
parts = my_memory(small_profile.parameters, small_profile.saved_bytes / 4, "adam", "fp32")
replayed = cost.replay_step(resnet, small, BATCH, "adam")  # the same step, on tensors without numbers

# %% tags=["experiment"]
images, labels = torch.rand(BATCH, *small), torch.randint(10, (BATCH,))
measured = cost.measure_step(resnet, images, labels, "adam")
kept = cost.measure_saved_bytes(resnet, images)

# %%
rows = (
    ("parameters", parts["parameters"], measured.parameters),
    ("gradients", parts["gradients"], measured.gradients),
    ("optimizer state", parts["optimizer"], measured.optimizer_state),
    ("activations", parts["activations"], kept),
    ("sum of the parts", sum(parts.values()), measured.peak),
    ("peak, by replay", replayed.peak, measured.peak),
)
print(f"ResNet-18, {BATCH} images of 32x32, Adam, fp32: MB, {whose('03.3')} training_memory")
print(f"{'':18}{'predicted':>11}{'measured':>11}{'error':>9}")
for name, guess, truth in rows:
    print(f"{name:18}{guess / MB:11.3f}{truth / MB:11.3f}{guess / truth - 1:9.2%}")

# %% [markdown]
# Four parts fit. The parameters are off by the running statistics of batch norm, which are no parameters, and Adam's
# state by the four bytes in which PyTorch counts its steps for each tensor. But *their sum is not the peak*: the line
# compares it with the most that was alive at one time. The figure shows why. It draws the bytes alive after each
# operation of the step, predicted (solid) and measured (dashed); the parts of the step are marked.

# %%
memory_curve(
    {"predicted": replayed, "measured": measured},
    f"Memory alive during a step: ResNet-18, {BATCH} images of 32x32, Adam",
)

# %% [markdown]
# Read it from left to right. Before forward, PyTorch frees the gradients of the step before: that is the drop at the
# very left. Forward piles up activations. In backward, *gradients come while activations go*, and on top of both are
# the gradients of activations on their way back. The peak (the dot) is there, about in the middle of backward: the
# last layers have many parameters, so at first more gradients come than activations go. In the update Adam makes
# temporaries, one parameter after the other. With a network of many parameters and a small batch the peak lies there
# instead.

# %% [markdown]
# ## 4. What fits (8 min)
#
# Only activations, and the gradients on their way back, grow with the batch. Everything else is *fixed*. So the
# largest batch follows from two numbers.
#
# ### Exercise 03.4 · `largest_batch` (stretch)
#
# A GPU has `memory_gib` GiB; a GiB is 2^30 bytes. A training step needs `fixed_bytes` whatever the batch, and
# `image_bytes` for each image. Return the largest batch that fits, 0 when not even one image does.


# %% tags=["exercise", "03.4"]
def largest_batch(memory_gib, fixed_bytes, image_bytes):
    """Return how many images fit."""
    ### BEGIN SOLUTION
    room = memory_gib * 2**30 - fixed_bytes
    return max(0, int(room // image_bytes))
    ### END SOLUTION


# %% tags=["check", "03.4"]
check("03.4", largest_batch)

# %%
my_batch = mine("03.4")
few_and_more = {name: (cost.profile(model, IMAGE, 2), profiles[name]) for name, model in networks.items()}
memories = [
    (name, cost.memory_by_batch(*pair, optimizer, precision))
    for name, pair in few_and_more.items()
    for optimizer in ("sgd", "momentum", "adam")
    for precision in ("fp32", "mixed")
]
GPUS = {"T4, 16 GiB": hardware.device("T4").memory, "A100, 80 GiB": hardware.device("A100").memory}
print(f"largest batch of 224x224 images with Adam, {whose('03.4')} largest_batch")
print(f"{'':12}" + "".join(f"{gpu + ', ' + kind:>22}" for gpu in GPUS for kind in ("fp32", "mixed")))
for name in networks:
    row = [
        my_batch(memory / GIB, needed.fixed.total, needed.each.total)
        for memory in GPUS.values()
        for network, needed in memories
        if network == name and needed.optimizer == "adam"
    ]
    print(f"{name:12}" + "".join(f"{fits:22,}" for fits in row))

# %% [markdown]
# The figure shows one network with 256 images, for every optimizer and precision, against a T4. Then change network,
# batch, optimizer, precision and GPU. Find a case where the optimizer matters more than the precision.

# %%
SHOWN = "ResNet-18" if FAST else "ResNet-50"
shown_first = sorted(memories, key=lambda one: one[0] != SHOWN)
explorer = memory_explorer(shown_first, (256, 8, 32, 512), GPUS)
explorer.figure(SHOWN, 256, "T4, 16 GiB", ("sgd", "fp32"))

# %% tags=["widget"]
explorer

# %% [markdown]
# **When the batch does not fit: gradient accumulation.** Compute the gradients of a part of the batch, do not update,
# go on with the next part; `backward()` adds to the gradients that are there. At the end they are those of the whole
# batch, if each part's mean loss was weighted with its share of the images. The price: batch norm sees only a part at
# a time, and small parts use a GPU badly. The network below has no batch norm, so both ways have to agree.

# %%
model = vgg11(10, 32).eval()  # evaluation: no dropout, which would draw other masks
images, labels = torch.rand(10, *small), torch.randint(10, (10,))
cross_entropy(model(images), labels).backward()
whole = [parameter.grad.clone() for parameter in model.parameters()]
model.zero_grad()
sizes = cost.accumulation_sizes(batch=10, fits=4)
for part, own in zip(images.split(sizes), labels.split(sizes), strict=True):
    (cross_entropy(model(part), own) * len(part) / len(images)).backward()
apart = max((a - b.grad).abs().max().item() for a, b in zip(whole, model.parameters(), strict=True))
largest = max(gradient.abs().max().item() for gradient in whole)
print(f"parts of {sizes}: largest difference {apart:.1g}, largest gradient {largest:.2g}")
for many in (10, max(sizes)):
    print(f"{many:3} images at once keep {cost.profile(model, small, many).saved_bytes / MB:6.2f} MB")

# %% [markdown]
# ## 5. Computing twice to keep less (6 min)
#
# **Activation checkpointing** (Chen et al. 2016) cuts a chain of layers into segments and keeps only the input of each.
# On the way back a segment is computed once more from its input, all that it keeps is there for a moment, and its
# backward pass follows. Short segments mean many inputs, long ones a large inside.
#
# Predict: a chain of equal layers is checkpointed, so that every layer is computed once more. By what factor does the
# computation of a whole step grow?

# %% tags=["predict"]
predict("03.p4", None)

# %% [markdown]
# ### Exercise 03.5 · `checkpoint_every` (stretch)
#
# A chain has `layers` equal layers. It is cut into segments of the same length, except that the last one may be
# shorter. The inputs of all segments are kept, `input_bytes` each. While a segment is computed again, each of its
# layers keeps `kept_bytes`; take a segment of full length. Return the length that needs the least memory; when
# several need the same, any of them.


# %% tags=["exercise", "03.5"]
def checkpoint_every(layers, input_bytes, kept_bytes):
    """Return how many layers a segment should have."""

    ### BEGIN SOLUTION
    def memory(every):
        segments = -(-layers // every)  # rounded up
        return segments * input_bytes + every * kept_bytes

    return min(range(1, layers + 1), key=memory)
    ### END SOLUTION


# %% tags=["check", "03.5"]
check("03.5", checkpoint_every)

# %% [markdown]
# The real thing is `torch.utils.checkpoint`. The cell builds a chain of convolutions with ReLUs and measures the peak
# of a real step with segments of several lengths, beside what the library's replay predicts. Your length is marked.
# (PyTorch does not compute the last segment twice, since its backward pass comes at once.)

# %% tags=["experiment"]
LAYERS, SIDE, CHANNELS, PER_STEP = 16, 16 if FAST else 24, 16, 4 if FAST else 16


class Chain(nn.Module):
    def __init__(self, segments):
        super().__init__()
        pairs = [nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU()) for _ in range(LAYERS)]
        self.layers, self.segments = nn.Sequential(*pairs), segments
        self.head = nn.Sequential(nn.AvgPool2d(SIDE), nn.Flatten())

    def forward(self, x):
        if self.segments == 1:
            return self.head(self.layers(x))
        return self.head(checkpoint_sequential(self.layers, self.segments, x, use_reentrant=False))


my_every = mine("03.5")
one = PER_STEP * CHANNELS * SIDE * SIDE * 4  # bytes of an input; a layer keeps its ReLU's output, which is as large
best = my_every(LAYERS, one, one)
x, y = torch.rand(PER_STEP, CHANNELS, SIDE, SIDE), torch.randint(CHANNELS, (PER_STEP,))
print(f"{LAYERS} layers, {whose('03.5')} checkpoint_every says segments of {best}")
print(f"{'segments of':>12}{'predicted peak':>16}{'measured':>12}{'multiply-adds':>15}{'seconds':>10}")
counted = {}
for segments in (1, 4, 16) if FAST else (1, 2, 4, 8, 16):
    chain_model = Chain(segments)
    guess = cost.peak_memory(chain_model, x.shape[1:], PER_STEP)
    truth = cost.measure_step(chain_model, x, y).peak
    with FlopCounterMode(display=False) as counter:
        cross_entropy(chain_model(x), y).backward()
    seconds = []
    for _ in range(3):  # the fastest of three: other programs run on this machine too
        begun = time.perf_counter()
        cross_entropy(chain_model(x), y).backward()
        seconds.append(time.perf_counter() - begun)
    counted[segments] = counter.get_total_flops() / 2
    mark = " <- " + whose("03.5") if LAYERS // segments == best else ""
    print(
        f"{LAYERS // segments:12}{guess / MB:13.2f} MB{truth / MB:9.2f} MB"
        f"{counted[segments] / counted[1]:14.2f}x{show_seconds(min(seconds)):>10}{mark}"
    )

# %%
print(f"counted with segments of one layer: {counted[16] / counted[1]:.2f}, since the last segment is not repeated")
reveal("03.p4", 4 / 3)

# %% [markdown]
# Forward is one part of three, and one more of it makes four thirds. The peak does not fall as far as the activations,
# because parameters, gradients and the gradients on their way back are still there.

# %% [markdown]
# ## 6. Communication, and what limits a step (11 min)
#
# Let several GPUs share out the batch. After backward each of them holds gradients of its own images, and they have to
# be added up over all. Each of p ranks then sends at least **2(p - 1)/p times the bytes of the gradients**, whatever
# the batch; lab 04 shows how. Now a step has three amounts and the machine has three rates:
#
# | | amount | rate |
# |---|---|---|
# | computation | FLOPs, two for each multiply-add | FLOPs per second |
# | memory | bytes read and written by all operations | bytes per second |
# | network | bytes that a rank sends | bytes per second |
#
# Each needs at least its amount divided by its rate. If the three overlap perfectly, the step takes as long as the
# slowest. Computation and memory alone are the **roofline** (Williams et al. 2009): an operation that makes few FLOPs
# for each byte, such as a ReLU, is *memory-bound*; one that makes many, such as a convolution, *compute-bound*.
#
# Predict: eight A100 train ResNet-50 in bfloat16 (16 bits), 32 images on each, joined by InfiniBand HDR. An A100 does
# 312 TFLOP/s in bfloat16 and reads or writes 2,039 GB/s (NVIDIA's datasheet of 2021); HDR carries 200 Gbit/s, which is
# 25 GB/s. ResNet-50 has 25.6 million parameters and makes 12.1 billion multiply-adds for an image, forward and
# backward. Its operations read and write about 0.4 GB for an image, in 16 bits. Which one limits the step:
# "computation", "memory" or "network"? Write the word in quotes.

# %% tags=["predict"]
predict("03.p5", None)

# %% [markdown]
# ### Exercise 03.6 · `what_limits`
#
# Return a pair: the name of the one that needs the most time, "computation", "memory" or "network", and its seconds.
# `macs` counts multiply-adds, `flop_rate` FLOPs per second, and both bandwidths are in bytes per second. Mind the units.


# %% tags=["exercise", "03.6"]
def what_limits(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    """Return ("computation", "memory" or "network", its seconds)."""
    ### BEGIN SOLUTION
    seconds = {
        "computation": 2 * macs / flop_rate,
        "memory": memory_bytes / memory_bandwidth,
        "network": network_bytes / network_bandwidth,
    }
    limit = max(seconds, key=seconds.get)
    return limit, seconds[limit]
    ### END SOLUTION


# %% tags=["check", "03.6"]
check("03.6", what_limits)

# %% [markdown]
# The table asks your function about one network on four machines. A number in bfloat16 takes two bytes, so memory and
# network carry half of what they do in fp32.

# %%
my_limit = mine("03.6")
NETWORK = "ResNet-18" if FAST else "ResNet-50"
a100, per_gpu = hardware.device("A100"), profiles[NETWORK]
sent = cost.data_parallel_bytes(per_gpu, RANKS)  # 2 (p - 1) / p times the gradients, fp32


def limited_by(profile, dtype, link):
    narrow = 2 if dtype == "bfloat16" else 1
    return my_limit(
        profile.macs + profile.backward_macs, profile.moved_bytes / narrow, sent / narrow,
        a100.rate(dtype), a100.memory_bandwidth, hardware.link(link).bandwidth,
    )  # fmt: skip


print(f"{NETWORK}, {per_gpu.batch} images on each of {RANKS} A100, {whose('03.6')} what_limits")
print(
    f"an A100: {a100.rate('float32') / 1e12} TFLOP/s in float32, {a100.rate('bfloat16') / 1e12:.0f} in bfloat16; "
    f"memory {a100.memory_bandwidth / 1e9:,.0f} GB/s"
)
print("; ".join(f"{link}: {hardware.link(link).bandwidth / 1e9:g} GB/s" for link in ("HDR", "10GbE")))
for dtype in ("float32", "bfloat16"):
    for link in ("HDR", "10GbE"):
        limit, seconds = limited_by(per_gpu, dtype, link)
        print(f"  {dtype:9} {link:6} at least {show_seconds(seconds):>8} a step, limited by {limit}")

# %%
reveal("03.p5", limited_by(per_gpu, "bfloat16", "HDR")[0])

# %% [markdown]
# The units that multiply in 16 bits are sixteen times as fast, the memory is not. Batch norm and ReLU multiply hardly
# anything but read and write everything, which is why compilers *fuse* them: they do several operations on a number
# while it is in the processor, and put it back once. Our count of bytes assumes that nothing is fused. (The lines with
# float32 take 19.5 TFLOP/s. On an A100, PyTorch lets convolutions use TF32 unless told otherwise: float32 in memory,
# multiplied with fewer digits, at up to 156 TFLOP/s by the same datasheet. With HDR, memory limits it then too.)
#
# The figure turns one dial, the number of images on each GPU, on Ethernet with 100 Gbit/s. The *highest* line limits
# the step: for ResNet-50 the network up to about 37 images, memory from there on. Where computation crosses the
# network, at about 92 images, nothing changes, since memory lies above both.


# %%
def limits_figure(title):
    batches = [1, 4, 16, 64, 256]
    few, more = few_and_more[NETWORK]

    def at(amount, batch):  # every amount grows evenly
        low, high = amount(few), amount(more)
        return low + (batch - few.batch) * (high - low) / (more.batch - few.batch)

    lines = {
        "computation": [at(lambda p: p.flops, n) / a100.rate("bfloat16") for n in batches],
        "memory": [at(lambda p: p.moved_bytes, n) / 2 / a100.memory_bandwidth for n in batches],
        "network": [sent / 2 / hardware.link("100GbE").bandwidth] * len(batches),
    }
    figure = Figure(figsize=(8, 3.6))
    axis = figure.add_axes((0.1, 0.14, 0.88, 0.74))
    for (name, seconds), style, color in zip(
        lines.items(), ("o-", "s--", "^:"), ("#0072B2", "#E69F00", "#009E73"), strict=True
    ):
        axis.loglog(batches, [1000 * s for s in seconds], style, color=color, markersize=7, label=name)
    axis.set_xticks(batches, [str(n) for n in batches])
    axis.set(xlabel="images on each GPU", ylabel="ms at least")
    axis.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axis.minorticks_off()
    axis.grid(alpha=0.4)
    axis.legend()
    axis.set_title(title)
    ends = [
        f"at {n}: " + ", ".join(f"{k} {show_seconds(v[i])}" for k, v in lines.items()) for i, n in ((0, 1), (-1, 256))
    ]
    return viz.Figure(figure, alt=f"{title}. {'; '.join(ends)}.")


limits_figure(f"What limits {NETWORK} on {RANKS} A100 in bfloat16, joined by 100GbE (predicted)")

# %% [markdown]
# Bytes on the network do not depend on the batch, so more images on each GPU hide them. That is why people want large
# batches, and lab 05 shows what large batches do to learning. When the batch cannot grow, send less (lab 10) or send
# while you compute (labs 05 and 11).
#
# **On this machine.** A lower bound is only worth something beside a measurement. The cell measures how many FLOPs per
# second a plain product of matrices reaches here, on one thread, and how long a step of the ResNet-18 of section 3
# takes.


# %% tags=["experiment"]
def fastest(call, times=5):
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return min(taken)


square = torch.rand(768, 768)
rate = 2 * 768**3 / fastest(lambda: square @ square)
x, y = torch.rand(BATCH, *small), torch.randint(10, (BATCH,))
step = fastest(lambda: cross_entropy(resnet(x), y).backward(), times=2 if FAST else 3)
bound = small_profile.flops / rate
print(f"a product of matrices reaches {rate / 1e9:,.0f} GFLOP/s on one thread")
print(f"forward and backward: at least {show_seconds(bound)} for computing alone, measured {show_seconds(step)}")

# %% [markdown]
# ## 7. The real thing, on real hardware (1 min)
#
# PyTorch counts too: `FlopCounterMode` counts FLOPs of a real run. Side by side, for a plain and for a grouped
# convolution. The second line is a known fault of PyTorch's counter: it counts the gradient of a grouped
# weight once for each group. (The pull request pytorch/pytorch#183405 mends it; with a release that has it both agree.)

# %%
for groups in (1, 4):
    body = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, groups=groups))
    counted_here = cost.profile(body, (8, 6, 6), 2)
    with FlopCounterMode(display=False) as counter:
        body(torch.rand(2, 8, 6, 6)).sum().backward()
    print(
        f"{groups} group{'s' if groups > 1 else ' '}: cost.profile {counted_here.flops:,} FLOPs, FlopCounterMode {counter.get_total_flops():,}"
    )

# %% [markdown]
# On a GPU the *allocator* knows the peak: `torch.cuda.max_memory_allocated()`, after
# `torch.cuda.reset_peak_memory_stats()`. `cost.measure_step` asks it when the model is on a GPU. Expect more than the
# replay says: cuDNN, NVIDIA's library of layers, takes workspace while a convolution runs; PyTorch updates all
# parameters at once, with larger temporaries; and what `nvidia-smi` shows includes the CUDA context and what the
# allocator keeps back as well. This line trains on two GPUs:
#
# ```
# torchrun --nproc-per-node=2 -m lockstep.train --strategy ddp
# ```
#
# **Summary**
# - A convolution costs K·K·C_in·C_out/g multiply-adds for each pixel of its output, and backward twice that.
# - Layers keep inputs (convolution, pooling, batch norm) or outputs (ReLU), each piece of memory once.
# - 8, 12 or 16 bytes a parameter for SGD, momentum, Adam; mixed precision changes what activations take.
# - Accumulation trades time for memory at the batch, checkpointing at the layers: a third more computation.
# - Time is at least amount over rate. Bytes on the network do not grow with the batch.
#
# Questions. Choose, say how sure you are, and read why.

# %%
ask("03.q1")

# %%
ask("03.q2")

# %%
ask("03.q3")

# %%
ask("03.q4")

# %% [markdown]
# And a riddle: what a wrong function of this lab returned, or now and then a right one. Run the cell again for another.

# %%
diagnose("03")

# %% [markdown]
# What you have done so far; `submit("03")` makes the file to hand in, if somebody asked you for it.

# %%
progress("03")

# %% [markdown]
# **References**
# - S. Williams, A. Waterman, D. Patterson (2009), "Roofline: an insightful visual performance model for multicore
#   architectures", Communications of the ACM 52(4), 65-76.
# - A. Krizhevsky (2014), arXiv:1404.5997, section 2, which is the paper of lab 08: where parameters and work of a CNN
#   are.
# - T. Chen, B. Xu, C. Zhang, C. Guestrin (2016), "Training deep nets with sublinear memory cost", arXiv:1604.06174:
#   checkpointing, and the square root.
# - P. Micikevicius et al. (2018), "Mixed precision training", ICLR: the master copy.
# - S. Rajbhandari, J. Rasley, O. Ruwase, Y. He (2020), SC20, section 3, which is the paper of lab 09 (it counts sixteen
#   bytes a parameter).
# - K. Simonyan, A. Zisserman (2015), "Very deep convolutional networks for large-scale image recognition", ICLR: VGG;
#   K. He, X. Zhang, S. Ren, J. Sun (2016), "Deep residual learning for image recognition", CVPR: ResNet.
