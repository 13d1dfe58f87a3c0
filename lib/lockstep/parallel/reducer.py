"""Averages gradients over ranks while backward runs.

Floor 2, room `parallel`. Read `buckets` first. A hook on each parameter puts its gradient into the bucket; when the
bucket is full, and those before it are on their way, its exchange starts. When backward has computed everything, and
before it returns, what is left is started and all is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator, Exchange, Handle
from lockstep.parallel.backward import at_end_of_backward, running_backward
from lockstep.parallel.buckets import FIRST_BYTES, GradientBucket, keep, make_buckets
from lockstep.parallel.report import StepReport


class Reducer:
    """The buckets of some parameters, from the hooks on them until `remove()`.

    names: of `parameters`. norms: batch norms whose running statistics are averaged, too. unannounced: called when a
    gradient arrives in a backward that nobody began, and begins it.
    """

    def __init__(
        self,
        comm: Communicator,
        exchange: Exchange,
        overlap: bool,
        names: Sequence[str],
        parameters: Sequence[nn.Parameter],
        norms: Sequence[nn.Module],
        bucket_bytes: int,
        unannounced: Callable[[], None],
    ) -> None:
        self._comm, self._overlap, self._unannounced = comm, overlap, unannounced
        add_up = getattr(exchange, "start_sum", None) if overlap else None
        self._start = add_up or exchange.start
        share = 1.0 / comm.size if add_up else 1.0
        groups = make_buckets(parameters, bucket_bytes, FIRST_BYTES)
        last_dtype = parameters[groups[-1][0]].dtype if groups else torch.float32
        self._report = StepReport(comm, norms, last_dtype, share, alone=not getattr(exchange, "exact", False))
        self.names = [[names[position] for position in group] for group in groups]
        self._buckets = [
            GradientBucket(
                index,
                [parameters[i] for i in group],
                self._report.riding * (index == len(groups) - 1),
                share,
                self.names[index],
            )
            for index, group in enumerate(groups)
        ]
        if self._buckets:
            self._report.ride(self._buckets[-1].after)
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(bucket, position))
            for bucket in self._buckets
            for position, parameter in enumerate(bucket.parameters)
        ]
        self._backward: int | None = None  # the backward that runs
        self._synchronise, self._weight = True, 1.0
        self._started: list[Handle] = []  # one for each bucket on its way

    def remove(self) -> None:
        """Take the hooks off; gradients stay where they are."""
        for hook in self._hooks:
            hook.remove()

    def begin(self, synchronise: bool, weight: float = 1.0) -> None:
        """Called in a backward, as often as one likes, before the first gradient is there.

        synchronise: whether to average at all. weight: of this rank's running statistics.
        """
        running = running_backward()
        if running == self._backward:
            return
        self._backward, self._synchronise, self._weight = running, synchronise, weight
        at_end_of_backward(self._finish)

    def average(self, weight: float) -> None:
        """Collective, outside backward: average what backward passes that did not synchronise have added up.

        weight: of this rank's running statistics.
        """
        self._synchronise, self._weight = True, weight
        self._finish()

    def forget_failed_backward(self) -> None:
        """Called before forward: a backward that raised half-way has not come to its end."""
        if self._backward is not None and running_backward() == -1:
            for handle in self._started:
                handle.wait()
            self._start_anew()

    def _start_anew(self) -> None:
        self._backward = None
        self._started.clear()
        for bucket in self._buckets:
            bucket.expect_all()

    def _hook(self, bucket: GradientBucket, position: int) -> Callable[[Tensor], None]:
        part, waiting = bucket.content.parts[position], bucket.waiting

        def accumulated(parameter: Tensor) -> None:
            if parameter.grad is None:  # a function gave None for it, such as one that leaves it for later
                return
            if self._backward is None:
                self._unannounced()
            if position not in waiting:
                self._check_again(bucket, position)
            keep(parameter, part, bucket.share if self._synchronise else None)
            waiting.discard(position)
            if not waiting:
                self._start_full_buckets()

        return accumulated

    def _check_again(self, bucket: GradientBucket, position: int) -> None:
        if self._synchronise and self._overlap:
            raise RuntimeError(
                f"The gradient of {self.names[bucket.content.index][position]} arrived twice in one backward, and may "
                f"have been sent between. Checkpoint with use_reentrant=False, or use overlap=False."
            )

    def _start_full_buckets(self) -> None:
        if self._synchronise and self._overlap:
            while len(self._started) < len(self._buckets) and not self._buckets[len(self._started)].waiting:
                self._start_next(incomplete=False)

    def _start_next(self, incomplete: bool) -> None:
        index = len(self._started)
        if index == len(self._buckets) - 1:
            self._report.write(incomplete, self._weight)
        self._started.append(self._start(self._comm, self._buckets[index].content))

    def _finish(self) -> None:
        """At the end of backward: average what is left, wait for all of it."""
        if self._synchronise and self._buckets:
            late = self._buckets[len(self._started) :]
            without = [(bucket, position) for bucket in late for position in bucket.fill_gaps()]
            for _ in late:
                self._start_next(incomplete=bool(without))
            self._report.start()
            for handle in self._started:
                handle.wait()
            if self._report.read():
                self._hand_out(without)
        self._start_anew()

    def _hand_out(self, without: Sequence[tuple[GradientBucket, int]]) -> None:
        """Some rank lacks some gradients: it gets the mean of those that another rank has."""
        parameters = [parameter for bucket in self._buckets for parameter in bucket.parameters]
        has = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.uint8)
        anywhere = self._comm.all_reduce(has.to(self._comm.device), op="max").tolist()
        somewhere = {id(parameter) for parameter, found in zip(parameters, anywhere, strict=True) if found}
        for bucket, position in without:
            parameter = bucket.parameters[position]
            if id(parameter) in somewhere:
                parameter.grad = bucket.content.parts[position]
