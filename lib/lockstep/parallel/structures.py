"""Structures of tensors as messages: what they look like goes ahead, then one message for each tensor.

Floor 2, room `parallel`. Used by `layers` and by the pipeline's `mailbox`, which decide when.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import cloudpickle
import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.comm.communicator import Handle
from lockstep.nn.outputs import map_tensors, tensors_in


@dataclass(frozen=True)
class Layout:
    """A structure without its values: `skeleton` has tensors of one element, expanded, in their places."""

    skeleton: Any

    @classmethod
    def of(cls, structure: Any) -> Layout:
        """The layout of `structure`."""
        return cls(map_tensors(lambda t: torch.zeros((), dtype=t.dtype).expand(t.shape), structure))

    def empty(self, device: torch.device) -> Any:
        """A structure to receive into."""
        return map_tensors(lambda t: torch.empty(t.shape, dtype=t.dtype, device=device), self.skeleton)

    def gradients(self) -> Layout:
        """The layout of the gradient: a list of its floating-point tensors."""
        return Layout([t for t in tensors_in(self.skeleton) if t.is_floating_point()])


def start_layout(comm: Communicator, layout: Any, dst: int) -> list[Handle]:
    """Start to send a layout, or a structure with one."""
    content = torch.frombuffer(bytearray(cloudpickle.dumps(layout)), dtype=torch.uint8).to(comm.device)
    size = torch.tensor([content.numel()], device=comm.device)
    return [comm.isend(each, dst) for each in (size, content)]


def receive_layout(comm: Communicator, src: int) -> Any:
    """Wait for what `start_layout` sends."""
    size = torch.zeros(1, dtype=torch.int64, device=comm.device)
    comm.irecv(size, src).wait()
    content = torch.empty(int(size), dtype=torch.uint8, device=comm.device)
    comm.irecv(content, src).wait()
    return pickle.loads(content.cpu().numpy().tobytes())


def start_send(comm: Communicator, structure: Any, dst: int) -> list[Handle]:
    """Start to send the tensors of a structure."""
    return [comm.isend(_plain(tensor.detach()), dst) for tensor in tensors_in(structure)]


def start_receive(comm: Communicator, structure: Any, src: int) -> list[Handle]:
    """Start to receive into the tensors of a structure."""
    return [comm.irecv(_plain(tensor), src) for tensor in tensors_in(structure)]


def _plain(tensor: Tensor) -> Tensor:
    """The same memory as numbers that every backend sends: truth values as bytes."""
    return tensor.view(torch.uint8) if tensor.dtype is torch.bool else tensor
