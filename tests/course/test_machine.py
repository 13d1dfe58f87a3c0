"""The doctor: each line says what it means, and only what makes the labs unusable is a failure."""

import pytest

from lockstep.course import doctor, machine
from lockstep.course.machine import Finding, Report
from lockstep.world import RankError


def test_this_machine_is_usable_and_every_line_says_what_it_means():
    report = doctor()
    assert report.usable
    names = {finding.name for finding in report.findings}
    assert {"versions", "cores", "memory", "GPUs", "gloo", "data"} <= names
    assert all(finding.means.endswith(".") for finding in report.findings)
    assert "ready" in repr(report) and "two ranks added up a number" in repr(report)
    assert "<div" in report._repr_html_()


def test_a_gloo_that_cannot_talk_makes_the_labs_unusable(monkeypatch):
    import lockstep.world

    def broken(*_, **__):
        raise RankError("no route to host\nand much more", 0)

    monkeypatch.setattr(lockstep.world, "launch", broken)
    finding = machine.gloo()
    assert not finding.usable and finding.says == "two ranks could not talk: no route to host"
    assert "not usable yet: gloo" in repr(Report((finding,)))


@pytest.mark.parametrize(("count", "words"), [(1, "share it"), (2, "share them"), (8, "Up to 8 real ranks")])
def test_cores_are_put_into_ranks(monkeypatch, count, words):
    monkeypatch.setattr(machine, "usable_cores", lambda: count)
    assert words in machine.cores().means


def test_a_small_shared_memory_is_a_warning_about_data_loader_workers(monkeypatch):
    # Docker gives a container 64 MB; a DataLoader worker then dies with a bus error (pytorch#5040).
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: machine.shutil._ntuple_diskusage(2**26, 0, 2**26))
    finding = machine.shared_memory()
    if finding is None:
        pytest.skip("no /dev/shm here")
    assert finding.usable and "num_workers=0" in finding.means


def test_a_data_set_that_does_not_load_is_named(monkeypatch):
    from lockstep import data

    def load(name, *_, **__):
        if name == "digits":
            raise data.DataError("the file is damaged")

    monkeypatch.setattr(data, "load", load)
    finding = machine.data_sets()
    assert not finding.usable or "digits cannot be loaded: the file is damaged" in finding.says


def test_a_missing_package_is_said(monkeypatch):
    monkeypatch.setattr(machine, "_is_installed", lambda name: name != "jupyterlab")
    assert machine.versions().means == "Missing: jupyterlab. `./course` installs them."


def test_a_report_without_trouble_is_ready():
    assert Report((Finding("cores", "2", "Enough."),)).usable
