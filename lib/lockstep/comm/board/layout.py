"""Where things lie in a board's file.

Floor 1, room `comm`. One writer for every byte: a rank writes only its own status, its own collectives, the send
side of channels that leave it and the receive side of channels that reach it. So no lock is needed between ranks:
an entry is written before the counter that announces it, and a status has a version that is odd while it changes.

    header    magic, size, members (the rank in the whole run of each rank of this board)
    statuses  per rank: version, state, mode, number of needs, lengths; group, file, line, text; needs
    calls     per rank: counter, then a ring of the latest collectives it called
    channels  per (src, dst): for each side a counter and a ring of the latest signatures
"""

from __future__ import annotations

import struct

MAGIC = b"lockstep board 1"
HEADER = struct.Struct("<16sI")
COUNTER = struct.Struct("<Q")
ENTRY = struct.Struct("<QIH")  # index + 1, checksum of the whole text, length of the text kept
VERSION = struct.Struct("<Q")
STATE = struct.Struct("<BBHHHHI")  # state, mode, needs, bytes of group, of file, of text, line
NEED = struct.Struct("<HBxIQ")  # rank, kind, checksum, index

CALL_TEXT, CALL_RING = 240, 32
SIDE_TEXT, SIDE_RING = 48, 16
WORDS = 600  # bytes of a status for group, file and text together


class Layout:
    """Offsets in the file of a board of `size` ranks, worked out once because every call needs them."""

    def __init__(self, size: int) -> None:
        ranks = range(size)
        self.members = HEADER.size
        self.status_bytes = _round_up(VERSION.size + STATE.size + WORDS + NEED.size * 2 * size)
        call_bytes = COUNTER.size + CALL_RING * (ENTRY.size + CALL_TEXT)
        side_bytes = COUNTER.size + SIDE_RING * (ENTRY.size + SIDE_TEXT)

        statuses = _round_up(HEADER.size + 2 * size)
        self.status = [statuses + rank * self.status_bytes for rank in ranks]
        calls = statuses + size * self.status_bytes
        self.call = [calls + rank * call_bytes for rank in ranks]
        channels = _round_up(calls + size * call_bytes)
        # [src][dst]: first the side of the sender, then that of the receiver
        self.sent = [[channels + 2 * (src * size + dst) * side_bytes for dst in ranks] for src in ranks]
        self.received = [[at + side_bytes for at in row] for row in self.sent]
        self.file_bytes = channels + 2 * size * size * side_bytes


def _round_up(n: int) -> int:
    return (n + 63) // 64 * 64
