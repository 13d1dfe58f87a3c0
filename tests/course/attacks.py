"""Programs of `test_third_attack.py`: what a student tried who reads the grader's code."""

from __future__ import annotations

# 01.5: every thread reads its 25 pixels from global memory.
NAIVE_CONVOLUTION = """
from lockstep.simt import cuda
import numpy as np
@cuda.jit
def conv2d_tiled(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(5):
            for j in range(5):
                row = y + i - 2
                column = x + j - 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    total += weights[i, j] * image[row, column]
        out[y, x] = total
"""
_FORGE = """
import lockstep.simt.report as report
def forge():
    for name, number in (("worst_sectors", 4), ("reads_per_thread", 10.0), ("idle_share", 0.1), ("bytes_moved", 1e4)):
        setattr(report.Report, name, number)
"""
THREAD = (
    _FORGE
    + """
import threading
def go_on():
    while True: forge()
threading.Thread(target=go_on, daemon=True).start()
"""
)
CONSTANT_THAT_ACTS = (
    _FORGE
    + """
class Acts(int):
    def __mul__(self, other): forge(); return other
    def __hash__(self): forge(); return 1
    def __eq__(self, other): forge(); return True
    __index__ = __int__ = __bool__ = __hash__
ONE = Acts(1)
"""
)
PROPERTY = (
    _FORGE
    + """
class Instead:
    is_device = False
    def __init__(self, kernel): self.kernel = kernel
    @property
    def py_func(self):
        forge()
        return self.kernel.py_func
"""
)

# 09.4: backward first, and then one bucket after the other; all gradients are whole until it has ended.
ZERO2_AT_THE_END = """
import torch
def zero2(comm, loss, buckets, shards):
    loss.backward()
    for bucket, shard in zip(buckets, shards):
        flat = torch.cat([p.grad.flatten() for p in bucket])
        for p in bucket:
            p.grad = None
        flat = torch.nn.functional.pad(flat, (0, shard.numel() * comm.size - len(flat)))
        own = comm.reduce_scatter(flat, op="mean")
        shard.grad = own if shard.grad is None else shard.grad + own
"""
PATCHED = "import torch\ntorch.Tensor.untyped_storage = lambda self: torch.UntypedStorage(0)\n"
MODE = """
import torch
class Empty(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, f, types, args=(), kwargs=None):
        return torch.UntypedStorage(0) if "storage" in getattr(f, "__name__", "") else f(*args, **(kwargs or {}))
MODE = Empty()
MODE.__enter__()
class Fake:
    def nbytes(self): return 0
torch.UntypedStorage.__bases__ = (Fake, *torch.UntypedStorage.__bases__)
"""
RESTORER = """
import builtins
import lockstep.course.sandbox.inside.unchanged as u
builtins.vars = lambda *_: {}
u.Unchanged.restore.__code__ = (lambda self: None).__code__
u.Unchanged.restore = lambda self: None
"""
FRAME = """
import sys
def zero2(comm, loss, buckets, shards):
    sys._getframe(1).f_locals["held"].peak = 0
"""

# 05.4: a model without the hooks that charge, and the layers' time spent by the class.
CHARGES_ITSELF = """
import torch
def make_buckets(parameters, bucket_bytes):
    buckets, sizes = [[]], [0]
    for i in reversed([i for i, p in enumerate(parameters) if p.requires_grad]):
        if buckets[-1] and sizes[-1] + parameters[i].nbytes > bucket_bytes:
            buckets.append([])
            sizes.append(0)
        buckets[-1].append(i)
        sizes[-1] += parameters[i].nbytes
    return buckets

class OverlappedDDP:
    def __init__(self, model, comm, bucket_bytes):
        self.model, self.comm, self.sync, self.count, self.flying = model, comm, True, 0, []
        for tensor in [*model.parameters(), *model.buffers()]:
            comm.broadcast(tensor)
        for module in model.modules():
            module._forward_hooks.clear()
        parameters = list(model.parameters())
        self.buckets = [[parameters[i] for i in bucket] for bucket in make_buckets(parameters, bucket_bytes)]
        self.layers = [(n, [id(p) for p in m.parameters(recurse=False)]) for n, m in model.named_modules()][::-1]
        trained = [p for p in parameters if p.requires_grad]
        self.total = len(trained)
        for p in trained:
            p.register_post_accumulate_grad_hook(self.hook)

    def hook(self, p):
        self.count = (self.count + 1) % self.total
        if self.count:
            return
        done, waiting = set(), list(self.buckets)
        for name, own in self.layers:
            if own:
                with self.comm.span("backward " + (name or type(self.model).__name__), cost=1e-3):
                    done |= set(own)
            while self.sync and waiting and all(id(q) in done for q in waiting[0]):
                bucket = waiting.pop(0)
                flat = torch.cat([q.grad.flatten() for q in bucket])
                self.flying.append((bucket, self.comm.all_reduce(flat, op="mean", async_op=True)))

    def finish(self):
        while self.flying:
            bucket, handle = self.flying.pop(0)
            for q, part in zip(bucket, handle.wait().split([q.numel() for q in bucket])):
                q.grad.copy_(part.view_as(q))
"""
