"""Room `comm`: the communicator, collectives written from send and receive, traffic counters."""

from lockstep.comm.communicator import CommunicationError, Communicator, Handle, Traffic
from lockstep.comm.errors import PeerLost
from lockstep.comm.torch_open import from_torch

__all__ = ["CommunicationError", "Communicator", "Handle", "PeerLost", "Traffic", "from_torch"]
