"""What one rank sent and received, counted.

Floor 1, room `comm`; imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Traffic:
    """Messages and bytes that one rank sent and received; `sent_to[dst]` is (messages, bytes).

    One for each rank of a run: a communicator made by `split` counts in the one it was split from, and ranks are
    those of the whole run.

    `nominal` lists bytes this rank should send for each of the backend's own collectives, by name;
    those cannot be seen from outside. The simulated world leaves it empty: there every byte is counted.
    """

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    sent_to: dict[int, tuple[int, int]] = field(default_factory=dict)
    nominal: dict[str, int] = field(default_factory=dict)

    def count_sent(self, dst: int, size: int) -> None:
        """Count one message of `size` bytes to rank `dst`."""
        self.messages_sent += 1
        self.bytes_sent += size
        messages, total = self.sent_to.get(dst, (0, 0))
        self.sent_to[dst] = (messages + 1, total + size)

    def count_received(self, size: int) -> None:
        """Count one message of `size` bytes that arrived."""
        self.messages_received += 1
        self.bytes_received += size

    def count_nominal(self, name: str, size: int) -> None:
        """Count `size` bytes that the backend should send for its collective `name`."""
        self.nominal[name] = self.nominal.get(name, 0) + size
