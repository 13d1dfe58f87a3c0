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
# # Lab 00 · Start here
#
# **Time:** 15 minutes, exercises included.
#
# **You will be able to**
# - say where the seconds and the bytes of a training step go, from your own measurement;
# - run one function in several processes at once and let them add up a number;
# - read the three reports that a parallel program gives when it goes wrong;
# - say how much faster more machines can make a job at best, before anyone buys them.
#
# **You need:** Python and a first PyTorch training loop. No GPU, no network.
#
# **How a lab works:** you *predict* a number, *build* a small function, *run* it, and have your own run
# *explained*. `check(...)` tests your function and shows the smallest case that fails; it never stops the
# notebook. `hint("00.1")` helps a little more each time you call it, and after three different attempts
# `solution("00.1")` shows an answer. Go cell by cell (Shift+Enter): running all at once shows the answers to your
# predictions before you have made them.

# %% tags=["parameters"]
RANKS = 4  # how many processes work together in this lab
FAST = False  # True: shorter training, for a quick pass
SEED = 0

# %% [markdown]
# The picture is a real run, made by the next cell. Each row is one process, and time runs to the right. Every
# process computes, the one in row 0 the least and the one in the last row the most; then they add up their results.
# Look at the pale part of row 0: at the end of the lab you are asked about it.

# %%
import os
import time
from itertools import pairwise

import torch
import torch.distributed as dist
from IPython.display import display
from ipywidgets import HTML, SelectionSlider, VBox
from matplotlib.figure import Figure
from torch.nn.functional import cross_entropy

from lockstep import data, viz
from lockstep.course import doctor
from lockstep.exercises import (
    answer,
    ask,
    check,
    diagnose,
    hint,
    mine,
    predict,
    progress,
    reveal,
    solution,
    submit,
    whose,
)
from lockstep.nn import LeNet
from lockstep.train import train
from lockstep.world import RunError, launch, simulate


def uneven(comm):
    square = torch.ones(300, 300)
    with comm.span("compute"):
        for _ in range(20 * (comm.rank + 1)):
            square = square @ square / 300
    return comm.all_reduce(square.mean()).item()


launch(uneven, RANKS)  # the first run starts the machinery; the second shows the work alone
viz.timeline(launch(uneven, RANKS), title=f"{RANKS} processes compute, then add up their results")

# %% [markdown]
# ## 1. What this machine offers (1 min)
#
# A *core* carries out one stream of instructions at a time. How many you have decides what you can measure in
# this course, so look at that line first. The others name things that you meet later.

# %%
doctor()

# %% [markdown]
# ## 2. Where one process spends its seconds and bytes (3 min)
#
# Before you split a job, know what it is made of. A *process* is a running program with its own memory. Here one
# process trains LeNet, a small convolutional network, on handwritten digits. Each step has four parts: **load**
# a batch, **forward**, **backward**, **update** the parameters. Its memory has four tenants: the **parameters**;
# a **gradient** for each; the **optimizer state** (momentum keeps one more number for each); and the
# **activations**, which are what the layers computed on the way forward and need again on the way back.
#
# Predict first. For every byte of parameters, how many bytes of activations does a step with 64 images keep?
# Replace `None` with your number, then run the cell.

# %% tags=["predict"]
predict("00.p1", None)

# %% [markdown]
# The next cell measures the seconds: the median of some training steps, part by part. It keeps to one *thread*, one
# stream of instructions, so that you can compare it with other runs later.

# %% tags=["experiment"]
BATCH, STEPS = 64, 10 if FAST else 40
torch.set_num_threads(1)
torch.manual_seed(SEED)
digits = data.load("mnist5k", "train")
model = LeNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

parts = ("load", "forward", "backward", "update")
measured = []
for _ in range(STEPS):
    clock = [time.perf_counter()]
    chosen = torch.randint(len(digits.labels), (BATCH,))
    images, labels = digits.images[chosen], digits.labels[chosen]
    clock.append(time.perf_counter())
    loss = cross_entropy(model(images), labels)
    clock.append(time.perf_counter())
    loss.backward()
    clock.append(time.perf_counter())
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    clock.append(time.perf_counter())
    measured.append([1000 * (end - start) for start, end in pairwise(clock)])

