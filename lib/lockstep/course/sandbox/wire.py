"""Plain data over a socket: the only thing that the grader takes from a student's process.

Floor 4, room `course`; used on both sides, and imports nothing that the box does not have. A message is a JSON
header and raw buffers. Nothing in it is run, looked up or unpickled: numbers, strings, containers, tensors and arrays
come out with exact types, everything else as a `Strange`. What is too long, too deep or not well formed is a
`Garbled`, and costs the exercise that sent it.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from typing import Any

import numpy as np
import torch

from lockstep.exercises.plain import Strange

LENGTHS = struct.Struct("!IIQ")  # header, number of buffers, all buffers together
HEADER, BUFFERS, BODY = 4 << 20, 20_000, 64 << 20  # the most of each in a message
ALTOGETHER = 1 << 30  # bytes that one connection takes
DEEPEST = 12
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
        torch.float32, torch.float64, torch.complex64, torch.complex128,
    )
}  # fmt: skip


class Garbled(ValueError):
    """A message that is none."""


class Late(TimeoutError):
    """Nothing came in time."""


class Gone(ConnectionError):
    """The other side has closed the connection, or ended."""


def pack(value: Any, buffers: list[bytes]) -> Any:
    """Plain `value` as JSON can hold it; numbers of tensors and arrays go into `buffers`."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is torch.Tensor and str(value.dtype).removeprefix("torch.") in DTYPES:
        flat = value.detach().contiguous().resolve_conj().resolve_neg().reshape(-1)
        data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return {"T": [str(value.dtype).removeprefix("torch."), list(value.shape), _put(data, buffers)]}
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return {"A": [value.dtype.str, list(value.shape), _put(value.tobytes(), buffers)]}
    if kind in (list, tuple):
        return {"l" if kind is list else "t": [pack(one, buffers) for one in value]}
    if kind is dict:
        return {"d": [[pack(key, buffers), pack(one, buffers)] for key, one in value.items()]}
    if kind is complex:
        return {"c": [value.real, value.imag]}
    if kind is bytes:
        return {"y": _put(value, buffers)}
    if kind is Strange:
        return {"?": [value.type[:200], value.text[:200]]}
    return {"?": [kind.__name__[:200], ""]}


def _put(data: bytes, buffers: list[bytes]) -> int:
    buffers.append(data)
    return len(buffers) - 1


def unpack(value: Any, buffers: list[bytearray], depth: int = 0) -> Any:
    """What `pack` was given; `Garbled` for anything that it would not have written."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is not dict or len(value) != 1 or depth > DEEPEST:
        raise Garbled("a value is none of those that may be sent, or lies too deep")
    ((tag, inner),) = value.items()
    try:
        return _tagged(tag, inner, buffers, depth)
    except Garbled:
        raise
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, RuntimeError, OverflowError) as error:
        raise Garbled(f"a value is not what it says: {type(error).__name__}") from None


def _tagged(tag: str, inner: Any, buffers: list[bytearray], depth: int) -> Any:
    if tag in ("l", "t") and type(inner) is list:
        return (list if tag == "l" else tuple)([unpack(one, buffers, depth + 1) for one in inner])
    if tag == "d" and type(inner) is list:
        pairs = [(unpack(key, buffers, DEEPEST), unpack(one, buffers, depth + 1)) for key, one in inner]
        return dict(pairs)
    if tag == "T":
        name, shape, at = inner
        dtype, shape = DTYPES[name], _shape(shape)
        data = _sized(buffers, at, math.prod(shape) * dtype.itemsize)
        made = torch.frombuffer(data, dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
        return made.view(torch.uint8) != 0 if dtype is torch.bool else made  # a byte of 2 would be true and no True
    if tag == "A":
        name, shape, at = inner
        dtype, shape = np.dtype(str(name)), _shape(shape)
        if dtype.kind not in "biufc" or dtype.names or dtype.subdtype:
            raise Garbled("an array holds no numbers")
        made = np.frombuffer(_sized(buffers, at, math.prod(shape) * dtype.itemsize), dtype).reshape(shape)
        return made.view(np.uint8) != 0 if dtype.kind == "b" else made
    if tag == "c":
        return complex(float(inner[0]), float(inner[1]))
    if tag == "y":
        return bytes(buffers[inner])
    if tag == "?":
        return Strange(str(inner[0])[:200], str(inner[1])[:200])
    raise Garbled("a value has no kind that may be sent")


def _shape(shape: Any) -> tuple[int, ...]:
    if type(shape) is not list or len(shape) > 32 or not all(type(n) is int and 0 <= n < 2**40 for n in shape):
        raise Garbled("a shape is none")
    return tuple(shape)


def _sized(buffers: list[bytearray], at: Any, size: int) -> bytearray:
    if type(at) is not int or at < 0 or len(buffers[at]) != size:
        raise Garbled("a tensor does not have as many bytes as its shape says")
    return buffers[at]


class Line:
    """One end of a connection. `send` and `receive` move one message: a dictionary whose values are plain data."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._left = ALTOGETHER

    def send(self, message: dict[str, Any], deadline: float | None = None) -> None:
        """Send all of it; `Late` when the other side does not take it in time, `Gone` when it has ended."""
        buffers: list[bytes] = []
        header = json.dumps({name: pack(value, buffers) for name, value in message.items()}).encode()
        sizes = struct.pack(f"!{len(buffers)}Q", *map(len, buffers))
        data = b"".join([LENGTHS.pack(len(header), len(buffers), sum(map(len, buffers))), header, sizes, *buffers])
        try:
            self._wait(deadline)
            self.socket.sendall(data)
        except TimeoutError:
            raise Late from None
        except OSError as error:
            raise Gone(str(error)) from None

    def receive(self, deadline: float | None = None) -> dict[str, Any]:
        """The next message; `Late` at `time.monotonic()` = `deadline`, `Gone`, or `Garbled`."""
        header, count, body = LENGTHS.unpack(self._read(LENGTHS.size, deadline))
        self._left -= header + body
        if header > HEADER or count > BUFFERS or body > BODY or self._left < 0:
            raise Garbled("it sends more than an answer can be")
        text = bytes(self._read(header, deadline))
        sizes = struct.unpack(f"!{count}Q", self._read(8 * count, deadline))
        if sum(sizes) != body:
            raise Garbled("the parts of a message are not as long as it says")
        buffers = [self._read(size, deadline) for size in sizes]
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            raise Garbled("a header is no JSON") from None
        if type(message) is not dict:
            raise Garbled("a header is no message")
        return {name: unpack(value, buffers) for name, value in message.items()}

    def _read(self, size: int, deadline: float | None) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                self._wait(deadline)
                got = self.socket.recv_into(view)
            except TimeoutError:
                raise Late from None
            except OSError as error:
                raise Gone(str(error)) from None
            if got == 0:
                raise Gone("the connection is closed")
            view = view[got:]
        return data

    def _wait(self, deadline: float | None) -> None:
        """Let the next operation of the socket last no longer than to `deadline`."""
        if deadline is None:
            self.socket.settimeout(None)
            return
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)
