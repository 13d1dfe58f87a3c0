"""The layers of a CNN forward and backward, as pure functions on plain tensors: no autograd, no state.

Floor 0, room `nn`. `conv2d` belongs to `conv2d_backward` and so on: a backward takes the gradient of the output first
and returns the gradients of the inputs. Read `windows.py`, then `convolution.py`; `layers.py` above makes modules of
them. Nothing here uses `torch.nn.functional`.
"""

from lockstep.nn.functional.activation import dropout, dropout_backward, relu, relu_backward
from lockstep.nn.functional.batch_norm import (
    batch_norm,
    batch_norm_backward,
    normalize,
    normalize_backward,
    running_statistics,
)
from lockstep.nn.functional.convolution import conv2d, conv2d_backward
from lockstep.nn.functional.convolution_loops import conv2d_loops, conv2d_loops_backward
from lockstep.nn.functional.linear import linear, linear_backward
from lockstep.nn.functional.loss import softmax_cross_entropy
from lockstep.nn.functional.pooling import (
    adaptive_avg_pool2d,
    adaptive_avg_pool2d_backward,
    avg_pool2d,
    avg_pool2d_backward,
    max_pool2d,
    max_pool2d_backward,
)
from lockstep.nn.functional.windows import Windows, output_size

__all__ = [
    "Windows",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
    "batch_norm",
    "batch_norm_backward",
    "conv2d",
    "conv2d_backward",
    "conv2d_loops",
    "conv2d_loops_backward",
    "dropout",
    "dropout_backward",
    "linear",
    "linear_backward",
    "max_pool2d",
    "max_pool2d_backward",
    "normalize",
    "normalize_backward",
    "output_size",
    "relu",
    "relu_backward",
    "running_statistics",
    "softmax_cross_entropy",
]
