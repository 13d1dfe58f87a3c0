"""What every test gets: an empty `my/`, so that no test reads or changes what a student achieved."""

import os

import pytest

# Figures are drawn without a screen, and a kernel that a test starts inherits it.
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(autouse=True)
def empty_my(tmp_path_factory, monkeypatch):
    """`LOCKSTEP_MY` points to a new empty folder."""
    folder = tmp_path_factory.mktemp("my")
    monkeypatch.setenv("LOCKSTEP_MY", str(folder))
    return folder
