"""nbval as we use it really replays a stable cell, and a changed output fails."""

import subprocess
import sys

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output


def replay(tmp_path, printed):
    stored = [new_output("stream", name="stdout", text=printed)]
    cells = [
        new_code_cell("raise RuntimeError", metadata={"tags": ["experiment", "nbval-skip"]}),
        new_code_cell(
            "print(6 * 7)", metadata={"tags": ["stable", "nbval-check-output"]}, outputs=stored, execution_count=1
        ),
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "small.ipynb")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--nbval-lax"]
    command += ["--nbval-cell-timeout", "60", "--nbval-current-env", "small.ipynb"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)


def test_an_output_that_changed_fails_and_a_skipped_cell_is_not_run(tmp_path):
    assert (same := replay(tmp_path, "42\n")).returncode == 0, same.stdout + same.stderr
    changed = replay(tmp_path, "43\n")
    assert changed.returncode == 1 and "1 failed" in changed.stdout
