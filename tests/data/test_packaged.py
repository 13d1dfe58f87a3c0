"""A data set inside a package that is missing, damaged or changed is an error that says what to do."""

import gzip
import hashlib
import sys

import numpy as np
import pytest

from lockstep.data import DataError, packaged, sets
from lockstep.data.packaged import read_packaged

TABLE = np.arange(12, dtype=np.uint8).reshape(3, 4)
CSV = b"0,1,2,3\n4,5,6,7\n8,9,10,11\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An importable package whose file `table.csv.gz` each test writes as it likes; metadata as of pytest."""
    folder = tmp_path / "fake_images"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path / "kept"))
    yield folder
    sys.modules.pop("fake_images", None)


def read():
    sha256 = hashlib.sha256(TABLE.tobytes()).hexdigest()
    return read_packaged("mine", package="fake_images", distribution="pytest", file="table.csv.gz", sha256=sha256)


def test_reads_the_numbers_and_keeps_them_from_change(package):
    (package / "table.csv.gz").write_bytes(gzip.compress(CSV))
    table = read()
    assert np.array_equal(table, TABLE)
    with pytest.raises(ValueError):
        table[0, 0] = 1


def test_parses_once_and_trusts_nothing_that_was_kept(package, monkeypatch):
    # Every rank of every run parsed the digits anew, a third of a second each.
    file = package / "table.csv.gz"
    file.write_bytes(gzip.compress(CSV))
    read()
    (kept,) = (package.parent / "kept").iterdir()
    monkeypatch.setattr(packaged, "_parse", lambda path: pytest.fail("parsed again"))
    assert np.array_equal(read(), TABLE) and not read().flags.writeable
    monkeypatch.undo()
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("LOCKSTEP_DATA", str(kept.parent))
    for content in (b"", kept.read_bytes()[:-3], kept.read_bytes()[:-1] + b"x"):
        kept.write_bytes(content)
        assert np.array_equal(read(), TABLE)
    file.write_bytes(gzip.compress(CSV.replace(b"11", b"12")))
    with pytest.raises(DataError, match="holds other numbers"):
        read()
    assert [one.name for one in kept.parent.iterdir()] == [kept.name], "wrong tables are not kept"


def test_what_cannot_be_kept_is_parsed_each_time(package, monkeypatch):
    (package / "table.csv.gz").write_bytes(gzip.compress(CSV))
    (package.parent / "kept").write_text("a file is in the way")
    assert np.array_equal(read(), TABLE) and np.array_equal(read(), TABLE)


def test_without_the_package():
    with pytest.raises(DataError, match="mine lies inside the package pytest, which is not installed: run `pip inst"):
        read()


def test_without_the_file(package):
    with pytest.raises(DataError, match="no such file: run `pip install --force-reinstall"):
        read()


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(CSV)[:-12],
        gzip.compress(CSV)[:15],
        b"not gzip at all",
        b"",
        gzip.compress(b"0,1,two,3\n"),
        gzip.compress(b"0,1,2,3\n4,5,6\n"),
        gzip.compress(b"0,1,2,256\n"),
        gzip.compress(b"0,1,2,-1\n"),
        bytes(byte ^ 255 if place == 20 else byte for place, byte in enumerate(gzip.compress(CSV))),
    ],
    ids=["cut", "cut early", "not gzip", "empty", "word", "short row", "too large", "negative", "flipped"],
)
def test_a_damaged_file(package, content):
    (package / "table.csv.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"damaged.*reinstall|holds other numbers"):
        read()


def test_other_numbers_than_expected(package):
    (package / "table.csv.gz").write_bytes(gzip.compress(CSV.replace(b"11", b"12")))
    with pytest.raises(DataError, match=r"holds other numbers than it should: SHA-256 .{12}, not .{12}.*reinstall"):
        read()


def test_load_never_falls_back_on_another_set(monkeypatch):
    def damaged(split, download):
        raise DataError("the file is damaged")

    real = sets._SETS["mnist5k"]
    monkeypatch.setitem(sets._SETS, "mnist5k", sets._Set(damaged, 255, real.classes, real.about, "", ""))
    with pytest.raises(DataError, match="the file is damaged"):
        sets.load("mnist5k")
