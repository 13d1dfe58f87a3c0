"""nbval as we use it really replays a stable cell, and a changed output fails."""

import subprocess
import sys

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output


def test_an_output_that_changed_fails_and_a_skipped_cell_is_not_run(tmp_path):
    replayed = {"tags": ["stable", "nbval-check-output"]}
    cells = [new_code_cell("raise RuntimeError", metadata={"tags": ["experiment", "nbval-skip"]})]
    for stored in ("42\n", "43\n"):
        outputs = [new_output("stream", name="stdout", text=stored)]
        cells.append(new_code_cell("print(6 * 7)", metadata=replayed, outputs=outputs, execution_count=1))
    nbformat.write(new_notebook(cells=cells), tmp_path / "small.ipynb")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--nbval-lax"]
    command += ["--nbval-cell-timeout", "60", "--nbval-current-env", "small.ipynb"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "1 failed, 1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
