"""The first code cell of every lab: what Colab and Kaggle need before the course is there.

Floor 4, room `course`. It does nothing on a machine where the course is installed. Hosted notebooks come with
torch, NumPy and IPython of their own, and break when those are upgraded under them; so nothing but the course
itself is installed, at the release that the lab was made for.
"""

from __future__ import annotations

from string import Template

_CELL = Template("""\
#@title Set up (only Colab and Kaggle need this; elsewhere it does nothing)
import importlib.util
import os

if importlib.util.find_spec("lockstep") is None:
    if "COLAB_RELEASE_TAG" in os.environ:
        print("Colab forgets this tab when you close it. First choose File > Save a copy in Drive, and work in the copy.")
        if not input("Is this your copy? (yes/no) ").lower().startswith("y"):
            raise SystemExit("Save a copy in Drive, open it, and run this cell there.")
        if input("Keep your solutions and predictions in your Drive? (yes/no) ").lower().startswith("y"):
            from google.colab import drive

            drive.mount("/content/drive")
            os.environ["LOCKSTEP_MY"] = "/content/drive/MyDrive/lockstep/my"
    elif "KAGGLE_KERNEL_RUN_TYPE" not in os.environ:
        raise SystemExit("The course is not installed here. Start the lab with ./course lab, which installs it.")
    $install
""")
_RELEASED = '%pip install --quiet --no-deps "lockstep @ git+$repository@v$version"'
_UNRELEASED = (
    'raise SystemExit("This copy of the course has no published release yet: use ./course lab on your own machine.")'
)


def set_up_cell(repository: str | None, version: str) -> str:
    """The cell's text; `repository` is the address to install the release from, None before there is one."""
    install = _UNRELEASED
    if repository:
        install = Template(_RELEASED).substitute(repository=repository.removesuffix("/"), version=version)
    return _CELL.substitute(install=install).rstrip("\n")
