"""The board itself: post a call, say what this rank waits for, read what the others posted.

Floor 1, room `comm`. A memory-mapped file, one for each communicator; posting costs microseconds and no message.
A communicator made by `split` has its own board beside the first one's file, but every status goes to the first
board (the *root*), so that one reader sees all ranks of a run.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from lockstep.comm.board.layout import (
    CALL_RING,
    CALL_STRIDE,
    FILE_TEXT,
    GROUP_TEXT,
    HEADER,
    MAGIC,
    NEED,
    SIDE_RING,
    SIDE_STRIDE,
    STATE,
    STATUS_TEXT,
    VERSION,
    Layout,
)
from lockstep.comm.board.posts import Posts, checksum, encode
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
        """ "file:line" of the user's call; "" when that is not known."""
        return f"{self.file}:{self.line}" if self.file else ""


@lru_cache(maxsize=1024)
def _status_parts(
    state: int, mode: int, needs: int, group: str, file: str, line: int, text: str
) -> tuple[bytes, bytes]:
    """What stands before and after the needs of a status."""
    words = encode(group, GROUP_TEXT), encode(file, FILE_TEXT), encode(text, STATUS_TEXT)
    return STATE.pack(state, mode, needs, *map(len, words), line), b"".join(words)


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
        memory, layout, ranks = self._map, self._layout, range(size)
        self._calls = [Posts(memory, at, CALL_RING, CALL_STRIDE) for at in layout.call]
        # [src][dst]
        self._sent, self._received = (
            [[Posts(memory, side[src][dst], SIDE_RING, SIDE_STRIDE) for dst in ranks] for src in ranks]
            for side in (layout.sent, layout.received)
        )

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
        board = cls(Path(path), size, rank)
        for at in layout.status:
            VERSION.pack_into(board._map, at, 1)
        return board

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
        index = self._calls[self.rank].append(signature)
        mark = checksum(signature)
        for rank, calls in enumerate(self._calls):
            if rank != self.rank and calls.differs(index, mark):
                raise CommunicationError(self._collective_mismatch(index, signature, rank))
        return index

    def collective_mismatch(self, index: int, signature: str) -> str | None:
        """The sentence about another rank whose collective `index` differs from `signature`; None if none does."""
        for rank, calls in enumerate(self._calls):
            if calls.differs(index, checksum(signature)):
                return self._collective_mismatch(index, signature, rank)
        return None

    def _collective_mismatch(self, index: int, signature: str, rank: int) -> str:
        return (
            f"Rank {self.rank} calls {signature} as its {ordinal(index + 1)} collective, rank {rank} calls "
            f"{self._calls[rank].text(index)}: all ranks must call the same collectives in the same order."
        )

    def post_send(self, dst: int, signature: str) -> int:
        """Say that this rank sends its next message to `dst`; gives its number on that channel, from 0.

        Raises CommunicationError when `dst` receives that message into another shape or dtype.
        """
        index = self._sent[self.rank][dst].append(signature)
        other = self._received[self.rank][dst]
        if other.differs(index, checksum(signature)):
            raise CommunicationError(_message_mismatch(self.rank, signature, dst, other.text(index), index))
        return index

    def post_recv(self, src: int, signature: str) -> int:
        """Say that this rank receives its next message from `src`; gives its number on that channel, from 0.

        Raises CommunicationError when `src` sends that message with another shape or dtype.
        """
        index = self._received[src][self.rank].append(signature)
        other = self._sent[src][self.rank]
        if other.differs(index, checksum(signature)):
            raise CommunicationError(_message_mismatch(src, other.text(index), self.rank, signature, index))
        return index

    # ---------------------------------------------------------------------------------------------- statuses

    def waiting(self, text: str, file: str, line: int, needs: Sequence[Need], mode: str = "all") -> None:
        """Say that this rank waits in the call `text`, at the user's `file` and `line`, for `needs`."""
        self._write_status(1, _MODE_CODE[mode], file, line, text, needs)

    def running(self) -> None:
        """Say that this rank is in no call that waits."""
        memory, at = self.root._map, self._status_at
        (version,) = VERSION.unpack_from(memory, at)
        VERSION.pack_into(memory, at, version + 1 + version % 2)

    def finished(self) -> None:
        """Say that this rank's function has returned: it will post nothing more."""
        self._write_status(2, 0, "", 0, "", ())

    @cached_property
    def _status_at(self) -> int:
        """Where this rank's status lies in the root's file."""
        return self.root._layout.status[self.members[self.rank]]

    def _write_status(self, state: int, mode: int, file: str, line: int, text: str, needs: Sequence[Need]) -> None:
        memory, at = self.root._map, self._status_at
        (version,) = VERSION.unpack_from(memory, at)
        if version % 2 == 0:
            version += 1
            VERSION.pack_into(memory, at, version)
        head, words = _status_parts(state, mode, len(needs), self.group, file, line, text)
        record = head + b"".join([NEED.pack(*need) for need in needs]) + words
        memory[at + VERSION.size : at + VERSION.size + len(record)] = record
        VERSION.pack_into(memory, at, version + 1)

    def finished_ranks(self) -> list[int]:
        """The ranks of the whole run that have finished; needs no board but the root's."""
        return [rank for rank in range(self.root.size) if self.root._state(rank) == _STATES.index(FINISHED)]

    def _state(self, rank: int) -> int:
        at = self._layout.status[rank]
        (version,) = VERSION.unpack_from(self._map, at)
        return _STATES.index(RUNNING) if version % 2 else self._map[at + VERSION.size]

    def statuses(self) -> list[Status]:
        """What every rank of the whole run does now, each read in one piece."""
        return [self.root._read_status(rank) for rank in range(self.root.size)]

    def _read_status(self, rank: int) -> Status:
        at = self._layout.status[rank]
        while True:
            record = self._map[at : at + self._layout.status_bytes]
            (version,) = VERSION.unpack_from(record)
            if version % 2:
                return Status(rank, RUNNING, version)
            if VERSION.unpack_from(self._map, at)[0] == version:
                return self._parse_status(rank, version, record[VERSION.size :])

    def _parse_status(self, rank: int, version: int, record: bytes) -> Status:
        state, mode, count, *lengths, line = STATE.unpack_from(record)
        at = STATE.size + count * NEED.size
        packed = [Need(*each) for each in NEED.iter_unpack(record[STATE.size : at])]
        words = []
        for length in lengths:
            words.append(record[at : at + length].decode(errors="replace"))
            at += length
        group, file, text = words
        members = self.of_group(group).members if packed else ()
        needs = tuple(
            need._replace(rank=peer)
            for need in packed
            for peer in ([need.rank] if need.rank != EVERYONE else range(len(members)))
            if members[peer] != rank
        )
        waits_for = tuple(dict.fromkeys(members[need.rank] for need in needs))
        return Status(rank, _STATES[state], version, text, file, line, waits_for, _MODES[mode], group, needs)

    # ----------------------------------------------------------------------------------------- for `stuck`

    def met(self, rank: int, need: Need) -> bool:
        """Whether the counterpart of `need`, which rank `rank` of this board has, is posted with its signature."""
        if need.kind == COLLECTIVE:
            return self._calls[need.rank].has(need.index, need.checksum)
        if need.kind == THEIR_RECV:
            return self._received[rank][need.rank].has(need.index, need.checksum)
        sent = self._sent[need.rank][rank]
        if need.kind == THEIR_SEND:
            return sent.has(need.index, need.checksum)
        untaken = range(self._received[need.rank][rank].count, sent.count)
        return any(sent.has(index, need.checksum) for index in untaken)


def _message_mismatch(src: int, sent: str, dst: int, received: str, index: int) -> str:
    return (
        f"Rank {dst} receives into {received}, rank {src} sends {sent} "
        f"(message {index + 1} from rank {src} to rank {dst}): both sides must have the same shape and dtype."
    )
