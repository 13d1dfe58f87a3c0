"""Where things lie in a board's file.

Floor 1, room `comm`. One writer for every byte: a rank writes only its own status, its own collectives, the send
side of channels that leave it and the receive side of channels that reach it. So no lock is needed between ranks:
an entry is written before the counter that announces it. A status has a version: odd while its rank runs, or
changes the words; even while it waits or has finished and the words stand. So to run again costs one write.

    header    magic, size, members (the rank in the whole run of each rank of this board)
    statuses  per rank: version, state, mode, number of needs, lengths, line; needs; group, file, text
    calls     per rank: counter, then a ring of the latest collectives it called
    channels  per (src, dst): for each side a counter and a ring of the latest signatures
"""

from __future__ import annotations

import struct

MAGIC = b"lockstep board 1"
HEADER = struct.Struct("<16sI")
# Native and at multiples of 8: such a number is written and read in one piece.
COUNTER = VERSION = struct.Struct("@Q")
ENTRY = struct.Struct("<IHxx")  # after its number + 1: checksum of the whole text, length of the text kept
STATE = struct.Struct("<BBHHHHI")  # state, mode, needs, bytes of group, of file, of text, line
NEED = struct.Struct("<HBxIQ")  # rank, kind, checksum, index

# A ring holds what a rank may post before another's first: one all-reduce for each parameter of a deep network,
# every micro-batch of a pipeline. Pages of the file that nobody touches cost nothing.
CALL_TEXT, CALL_RING = 240, 256
SIDE_TEXT, SIDE_RING = 48, 64
CALL_STRIDE, SIDE_STRIDE = (COUNTER.size + ENTRY.size + text for text in (CALL_TEXT, SIDE_TEXT))
GROUP_TEXT, FILE_TEXT, STATUS_TEXT = 60, 300, 240


class Layout:
    """Offsets in the file of a board of `size` ranks, worked out once because every call needs them."""

    def __init__(self, size: int) -> None:
        ranks = range(size)
        self.members = HEADER.size
        self.status_bytes = _round_up(
            VERSION.size + STATE.size + GROUP_TEXT + FILE_TEXT + STATUS_TEXT + NEED.size * 2 * size
        )
        call_bytes = COUNTER.size + CALL_RING * CALL_STRIDE
        side_bytes = COUNTER.size + SIDE_RING * SIDE_STRIDE

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
