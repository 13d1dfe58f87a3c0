"""Data parallelism: every rank has the whole model and a part of the batch, and ranks average gradients.

Floor 2, room `parallel`. The model is an ordinary one and knows nothing of ranks. Read `DistributedDataParallel`
here, then `buckets` (where gradients lie) and `reducer` (when they are averaged).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.comm import AllReduce, CommunicationError, Communicator, Exchange
from lockstep.parallel.agreement import check_same_model, copy_from_rank_0
from lockstep.parallel.reducer import Reducer
from lockstep.parallel.report import norms_to_average
from lockstep.parallel.uneven import at_the_entrance, uneven_batches


class DistributedDataParallel(nn.Module):
    """`model`, with gradients that are the mean over ranks when `backward()` returns.

    bucket_bytes: gradients are averaged in buckets, each closed as soon as it holds this much, the first already at
    1 MiB; they are in reverse order of the parameters and have one dtype. overlap: start a bucket when its last gradient
    is there, while backward goes on; False starts all at the end. exchange: how to average, by default `AllReduce()`.

    At first ranks take over the parameters and buffers of rank 0. In training, batch norm's running statistics are
    averaged with the gradients (the plain layer normalises by this rank's images alone; see `SyncBatchNorm2d`); other
    buffers stay each rank's own. A parameter that no rank used keeps `grad` None; one that some ranks used gets the
    mean, with zeros for the others. Parameters may be frozen or unfrozen at any time, on all ranks alike, but a
    layer that is added later is not seen: wrap the model again.

    Gradients are views into buckets, which the next backward overwrites: clone what you want to keep. Call the wrapper
    and not `module`, let the loss be a mean over this rank's samples, and use `batches` where their number may differ.

    Raises CommunicationError when ranks have different models, TypeError and ValueError for arguments that make no
    sense. Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
    """

    def __init__(
        self,
        model: nn.Module,
        comm: Communicator,
        bucket_bytes: int = 25 * 2**20,
        overlap: bool = True,
        exchange: Exchange | None = None,
    ) -> None:
        super().__init__()
        _check(model, comm)
        self.module, self.comm = model, comm
        self._bucket_bytes, self._overlap, self._exchange = bucket_bytes, overlap, exchange or AllReduce()
        self._synchronise, self._weight = True, 1.0
        self._all = list(model.parameters())
        tensors = [*self._all, *model.buffers()]
        self._reducer = self._make_reducer()
        copy_from_rank_0(comm, tensors, bucket_bytes)

    @property
    def buckets(self) -> list[list[str]]:
        """The names of the parameters in each bucket, in launch order."""
        return [list(names) for names in self._reducer.names]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives."""
        self._follow_freezing()
        self._reducer.forget_failed_backward()
        outputs = self.module(*args, **kwargs)
        if self._synchronise and self._weight == 1.0 or not torch.is_grad_enabled():
            return outputs  # the first gradient of a parameter begins the averaging
        return at_the_entrance(outputs, self._arrival())

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of this block's forward and backward passes add up on each rank; the next one after it averages."""
        before, self._synchronise = self._synchronise, False
        try:
            yield
        finally:
            self._synchronise = before

    def average(self, weight: float = 1.0) -> None:
        """Collective, outside backward: average what backward passes in `no_sync` have added up in `grad`.

        For steps of several backward passes of which none is the last everywhere, as in a pipeline. weight: what this
        rank's running statistics count for; 1 on average over ranks.
        """
        self._follow_freezing()
        self._reducer.average(weight)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of `loader`, until no rank has one left, however many this rank has and however large.

        Collective: every rank iterates to the end; costs one small all-reduce a step. A rank that has run out gets
        `images[:0]`, takes part and contributes nothing. In each step gradients are scaled as they enter backward, so
        that with a loss that is a mean over samples their mean over ranks is that of all samples; the reduced
        gradient could not be corrected, as batch norm over all ranks has mixed the ranks by then.
        Raises CommunicationError when a rank has no batch at all.
        """
        try:
            for batch, weight in uneven_batches(self.comm, loader):
                self._weight = weight
                yield batch
        finally:
            self._weight = 1.0

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """That of the plain model: its names have no prefix."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load one of the plain model; every rank has to."""
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    def _trained(self) -> list[torch.dtype | bool]:
        """What buckets depend on and a program may change: the dtype of each parameter that is not frozen."""
        return [parameter.requires_grad and parameter.dtype for parameter in self._all]

    def _follow_freezing(self) -> None:
        """Collective where parameters have been frozen or unfrozen: new buckets."""
        if self._made_for != self._trained():
            self._reducer.remove()
            self._reducer = self._make_reducer()

    def _make_reducer(self) -> Reducer:
        """Collective: buckets for the parameters that are trained now."""
        settings = f"bucket_bytes={self._bucket_bytes}, overlap={self._overlap}, {type(self._exchange).__name__}"
        check_same_model(self.comm, self.module, settings)
        self._made_for = self._trained()
        named = {name: p for name, p in self.module.named_parameters() if p.requires_grad and p.numel()}
        return Reducer(
            self.comm,
            self._exchange,
            self._overlap,
            list(named),
            list(named.values()),
            norms_to_average(self.module),
            self._bucket_bytes,
            self._begin_unannounced,
        )

    def _arrival(self) -> Callable[[Tensor], Tensor | None]:
        """What happens to a gradient that enters the outputs: it is treated as this forward pass wants."""
        synchronise, weight, reducer = self._synchronise, self._weight, self._reducer

        def arrived(gradient: Tensor) -> Tensor | None:
            reducer.begin(synchronise, weight)
            return None if weight == 1.0 else gradient * weight

        return arrived

    def _begin_unannounced(self) -> None:
        if self._weight != 1.0:
            raise RuntimeError(
                "A gradient arrives that came through no output of this wrapper, so it was not weighted for ranks with "
                "unequal batches. Call the wrapper itself, not its module, and let the model return tensors, or "
                "tuples, lists, dictionaries or dataclasses of tensors."
            )
        self._reducer.begin(self._synchronise)


def _check(model: nn.Module, comm: Communicator) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is {model!r:.60}: give a torch.nn.Module")
    if not isinstance(comm, Communicator):
        raise TypeError(f"comm is {comm!r:.60}: give the communicator that the rank function gets")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(f"{name} has no shape yet: run one batch through the model before it is wrapped")
        if parameter.device.type != comm.device.type:
            raise CommunicationError(
                f"{name} is on {parameter.device}, this rank communicates on {comm.device}: "
                f"move the model with .to(comm.device) first."
            )
    for name, module in model.named_modules():
        if getattr(module, "sparse", False):
            raise ValueError(f"{name} gives sparse gradients, which cannot lie in a bucket: build it with sparse=False")
