"""The student's way, in a real kernel: functions of cells are checked, kept and handed in."""

import json

import nbformat

SAVED = (
    "from lockstep.exercises import check, mine, submit",
    "scale = 1",
    "def amdahl(serial_share, workers):\n    return 1 / (serial_share + helper(serial_share, workers))",
    "def helper(share, workers):\n    return scale * (1 - share) / workers",
    'check("00.2", amdahl)',
    'print(mine("00.2")(0.5, 2))',
    'print(submit("00"))',
)
NOT_SAVED = (
    "def amdahl(share, workers):\n    return 1 / 0",
    'check("00.2", amdahl)',
    'check("00.2", None)',
    'print(submit("00"))',
)


def test_cells_are_checked_kept_and_handed_in(tmp_path, empty_my, run_cells):
    """What runs after `SAVED` is not in the notebook's file."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in SAVED])
    nbformat.write(notebook, tmp_path / "00_start_here.ipynb")
    notebook.cells += [nbformat.v4.new_code_cell(one) for one in NOT_SAVED]
    run_cells(notebook.cells, timeout=110)
    shown = [_shown(cell) for cell in notebook.cells]
    assert "passed, 1 of 1" in shown[4] and "text/html" in json.dumps(notebook.cells[4].outputs)
    assert "your own" in shown[5] and "1.33" in shown[5]
    assert "ready to hand in" in shown[6]
    assert "crashed" in shown[8] and "on line 2: `return 1 / 0`" in shown[8]
    assert "cannot run" in shown[9]
    assert "not saved as you last ran it" in shown[10] and "def amdahl(share, workers):" in shown[10]
    assert "helper" in (empty_my / "00.2.py").read_text()


def _shown(cell):
    texts = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)
    return " ".join("\n".join(texts).split())
