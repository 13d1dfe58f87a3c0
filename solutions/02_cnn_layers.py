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
# # Lab 02 · CNN layers
#
# **Time:** 100 minutes, core exercises included; those marked *stretch* come on top. The core exercises come in the
# order 02.1, 02.2, 02.3, 02.6; 02.4 and 02.5 are the stretch ones, in section 5.
#
# **You will be able to**
# - turn a convolution into one matrix product, with stride, padding, dilation and groups;
# - write its backward pass by hand, and find out in seconds whether a gradient is wrong;
# - write a loss that no logit can break;
# - train LeNet on layers that are yours from the first multiply-add to the last gradient.
#
# **You need:** lab 00. No GPU, no network.

# %% tags=["parameters"]
RANKS = 1  # this lab works in one process
FAST = False  # True: fewer images and steps, for a quick pass
SEED = 0

# %%
import time
from itertools import product
from statistics import median

import torch
from torch import nn
from torch.nn.functional import conv2d, cross_entropy, max_pool2d, pad

from lockstep import data, viz
from lockstep.exercises import (
    answer,
    ask,
    check,
    diagnose,
    find,
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
from lockstep.nn import SGD, Adam, LeNet, functional, layers, with_layers
from lockstep.trace.units import show_seconds

torch.manual_seed(SEED)
torch.set_num_threads(1)  # one thread, so that seconds can be compared

# %% [markdown]
# One output of a convolution: on the left the image in its frame of zeros, on the right the outputs. The marked output
# is a sum: each hatched pixel times the weight that is written in it. `w12` is the weight in row 1, column 2 of the
# kernel; all rows and columns count from 0.

# %%
viz.window(functional.conv2d, size=5, padding=1, output=(0, 1), title="Convolution, the library's")

# %% [markdown]
# Before you start, three questions from earlier labs.

# %%
recall("02")

# %% [markdown]
# ## 1. One window (12 min)
#
# A convolution slides a small *kernel* of weights over an image. At each stop it multiplies the pixels under it by its
# weights and adds everything up: one output. An image has channels, and a kernel has weights for each of them; the sum
# goes over the channels too. Several kernels give several output channels. That is all, and the cell below says it in
# loops. The letters stay the same through the lab:
#
# | letters | axes |
# |---|---|
# | N, C, H, W | images, channels, rows, columns of the input |
# | O, I, R, S | kernels (output channels), channels of a kernel, its rows, its columns |
# | N, O, P, Q | the output |


# %%
def convolution_by_loops(x, weight):
    kernels, *kernel = weight.shape
    y = torch.zeros(len(x), kernels, x.shape[2] - kernel[1] + 1, x.shape[3] - kernel[2] + 1)
    for n, o, p, q in product(*map(range, y.shape)):  # each output, ...
        for i, r, s in product(*map(range, kernel)):  # ... and each weight of its kernel
            y[n, o, p, q] += x[n, i, p + r, q + s] * weight[o, i, r, s]
    return y


small_x, small_weight = torch.rand(2, 2, 5, 4), torch.rand(3, 2, 3, 2)
apart = (convolution_by_loops(small_x, small_weight) - conv2d(small_x, small_weight)).abs().max()
print(f"at most {apart:.1e} from torch")

# %% [markdown]
# Four settings change where the windows lie:
# - **stride**: a window starts at every `stride`-th pixel.
# - **padding**: a frame of that many rows and columns of zeros around the image, on all four sides.
# - **dilation**: the pixels of a window lie `dilation` apart, so that a 3x3 kernel with dilation 2 covers 5x5 pixels.
# - **groups**: the channels are cut into groups, each of which has kernels of its own. With 2 groups the first half of
#   the kernels reads the first half of the channels, the second half the second; a kernel has I = C / 2 channels.
#
# ### Exercise 02.1 · `output_size`
#
# How many windows fit along one side? Everything after this needs the answer: a wrong one comes out as an error about
# shapes, ten lines later. `size` is the number of pixels without the frame. When not even one window fits, the answer
# is 0. It is a whole number, an `int`.
#
# Stuck? `hint("02.1")` helps a little more each time you call it, and after three different attempts `solution("02.1")`
# shows an answer. It is the same for all exercises.


# %% tags=["exercise", "02.1"]
def output_size(size, kernel, stride, padding, dilation):
    """How many windows fit along one side."""
    ### BEGIN SOLUTION
    covered = dilation * (kernel - 1) + 1
    left_over = size + 2 * padding - covered
    return max(0, left_over // stride + 1)
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("how many windows fit along one side")
    ### END STUB


# %% tags=["check", "02.1"]
check("02.1", output_size)

# %%
size_of = mine("02.1")
print(f"by {whose('02.1')} function:")
for name, setting in {
    "LeNet, first layer": (28, 5, 1, 2, 1),
    "AlexNet, first layer": (224, 11, 4, 2, 1),
    "ResNet, first layer": (224, 7, 2, 3, 1),
}.items():
    print(f"{name:22} {setting[0]:3} pixels -> {size_of(*setting)}")

# %% [markdown]
# ## 2. From loops to one matrix product (30 min)
#
# Seven loops in Python are slow. The way out is old (Chellapilla, Puri and Simard 2006): **im2col**, from image to
# columns. Write every window as a *column* of a matrix. A kernel, written as a row, then meets all windows in one
# matrix product, a **GEMM** (general matrix multiply), and that is what processors do best. The figure shows it for an
# image of 3x4 pixels and a kernel of 2x2: six windows, six columns.

# %%
image = torch.arange(1.0, 13.0).reshape(3, 4)
kernel = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
columns = functional.Windows.of(2).im2col(image[None, None]).reshape(4, 6)
viz.numbers(
    {
        "image": image,
        "columns": columns,
        "kernel as a row": kernel.reshape(1, 4),
        "row times columns": kernel.reshape(1, 4) @ columns,
    },
    "im2col: the columns of a 3x4 image for a 2x2 kernel",
)

# %% [markdown]
# Every pixel inside is copied up to four times, for a 5x5 kernel up to 25 times. The multiply-adds stay what they were.
#
# **LeNet** (LeCun and others 1998) is the small network that reads digits in section 6: two convolutions, each with a
# pooling behind it, then three linear layers. Its *second convolution* will be our yardstick: 6 channels of 14x14
# pixels come in, 16 kernels of 6x5x5 weights give 16 channels of 10x10 outputs. That is 16·6·5·5·10·10 = 240,000
# multiply-adds for one image.
#
# Predict: this convolution on one image, once by loops over plain Python numbers and once by im2col and a matrix
# product. How many times as fast is im2col?

# %% tags=["predict"]
predict("02.p1", None)

# %% [markdown]
# **The tool: a slice with a step.** Look at one *row* of the column matrix above, not at a column. Its first row,
# `1 2 3 5 6 7`, is what weight (0, 0) meets, over all windows: the image without its last row and column. Each row of
# the matrix is such a slice; with a stride it has a step. Below, a kernel of 3x3 moves over 7x7 pixels with stride 2:
# three windows down, three across. The weight in row 1, column 2 meets these nine pixels, and it does so in all images
# and channels at once.

# %%
pixels = torch.arange(49).reshape(1, 1, 7, 7)
print(pixels[..., 1:6:2, 2:7:2][0, 0])  # three rows from row 1, three columns from column 2, in steps of 2
print(torch.stack([pixels, pixels + 100], dim=2).shape, "stack puts tensors side by side along a new axis")
print(pad(pixels, (1, 1, 2, 2)).shape, "pad counts from the last axis: left, right, above, below")
print((torch.rand(8, 2, 3, 5) @ torch.rand(8, 2, 5, 4)).shape, "@ multiplies the last two axes, for all others at once")

# %% [markdown]
# ### Exercise 02.2 · `conv2d_forward`
#
# Write the convolution of `x` (N, C, H, W) with `weight` (O, I, R, S), plus `bias` (O,). Kernels are not turned round:
# weight (0, 0) meets the window's first pixel. All settings are whole numbers, the same for rows and columns. Go
# through the places of the kernel, gather one slice for each, and multiply once. Groups need no loop: the channels of a
# group stand side by side, so one `reshape` gives them an axis of their own. The result has the dtype of `x`, and so
# has every tensor on the way: the checks, and gradcheck later, come in float64. `x` itself stays as it is.
#
# Not to be called here: ready-made convolutions and `torch.nn.functional.unfold`, which is im2col. Everything else may
# be, the tensor's own `x.unfold` too.


# %% tags=["exercise", "02.2"]
def conv2d_forward(x, weight, bias, stride, padding, dilation, groups):
    """The convolution of images with kernels: (N, O, P, Q)."""
    n, c, h, w = x.shape
    o, i, r, s = weight.shape
    p = size_of(h, r, stride, padding, dilation)
    q = size_of(w, s, stride, padding, dilation)
    ### BEGIN SOLUTION
    framed = pad(x, (padding, padding, padding, padding))
    gathered = []
    for a in range(0, r * dilation, dilation):
        for b in range(0, s * dilation, dilation):
            gathered.append(framed[:, :, a : a + stride * p : stride, b : b + stride * q : stride])
    gathered = torch.stack(gathered, dim=2).reshape(n, groups, i * r * s, p * q)
    rows = weight.reshape(groups, o // groups, i * r * s)
    return (rows @ gathered).reshape(n, o, p, q) + bias.reshape(o, 1, 1)
    ### END SOLUTION
    ### BEGIN STUB
    # framed = ...  # the images in their frame of zeros
    # raise NotImplementedError("gather one slice for each place of the kernel, then one matrix product")
    ### END STUB


# %% tags=["check", "02.2"]
check("02.2", conv2d_forward)

# %% [markdown]
# Your own function as a picture. It is given one image for each pixel, in which only that pixel is 1, so its outputs
# say which weight met which pixel. With dilation 2 the window has holes.

# %%
my_forward = mine("02.2")
own = f"Convolution, {whose('02.2')} function"
viz.window(my_forward, size=7, stride=2, padding=1, dilation=2, output=(1, 1), title=own)

# %% [markdown]
# Move the slider over all outputs, row by row. At the edges some weights meet the frame and add nothing.

# %% tags=["widget"]
viz.window_player(my_forward, size=5 if FAST else 6, stride=2, padding=1, dilation=2, title=own)

# %% [markdown]
# Now the seconds. The loops are the library's, over plain Python numbers, since indexing a tensor one number at a time
# would be slower still. If your function takes too long for what follows, the cell says so, and the library's takes its
# place from here on; a faster one, checked, gets its place back when you run the cell again.


# %%
def quick(id, function, *arguments, most=0.02):
    """The function and whose it is, or the library's, where one call takes too long to experiment with."""
    for _ in range(3):  # the first call warms up, and another program may be in the way
        start = time.perf_counter()
        function(*arguments)
        taken = time.perf_counter() - start
        if taken < most:
            return function, whose(id)
        if taken > 20 * most:
            break
    print(
        f"Your {id} is right, but takes {show_seconds(taken)} for one small image where at most {show_seconds(most)} "
        "would do. Thousands of calls follow, so from here on the library's takes its place."
    )
    return find(id).reference, "the library's (yours takes too long)"


one_digit, one_kernel = torch.rand(1, 1, 28, 28), torch.rand(1, 1, 5, 5)
my_forward, forward_is = quick("02.2", mine("02.2"), one_digit, one_kernel, torch.zeros(1), 1, 2, 1, 1)
print(f"convolution: {forward_is}")


# %% tags=["experiment"]
def seconds(function, *arguments, times=5):
    """The median over some calls, after one to warm up."""
    function(*arguments)
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        function(*arguments)
        taken.append(time.perf_counter() - start)
    return median(taken)


one_image, weight, bias = torch.randn(1, 6, 14, 14), torch.randn(16, 6, 5, 5), torch.randn(16)
how = (1, 0, 1, 1)  # stride, padding, dilation, groups
multiply_adds = 16 * 6 * 5 * 5 * 10 * 10
took = {
    "loops": seconds(functional.conv2d_loops, one_image, weight, bias, *how, times=1),
    f"im2col, {forward_is}": seconds(my_forward, one_image, weight, bias, *how, times=20),
    "torch": seconds(conv2d, one_image, weight, bias, *how, times=20),
}
for way, one in took.items():
    print(f"{way:43} {show_seconds(one):>9}, {1e9 * one / multiply_adds:8.3f} ns for each multiply-add")

# %%
by_loops, by_im2col, _ = took.values()
reveal("02.p1", by_loops / by_im2col)

# %% [markdown]
# The same multiply-adds, and copies on top. What is gained: Python is asked a few dozen times instead of a quarter of a
# million times, and a matrix product reads each number once into the *cache*, the small fast memory inside the
# processor, and uses it for many outputs, several in one instruction. The form of a computation matters more than the number of its operations; you will meet that again.

# %% [markdown]
# ## 3. The way back (28 min)
#
# Training needs the gradient of the loss for every weight, and for every pixel that an earlier layer has computed. A
# layer is told `grad`, the gradient for its *output*, and has to answer with the gradients for its inputs.
#
# Start with one product of the forward pass: `y += x * weight`. If y counts `grad`, then x counts `grad * weight` and
# the weight counts `grad * x`. Now add up over all products that each took part in:
# - a **weight** took part in every window of every image: a sum over N, P and Q;
# - a **pixel** took part in every window that covers it, with every kernel of its group;
# - a **bias** was added to every output of its channel.
#
# Sums, never means: if the loss is a mean over the batch, `grad` has been divided already.
#
# In matrices: forward was Y = W X, with the columns X. Then dW = dY Xᵀ and dX = Wᵀ dY. What is left is the way from dX
# back to the pixels, **col2im**: each row of X was *read* from a slice of the image, and each row of dX is *added* to
# the same slice.
#
# Predict: how many times as long as the forward pass does the backward pass take, for LeNet's second convolution (the
# 240,000 multiply-adds from above) and 32 images?

# %% tags=["predict"]
predict("02.p2", None)

# %% [markdown]
# ### Exercise 02.3 · `conv2d_backward`
#
# Return the three gradients `dx`, `dweight`, `dbias`, each in the shape of what it belongs to. The slices are those of
# your forward pass. Think of the frame: the windows were read from the padded image, and the frame was no input.
#
# Not to be called here: ready-made convolutions, `unfold`, `fold`, and autograd, which would do all of it for you.


# %% tags=["exercise", "02.3"]
def conv2d_backward(grad, x, weight, stride, padding, dilation, groups):
    """The gradients for x, weight and bias, from that of the output."""
    n, c, h, w = x.shape
    o, i, r, s = weight.shape
    p, q = grad.shape[2:]
    ### BEGIN SOLUTION
    framed = pad(x, (padding, padding, padding, padding))
    places = []
    for a in range(0, r * dilation, dilation):
        for b in range(0, s * dilation, dilation):
            places.append((..., slice(a, a + stride * p, stride), slice(b, b + stride * q, stride)))
    gathered = torch.stack([framed[place] for place in places], dim=2).reshape(n, groups, i * r * s, p * q)
    rows = weight.reshape(groups, o // groups, i * r * s)
    dy = grad.reshape(n, groups, o // groups, p * q)
    dweight = (dy @ gathered.transpose(2, 3)).sum(0).reshape(o, i, r, s)
    dgathered = (rows.transpose(1, 2) @ dy).reshape(n, c, r * s, p, q)
    dframed = torch.zeros_like(framed)
    for number, place in enumerate(places):
        dframed[place] += dgathered[:, :, number]
    return dframed[:, :, padding : padding + h, padding : padding + w], dweight, grad.sum((0, 2, 3))
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("the gradients dx, dweight and dbias")
    ### END STUB


# %% tags=["check", "02.3"]
check("02.3", conv2d_backward)

# %% [markdown]
# The figure lets your function count. With all weights and all of `grad` equal to 1, `dx` says in how many windows each
# pixel lies; the darker a cell, the larger its number. Where a 3x3 kernel has stride 3, the windows do not overlap, and
# the last row and column lie in none: they get no gradient, whatever happens in them.

# %%
my_backward = mine("02.3")


def windows_over_each_pixel(stride):
    x, ones = torch.zeros(1, 1, 7, 7), torch.ones(1, 1, 3, 3)
    side = size_of(7, 3, stride, 0, 1)
    return my_backward(torch.ones(1, 1, side, side), x, ones, stride, 0, 1, 1)[0][0, 0]


viz.numbers(
    {f"stride {stride}": windows_over_each_pixel(stride) for stride in (1, 2, 3)},
    f"Windows over each pixel of a 7x7 image, by {whose('02.3')} function",
)

# %%
one_output = torch.rand(1, 1, 28, 28)
my_backward, backward_is = quick("02.3", mine("02.3"), one_output, one_digit, one_kernel, 1, 2, 1, 1)
print(f"its backward pass: {backward_is}")

# %% tags=["experiment"]
batch = torch.randn(32, 6, 14, 14)
y = my_forward(batch, weight, bias, *how)
forward_seconds = seconds(my_forward, batch, weight, bias, *how)
backward_seconds = seconds(my_backward, torch.ones_like(y), batch, weight, *how)
print(f"32 images: forward {show_seconds(forward_seconds)}, backward {show_seconds(backward_seconds)}")

# %%
reveal("02.p2", backward_seconds / forward_seconds)

# %% [markdown]
# Two matrix products of the same size against one: the multiply-adds are exactly twice as many. The seconds are not:
# im2col comes once more, and col2im adds in small pieces. The first layer of a network needs no dx, since nobody asks
# for the gradient of an image.
#
# **gradcheck.** How do you know that a gradient is right, without a course that checks it? Change one number by a
# little, see by how much the output changes, compare: finite differences. `torch.autograd.gradcheck` does that for
# every number, and it must be done in float64, since in float32 the differences drown in rounding.
#
# For that, PyTorch has to know your two functions as a pair. This is the tool: an `autograd.Function`. Its `forward`
# keeps in `ctx` what `backward` will need; its `backward` returns one gradient for each argument of `forward`, and None
# for those that have none.


# %%
class Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, stride, padding, dilation, groups):
        ctx.save_for_backward(x, weight)
        ctx.how = stride, padding, dilation, groups
        return my_forward(x, weight, bias, *ctx.how)

    @staticmethod
    def backward(ctx, grad):
        dx, dweight, dbias = my_backward(grad, *ctx.saved_tensors, *ctx.how)
        return dx, dweight, dbias, None, None, None, None


def numbers_with_gradient(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


x, w, b = numbers_with_gradient(2, 4, 6, 5), numbers_with_gradient(6, 2, 3, 2), numbers_with_gradient(6)
print(
    "gradcheck, stride 2, padding 1, dilation 2, 2 groups:",
    torch.autograd.gradcheck(Convolution.apply, (x, w, b, 2, 1, 2, 2)),
)

# %% [markdown]
# And against PyTorch's own convolution, over a grid of settings:

# %%
apart = torch.zeros(4, dtype=torch.float64)
grid = list(product((1, 2), (0, 2), (1, 2), (1, 2, 4)))
for how_now in grid:
    x, b = numbers_with_gradient(2, 4, 9, 8), numbers_with_gradient(8)
    w = numbers_with_gradient(8, 4 // how_now[3], 3, 2)
    ours, theirs = Convolution.apply(x, w, b, *how_now), conv2d(x, w, b, *how_now)
    grad = torch.randn_like(theirs)
    pairs = zip(torch.autograd.grad(ours, (x, w, b), grad), torch.autograd.grad(theirs, (x, w, b), grad), strict=True)
    now = [(ours - theirs).abs().max(), *((one - other).abs().max() for one, other in pairs)]
    apart = torch.maximum(apart, torch.stack(now).detach())
for what, difference in zip(("y", "dx", "dweight", "dbias"), apart.tolist(), strict=True):
    print(f"{what:8} at most {difference:.1e} from torch, over {len(grid)} settings")

# %% [markdown]
# ## 4. A loss that nothing breaks (10 min)
#
# The last layer gives a *logit* for each of K classes, any number at all. **Softmax** makes probabilities of them,
# exp(logit) divided by the sum of all exp(logit). **Cross-entropy** is minus the logarithm of the probability of the
# right class, and the loss of a batch is the mean over its images. Its gradient is as simple as can be: softmax, less
# 1 at the label, divided by the number of images.
#
# ### Exercise 02.6 · `softmax_cross_entropy`
#
# Take `logits` (N, K) and `labels` (N,), return the loss and its gradient for the logits. It must be right for logits
# of any size, also where `exp` overflows or a probability becomes 0: at logits of 1000 and 0 the loss of the second
# class is 1000, not infinite and not 27.6. The loss may be a tensor without axes or a plain number.
#
# Not to be called here: `cross_entropy`, `log_softmax`, `logsumexp` and their like, and autograd; each of them holds
# the trick that you are asked for. `softmax` may be.


# %% tags=["exercise", "02.6"]
def softmax_cross_entropy(logits, labels):
    ### BEGIN SOLUTION
    images = torch.arange(len(logits))
    below_the_largest = logits - logits.max(dim=1, keepdim=True).values
    logarithms = below_the_largest - below_the_largest.exp().sum(dim=1, keepdim=True).log()
    gradient = logarithms.exp()
    gradient[images, labels] -= 1
    return -logarithms[images, labels].mean(), gradient / len(logits)
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("the mean loss, and its gradient for the logits")
    ### END STUB


# %% tags=["check", "02.6"]
check("02.6", softmax_cross_entropy)

# %%
my_loss = mine("02.6")
logits, labels = torch.tensor([[3.0, 1.0], [1000.0, 0.0]]), torch.tensor([0, 1])
print(f"{whose('02.6')} loss {my_loss(logits, labels)[0]:.4f}, torch's {cross_entropy(logits, labels):.4f}")

# %% [markdown]
# ## 5. Pooling and batch norm (3 min)
#
# **Max pooling** keeps the largest pixel of each window. An output is a copy of one pixel, so all of its gradient goes
# to that pixel. Where two are equally large, the first counts; where windows overlap, a pixel can win more than once.
#
# ### Exercise 02.4 · `max_pool_backward` (stretch)
#
# `grad` (N, C, P, Q) belongs to the outputs of windows of `kernel` x `kernel` pixels of `x` (N, C, H, W), which start
# every `stride` pixels; there is no padding. Return the gradient for `x`. Each channel is pooled by itself. Not to be
# called: `max_pool2d`, `max_unpool2d` and autograd.


# %% tags=["exercise", "02.4"]
def max_pool_backward(grad, x, kernel, stride):
    ### BEGIN SOLUTION
    down, across = grad.shape[2:]
    places = []
    for a in range(kernel):
        for b in range(kernel):
            places.append((..., slice(a, a + stride * down, stride), slice(b, b + stride * across, stride)))
    winner = torch.stack([x[place] for place in places], dim=2).max(dim=2).indices
    dx = torch.zeros_like(x)
    for number, place in enumerate(places):
        dx[place] += grad * (winner == number)
    return dx
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("each output hands its gradient to the pixel it came from")
    ### END STUB


# %% tags=["check", "02.4"]
check("02.4", max_pool_backward)

# %% [markdown]
# **Batch norm** brings each channel to mean 0 and variance 1, and then scales and shifts it by a weight and a bias that
# are learned: y = weight · z + bias with z = (x - mean) / √(variance + eps). In training, mean and variance are those
# of the batch, over images and pixels. Meanwhile it keeps running averages of both, which take their place in
# evaluation, where the answer for one image must not depend on its neighbours.
#
# ### Exercise 02.5 · `batch_norm_backward` (stretch)
#
# Return `dx`, `dweight`, `dbias` in training mode. The trap: mean and variance are computed from x, so each pixel
# changes every output of its channel. The variance is the biased one, the mean of the squared distances. Not to be
# called: ready-made batch norms and autograd.


# %% tags=["exercise", "02.5"]
def batch_norm_backward(grad, x, weight, eps):
    ### BEGIN SOLUTION
    axes = (0, 2, 3)
    deviation = (x.var(axes, unbiased=False, keepdim=True) + eps).sqrt()
    normal = (x - x.mean(axes, keepdim=True)) / deviation
    dnormal = grad * weight.reshape(-1, 1, 1)
    by_variance = normal * (dnormal * normal).mean(axes, keepdim=True)
    dx = (dnormal - dnormal.mean(axes, keepdim=True) - by_variance) / deviation
    return dx, (grad * normal).sum(axes), grad.sum(axes)
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("the gradients for x, weight and bias")
    ### END STUB


# %% tags=["check", "02.5"]
check("02.5", batch_norm_backward)

# %% [markdown]
# How far does one output reach? Here `grad` is 1 for a single output and 0 elsewhere, and the cell counts the pixels of
# that channel whose gradient is not 0, in training and in evaluation.

# %%
my_norm_backward = mine("02.5")
x, one_output = torch.randn(4, 2, 3, 3), torch.zeros(4, 2, 3, 3)
one_output[0, 0, 1, 1] = 1.0
in_training = my_norm_backward(one_output, x, torch.ones(2), 1e-5)[0]
in_evaluation = functional.normalize_backward(one_output, x, torch.ones(2), torch.zeros(2), torch.ones(2))[0]
for mode, dx in (("training", in_training), ("evaluation", in_evaluation)):
    print(f"{mode:10} {int((dx[:, 0].abs() > 1e-6).sum())} of {dx[:, 0].numel()} pixels of the channel get a gradient")

# %% [markdown]
# ## 6. LeNet, all yours (10 min)
#
# Now the functions become layers. The next cell makes a convolution, a pooling and a loss of them; `with_layers` puts
# them into LeNet in place of PyTorch's, and takes the library's for what you have not written (the forward pass of
# pooling, linear layers and ReLU). Not one gradient is PyTorch's own.

# %%
my_pool, pool_is = quick("02.4", mine("02.4"), torch.rand(1, 6, 14, 14), torch.rand(1, 6, 28, 28), 2, 2, most=0.05)
print(f"forward: {forward_is}; backward: {backward_is}; pooling: {pool_is}; loss: {whose('02.6')}")


# %%
class Pooling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kernel, stride):
        ctx.save_for_backward(x)
        ctx.how = kernel, stride
        return functional.max_pool2d(x, kernel, stride)[0]

    @staticmethod
    def backward(ctx, grad):
        return my_pool(grad, *ctx.saved_tensors, *ctx.how), None, None


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        loss, gradient = my_loss(logits, labels)
        ctx.save_for_backward(gradient)
        return torch.as_tensor(loss, dtype=logits.dtype)  # it may be a plain number

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


class MyConv2d(layers.Conv2d):
    def forward(self, x):
        return Convolution.apply(
            x, self.weight, self.bias, self.stride[0], self.padding[0], self.dilation[0], self.groups
        )


class MyMaxPool2d(layers.MaxPool2d):
    def forward(self, x):
        return Pooling.apply(x, self.kernel_size, self.stride)


MINE = {**layers.OURS, nn.Conv2d: MyConv2d, nn.MaxPool2d: MyMaxPool2d}
torch.manual_seed(SEED)
plain = LeNet()
net = with_layers(plain, MINE)
print(net.features)

# %% [markdown]
# The optimizer is a few lines too. **SGD with momentum** keeps a velocity, v = momentum · v + gradient, and takes a
# step of `lr` against it. **Adam** keeps running means of the gradient and of its square and divides one by the root of
# the other, so that every weight takes steps of about `lr`, whatever the size of its gradient. The library's, which you
# can read in `lockstep/nn/optimizers.py`, agree with PyTorch's to rounding:

# %%
for ours, theirs, settings in ((SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (Adam, torch.optim.Adam, {})):
    one, other = nn.Parameter(torch.ones(5).double()), nn.Parameter(torch.ones(5).double())
    steppers = ours([one], **settings), theirs([other], **settings)
    for _ in range(20):
        one.grad = other.grad = torch.randn(5).double()
        for stepper in steppers:
            stepper.step()
    print(f"{ours.__name__:4} after 20 steps: {(one - other).abs().max().item():.1e} from torch's")

# %% [markdown]
# Before it trains: of LeNet's 61,706 parameters the two convolutions hold 2,572, which is 4 %. The linear layers hold
# the rest.
#
# Predict: run all layers forward and backward on 32 digits. What percentage of that time do the two convolutions take?

# %% tags=["predict"]
predict("02.p3", None)

# %% tags=["experiment"]
train, test = data.load("mnist5k", "train"), data.load("mnist5k", "test")
spent, held = {}, {}
for _ in range(5):  # the last of five passes counts
    spent, x = dict.fromkeys(("Conv2d", "MaxPool2d", "Linear", "ReLU and the rest"), 0.0), train.images[:32]
    held = dict.fromkeys(spent, 0)
    for layer in (*net.features, *net.classifier):
        kind = next((name for name in spent if name in type(layer).__name__), "ReLU and the rest")
        start = time.perf_counter()
        x = x.detach().requires_grad_()
        y = layer(x)
        y.backward(torch.ones_like(y))
        spent[kind] += time.perf_counter() - start
        held[kind] += sum(parameter.numel() for parameter in layer.parameters())
        x = y
net.zero_grad()
for kind in spent:
    share, parameters = spent[kind] / sum(spent.values()), held[kind] / sum(held.values())
    print(f"{kind:18} {parameters:5.1%} of the parameters, {show_seconds(spent[kind]):>8}, {share:5.1%} of the time")

# %%
reveal("02.p3", 100 * spent["Conv2d"] / sum(spent.values()), "%")

# %% [markdown]
# A weight of a linear layer is used once for an image. A weight of a convolution is used at every window, here up to
# 784 times: parameters say little about work. And work, counted in multiply-adds, says little about time: pooling has
# no parameter and no multiply-add at all, and look at its share. It reads every number, compares and notes where the
# largest was, each of these a pass of its own through memory. Lab 03 counts all three, for every layer of any network.
#
# Now train: on 4,000 digits, while 1,000 are *held out*, kept away from training and used only to measure. An *epoch*
# is one pass over the 4,000. Beside it runs the same LeNet from the same first weights with PyTorch's
# layers, loss and optimizer, and a third one with a bug. Its backward pass uses kernels that are *turned round* for dx,
# one of the mistakes that 02.3 knows: the first convolution gets a wrong gradient, all other layers a right one.
#
# Predict: the held-out accuracy, in percent, of the network with the bug, after the last epoch. For comparison:
# guessing gives 10 %.

# %% tags=["predict"]
predict("02.p4", None)


# %%
EPOCHS, BATCH, IMAGES = (1, 32, 640) if FAST else (2, 32, 4000)


def training(net, loss_of, optimizer):
    """Train; gives the mean loss and the held-out accuracy of each epoch, and the seconds."""
    order, start = torch.Generator().manual_seed(SEED), time.perf_counter()
    losses, accuracies = [], []
    for _ in range(EPOCHS):
        epoch = []
        for some in torch.randperm(IMAGES, generator=order).split(BATCH):
            loss = loss_of(net(train.images[some]), train.labels[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch.append(loss.item())
        losses.append(sum(epoch) / len(epoch))
        with torch.no_grad():
            accuracies.append((net(test.images).argmax(dim=1) == test.labels).float().mean().item())
    return losses, accuracies, time.perf_counter() - start


class TurnedKernel(Convolution):
    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = my_backward(grad, x, weight, *ctx.how)
        if ctx.needs_input_grad[0]:  # not in the first layer
            dx = my_backward(grad, x, weight.flip(2, 3), *ctx.how)[0]
        return dx, dweight, dbias, None, None, None, None


class BuggyConv2d(MyConv2d):
    def forward(self, x):
        return TurnedKernel.apply(
            x, self.weight, self.bias, self.stride[0], self.padding[0], self.dilation[0], self.groups
        )


# %%
steps = EPOCHS * IMAGES // BATCH
print(f"the next cell takes about {show_seconds(2.6 * steps * sum(spent.values()))} here")

# %% tags=["experiment"]
buggy = with_layers(plain, {**MINE, nn.Conv2d: BuggyConv2d})
runs = {
    f"layers: {forward_is}": training(net, Loss.apply, SGD(net.parameters(), 0.02, 0.9)),
    "torch": training(plain, cross_entropy, torch.optim.SGD(plain.parameters(), 0.02, 0.9)),
    "kernels turned round": training(buggy, Loss.apply, SGD(buggy.parameters(), 0.02, 0.9)),
}
for name, (losses, accuracies, took_seconds) in runs.items():
    print(f"{name:50} {accuracies[-1]:.1%} held out, loss {losses[-1]:.4f}, {took_seconds:.1f} s")
if FAST:
    print(f"FAST: after {steps} steps none of them has learnt much yet; what the text says below needs FAST = False")

# %%
viz.curves(
    {
        "loss": {name: run[0] for name, run in runs.items()},
        "held-out accuracy": {name: run[1] for name, run in runs.items()},
    },
    f"LeNet on {IMAGES:,} digits of mnist5k, one thread",
    shares=("held-out accuracy",),
)

# %%
reveal("02.p4", 100 * runs["kernels turned round"][1][-1], "%")

# %% [markdown]
# Two of the three lines belong together: your layers and PyTorch's take the same steps up to rounding. Rounding grows
# from step to step, so the two come apart a little, in the accuracy more than in the loss. The third line is the one to
# remember. A network with a wrong gradient *trains*. It may end a little lower, and nobody who sees its curve alone
# would suspect anything. Training that works proves little; gradcheck names the layer:


# %%
def passes_gradcheck(function):
    x, w, b = numbers_with_gradient(1, 2, 5, 5), numbers_with_gradient(2, 2, 3, 3), numbers_with_gradient(2)
    return torch.autograd.gradcheck(function.apply, (x, w, b, 1, 1, 1, 1), raise_exception=False)


start = time.perf_counter()
print("gradcheck:", {one.__name__: passes_gradcheck(one) for one in (Convolution, TurnedKernel)})
print(f"both together took {show_seconds(time.perf_counter() - start)}")

# %% [markdown]
# ## 7. The real thing (2 min)
#
# `torch.nn.functional.conv2d` and its backward, beside yours, on the second convolution of a ResNet for 32x32 images:

# %% tags=["experiment"]
x, w = torch.randn(2 if FAST else 8, 64, 32, 32), torch.randn(64, 64, 3, 3) / 24
b, how_now = torch.zeros(64), (1, 1, 1, 1)
x.requires_grad_(), w.requires_grad_(), b.requires_grad_()


def forward_and_backward(convolution):
    y = convolution(x, w, b, *how_now)
    return y, *torch.autograd.grad(y, (x, w, b), torch.ones_like(y))


results = {"yours": forward_and_backward(Convolution.apply), "torch": forward_and_backward(conv2d)}
largest = max((one - other).abs().max() / other.abs().max() for one, other in zip(*results.values(), strict=True))
times = {
    name: seconds(forward_and_backward, way, times=3) for name, way in (("yours", Convolution.apply), ("torch", conv2d))
}
print(f"{forward_is}: {show_seconds(times['yours'])}; torch: {show_seconds(times['torch'])}, forward and backward")
print(f"largest difference, relative to the largest number: {largest:.1e}")

# %% [markdown]
# PyTorch's is faster because it never writes the column matrix: it picks the pixels while it multiplies.
#
# ## 8. On real hardware, and what you know now (5 min)
#
# On a GPU the work goes to *cuDNN*, NVIDIA's library of the operations of neural networks. It has several ways for one
# convolution: a GEMM that gathers its columns on the fly; *Winograd's* scheme, which computes several outputs of a 3x3
# kernel together and shares part of their products, so that there are fewer; Fourier transforms for large kernels.
# `torch.backends.cudnn.benchmark = True` tries them on the first batch and keeps the fastest; some add in an order that
# changes from run to run. This trains LeNet, on a laptop too:
#
# ```
# torchrun --nproc-per-node=1 -m lockstep.train --model lenet --data mnist5k --epochs 3
# ```
#
# With a GPU, take a larger network: `--model resnet18 --data shapes32 --epochs 5`.
#
# **Summary**
# - A convolution is a matrix product of kernels with columns of windows. Copying pixels for it pays many times over.
# - Backward: dW = dY Xᵀ, dX = Wᵀ dY, and what was read from a slice is added to the same slice. Sums, no means.
# - Backward makes twice the multiply-adds of forward, and the first layer's is spared half of them.
# - Take the largest logit off, and never the logarithm of a softmax.
# - Parameters do not tell where the time goes: layers with few of them, or none, can take most of it.
# - A wrong gradient can train. gradcheck, in float64, finds it.
#
# Questions. Choose, say how sure you are, and read why.

# %%
ask("02.q1")

# %%
ask("02.q2")

# %%
ask("02.q3")

# %%
ask("02.q4")

# %% [markdown]
# And a riddle: what a wrong function of this lab returns, or now and then a right one. Run the cell again for another.

# %%
diagnose("02")

# %% [markdown]
# What you have done so far; `submit("02")` makes the file to hand in, if somebody asked you for it.

# %%
progress("02")

# %% [markdown]
# **References**
# - Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), "Gradient-based learning applied to document recognition",
#   Proceedings of the IEEE 86(11), 2278-2324: LeNet.
# - K. Chellapilla, S. Puri, P. Simard (2006), "High performance convolutional neural networks for document processing",
#   Tenth International Workshop on Frontiers in Handwriting Recognition: convolution as a matrix product.
# - V. Dumoulin, F. Visin (2016), "A guide to convolution arithmetic for deep learning", arXiv:1603.07285: sizes, with
#   pictures of every case.
# - S. Ioffe, C. Szegedy (2015), "Batch normalization: accelerating deep network training by reducing internal covariate
#   shift", ICML 2015: the backward pass stands below algorithm 1.
# - D. Kingma, J. Ba (2015), "Adam: a method for stochastic optimization", ICLR 2015.
# - A. Lavin, S. Gray (2016), "Fast algorithms for convolutional neural networks", CVPR 2016: Winograd's scheme on GPUs.
