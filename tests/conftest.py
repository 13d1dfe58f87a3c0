"""What every test gets: an empty `my/`, so that no test reads or changes what a student achieved."""

import os
import sys

import pytest

# Figures are drawn without a screen, and a kernel that a test starts inherits it.
os.environ.setdefault("MPLBACKEND", "Agg")
# Threads that wait for each other let other workers have the core: training LeNet on two threads took six times the
# processor time while other tests ran beside it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")

# These start many processes, hold them to promised seconds (a failed run ends within one), or measure the machine.
CROWDED = ("test_launch", "test_calibrate", "test_paced", "test_timing")


def pytest_configure(config):
    config.addinivalue_line("markers", "stalls: holds seconds to a promise, and passes when one of three runs keeps it")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """Keep them on one worker of pytest-xdist, so that they never run beside each other; first, as they take longest."""
    for item in items:
        if item.path.name.startswith(CROWDED):
            item.add_marker(pytest.mark.xdist_group("crowded"))
        if item.get_closest_marker("stalls"):  # a shared machine can stop every process on it for ten seconds
            item.add_marker(pytest.mark.flaky(reruns=2))
    items.sort(key=lambda item: not item.path.name.startswith(CROWDED))


@pytest.fixture(autouse=True)
def patient_simulations():
    """Ten seconds are a reader's patience; a machine that tests share can stop every process on it for as long."""
    if (module := sys.modules.get("lockstep.world.simulate")) is not None:
        module.simulate.__kwdefaults__["timeout"] = 100


@pytest.fixture(autouse=True)
def empty_my(tmp_path_factory, monkeypatch):
    """`LOCKSTEP_MY` points to a new empty folder."""
    folder = tmp_path_factory.mktemp("my")
    monkeypatch.setenv("LOCKSTEP_MY", str(folder))
    return folder
