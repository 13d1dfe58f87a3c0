"""Every test has a `my/` of its own."""

import pytest


@pytest.fixture(autouse=True)
def my(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_MY", str(tmp_path / "my"))
    return tmp_path / "my"
