"""Milliseconds of a kernel: none without a GPU; with one, launches alone are between the events."""

from types import SimpleNamespace

import numpy as np
import pytest

from lockstep.simt import choice, known_gpu, milliseconds


def test_without_a_gpu_there_are_none(monkeypatch):
    monkeypatch.setattr(choice, "chosen", lambda: choice.simulator)
    assert milliseconds(None, 1, 32, np.zeros(32)) is None and known_gpu() is None


def test_copies_come_before_the_first_event(monkeypatch):
    log = []
    fake = SimpleNamespace(
        event=lambda: SimpleNamespace(
            record=lambda: log.append("event"), synchronize=lambda: None, elapsed_time=lambda ended: float(len(log))
        ),
        to_device=lambda array: log.append("copy") or array,
    )
    monkeypatch.setattr(choice, "chosen", lambda: fake)

    class Kernel:
        def __getitem__(self, shape):
            return lambda *arguments: log.append(("launch", shape, len(arguments)))

    taken = milliseconds(Kernel(), (2, 1), 32, np.zeros(3), np.zeros(3), 7)
    launch = ("launch", ((2, 1), 32), 3)
    assert log[:6] == ["copy", "copy", launch, "event", launch, "event"] and log.count("copy") == 2
    times = [6.0 + 3 * k for k in range(20)]
    assert taken == (times[9] + times[10]) / 2


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (b"NVIDIA A100-SXM4-80GB", "A100"),
        (b"NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA H200", None),
    ],
)
def test_a_gpu_is_known_by_its_name(monkeypatch, name, key):
    fake = SimpleNamespace(event=None, get_current_device=lambda: SimpleNamespace(name=name))
    monkeypatch.setattr(choice, "chosen", lambda: fake)
    assert known_gpu() == key
