"""The board itself: post a call, say what this rank waits for, read what the others posted.

Floor 1, room `comm`. A memory-mapped file, one for each communicator; posting costs microseconds and no message.
A communicator made by `split` has its own board beside the first one's file, but every status goes to the first
board (the *root*), so that one reader sees all ranks of a run.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from lockstep.comm.board.layout import (
    CALL_RING,
    CALL_TEXT,
    COUNTER,
    ENTRY,
    HEADER,
    MAGIC,
    NEED,
    SIDE_RING,
    SIDE_TEXT,
    STATE,
    VERSION,
    WORDS,
    Layout,
)
from lockstep.comm.errors import CommunicationError

RUNNING, WAITING, FINISHED = "running", "waiting", "finished"
_STATES = (RUNNING, WAITING, FINISHED)
_MODES = ("all", "any")
_MODE_CODE = {mode: code for code, mode in enumerate(_MODES)}

# What a need waits for, seen from the rank that has it.
COLLECTIVE, THEIR_RECV, THEIR_SEND, ANY_SEND = range(4)
EVERYONE = 0xFFFF  # as `Need.rank`: one need of each other rank of the communicator


class Need(NamedTuple):
    """What a waiting rank needs of `rank`: that it posts the counterpart number `index` with the same signature.

    kind: COLLECTIVE (its collective `index`), THEIR_RECV (its receive of message `index` from the waiting rank),
    THEIR_SEND (its send of message `index` to it), ANY_SEND (any send to it that is not received yet).
    """

    rank: int
    kind: int
    checksum: int
    index: int


@dataclass(frozen=True, slots=True)
class Status:
    """What a rank does now: `state` is "running", "waiting" or "finished".

    A waiting rank is in the call `text` at line `line` of `file` (the user's), and goes on when all ("all") or one
    ("any") of its `needs` are met; `waits_for` are their ranks, and `group` the split they belong to ("": the whole
    run). `version` changes whenever the status does.
    """

    rank: int
    state: str
    version: int
    text: str = ""
    file: str = ""
    line: int = 0
    waits_for: tuple[int, ...] = ()
    mode: str = "all"
    group: str = ""
    needs: tuple[Need, ...] = ()

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""


@lru_cache(maxsize=1024)
def checksum(text: str) -> int:
    """What stands for a signature when two are compared."""
    return zlib.crc32(text.encode())


@lru_cache(maxsize=1024)
def _encode(text: str, limit: int) -> bytes:
    return text.encode()[:limit]


@lru_cache(maxsize=1024)
def _status_body(state: int, mode: int, needs: int, group: str, file: str, line: int, text: str) -> bytes:
    words = _encode(group, 60), _encode(file, 300), _encode(text, 240)
    return STATE.pack(state, mode, needs, *map(len, words), line) + b"".join(words)


def ordinal(n: int) -> str:
    """1 as "1st", 2 as "2nd", 11 as "11th"."""
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


class Board:
    """Posts and statuses of the ranks of one communicator. Make it with `create` or `open`.

    With `rank` it can post for that rank; without, it only reads. `path` may be removed once all have opened it.
    """

    def __init__(self, path: Path, size: int, rank: int | None, root: Board | None = None, group: str = "") -> None:
        self.path, self.size, self.rank, self.group = path, size, rank, group
        self.root = root or self
        self._layout = Layout(size)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self._layout.file_bytes)
        magic, written_size = HEADER.unpack_from(self._map)
        if magic != MAGIC or written_size != size:
            raise CommunicationError(f"{path} is not the board of {size} ranks that this rank was told it is.")
        self._children: dict[str, Board] = {}

    @classmethod
    def create(
        cls, path: str | Path, size: int, rank: int | None = None, members: Sequence[int] | None = None
    ) -> Board:
        """Make the file, everyone "running", and open it. `members`: the ranks in the whole run, by default 0 .. size-1."""
        layout = Layout(size)
        with Path(path).open("wb") as file:
            file.write(HEADER.pack(MAGIC, size))
            file.writelines(member.to_bytes(2, "little") for member in members or range(size))
            file.truncate(layout.file_bytes)
        return cls(Path(path), size, rank)

    @classmethod
    def open(cls, path: str | Path, size: int, rank: int | None = None) -> Board:
        """Open a board that someone created."""
        return cls(Path(path), size, rank)

    def close(self) -> None:
        """Let go of the file (Windows removes no file that is still mapped)."""
        for child in self._children.values():
            child.close()
        self._map.close()

    # ------------------------------------------------------------------------------------------------ split

    def child_path(self, group: str) -> Path:
        """The file of the board of `group`, beside the root's."""
        return self.root.path.with_name(f"{self.root.path.name}.{group}")

    def child(self, group: str, size: int, rank: int | None) -> Board:
        """Open the board of `group`, whose statuses go to this board's root."""
        return Board(self.child_path(group), size, rank, self.root, group)

    def of_group(self, group: str) -> Board:
        """The board of `group` for reading; this one for ""."""
        if not group:
            return self
        if group not in self._children:
            path = self.child_path(group)
            with path.open("rb") as file:
                _, size = HEADER.unpack(file.read(HEADER.size))
            self._children[group] = self.child(group, size, None)
        return self._children[group]

    @cached_property
    def members(self) -> tuple[int, ...]:
        """The rank in the whole run of each rank of this board."""
        at = self._layout.members
        return tuple(int.from_bytes(self._map[at + 2 * i : at + 2 * i + 2], "little") for i in range(self.size))

    # ------------------------------------------------------------------------------------------------ posts

    def post_collective(self, signature: str) -> int:
        """Say that this rank calls its next collective; gives its number, from 0.

        Raises CommunicationError, naming both calls, when another rank's collective of that number differs.
        """
        mine = self._layout.call[self.rank]
        index = self._append(mine, signature, CALL_RING, CALL_TEXT)
        for rank in range(self.size):
            theirs = self._layout.call[rank]
            if rank != self.rank and self._differs(theirs, index, signature, CALL_RING, CALL_TEXT):
                raise CommunicationError(self._collective_mismatch(index, signature, rank))
        return index

    def collective_mismatch(self, index: int, signature: str) -> str | None:
        """The sentence about another rank whose collective `index` differs from `signature`; None if none does."""
        for rank in range(self.size):
            if self._differs(self._layout.call[rank], index, signature, CALL_RING, CALL_TEXT):
                return self._collective_mismatch(index, signature, rank)
        return None

    def _collective_mismatch(self, index: int, signature: str, rank: int) -> str:
        theirs = self._text(self._layout.call[rank], index, CALL_RING, CALL_TEXT)
        return (
            f"Rank {self.rank} calls {signature} as its {ordinal(index + 1)} collective, rank {rank} calls {theirs}: "
            f"all ranks must call the same collectives in the same order."
        )

    def post_send(self, dst: int, signature: str) -> int:
        """Say that this rank sends its next message to `dst`; gives its number on that channel, from 0.

        Raises CommunicationError when `dst` receives that message into another shape or dtype.
        """
        index = self._append(self._layout.sent[self.rank][dst], signature, SIDE_RING, SIDE_TEXT)
        other = self._layout.received[self.rank][dst]
        if self._differs(other, index, signature, SIDE_RING, SIDE_TEXT):
            theirs = self._text(other, index, SIDE_RING, SIDE_TEXT)
            raise CommunicationError(_message_mismatch(self.rank, signature, dst, theirs, index))
        return index

    def post_recv(self, src: int, signature: str) -> int:
        """Say that this rank receives its next message from `src`; gives its number on that channel, from 0.

        Raises CommunicationError when `src` sends that message with another shape or dtype.
        """
        index = self._append(self._layout.received[src][self.rank], signature, SIDE_RING, SIDE_TEXT)
        other = self._layout.sent[src][self.rank]
        if self._differs(other, index, signature, SIDE_RING, SIDE_TEXT):
            theirs = self._text(other, index, SIDE_RING, SIDE_TEXT)
            raise CommunicationError(_message_mismatch(src, theirs, self.rank, signature, index))
        return index

    def _append(self, at: int, signature: str, ring: int, limit: int) -> int:
        (index,) = COUNTER.unpack_from(self._map, at)
        entry = at + COUNTER.size + index % ring * (ENTRY.size + limit)
        text = _encode(signature, limit)
        # The old entry is made void first: a reader never sees its index with the new text.
        COUNTER.pack_into(self._map, entry, 0)
        self._map[entry + ENTRY.size : entry + ENTRY.size + len(text)] = text
        ENTRY.pack_into(self._map, entry, index + 1, checksum(signature), len(text))
        COUNTER.pack_into(self._map, at, index + 1)
        return index

    def _differs(self, at: int, index: int, signature: str, ring: int, limit: int) -> bool:
        """Whether entry `index` is there, and is not `signature`."""
        entry = at + COUNTER.size + index % ring * (ENTRY.size + limit)
        written, their_checksum, _ = ENTRY.unpack_from(self._map, entry)
        return written == index + 1 and their_checksum != checksum(signature)

    def _text(self, at: int, index: int, ring: int, limit: int) -> str:
        entry = at + COUNTER.size + index % ring * (ENTRY.size + limit)
        _, _, length = ENTRY.unpack_from(self._map, entry)
        return self._map[entry + ENTRY.size : entry + ENTRY.size + length].decode(errors="replace")

    # ---------------------------------------------------------------------------------------------- statuses

    def waiting(self, text: str, file: str, line: int, needs: Sequence[Need], mode: str = "all") -> None:
        """Say that this rank waits in the call `text`, at the user's `file` and `line`, for `needs`."""
        self.root._write_status(self._me, 1, _MODE_CODE[mode], self.group, file, line, text, needs)

    def running(self) -> None:
        """Say that this rank is in no call that waits."""
        root, at = self.root, self._status_at
        (version,) = VERSION.unpack_from(root._map, at)
        VERSION.pack_into(root._map, at, version + 1)
        STATE.pack_into(root._map, at + VERSION.size, 0, 0, 0, 0, 0, 0, 0)
        VERSION.pack_into(root._map, at, version + 2)

    def finished(self) -> None:
        """Say that this rank's function has returned: it will post nothing more."""
        self.root._write_status(self._me, 2, 0, "", "", 0, "", ())

    @cached_property
    def _me(self) -> int:
        """This rank's number in the whole run."""
        return self.members[self.rank]

    @cached_property
    def _status_at(self) -> int:
        return self.root._layout.status[self._me]

    def _write_status(
        self, rank: int, state: int, mode: int, group: str, file: str, line: int, text: str, needs: Sequence[Need]
    ) -> None:
        at = self._layout.status[rank]
        (version,) = VERSION.unpack_from(self._map, at)
        VERSION.pack_into(self._map, at, version + 1)
        packed = b"".join([NEED.pack(*need) for need in needs])
        body = _status_body(state, mode, len(needs), group, file, line, text)
        self._map[at + VERSION.size : at + VERSION.size + len(body)] = body
        start = at + VERSION.size + STATE.size + WORDS
        self._map[start : start + len(packed)] = packed
        VERSION.pack_into(self._map, at, version + 2)

    def statuses(self) -> list[Status]:
        """What every rank of the whole run does now, each read in one piece."""
        return [self.root._read_status(rank) for rank in range(self.root.size)]

    def _read_status(self, rank: int) -> Status:
        at = self._layout.status[rank]
        while True:
            record = self._map[at : at + self._layout.status_bytes]
            (version,) = VERSION.unpack_from(record)
            if version % 2 == 0 and VERSION.unpack_from(self._map, at)[0] == version:
                return self._parse_status(rank, version, record)

    def _parse_status(self, rank: int, version: int, record: bytes) -> Status:
        state, mode, count, group_end, file_length, text_length, line = STATE.unpack_from(record, VERSION.size)
        words = record[VERSION.size + STATE.size :]
        file_end = group_end + file_length
        group = words[:group_end].decode(errors="replace")
        packed = [Need(*each) for each in NEED.iter_unpack(words[WORDS : WORDS + count * NEED.size])]
        members = self.of_group(group).members if packed else ()
        needs = tuple(
            need._replace(rank=peer)
            for need in packed
            for peer in ([need.rank] if need.rank != EVERYONE else range(len(members)))
            if members[peer] != rank
        )
        return Status(
            rank,
            _STATES[state],
            version,
            words[file_end : file_end + text_length].decode(errors="replace"),
            words[group_end:file_end].decode(errors="replace"),
            line,
            tuple(dict.fromkeys(members[need.rank] for need in needs)),
            _MODES[mode],
            group,
            needs,
        )

    # ----------------------------------------------------------------------------------------- for `stuck`

    def met(self, rank: int, need: Need) -> bool:
        """Whether the counterpart of `need`, which rank `rank` of this board has, is posted with its signature."""
        if need.kind == COLLECTIVE:
            return self._posted(self._layout.call[need.rank], need, CALL_RING, CALL_TEXT)
        if need.kind == THEIR_RECV:
            return self._posted(self._layout.received[rank][need.rank], need, SIDE_RING, SIDE_TEXT)
        side = self._layout.sent[need.rank][rank]
        if need.kind == THEIR_SEND:
            return self._posted(side, need, SIDE_RING, SIDE_TEXT)
        (received,) = COUNTER.unpack_from(self._map, self._layout.received[need.rank][rank])
        (sent,) = COUNTER.unpack_from(self._map, side)
        later = (need._replace(index=index) for index in range(received, sent))
        return any(self._posted(side, each, SIDE_RING, SIDE_TEXT) for each in later)

    def _posted(self, at: int, need: Need, ring: int, limit: int) -> bool:
        (count,) = COUNTER.unpack_from(self._map, at)
        if count <= need.index:
            return False
        entry = at + COUNTER.size + need.index % ring * (ENTRY.size + limit)
        written, mark, _ = ENTRY.unpack_from(self._map, entry)
        return written != need.index + 1 or mark == need.checksum


def _message_mismatch(src: int, sent: str, dst: int, received: str, index: int) -> str:
    return (
        f"Rank {dst} receives into {received}, rank {src} sends {sent} "
        f"(message {index + 1} from rank {src} to rank {dst}): both sides must have the same shape and dtype."
    )
