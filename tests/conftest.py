"""What every test gets: an empty `my/`, so that no test reads or changes what a student achieved."""

import os

import pytest

# Figures are drawn without a screen, and a kernel that a test starts inherits it.
os.environ.setdefault("MPLBACKEND", "Agg")

# These hold real processes to promised seconds (a failed run ends within one), or measure the machine.
ALONE = ("test_launch", "test_calibrate")


def pytest_collection_modifyitems(items):
    """Mark what `./course test` must not run beside other tests."""
    for item in items:
        if item.path.name.startswith(ALONE):
            item.add_marker(pytest.mark.alone)


@pytest.fixture(autouse=True)
def empty_my(tmp_path_factory, monkeypatch):
    """`LOCKSTEP_MY` points to a new empty folder."""
    folder = tmp_path_factory.mktemp("my")
    monkeypatch.setenv("LOCKSTEP_MY", str(folder))
    return folder
