"""Where the windows of a kernel lie on an image: sizes, im2col and its transpose, col2im.

Floor 0, room `nn`. Convolution and pooling both start here. Legend of the suffixes: N images, C channels, H x W pixels
of the input, R x S of the kernel, P x Q of the output; x_NCHW is a tensor with these axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

Pair = int | tuple[int, int]


def output_size(size: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> int:
    """How many windows fit along one side of `size` pixels: floor((size + 2 padding - span) / stride) + 1.

    span = dilation (kernel - 1) + 1 is what a window covers. Raises ValueError when none fits. Source: Dumoulin and
    Visin 2016, "A guide to convolution arithmetic for deep learning", relationship 15.
    """
    span = dilation * (kernel - 1) + 1
    if size + 2 * padding < span:
        spread = f" spread over {span} by dilation {dilation}" if dilation > 1 else ""
        raise ValueError(
            f"the output would be empty: a kernel of {kernel}{spread} does not fit into {size} pixels with padding "
            f"{padding}; use a smaller kernel, more padding or a larger image"
        )
    return (size + 2 * padding - span) // stride + 1


def pair(name: str, value: Pair, at_least: int) -> tuple[int, int]:
    """(3, 3) for 3. Raises ValueError, with `name`, unless it is one or two whole numbers of at least `at_least`."""
    both = (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, (tuple, list)) else ()
    if len(both) != 2 or not all(type(one) is int and one >= at_least for one in both):
        raise ValueError(
            f"{name} must be a whole number of at least {at_least}, or two for rows and columns; it is {value!r}"
        )
    return both


@dataclass(frozen=True)
class Windows:
    """A kernel's shape and how it moves, each as (rows, columns); make one with `Windows.of`."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @classmethod
    def of(cls, kernel: Pair, stride: Pair = 1, padding: Pair = 0, dilation: Pair = 1) -> Windows:
        """Raises ValueError for numbers that make no sense."""
        return cls(
            pair("kernel_size", kernel, 1),
            pair("stride", stride, 1),
            pair("padding", padding, 0),
            pair("dilation", dilation, 1),
        )

    def output(self, x_NCHW: Tensor) -> tuple[int, int]:
        """P and Q. Raises ValueError for an input without four axes, and when no window fits."""
        if x_NCHW.dim() != 4:
            raise ValueError(f"images come as (N, C, H, W), four axes; this input has the shape {list(x_NCHW.shape)}")
        p, q = map(output_size, x_NCHW.shape[2:], self.kernel, self.stride, self.padding, self.dilation)
        return p, q

    def im2col(self, x_NCHW: Tensor, fill: float = 0.0) -> Tensor:
        """Every window of every image as a view of shape (N, C, R, S, P, Q); `fill` is what the padding holds."""
        x = self.padded(x_NCHW, fill)
        for axis, (k, step, d) in enumerate(zip(self.kernel, self.stride, self.dilation, strict=True), 2):
            x = x.unfold(axis, d * (k - 1) + 1, step)  # the window becomes a new last axis
        dh, dw = self.dilation
        return x[..., ::dh, ::dw].permute(0, 1, 4, 5, 2, 3)

    def col2im(self, columns_NCRSPQ: Tensor, height: int, width: int) -> Tensor:
        """The transpose of `im2col`: adds every window's numbers where they were read, into (N, C, H, W)."""
        n, c = columns_NCRSPQ.shape[:2]
        ph, pw = self.padding
        padded = columns_NCRSPQ.new_zeros(n, c, height + 2 * ph, width + 2 * pw)
        for place, (rows, columns) in enumerate(self.places(*columns_NCRSPQ.shape[4:])):
            padded[:, :, rows, columns] += columns_NCRSPQ[:, :, place // self.kernel[1], place % self.kernel[1]]
        return padded[:, :, ph : ph + height, pw : pw + width]

    def padded(self, x_NCHW: Tensor, fill: float = 0.0) -> Tensor:
        """The images with a frame of `fill`; the images themselves where there is no padding."""
        (ph, pw), (n, c, h, w) = self.padding, x_NCHW.shape
        if ph == pw == 0:
            return x_NCHW
        padded = x_NCHW.new_full((n, c, h + 2 * ph, w + 2 * pw), fill)
        padded[:, :, ph : ph + h, pw : pw + w] = x_NCHW
        return padded

    def places(self, p: int, q: int) -> Iterator[tuple[slice, slice]]:
        """For each place of the kernel, row by row, the P rows and Q columns of the padded image that it meets."""
        (sh, sw), (dh, dw) = self.stride, self.dilation
        for r in range(self.kernel[0]):
            for s in range(self.kernel[1]):
                yield slice(r * dh, r * dh + sh * (p - 1) + 1, sh), slice(s * dw, s * dw + sw * (q - 1) + 1, sw)
