"""Room `comm`: the communicator, collectives written from send and receive, traffic counters."""

from lockstep.comm.communicator import CommunicationError, Communicator, Handle, Traffic

__all__ = ["CommunicationError", "Communicator", "Handle", "Traffic"]
