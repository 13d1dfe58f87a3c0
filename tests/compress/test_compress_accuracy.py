"""What feedback is worth to a compressor that moves weights without a gradient; to a CNN in `bench/compress_accuracy.py`."""

import pytest
import torch

from lockstep.compress import ErrorFeedback, OneBit

STEPS, WEIGHTS = 200, 40


def moved_by(compressor):
    """How far each weight is sent in all, where only the first has a gradient, which is 1."""
    gradient, moved = torch.zeros(WEIGHTS), torch.zeros(WEIGHTS)
    gradient[0] = 1
    for _ in range(STEPS):
        moved += compressor.decompress(compressor.compress(gradient, "weights"))
    return moved.tolist()


def test_one_bit_moves_what_has_no_gradient_and_with_feedback_brings_it_back():
    # Of few images a rank, gradients are zero for every input that none of them turns on. Without feedback each of these
    # zeros moves, step after step, by the mean of the values that are not below zero, and a CNN learns less.
    assert moved_by(OneBit()) == pytest.approx([STEPS / WEIGHTS] * WEIGHTS, rel=1e-4)
    first, *others = moved_by(ErrorFeedback(OneBit()))
    assert first == pytest.approx(STEPS, abs=2) and max(map(abs, others)) < 1
