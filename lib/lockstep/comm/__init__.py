"""Room `comm`: the communicator, collectives written from send and receive, traffic counters."""

from lockstep.comm.communicator import CommunicationError, Communicator, Handle, Traffic
from lockstep.comm.errors import PeerLost
from lockstep.comm.predict import Chain, bus_bandwidth, longest_chain, predict_hierarchical_seconds, predict_seconds
from lockstep.comm.torch_open import from_torch

__all__ = [
    "Chain",
    "CommunicationError",
    "Communicator",
    "Handle",
    "PeerLost",
    "Traffic",
    "bus_bandwidth",
    "from_torch",
    "longest_chain",
    "predict_hierarchical_seconds",
    "predict_seconds",
]
