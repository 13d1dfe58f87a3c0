"""CIFAR-10 from a small forged copy whose checksums are put in place of the published ones."""

import hashlib
import io
import pickle
import struct
import tarfile

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from lockstep.data import DataError, load
from lockstep.data.cifar10 import ARCHIVE, FOLDER

NAMES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]


def as_python_2_wrote_it(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A batch in the published files' own dialect: byte strings for text, and NumPy's module names of 2009."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    rows, columns = pixels.shape
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t" + text(b"b") + b"tR"
    array += b"(" + number(1) + b"(" + number(rows) + number(columns) + b"t" + dtype + b"I00\n"
    array += text(pixels.tobytes()) + b"tb"
    numbers = b"](" + b"".join(number(label) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + numbers + b"u."


@pytest.fixture
def forged(tmp_path, monkeypatch):
    """`forged(files)` puts the batches' bytes where CIFAR-10 is looked for, with checksums to match."""
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path))

    def place(files: dict[str, bytes], archive: bool = False) -> None:
        sums = [[name, hashlib.md5(files[name]).hexdigest()] for name in NAMES]
        monkeypatch.setattr(CIFAR10, "train_list", sums[:5])
        monkeypatch.setattr(CIFAR10, "test_list", sums[5:])
        if archive:
            with tarfile.open(tmp_path / ARCHIVE, "w:gz") as tar:
                for name, raw in files.items():
                    entry = tarfile.TarInfo(f"{FOLDER}/{name}")
                    entry.size = len(raw)
                    tar.addfile(entry, io.BytesIO(raw))
            return
        (tmp_path / FOLDER).mkdir()
        for name, raw in files.items():
            (tmp_path / FOLDER / name).write_bytes(raw)

    return place


def batches() -> dict[str, bytes]:
    pixels = [np.full((10, 3072), 40 * i, np.uint8) for i in range(6)]
    return {name: as_python_2_wrote_it(part, list(range(10))) for name, part in zip(NAMES, pixels, strict=True)}


@pytest.mark.parametrize("archive", [False, True], ids=["unpacked", "archive"])
def test_reads_the_published_dialect(forged, archive):
    forged(batches(), archive)
    train, test = load("cifar10"), load("cifar10", "test")
    assert train.images.shape == (50, 3, 32, 32) and test.images.shape == (10, 3, 32, 32)
    assert torch.equal(train.images[10:20], torch.full((10, 3, 32, 32), 40 / 255))
    assert train.labels.tolist() == list(range(10)) * 5
    assert len(load("cifar10", "all")) == 60


def test_channels_and_rows_are_where_the_publication_says(forged):
    """The first 1,024 bytes of a row are red, then green, then blue; each channel line by line."""
    files = batches()
    row = (np.arange(3072) // 32 % 251).astype(np.uint8)
    files["test_batch"] = as_python_2_wrote_it(np.stack([row] * 10), list(range(10)))
    forged(files)
    image = load("cifar10", "test").images[0] * 255
    assert image[1, 5].unique().round().tolist() == [32 + 5]


def test_missing_says_the_three_ways_out(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path))
    with pytest.raises(DataError) as caught:
        load("cifar10")
    for word in (str(tmp_path), "download=True", "LOCKSTEP_DATA", "shapes32"):
        assert word in str(caught.value)


def test_one_file_missing(forged, tmp_path):
    forged(batches())
    (tmp_path / FOLDER / "data_batch_3").unlink()
    with pytest.raises(DataError, match=r"incomplete or damaged.*data_batch_3"):
        load("cifar10")


def test_archive_cut_short(forged, tmp_path):
    forged(batches(), archive=True)
    whole = (tmp_path / ARCHIVE).read_bytes()
    (tmp_path / ARCHIVE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="incomplete or damaged"):
        load("cifar10")


def test_a_changed_file_is_not_opened(forged, tmp_path):
    forged(batches())
    path = tmp_path / FOLDER / "data_batch_2"
    path.write_bytes(path.read_bytes().replace(b"labels", b"LABELS"))
    with pytest.raises(DataError, match="data_batch_2 of cifar10 .* is not the published file"):
        load("cifar10")


class Evil:
    def __reduce__(self):
        return eval, ("open('evil', 'w').close()",)


def test_a_pickle_that_would_run_code_is_refused_even_with_the_right_checksum(forged, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = batches()
    files["test_batch"] = pickle.dumps({"data": Evil(), "labels": [0]}, protocol=2)
    forged(files)
    with pytest.raises(DataError, match="holds more than arrays, and was not read: it asks for .*eval"):
        load("cifar10", "test")
    assert not (tmp_path / "evil").exists()


def test_download_only_on_request_and_never_half_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path / "new"))
    asked = []

    def fetch(url, root, filename, md5):
        asked.append(url)
        with open(f"{root}/{filename}", "wb") as file:
            file.write(b"half")
        raise RuntimeError("File not found or corrupted.")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", fetch)
    with pytest.raises(DataError, match="neither in"):
        load("cifar10")
    assert not asked
    with pytest.raises(DataError, match="could not be fetched"):
        load("cifar10", download=True)
    assert asked == [CIFAR10.url]
    assert list((tmp_path / "new").iterdir()) == []