milliseconds = dict(zip(parts, torch.tensor(measured).median(dim=0).values.tolist(), strict=True))

# %% [markdown]
# And this one the bytes. PyTorch calls `keep` for each tensor that it stores for backward; `kept` counts each piece
# of memory once and leaves out the parameters themselves.

# %% tags=["experiment"]
own = {parameter.data_ptr() for parameter in model.parameters()}
kept = {}


def keep(tensor):
    memory = tensor.untyped_storage()
    if memory.data_ptr() not in own:
        kept[memory.data_ptr()] = memory.nbytes()
    return tensor


with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
    cross_entropy(model(images), labels)

kilobytes = {
    "parameters": sum(p.nbytes for p in model.parameters()) / 1000,
    "gradients": sum(p.grad.nbytes for p in model.parameters()) / 1000,
    "optimizer state": sum(s["momentum_buffer"].nbytes for s in optimizer.state.values()) / 1000,
    "activations": sum(kept.values()) / 1000,
}

# %% [markdown]
# The figure shows both tables: on the left where a step's time goes, on the right what the memory holds when the
# forward pass ends.


# %%
def bars(axis, amounts, unit):
    """One bar for each part, with its amount and its share written beside it; returns the same as text."""
    whole = sum(amounts.values())
    texts = [f"{amount:,.1f} {unit} ({amount / whole:.0%})" for amount in amounts.values()]
    drawn = axis.barh(list(amounts), list(amounts.values()), color="#56B4E9", edgecolor="black", hatch="//")
    axis.bar_label(drawn, texts, padding=4)
    axis.set_xlim(0, 1.7 * max(amounts.values()))
    axis.set_xlabel(unit)
    axis.invert_yaxis()
    return ", ".join(f"{part} {text}" for part, text in zip(amounts, texts, strict=True))


def profile_figure():
    figure = Figure(figsize=(9.4, 2.5))
    figure.set_layout_engine("constrained", w_pad=0.1)
    left, right = figure.subplots(1, 2)
    figure.suptitle(f"One training step of LeNet with {BATCH} images, one process, one thread")
    spent, held = bars(left, milliseconds, "ms"), bars(right, kilobytes, "kB")
    return viz.Figure(figure, alt=f"One training step of LeNet. Time: {spent}. Memory: {held}.")


profile_figure()

# %%
reveal("00.p1", kilobytes["activations"] / kilobytes["parameters"])

# %% [markdown]
# Why so many? A convolution uses each of its parameters at every position of every image, and every use leaves a
# number behind for the backward pass. Activations grow with the batch; the other three tenants do not. Each later
# lab attacks one of these eight bars.

# %% [markdown]
# ## 3. What a rank is (4 min)
#
# A *rank* is one of several processes that run the same function at the same time. Each knows its own number,
# counted from 0, and how many there are. They share nothing else: a variable of one rank does not exist in another.
# `launch(program, RANKS)` starts them, hands each a `comm` to talk through, and gives back what they returned, in the
# order of their numbers. What they print appears as they reach it, in any order.


# %%
def introduce(comm):
    print(f"I am rank {comm.rank} of {comm.size}")
    return 10 * comm.rank


launch(introduce, RANKS).values

# %% [markdown]
# Ranks talk by making the same call together; such a call is a *collective*. The one that training needs most is
# **all-reduce**: every rank hands in a tensor, and every rank gets the sum of them all. It works *in place*: the sum
# overwrites the tensor that was handed in, and that tensor is also what the call returns.


# %%
def add_up(comm):
    tensor = torch.tensor([1, 10 * comm.rank])
    comm.all_reduce(tensor)
    return tensor.tolist()


launch(add_up, RANKS).values

