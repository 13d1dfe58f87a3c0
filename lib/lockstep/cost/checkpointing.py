"""Activation checkpointing: keep the input of every segment, compute the rest again on the way back.

Floor 1, room `cost`; read `profile.py` first. A chain of n stages is cut into segments of L stages. With equal stages
it keeps n/L inputs and the activations of one segment of L, which is least at L = sqrt(n) if an input is as large as
what a stage keeps (Chen, Xu, Zhang, Guestrin 2016, section 3). As in `torch.utils.checkpoint.checkpoint_sequential`
the last segment is not computed twice: its backward comes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from lockstep.cost.profile import Profile, profile


@dataclass(frozen=True)
class Checkpointing:
    """every: stages in a segment. saved_bytes: the most kept at one time. extra_macs: multiply-adds made twice."""

    every: int
    segments: int
    saved_bytes: int
    extra_macs: int


def profile_stages(
    stages: Sequence[nn.Module], input_size: Sequence[int], batch: int = 1, dtype: torch.dtype = torch.float32
) -> list[Profile]:
    """The profile of each stage of a chain, which takes what the one before gives. Raises as `profile`."""
    profiles: list[Profile] = []
    for stage in stages:
        size = profiles[-1].output_shape[1:] if profiles else input_size
        profiles.append(profile(stage, size, batch, dtype, input_gradient=bool(profiles)))
    return profiles


def checkpointing(stages: Sequence[Profile], every: int) -> Checkpointing:
    """What checkpointing in segments of `every` stages keeps and costs.

    A stage keeps its `saved_bytes`, its input included. Raises ValueError for no stages, or `every` out of range.
    """
    if not 1 <= every <= len(stages):
        raise ValueError(f"segments of {every} stages: there are {len(stages)}, so it must be 1 to {len(stages)}")
    segments = [stages[at : at + every] for at in range(0, len(stages), every)]
    inputs, most = 0, 0
    for segment in segments:
        most = max(most, inputs + sum(stage.saved_bytes for stage in segment))
        inputs += _input_bytes(segment[0])
    twice = segments[:-1]
    return Checkpointing(every, len(segments), most, sum(stage.macs for segment in twice for stage in segment))


def best_checkpointing(stages: Sequence[Profile]) -> Checkpointing:
    """The segment length that keeps the fewest bytes; among equals the one that computes least twice."""
    options = [checkpointing(stages, every) for every in range(1, len(stages) + 1)]
    if not options:
        raise ValueError("there are no stages to checkpoint")
    return min(options, key=lambda one: (one.saved_bytes, one.extra_macs))


def _input_bytes(stage: Profile) -> int:
    size = stage.dtype.itemsize
    for n in stage.input_shape:
        size *= n
    return size
