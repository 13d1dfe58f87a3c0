"""Room `comm`: the communicator, collectives written from send and receive, traffic counters."""

from lockstep.comm.communicator import CommunicationError, Communicator, Handle, Traffic
from lockstep.comm.errors import PeerLost
from lockstep.comm.exchange import AllReduce, Bucket, Central, Exchange, RingAllReduce
from lockstep.comm.mesh import Mesh, MeshShape, bytes_by_axis, bytes_by_link
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
    "Mesh",
    "MeshShape",
    "PeerLost",
    "RingAllReduce",
    "Traffic",
    "bus_bandwidth",
    "bytes_by_axis",
    "bytes_by_link",
    "from_torch",
    "longest_chain",
    "predict_hierarchical_seconds",
    "predict_seconds",
]
