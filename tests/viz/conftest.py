"""Small traces to draw."""

import pytest

from lockstep.trace import Message, Span, Trace


@pytest.fixture
def pipeline():
    """Two stages, three micro-batches, F = 1 s and B = 2 s: 12 s, each rank computes 9 of them."""
    spans, messages = [], []
    for m in range(3):
        spans.append(Span(0, "compute", "forward", m, m + 1, micro_batch=m))
        spans.append(Span(1, "compute", "forward", m + 1, m + 2, micro_batch=m))
        spans.append(Span(1, "compute", "backward", 4 + 2 * m, 6 + 2 * m, micro_batch=m))
        spans.append(Span(0, "compute", "backward", 6 + 2 * m, 8 + 2 * m, micro_batch=m))
        messages += [Message(0, 1, 100, m + 1, m + 1), Message(1, 0, 100, 6 + 2 * m, 6 + 2 * m)]
    return Trace.of(2, spans, messages, "simulated")


@pytest.fixture
def ring():
    """64 ranks in a ring all-reduce: 8,064 messages."""
    spans = [Span(r, "compute", "backward", 0.0, 1e-3) for r in range(64)]
    spans += [Span(r, "collective", "all_reduce", 1e-3, 1e-3 + 126e-5) for r in range(64)]
    messages = [
        Message(r, (r + 1) % 64, 1000, 1e-3 + k * 1e-5, 1e-3 + (k + 1) * 1e-5) for k in range(126) for r in range(64)
    ]
    return Trace.of(64, spans, messages, "simulated")
