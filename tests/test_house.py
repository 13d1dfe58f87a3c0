"""The house keeps its order: floors, names, and one list of what is installed."""

import ast
import functools
import importlib
import importlib.util
import pkgutil
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import lockstep

HOME = Path(__file__).resolve().parents[1]
LIB = HOME / "lib/lockstep"
MODULES = sorted(path for path in LIB.rglob("*.py") if "__pycache__" not in path.parts)

# Floors from the ground up. Within a floor a room imports only from rooms named before it on the same line, and a
# room on floor 0 only from itself and from rooms before it.
FLOORS = (
    ("trace", "hardware", "nn", "data", "simt"),
    ("cost", "comm", "world"),
    ("compress", "parallel"),
    ("plan", "viz"),
    ("exercises", "train", "course"),
)
PLACE = {room: (floor, order) for floor, rooms in enumerate(FLOORS) for order, room in enumerate(rooms)}


def room_of(module: str) -> str | None:
    """ "lockstep.comm.ring" -> "comm"; None for the package itself and for other packages."""
    parts = module.split(".")
    return parts[1] if parts[0] == "lockstep" and len(parts) > 1 else None


def module_name(path: Path) -> str:
    parts = path.relative_to(LIB.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function. Imports for types alone do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", getattr(node.test, "attr", "")) == "TYPE_CHECKING":
            node.body = []
    found: set[str] = set()
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = (
                importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                if node.level
                else node.module
            )
            found |= {f"{base}.{alias.name}" for alias in node.names} if base == "lockstep" else {base}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(LIB)))
def test_imports_go_down(path):
    room = room_of(module_name(path))
    climbing = []
    for module in imports(path):
        other = room_of(module)
        if room is None or other is None or other == room or other not in PLACE:
            continue
        if PLACE[other] > PLACE[room]:
            climbing.append(module)
    assert not climbing, f"{path.relative_to(LIB)} imports from a room above it: {climbing}"


def test_every_room_has_its_floor():
    rooms = {room_of(module_name(path)) for path in MODULES} - {None}
    assert rooms <= set(PLACE), f"rooms without a floor: {rooms - set(PLACE)}"


def test_a_climbing_import_inside_a_function_is_seen(tmp_path):
    # The rule would be easy to get around by importing late.
    file = LIB / "cost/roofline.py"
    text = "def late():\n    from lockstep.world import launch\n    import lockstep.viz.timeline\n    from lockstep import train\n"
    assert {"lockstep.world", "lockstep.viz.timeline", "lockstep.train"} == imports(_written(tmp_path, text))
    assert room_of("lockstep.world") == "world" and PLACE["world"] > PLACE[room_of(module_name(file))]


def _written(folder: Path, text: str) -> Path:
    """A module whose path lies under lib/, which `imports` needs to name its package, without writing there."""

    class Module(type(folder)):
        def relative_to(self, *_):
            return Path("lockstep/cost/late.py")

    file = Module(folder / "late.py")
    file.write_text(text)
    return file


def test_no_module_is_called_by_what_it_is_not():
    vague = {"utils", "util", "helpers", "helper", "base", "common", "misc"}
    found = [path for path in MODULES if vague & set(path.relative_to(LIB).with_suffix("").parts)]
    assert not found, f"a module is named after the idea in it: {found}"


def test_files_of_tests_have_names_of_their_own():
    names = [path.name for path in (HOME / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names)), "pytest needs a different name for each test file"


# One list of what is installed.


def project() -> dict:
    return tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirement(line: str) -> tuple[str, str]:
    """ "torch>=2.11,<2.15" -> ("torch", ">=2.11,<2.15")."""
    name, bounds = re.fullmatch(r"([A-Za-z0-9_.-]+)\s*(.*)", line.strip()).groups()
    return name.lower().replace("_", "-"), bounds.replace(" ", "")


CONDA_NAMES = {"torch": "pytorch", "playwright": "playwright-python"}


def test_environment_yml_names_what_pyproject_names():
    # Not read by a YAML parser: the file has to stay as plain as this.
    text = (HOME / "environment.yml").read_text(encoding="utf-8")
    listed = dict(requirement(line) for line in re.findall(r"^  - ([^:\n]+)$", text, re.M) if line != "conda-forge")
    assert re.findall(r"^channels:\n((?:  - .+\n)+)", text, re.M) == ["  - conda-forge\n  - nodefaults\n"]
    assert listed.pop("python") == project()["requires-python"]
    listed = {name: bounds for name, bounds in listed.items() if name not in ("pip", "nodefaults")}
    wanted = [*project()["dependencies"], *project()["optional-dependencies"]["test"]]
    expected = {CONDA_NAMES.get(name, name): bounds for name, bounds in map(requirement, wanted)}
    assert listed == expected


def test_the_lock_holds_every_dependency_and_nothing_that_only_cuda_needs():
    lines = (HOME / "requirements.lock").read_text(encoding="utf-8").splitlines()
    locked = {requirement(line.split("==")[0])[0] for line in lines if "==" in line}
    wanted = {
        requirement(line)[0] for line in [*project()["dependencies"], *project()["optional-dependencies"]["test"]]
    }
    assert wanted <= locked
    assert not [name for name in locked if re.match(r"nvidia-|cuda-|triton", name)]
    assert not [line for line in lines if line.startswith("-")], (
        "an option such as an index address binds every machine"
    )


IMPORTED_AS = {"PIL": "pillow", "sklearn": "scikit-learn", "IPython": "ipython", "zmq": "pyzmq"}


def test_every_package_that_the_library_imports_is_a_dependency():
    declared = {requirement(line)[0] for line in project()["dependencies"]}
    declared |= {"jupyter-client", "pyzmq", "traitlets"}  # parts of JupyterLab
    for path in MODULES:
        tops = {module.partition(".")[0] for module in imports(path)} - set(sys.stdlib_module_names) - {"lockstep"}
        foreign = {IMPORTED_AS.get(top, top).lower().replace("_", "-") for top in tops} - declared
        assert not foreign, f"{path.relative_to(LIB)} imports {foreign}, which pyproject.toml does not name"


def test_no_module_hides_what_its_room_exports():
    # A module named like the function that a notebook imports takes its place: `answer("03.q1", "a")` was a TypeError.
    for found in pkgutil.walk_packages(lockstep.__path__, "lockstep."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    meant = [("lockstep.simt", "cuda")]
    for name, package in [(name, each) for name, each in sys.modules.items() if name.startswith("lockstep")]:
        for public in getattr(package, "__all__", ()):
            hidden = isinstance(getattr(package, public), ModuleType) and (name, public) not in meant
            assert not hidden, f"{name}.{public} is a module, and not what the room exports"


def test_what_must_not_run_side_by_side_is_on_one_worker(request):
    # A newer pytest let pytest-xdist forget the groups: runs of real ranks disturbed, and once killed, each other.
    if hasattr(request.config, "workerinput"):
        launches = [item.nodeid for item in request.session.items if item.path.name.startswith("test_launch")]
        assert all(nodeid.endswith("@crowded") for nodeid in launches)


# What strangers must not meet.


def test_shell_scripts_are_committed_with_unix_line_ends():
    for name in ("course", ".ci/run"):
        assert b"\r" not in (HOME / name).read_bytes()


def test_the_version_is_said_once():
    import lockstep

    assert lockstep.__version__ == project()["version"]
