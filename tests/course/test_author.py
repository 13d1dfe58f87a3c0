"""`lockstep author`: while JupyterLab is open, every save of the source rebuilds its products."""

import os
import sys
import threading
import time

import pytest

from lockstep.course import author as authoring
from lockstep.course.author import author
from lockstep.course.build import BuildError

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def editor(monkeypatch, tmp_path):
    """In place of JupyterLab a process that ends with status 7 when a file appears; gives that file."""
    done = tmp_path / "done"
    code = f"import os, sys, time\nwhile not os.path.exists({str(done)!r}): time.sleep(0.02)\nsys.exit(7)"
    monkeypatch.setattr(authoring, "lab_command", lambda folder: [sys.executable, "-c", code])
    monkeypatch.setattr(authoring, "LOOK_EVERY", 0.02)
    return done


def saved_again(path, built, done):
    """Save the source until it is built twice, then close the editor; a save before the editor is up counts for none."""
    for stamp in range(1, 200):
        os.utime(path, ns=(stamp, stamp))
        before, end = len(built), time.monotonic() + 0.2
        while len(built) == before and time.monotonic() < end:
            time.sleep(0.01)
        if len(built) >= 2:
            break
    done.touch()


def test_each_save_is_built_also_after_one_that_could_not_be(monkeypatch, clone, editor, capsys):
    path, built = clone.write().path, []

    def build(source, tree):
        built.append(source)
        if len(built) == 1:
            raise BuildError("cell 3 failed")

    monkeypatch.setattr(authoring, "build", build)
    saver = threading.Thread(target=saved_again, args=(path, built, editor))
    saver.start()
    status = author(path, clone.tree, [])
    saver.join()
    said = capsys.readouterr().out.splitlines()
    assert status == 7 and set(built) == {path}
    assert said[0] == f"{path.name} was not built: cell 3 failed" and said[1].startswith(f"{path.name} built in")
