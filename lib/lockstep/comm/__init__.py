"""Room `comm`: the communicator, collectives written from send and receive, traffic counters."""

from lockstep.comm.communicator import CommunicationError, Communicator, Handle, Traffic
from lockstep.comm.errors import PeerLost
from lockstep.comm.exchange import AllReduce, Bucket, Central, Exchange, RingAllReduce
from lockstep.comm.predict import Chain, bus_bandwidth, longest_chain, predict_hierarchical_seconds, predict_seconds
from lockstep.comm.torch_open import from_torch

__all__ = [
    "AllReduce",
    "Bucket",
    "Central",
    "Chain",
    "CommunicationError",
    "Communicator",
    "Exchange",
    "Handle",
    "PeerLost",
    "RingAllReduce",
    "Traffic",
    "bus_bandwidth",
    "from_torch",
    "longest_chain",
    "predict_hierarchical_seconds",
    "predict_seconds",
]
