"""CIFAR-10, when the user has it: 60,000 real colour images of 32x32 pixels.

Floor 0, room `data`. The published files are Python pickles, and a pickle can run any code. So each file is
first compared with its published MD5, and then read by an unpickler that knows arrays and nothing else.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import pickle
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.data.errors import DataError
from lockstep.data.kept import folder

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDER, ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"


def read_cifar10(split: str, download: bool = False) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images (N, 3, 32, 32) and labels of a split, from `folder()`: 50,000 "train", 10,000 "test", or "all".

    Takes the published Python version, unpacked or as its archive. Only `download=True` fetches it (163 MiB).
    Raises DataError when it is not there, damaged, or not the published files.
    """
    from torchvision.datasets import CIFAR10  # its published addresses and checksums; slow to import

    if download and not ((folder() / FOLDER).is_dir() or (folder() / ARCHIVE).is_file()):
        _download(CIFAR10.url, CIFAR10.tgz_md5)
    files = {"train": CIFAR10.train_list, "test": CIFAR10.test_list, "all": CIFAR10.train_list + CIFAR10.test_list}
    batches = [_unpickle(name, raw) for name, raw in _published([(name, md5) for name, md5 in files[split]]).items()]
    images = np.concatenate([np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32) for batch in batches])
    return images, np.concatenate([np.asarray(batch["labels"], np.int64) for batch in batches])


def _download(url: str, md5: str) -> None:
    """Fetch the archive beside its place and move it there whole, so that nobody ever meets a half one."""
    from torchvision.datasets.utils import download_url

    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder()) as beside:
            download_url(url, beside, ARCHIVE, md5)
            shutil.move(Path(beside) / ARCHIVE, folder() / ARCHIVE)
    except (OSError, RuntimeError) as error:  # no network, a full disk, a wrong checksum
        raise DataError(f"cifar10 could not be fetched from {url} into {folder()}: {error}") from error


def _published(files: list[tuple[str, str]]) -> dict[str, bytes]:
    """The named files' bytes, each equal to its published MD5."""
    unpacked, archive = folder() / FOLDER, folder() / ARCHIVE
    try:
        if unpacked.is_dir():
            found = {name: (unpacked / name).read_bytes() for name, _ in files}
        elif archive.is_file():
            with tarfile.open(archive) as tar:
                found = {name: tar.extractfile(f"{FOLDER}/{name}").read() for name, _ in files}
        else:
            raise DataError(
                f'cifar10 is neither in {unpacked} nor in {archive}. load("cifar10", download=True) fetches it '
                f"(163 MiB); or set LOCKSTEP_DATA to the folder where you have it; or use "
                f'load("shapes32"), which is always there'
            )
    except (OSError, EOFError, KeyError, zlib.error, tarfile.TarError) as error:
        raise DataError(
            f"cifar10 in {folder()} is incomplete or damaged ({error}): delete {FOLDER} and {ARCHIVE} there, then "
            f'load("cifar10", download=True)'
        ) from error
    for name, md5 in files:
        if hashlib.md5(found[name], usedforsecurity=False).hexdigest() != md5:
            raise DataError(
                f"{name} of cifar10 in {folder()} is not the published file (its MD5 is not {md5}), so it was not "
                f'opened: delete {FOLDER} and {ARCHIVE} there, then load("cifar10", download=True)'
            )
    return found


class _ArraysOnly(pickle.Unpickler):
    """Builds NumPy arrays and plain values; whatever else a pickle asks for is refused."""

    _rebuild = np.empty(0).__reduce__()[0]
    _known = {
        ("numpy.core.multiarray", "_reconstruct"): _rebuild,
        ("numpy._core.multiarray", "_reconstruct"): _rebuild,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): codecs.encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._known[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def _unpickle(name: str, raw: bytes) -> dict[str, Any]:
    try:
        return _ArraysOnly(io.BytesIO(raw), encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{name} of cifar10 in {folder()} holds more than arrays, and was not read: {error}") from error
