"""All notebooks share one kernel, emptied before each: its imports, and those of the parent of its ranks, take longer
than a short lab."""

from pathlib import Path

import pytest
from emptied import emptied
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_notebook


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        if "run_cells" in getattr(item, "fixturenames", ()) and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group("notebooks"))


@pytest.fixture(scope="session")
def kernel():
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.fixture
def run_cells(kernel, empty_my, tmp_path):
    """Executes cells in `tmp_path`, with nothing of what ran before; the first that fails ends it."""

    def run(cells: list[NotebookNode], timeout: float) -> None:
        notebook = new_notebook(cells=[emptied(empty_my, tmp_path), *cells])
        client = NotebookClient(notebook, km=kernel, timeout=timeout)
        try:
            client.execute()
        finally:
            client.kc.stop_channels()

    return run
