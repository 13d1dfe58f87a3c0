"""Ranks as threads with queues between them: enough of a communicator to run a collective on, and nothing of ours.

A send waits until the receiver has taken the message, as gloo's does, so an algorithm that sends on all ranks
first would not pass. Shape and dtype of both sides must be equal.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict

import torch

PATIENCE = 20  # seconds before a rank that hears nothing gives up


class ThreadRank:
    def __init__(self, rank, size, channels):
        self.rank, self.size, self.device = rank, size, torch.device("cpu")
        self._channels = channels
        self.messages, self.bytes, self.sent_to = 0, 0, defaultdict(int)

    def _post(self, tensor, dst):
        assert 0 <= dst < self.size and dst != self.rank
        taken = threading.Event()
        self.messages += 1
        self.bytes += tensor.nbytes
        self.sent_to[dst] += 1
        self._channels[self.rank, dst].put((tensor.clone(), taken))
        return taken

    def send(self, tensor, dst):
        self.exchange([(tensor, dst)], [])

    def recv(self, tensor, src):
        message, taken = self._channels[src, self.rank].get(timeout=PATIENCE)
        assert message.shape == tensor.shape and message.dtype == tensor.dtype, "sent and received do not fit"
        tensor.copy_(message)
        taken.set()
        return src

    def exchange(self, sends, recvs):
        taken = [self._post(tensor, dst) for tensor, dst in sends]
        for tensor, src in recvs:
            self.recv(tensor, src)
        assert all(each.wait(PATIENCE) for each in taken), f"nobody takes what rank {self.rank} sends"


def run_ranks(program, size):
    """Run `program(comm)` on `size` threads; gives (values, ranks), or raises the first rank's error."""
    channels = defaultdict(queue.Queue)
    for src in range(size):
        for dst in range(size):
            channels[src, dst]  # made here: a defaultdict is not made for several threads at once
    ranks = [ThreadRank(rank, size, channels) for rank in range(size)]
    values, errors = [None] * size, [None] * size

    def work(rank):
        try:
            values[rank] = program(ranks[rank])
        except Exception as error:
            errors[rank] = error

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not any(errors):
            thread.join(0.05)
    for error in errors:
        if error is not None:
            raise error
    return values, ranks
