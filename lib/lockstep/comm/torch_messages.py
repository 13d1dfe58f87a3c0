"""Point to point between the ranks of a torch process group.

Floor 1, room `comm`. Read `torch_wire` first. Every call is posted on the board before it waits, so that ranks which
wait for each other, or for messages of another shape, are told so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from lockstep.comm.board import Board, Need
from lockstep.comm.board.board import ANY_SEND, THEIR_RECV, THEIR_SEND
from lockstep.comm.board.posts import checksum
from lockstep.comm.communicator import Communicator, Handle
from lockstep.comm.errors import CommunicationError
from lockstep.comm.signature import check_rank, check_tensor, describe
from lockstep.comm.torch_handles import Call, WorkHandle
from lockstep.comm.torch_wire import Wire, incoming, message_tag, outgoing


class Messages(Communicator):
    """Messages of `self.group`; `TorchCommunicator` supplies the rest."""

    board: Board | None
    gloo: bool
    block: Callable[..., Any]
    count_sent: Callable[..., None]
    count_received: Callable[..., None]
    _in_run: Sequence[int]
    _kept: Callable[..., Any]
    _mark: Callable[..., Any]
    _recvs: list[int]
    _sends: list[int]
    _wire: Wire

    def send(self, tensor: Tensor, dst: int) -> None:
        """Return when the data is out of `tensor`; waits for the receiver."""
        self._start_send(tensor, dst, "send").wait_as("send")

    def recv(self, tensor: Tensor, src: int | None = None) -> int:
        """Fill `tensor` with the next message from `src`, or from whoever sends first; gives the source rank."""
        if src is None:
            return self._recv_any(tensor)
        self._start_recv(tensor, src, "recv").wait_as("recv")
        return src

    def isend(self, tensor: Tensor, dst: int) -> Handle:
        """Start to send; leave `tensor` alone until `wait()`."""
        return self._kept(self._start_send(tensor, dst, "isend"))

    def irecv(self, tensor: Tensor, src: int) -> Handle:
        """Start to receive; `wait()` gives `tensor`, full."""
        return self._kept(self._start_recv(tensor, src, "irecv"))

    def exchange(self, sends: Sequence[tuple[Tensor, int]], recvs: Sequence[tuple[Tensor, int]]) -> None:
        """One batch: all sends and receives start together, and it returns when all are done."""
        for tensor, rank in [*sends, *recvs]:
            self._check_message(tensor, rank)
        if not sends and not recvs:
            return
        started = self.now()
        said, heard = [[describe(tensor) for tensor, _ in messages] for messages in (sends, recvs)]
        needs = [self._post_send(words, dst) for words, (_, dst) in zip(said, sends, strict=True)]
        needs += [self._post_recv(words, src) for words, (_, src) in zip(heard, recvs, strict=True)]
        # Messages of one channel meet in order, so the last one stands for those before it.
        needs = list({(need.rank, need.kind): need for need in needs}.values())
        outs = [(outgoing(tensor), dst, message_tag(words)) for words, (tensor, dst) in zip(said, sends, strict=True)]
        slots = [incoming(tensor) for tensor, _ in recvs]
        ins = [
            (slot.buffer, src, message_tag(words)) for words, slot, (_, src) in zip(heard, slots, recvs, strict=True)
        ]
        works = self._wire.batch(outs, ins, started)
        for buffer, dst, _ in outs:
            self.count_sent(dst, self._next(self._sends, dst), buffer.nbytes, started)
        indices = [self._next(self._recvs, src) for _, src in recvs]

        def finish() -> None:
            del outs[:]  # until now they keep copies of non-contiguous tensors alive
            times = self._wire.moved(works, len(recvs), started, self.now())
            for slot, (_, src), index, (began, there) in zip(slots, recvs, indices, times, strict=True):
                slot.copy_back()
                self.count_received(src, index, slot.buffer.nbytes, began, there)

        parts = [f"{words} to rank {dst}" for words, (_, dst) in zip(said, sends, strict=True)]
        parts += [f"{words} from rank {src}" for words, (_, src) in zip(heard, recvs, strict=True)]
        kind = "send" if sends else "recv"
        call = Call("exchange", kind, f"exchange of {', '.join(parts) or 'nothing'}", needs, self._mark(started))
        WorkHandle(self, call, works, finish).wait_as(kind)

    def _start_send(self, tensor: Tensor, dst: int, verb: str) -> WorkHandle:
        started = self.now()
        self._check_message(tensor, dst)
        words, buffer = describe(tensor), outgoing(tensor)
        need = self._post_send(words, dst)
        works = self._wire.batch([(buffer, dst, message_tag(words))], [], started)
        self.count_sent(dst, self._next(self._sends, dst), buffer.nbytes, started)
        detail = {"dst": self._in_run[dst]}
        call = Call(
            verb, "send", f"{verb} of {words} to rank {dst}", (need,), self._mark(started), buffer.nbytes, detail=detail
        )
        return WorkHandle(self, call, works, lambda: None)

    def _start_recv(self, tensor: Tensor, src: int, verb: str) -> WorkHandle:
        started = self.now()
        self._check_message(tensor, src)
        words, slot = describe(tensor), incoming(tensor)
        need = self._post_recv(words, src)
        works = self._wire.batch([], [(slot.buffer, src, message_tag(words))], started)
        index = self._next(self._recvs, src)

        def finish() -> Tensor:
            slot.copy_back()
            ((began, there),) = self._wire.moved(works, 1, started, self.now())
            self.count_received(src, index, slot.buffer.nbytes, began, there)
            return tensor

        words = f"{verb} of {words} from rank {src}"
        detail = {"src": self._in_run[src]}
        call = Call(verb, "recv", words, (need,), self._mark(started), slot.buffer.nbytes, detail=detail)
        return WorkHandle(self, call, works, finish)

    def _recv_any(self, tensor: Tensor) -> int:
        check_tensor(tensor, self.device)
        if not self.gloo:
            raise CommunicationError("NCCL cannot receive from just anyone: name the source, recv(tensor, src).")
        if self.size == 1:
            raise CommunicationError("recv from any rank waits for ever: this communicator has no other rank.")
        started, words, slot = self.now(), describe(tensor), incoming(tensor)
        others = [rank for rank in range(self.size) if rank != self.rank]
        needs = [Need(rank, ANY_SEND, checksum(words), 0) for rank in others]
        call = Call("recv", "recv", f"recv of {words} from any rank", needs, started, slot.buffer.nbytes, mode="any")
        src = self.block(call, "recv", lambda: self._wire.recv_any(slot.buffer, message_tag(words), started))
        if self.board:
            self.board.post_recv(src, words)
        slot.copy_back()
        self.count_received(src, self._next(self._recvs, src), slot.buffer.nbytes, started, self.now())
        return src

    def _check_message(self, tensor: Tensor, peer: int) -> None:
        check_tensor(tensor, self.device)
        check_rank(peer, self.size, "The other rank")
        if peer == self.rank:
            raise CommunicationError(
                f"Rank {peer} sends to or receives from itself, which waits for ever: copy the tensor instead."
            )

    def _post_send(self, words: str, dst: int) -> Need:
        index = self.board.post_send(dst, words) if self.board else 0
        return Need(dst, THEIR_RECV, checksum(words), index)

    def _post_recv(self, words: str, src: int) -> Need:
        index = self.board.post_recv(src, words) if self.board else 0
        return Need(src, THEIR_SEND, checksum(words), index)

    @staticmethod
    def _next(counts: list[int], peer: int) -> int:
        counts[peer] += 1
        return counts[peer] - 1
