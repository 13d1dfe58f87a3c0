"""The `lockstep` command line."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from lockstep.course import cli, jupyter
from lockstep.course.products import problems
from lockstep.course.suite import run_suite
from lockstep.course.tree import Tree, here


def invoke(*arguments):
    return CliRunner().invoke(cli.app, arguments)


@pytest.fixture
def here_is(monkeypatch, clone):
    monkeypatch.setattr(cli, "here", lambda: clone.tree)
    return clone


def test_help_names_every_command_without_waiting_for_torch():
    code = "import sys; from lockstep.course import cli; cli.app(['--help'], standalone_mode=False); print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=110).stdout
    for command in ("lab", "run", "test", "doctor", "build", "author", "check", "train", "bench"):
        assert f" {command} " in said
    assert said.rstrip().endswith("False")


def test_an_unknown_lab_is_a_sentence_and_not_a_trace(here_is):
    here_is.write()
    result = invoke("run", "42")
    assert result.exit_code != 0 and str(result.exception) == "there is no lab '42'; there are: 00_counting"


def test_a_lab_that_is_not_built_is_said(here_is):
    here_is.write()
    assert "not built yet: lockstep build 00" in str(invoke("run", "0").exception)


def test_main_prints_the_sentence(monkeypatch, capsys):
    def fail():
        raise ValueError("there is no lab '42'")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2 and capsys.readouterr().err == "lockstep: there is no lab '42'\n"


def test_build_check_lists_what_is_wrong(here_is):
    here_is.changed("Summary (1 min)", "Summary (5 min)")
    (here_is.tree.labs / "07_left_over.ipynb").write_text("{}")
    result = invoke("build", "--check")
    assert result.exit_code == 1
    for said in (
        "00_counting: labs/00_counting.ipynb is missing",
        "add up to 7, the lab says 3",
        "labs/07_left_over.ipynb: there is no source for it",
    ):
        assert said in result.output


def test_a_source_that_cannot_be_read_does_not_hide_the_others(here_is):
    here_is.write()
    (here_is.tree.solutions / "01_broken.py").write_text("# %%\n### BEGIN SOLUTION")
    said = "\n".join(problems(here_is.tree))
    assert "01_broken.py, cell 1" in said and "labs/00_counting.ipynb is missing" in said


def test_bench_lists_each_file_with_what_it_measures(here_is):
    folder = here_is.tree.root / "bench"
    folder.mkdir()
    (folder / "rings.py").write_text('"""How fast a ring is.\n\nMore."""\nprint("measured")\n')
    assert invoke("bench").output == "rings        How fast a ring is.\n"
    assert "there are: rings" in str(invoke("bench", "trees").exception)
    assert invoke("bench", "rings").exit_code == 0


def test_jupyterlab_is_told_that_root_may_and_asks_for_no_news(monkeypatch, tmp_path):
    monkeypatch.setattr(jupyter.os, "geteuid", lambda: 0, raising=False)
    command = jupyter.lab_command(tmp_path)
    assert "--allow-root" in command and f"--ServerApp.root_dir={tmp_path}" in command
    assert "--LabApp.news_url=None" in command
    monkeypatch.setattr(jupyter.os, "geteuid", lambda: 1000, raising=False)
    assert "--allow-root" not in jupyter.lab_command(tmp_path)


def test_options_of_lab_go_to_jupyterlab(monkeypatch, here_is):
    started = []
    monkeypatch.setattr(cli, "_become", lambda command, folder: started.append((command, folder)) or 0)
    monkeypatch.setattr("lockstep.course.doctor", lambda: type("Report", (), {"usable": True})())
    assert invoke("lab", "--no-browser", "--port", "8889").exit_code == 0
    command, folder = started[0]
    assert command[-3:] == ["--no-browser", "--port", "8889"] and folder == here_is.tree.labs


def test_the_clone_is_found():
    assert (here().root / "course").exists()


def test_the_suite_runs_every_stage_and_ends_with_the_tests(monkeypatch, tmp_path, capsys):
    called = []
    monkeypatch.setattr(
        subprocess, "call", lambda command, cwd: called.append(command[2]) or (1 if "ruff" in command else 0)
    )
    monkeypatch.setattr("lockstep.course.suite.problems", lambda tree: [])
    assert run_suite(Tree(tmp_path)) == 1
    assert called == ["ruff", "ruff", "pytest"]
    assert capsys.readouterr().err == "Failed: lint, format.\n"