# %% [markdown]
# ### Exercise 00.1 · `hello`
#
# Every rank returns two numbers: its own rank number squared, and the sum of the squares of all ranks, obtained with
# `comm.all_reduce`. A tensor with one element counts as a number. The function has to work with any number of ranks.


# %% tags=["exercise", "00.1"]
def hello(comm):
    """Return this rank's number squared, and the sum of the squares of all ranks."""
    ### BEGIN SOLUTION
    square = comm.rank**2
    total = torch.tensor(square)
    comm.all_reduce(total)
    return square, total.item()
    ### END SOLUTION
    ### BEGIN STUB
    # square = ...  # what this rank knows by itself
    # total = ...  # what it hands in, and what comes back
    # raise NotImplementedError("return this rank's square and the sum of all ranks' squares")
    ### END STUB


# %% tags=["check", "00.1"]
check("00.1", hello)

# %% [markdown]
# Now your own run as a picture: your function in real processes. A row is pale while its rank waits for the last
# one to arrive, and hatched while the sum is made.

# %%
my_hello = mine("00.1")
run = launch(my_hello, RANKS)
print(run.values)
viz.timeline(run, title=f"hello, {whose('00.1')} function, on {RANKS} ranks")

# %% [markdown]
# And on 64 ranks. In the *simulated world* the same function runs on each of them and its numbers are computed for
# real. Only the clock is worked out, message by message, from the published speed of a cluster of GPUs. A simulated
# second says nothing about your machine, so every figure says which world it comes from.

# %%
MANY = 16 if FAST else 64
run = simulate(my_hello, MANY)
print("sums on all ranks:", {int(total) for _, total in run.values})
viz.timeline(run, title=f"hello, {whose('00.1')} function, on {MANY} ranks")

# %% [markdown]
# ## 4. Three ways a parallel program goes wrong (2 min)
#
# Learn the three reports here, where you know the fault. Each cell below catches the error that `launch` raises and
# prints the report that you would get. The last two take a few seconds, since somebody has to notice that nothing
# happens.
#
# **A rank raises an exception.** The last rank divides by zero; the others wait for it in vain.


# %% tags=["experiment"]
def stumbles(comm):
    share = 1 / (comm.size - 1 - comm.rank)
    return comm.all_reduce(torch.tensor(share))


try:
    launch(stumbles, RANKS)
except RunError as report:
    print(report)

# %% [markdown]
# The rank where it began comes first, with its exception and the line of your cell. The others did nothing wrong;
# they share one line, which says where they were (`float32[]` is a single number).
#
# **Ranks wait for each other for ever**, which is called a *deadlock*. Here rank 0 skips the collective.


# %% tags=["experiment"]
def disagrees(comm):
    total = torch.tensor(1.0)
    if comm.rank > 0:
        comm.all_reduce(total)
    return total


try:
    launch(disagrees, RANKS)
except RunError as report:
    print(report)

# %% [markdown]
# No line is wrong by itself, so the report names for each rank the call it waits in. Look for the odd one out: rank 0
# has finished, and the others wait for it. The cure: every rank makes the same collectives in the same order.
#
# **A rank does not come to an end.** A loop waits for nobody, so only the time limit can stop it.


# %% tags=["experiment"]
def loops(comm):
    steps = 0
    while comm.rank == 1:
        steps += 1
    return steps


try:
    launch(loops, RANKS, timeout=1 if FAST else 3)
except RunError as report:
    print(report)

# %% [markdown]
# The report shows the line where each rank was when the time was up: rank 1 was in its loop, the others had
# finished. Unless you say otherwise, `timeout` is 60 seconds.

# %% [markdown]
# ## 5. How much faster at best? Amdahl's law (2 min)
#
# The *speed-up* is the time with one worker divided by the time with many. Some part of every job is *serial*: more
# workers do not shorten it.
#
# Predict: 5 % of a job is serial, and 1,000 workers share the rest. What is the speed-up?

# %% tags=["predict"]
predict("00.p2", None)

