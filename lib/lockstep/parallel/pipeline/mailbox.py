"""Activations and gradients on their way between ranks: structures of tensors as messages.

Floor 2, room `parallel`. The first activation of each size that leaves a chunk is preceded by a *layout*, so that its
receiver knows what to make room for. From then on both sides know it, and the gradient's structure too, which has the
activation's floating-point tensors. What is no tensor travels in the layout alone: it has to be the same for every
micro-batch of a size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from lockstep.comm import Communicator
from lockstep.comm.communicator import Handle
from lockstep.nn.outputs import map_tensors, tensors_in
from lockstep.parallel.pipeline.program import received_by
from lockstep.parallel.pipeline.transfers import Channel, Transfer, Transfers
from lockstep.parallel.structures import Layout, receive_layout, start_layout, start_receive, start_send


class Mailbox:
    """Messages of one rank of a pipeline, asynchronous: a send does not wait, and the next receive is posted ahead.

    sizes: samples of each micro-batch, set before every step.
    """

    def __init__(self, comm: Communicator, transfers: Transfers) -> None:
        self._comm = comm
        self._channels = {channel: sent for channel, sent in transfers.sent.items() if comm.rank in channel}
        self._number = {t: n for sent in self._channels.values() for n, t in enumerate(sent)}
        self._proof_of: dict[Transfer, list[Transfer]] = {}
        for message, proof in received_by(transfers).items():
            self._proof_of.setdefault(proof, []).append(message)
        self._layouts: dict[tuple[int, int], Layout] = {}  # of the activation, by (chunk it leaves, samples)
        self.begin(())

    def begin(self, sizes: Sequence[int]) -> None:
        """A new step: nothing is on its way, and the first receives are posted."""
        self._sizes = sizes
        self._posted: dict[Channel, int] = dict.fromkeys(self._channels, 0)
        self._coming: dict[Transfer, tuple[Any, list[Handle]]] = {}
        self._going: dict[Transfer, list[Handle]] = {}
        if sizes:
            for channel in self._incoming():
                self._post_ahead(channel, 0)

    def send(self, transfer: Transfer, structure: Any) -> None:
        """Start to send a structure: an activation, or the list of its gradients."""
        handles = self._going[transfer] = []
        if transfer.kind == "activation" and self._key(transfer) not in self._layouts:
            layout = self._layouts[self._key(transfer)] = Layout.of(structure)
            handles += start_layout(self._comm, layout, transfer.dst)
        handles += start_send(self._comm, structure, transfer.dst)

    def receive(self, transfer: Transfer) -> Any:
        """Wait for a structure."""
        channel, number = (transfer.src, transfer.dst), self._number[transfer]
        while self._posted[channel] <= number:
            self._post_next(channel)
        self._post_ahead(channel, number + 1)
        structure, handles = self._coming.pop(transfer)
        for handle in handles:
            handle.wait()
        for message in self._proof_of.get(transfer, ()):
            self._forget(message)
        return structure

    def end(self) -> None:
        """Return when everything that was sent has been received."""
        for message in list(self._going):
            self._forget(message)

    def _incoming(self) -> list[Channel]:
        return [channel for channel in self._channels if channel[1] == self._comm.rank]

    def _post_ahead(self, channel: Channel, number: int) -> None:
        """Post receives up to message `number` of the channel, as far as it is known what they will be."""
        while self._posted[channel] <= min(number, len(self._channels[channel]) - 1):
            if self._key(self._channels[channel][self._posted[channel]]) not in self._layouts:
                return
            self._post_next(channel)

    def _post_next(self, channel: Channel) -> None:
        transfer = self._channels[channel][self._posted[channel]]
        layout = self._layouts.get(self._key(transfer))
        if layout is None:
            layout = self._layouts[self._key(transfer)] = receive_layout(self._comm, transfer.src)
        if transfer.kind == "gradient":
            layout = layout.gradients()
        self._posted[channel] += 1
        structure = layout.empty(self._comm.device)
        self._coming[transfer] = structure, start_receive(self._comm, structure, transfer.src)

    def _forget(self, message: Transfer) -> None:
        for handle in self._going.pop(message, ()):
            handle.wait()

    def _key(self, transfer: Transfer) -> tuple[int, int]:
        """What the layout of a message depends on: the cut, and how many samples there are."""
        return transfer.boundary, self._sizes[transfer.micro_batch]


class OrderedMailbox(Mailbox):
    """Messages that wait for their other side, for programs that are ordered: nothing is posted ahead."""

    def send(self, transfer: Transfer, structure: Any) -> None:
        super().send(transfer, structure)
        self._forget(transfer)

    def _post_ahead(self, channel: Channel, number: int) -> None:
        pass


def even_sizes(samples: int, micro_batches: int) -> list[int]:
    """Samples of each micro-batch, as equal as may be: the first ones have one more, as with `torch.tensor_split`."""
    return [samples // micro_batches + (i < samples % micro_batches) for i in range(micro_batches)]


def parts_of(structure: Any, sizes: Sequence[int]) -> list[Any]:
    """A batch cut along dimension 0 into micro-batches of `sizes` samples, whatever structure it has."""
    split: Mapping[int, tuple[Tensor, ...]] = {id(t): t.split(list(sizes)) for t in tensors_in(structure)}
    return [map_tensors(lambda t, at=at: split[id(t)][at], structure) for at in range(len(sizes))]
