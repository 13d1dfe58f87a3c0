"""Max pooling over windows, one thread an output element: 3-D grid (x, y, channel)."""

from __future__ import annotations

from lockstep.simt import cuda


@cuda.jit
def max_pool(image, out, size, stride):
    """image (C, H, W) to out (C, H', W'); windows of size x size that lie within the image."""
    x, y, channel = cuda.grid(3)
    if channel < out.shape[0] and y < out.shape[1] and x < out.shape[2]:
        best = image[channel, y * stride, x * stride]
        for i in range(size):
            for j in range(size):
                best = max(best, image[channel, y * stride + i, x * stride + j])
        out[channel, y, x] = best
