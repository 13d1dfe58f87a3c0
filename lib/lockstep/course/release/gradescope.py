"""Gradescope: an autograder zip, and what runs in its container at every hand-in.

Floor 4, room `course`. Gradescope unpacks the zip at `/autograder/source`, runs `setup.sh` once as root, and for every
hand-in runs `/autograder/run_autograder` as root: the student's files are in `/autograder/submission`, who it is and when
in `/autograder/submission_metadata.json`, and `/autograder/results/results.json` is what it reads afterwards
(gradescope-autograders.readthedocs.io, "Specifications"). Namespaces are usually refused in there, so the student's code
runs as a second user; the files of the zip that hold the seed are readable by root alone.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from lockstep.course.grade.released import rules_of, titles_of
from lockstep.course.grade.reports import gradescope_json
from lockstep.course.grade.result import Result
from lockstep.course.release.single import grade_one
from lockstep.course.release.toml import Release, as_toml, read_release
from lockstep.course.tree import Tree

SETUP = """\
#!/usr/bin/env bash
# Runs once, while Gradescope builds the image.
set -eu
export DEBIAN_FRONTEND=noninteractive LOCKSTEP_TORCH=cpu
export UV_PYTHON_INSTALL_DIR=/opt/python  # where the second user can read it
here=$(cd "$(dirname "$0")" && pwd)
chmod 700 "$here/private"
chmod 600 "$here"/private/*.toml
if command -v apt-get >/dev/null; then
    apt-get update -qq
    apt-get install -y -qq python3 python3-pip python3-venv bubblewrap ca-certificates
fi
suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
if ! suits python3; then
    python3 -m pip install --quiet uv  # it brings a newer Python along
fi
sh "$here/course/course" doctor
"""
RUN = """\
#!/usr/bin/env bash
# Runs at every hand-in.
root=$(cd "$(dirname "$0")" && pwd)
python=${LOCKSTEP_PYTHON:-$root/source/course/.venv/bin/python}
exec "$python" -P -m lockstep.course.release.gradescope "$root"
"""
COURSE = ("course", "pyproject.toml", "requirements.lock", "README.md", "LICENSE", "LICENSE-CC-BY-4.0")


def write_autograder(release: Release, tree: Tree, target: Path) -> Path:
    """Write the zip that Gradescope takes; raises ValueError when there is such a file already."""
    try:
        archive = zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED)
    except FileExistsError:
        raise ValueError(f"{target} exists already; move it, or name another zip") from None
    target.chmod(0o600)
    with archive as out:
        for name, text in (("setup.sh", SETUP), ("run_autograder", RUN)):
            _put(out, name, text.encode(), 0o755)
        _put(out, "private/release.toml", _private(release).encode(), 0o600)
        if release.pack is not None:
            for path in _files(release.pack.path):
                _put(out, f"private/pack/{path.relative_to(release.pack.path).as_posix()}", path.read_bytes(), 0o600)
        for path in _course(tree, release):
            mode = 0o755 if path.name == "course" else 0o644
            _put(out, f"course/{path.relative_to(tree.root).as_posix()}", path.read_bytes(), mode)
    return target


def _put(out: zipfile.ZipFile, name: str, content: bytes, mode: int) -> None:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (0o100000 | mode) << 16
    out.writestr(info, content)


def _private(release: Release) -> str:
    """The release as it lies in the zip, where the pack has a place of its own."""
    text = as_toml(release)
    if release.pack is None:
        return text
    lines = ['path = "pack"' if line.startswith("path = ") else line for line in text.split("\n")]
    return "\n".join(lines)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _course(tree: Tree, release: Release) -> Iterator[Path]:
    """The library, what installs it, and the sources and notebooks of the labs that are released."""
    yield from (tree.root / name for name in COURSE if (tree.root / name).is_file())
    yield from _files(tree.root / "lib" / "lockstep")
    for lab in release.labs:
        stem = Path(lab.notebook).stem
        yield from (path for path in (tree.solutions / f"{stem}.py", tree.labs / lab.notebook) if path.is_file())


def run(root: Path, isolation: str = "auto") -> Result:
    """Grade what lies in `root`/submission and write `root`/results/results.json.

    Raises ValueError for a release that cannot be read and RuntimeError when grading itself fails: then there are no
    results, and Gradescope tells the instructor.
    """
    release = read_release(root / "source" / "private" / "release.toml")
    rules = rules_of(release, isolation=isolation)
    files = [path for path in (root / "submission").rglob("*") if path.is_file() and not path.is_symlink()]
    result = grade_one(_student(root / "submission_metadata.json"), files, rules)
    target = root / "results" / "results.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(gradescope_json(result, titles_of(release, rules)), encoding="utf-8")
    return result


def _student(metadata: Path) -> str:
    """The e-mail address of who handed in, else the name; of a group, those of all in the order of the alphabet."""
    try:
        users = json.loads(metadata.read_text(encoding="utf-8"))["users"]
        return ", ".join(sorted(one.get("email") or one["name"] for one in users)) or "unknown"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "unknown"


if __name__ == "__main__":
    run(Path(sys.argv[1]))