# %% [markdown]
# ### Exercise 00.2 · `amdahl`
#
# `serial_share` is the serial part of the job, between 0 and 1 (5 % is `0.05`); `workers`, at least 1, share the rest
# evenly. Return the speed-up, not rounded.


# %% tags=["exercise", "00.2"]
def amdahl(serial_share, workers):
    """Return how many times as fast `workers` do a job of which `serial_share` cannot be shared out."""
    ### BEGIN SOLUTION
    return 1 / (serial_share + (1 - serial_share) / workers)
    ### END SOLUTION


# %% tags=["check", "00.2"]
check("00.2", amdahl)

# %%
law = mine("00.2")
reveal("00.p2", law(0.05, 1000))

# %% [markdown]
# Even endlessly many workers leave the serial twentieth as it is, so no number of them gets beyond 20. That is Amdahl's
# law (1967). Gustafson (1988) answered that people with more workers take on more work: if the shared part *grows* with
# the workers, the same share gives `serial_share + (1 - serial_share) * workers`. The figure shows both answers: solid
# for the same job, dashed for the growing one.


# %%
workers = [2**k for k in range(11)]


def speed_up_figure(share):
    same = [law(share, n) for n in workers]
    growing = [share + (1 - share) * n for n in workers]
    figure = Figure(figsize=(7, 3.4))
    axis = figure.add_axes((0.1, 0.14, 0.88, 0.76))
    axis.loglog(workers, same, "o-", color="#0072B2")
    axis.loglog(workers, growing, "s--", color="#D55E00")
    ends = f"same job (Amdahl) {same[-1]:,.1f}", f"growing job (Gustafson) {growing[-1]:,.1f}"
    axis.legend([f"{end} with {workers[-1]:,} workers" for end in ends], loc="upper left")
    axis.set(xlabel="workers", ylabel="speed-up", ylim=(0.8, 1400))
    axis.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1,024"])
    axis.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axis.minorticks_off()
    axis.grid(alpha=0.4)
    title = f"Speed-up when {share:.0%} is serial, {whose('00.2')} amdahl"
    axis.set_title(title)
    return viz.Figure(figure, alt=f"{title}. With {workers[-1]:,} workers: {', '.join(ends)}.")


speed_up_figure(0.05)

# %% [markdown]
# Move the slider to change the serial share. Then compare with your own measurement: if ranks share out the step of
# section 2, each of them still does the whole update, so the update is its serial part.

