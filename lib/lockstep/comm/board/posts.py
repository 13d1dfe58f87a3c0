"""One rank's latest posts of one kind: a counter, and a ring of texts.

Floor 1, room `comm`. One writer, any readers, no lock.
"""

from __future__ import annotations

import mmap
import zlib
from functools import lru_cache

from lockstep.comm.board.layout import COUNTER, ENTRY


@lru_cache(maxsize=1024)
def checksum(text: str) -> int:
    """What stands for a signature when two are compared."""
    return zlib.crc32(text.encode())


@lru_cache(maxsize=1024)
def encode(text: str, limit: int) -> bytes:
    """The first `limit` bytes of `text`."""
    return text.encode()[:limit]


@lru_cache(maxsize=1024)
def _entry(text: str, limit: int) -> bytes:
    kept = encode(text, limit)
    return ENTRY.pack(checksum(text), len(kept)) + kept


class Posts:
    """Posts number 0, 1, ... at `at` of a board's memory, of which the last `ring` can be read."""

    __slots__ = ("_at", "_limit", "_memory", "_ring", "_stride")

    def __init__(self, memory: mmap.mmap, at: int, ring: int, stride: int) -> None:
        self._memory, self._at, self._ring, self._stride = memory, at, ring, stride
        self._limit = stride - COUNTER.size - ENTRY.size

    @property
    def count(self) -> int:
        """How many were posted so far."""
        return COUNTER.unpack_from(self._memory, self._at)[0]

    def append(self, text: str) -> int:
        """Post `text`; gives its number."""
        memory = self._memory
        (index,) = COUNTER.unpack_from(memory, self._at)
        slot, entry = self._slot(index), _entry(text, self._limit)
        # Void first, number last: whoever reads the number finds its own text.
        COUNTER.pack_into(memory, slot, 0)
        memory[slot + COUNTER.size : slot + COUNTER.size + len(entry)] = entry
        COUNTER.pack_into(memory, slot, index + 1)
        COUNTER.pack_into(memory, self._at, index + 1)
        return index

    def differs(self, index: int, mark: int) -> bool:
        """Whether post `index` can be read, and its checksum is not `mark`."""
        slot = self._slot(index)
        if COUNTER.unpack_from(self._memory, slot)[0] != index + 1:
            return False
        if ENTRY.unpack_from(self._memory, slot + COUNTER.size)[0] == mark:
            return False
        # Still the same number: what was read is no later post, written while we looked.
        return COUNTER.unpack_from(self._memory, slot)[0] == index + 1

    def has(self, index: int, mark: int) -> bool:
        """Whether post `index` was made, with this checksum as far as can still be read."""
        return self.count > index and not self.differs(index, mark)

    def text(self, index: int) -> str:
        """The words of post `index`, which can be read."""
        at = self._slot(index) + COUNTER.size
        _, length = ENTRY.unpack_from(self._memory, at)
        return self._memory[at + ENTRY.size : at + ENTRY.size + length].decode(errors="replace")

    def _slot(self, index: int) -> int:
        return self._at + COUNTER.size + index % self._ring * self._stride