# %% tags=["widget"]
shares = (0.01, 0.05, 0.2) if FAST else (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
frames = {f"{share:.0%}": speed_up_figure(share)._repr_html_() for share in shares}
slider = SelectionSlider(options=list(frames.items()), value=frames["5%"], description="serial")
picture = HTML(slider.value)
slider.observe(lambda change: setattr(picture, "value", change["new"]), "value")
display(VBox([slider, picture]))

update = milliseconds["update"] / sum(milliseconds.values())
print(f"The update is {update:.1%} of your step. Ranks make it at most")
print(f"{law(update, RANKS):.1f} times as fast with {RANKS}, {1 / update:.1f} times with any number.")

# %% [markdown]
# ## 6. The real thing (2 min)
#
# `comm` is a thin layer. Underneath is `torch.distributed`, which you will meet in real training programs. `launch`
# has set it up, so a rank can call it directly. Side by side:


# %%
def hello_in_torch(comm):
    rank = dist.get_rank()
    squares = torch.tensor([rank**2])
    dist.all_reduce(squares)
    return rank**2, int(squares)


print("lockstep:         ", launch(my_hello, RANKS).values)
print("torch.distributed:", launch(hello_in_torch, RANKS).values)

# %% [markdown]
# Now train for real. In *data-parallel* training every rank has the same network and its own part of each batch;
# after the backward pass an all-reduce adds up the gradients, so that all take the same step. The strategy "naive"
# does just that, one gradient after the other.
#
# Predict: with `RANKS` ranks instead of one, each on one thread, how many times as many images per second does your
# machine train on? Section 1 says how many cores they have.

# %% tags=["predict"]
predict("00.p3", None)

# %% tags=["experiment"]
CORES = os.cpu_count()
steps = 4 * (10 if FAST else len(digits) // BATCH)
print(f"{steps} steps, about {steps * sum(milliseconds.values()) / 1000:.0f} s at the pace of section 2")

plans = {
    "1 rank, 1 thread": (1, "none", 1),
    "2 ranks, 1 thread each": (2, "naive", 1),
    f"{RANKS} ranks, 1 thread each": (RANKS, "naive", 1),
    f"1 rank, {CORES} threads": (1, "none", CORES),
}
results = {}
for name, (ranks, strategy, threads) in plans.items():
    options = {"epochs": 1, "fast": FAST, "threads": threads, "seed": SEED, "timeout": 300, "verbose": False}
    results[name] = launch(train, ranks, strategy, **options).values[0]

rate = {name: result.images_per_second for name, result in results.items()}
print(f"\n{'':24}  seconds  images/s  speed-up  right")
for name, result in results.items():
    speed_up = rate[name] / rate["1 rank, 1 thread"]
    print(f"{name:24} {result.seconds:8.2f} {rate[name]:9,.0f} {speed_up:9.2f} {result.accuracy:6.1%}")

# %%
reveal("00.p3", rate[f"{RANKS} ranks, 1 thread each"] / rate["1 rank, 1 thread"])

# %% [markdown]
# Amdahl's bound of section 5 left out the price of talking: every step here makes an all-reduce for each gradient. Ranks
# beyond the number of cores take turns, and in each all-reduce all of them wait for the one whose turn comes last. The
# last line of the table is the fair opponent: one process with a thread on every core. It has no gradients to
# send. On a laptop, training with more ranks gains little over it or loses, and this course does not pretend otherwise.
# It measures what your machine can show and computes the rest in the simulated world.
#
# All ranks took the same steps. The accuracies differ a little because a sum in another order is rounded otherwise.
# The training above sees each image once at most. Fifteen times, from a terminal:
#
# ```
# python -m lockstep.train --strategy none
# ```

# %% [markdown]
# ## 7. On real hardware, and what you know now (1 min)
#
# On a machine with GPUs every rank gets a GPU of its own, and the messages travel through **NCCL**, NVIDIA's library
# for collectives between GPUs; here they travelled through **gloo**, its counterpart for processors. Your function
# stays as it is. Outside a notebook `torchrun` starts the ranks. This line trains on two of them, here or on a
# machine with two GPUs:
#
# ```
# torchrun --nproc-per-node=2 -m lockstep.train --strategy naive
# ```
#
# **Summary**
# - A step is load, forward, backward, update; its memory is parameters, gradients, optimizer state, activations.
# - A rank is a process with a number. Ranks share nothing, and every rank joins every collective.
# - Exception, deadlock, time limit: read which rank, which call, which line.
# - The serial share bounds the speed-up, whatever you buy.
#
# Three questions. Choose, say how sure you are, and read why.

# %%
ask("00.q1")

# %%
ask("00.q2")

# %%
ask("00.q3")

# %% [markdown]
# And a riddle: the run of a wrong `hello`, or now and then of a right one. Which fault is it? Run the cell again for
# another.

# %%
diagnose("00")

# %% [markdown]
# What you have done so far. If somebody asked you to hand the lab in, save the notebook and call `submit("00")`: it
# makes one file on your disk and sends nothing anywhere.

# %%
progress("00")

# %% [markdown]
# **References**
# - Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), "Gradient-based learning applied to document recognition",
#   Proceedings of the IEEE 86(11), 2278-2324: LeNet.
# - G. M. Amdahl (1967), "Validity of the single processor approach to achieving large scale computing capabilities",
#   AFIPS Spring Joint Computer Conference, 483-485.
# - J. L. Gustafson (1988), "Reevaluating Amdahl's law", Communications of the ACM 31(5), 532-533.
