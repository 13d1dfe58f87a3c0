"""The students' bundle: no solution in it, the variants stated, what was dropped gone, and refusals in sentences."""

import json
import stat
from dataclasses import replace
from functools import cache
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from lockstep.course import cli
from lockstep.course.build import stale
from lockstep.course.leak import leaks
from lockstep.course.release.plan import built_on, plan
from lockstep.course.release.release import Outputs, from_release, new_release
from lockstep.course.release.shown import shown
from lockstep.course.release.toml import read_release
from lockstep.course.release.values import variants_key
from lockstep.course.source import read
from lockstep.course.tree import Tree
from lockstep.exercises import registry

HOME = Tree(Path(__file__).resolve().parents[2])
once_read, once_stale = cache(read), cache(lambda name: stale(once_read(HOME.find(name)), HOME))

PACK = """
import numpy as np
from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import same_value
from lockstep.exercises.observe import Call
from .secret import FACTOR

def weigh(numbers):
    return sum(FACTOR * number for number in numbers)

def by_product(numbers): return FACTOR * sum(numbers)
def by_loop(numbers):
    total = 0.0
    for number in numbers: total += FACTOR * number
    return total
def weigh_stub(numbers):
    raise NotImplementedError("weigh them")
def forgets(numbers): return sum(numbers)
def counts(numbers): return float(len(numbers))
def twice(numbers): return 2 * FACTOR * sum(numbers)
def nothing(numbers): return None

def cases(rng):
    for n in (1, 3): yield Case(f"{n} numbers", (rng.normal(size=n).tolist(),))
def more(rng):
    yield Case("serial=0.125, workers=77", (0.125, 77))

EXERCISES = (Exercise(
    id="05.21", title="Weights", function="weigh", points=4, asks="Weigh the numbers.", reference=weigh,
    also_right=(by_product, by_loop), stub=weigh_stub, cases=cases, observe=Call(), judge=same_value(),
    hints=("Think.", "Weigh."),
    mistakes=tuple(Mistake(f.__name__, f, f.__name__ + "!") for f in (forgets, counts, twice, nothing)),
),)
CASES = {"05.2": more}
"""


@pytest.fixture(autouse=True)
def read_once(monkeypatch):
    """The course's own sources are read once for all these tests; that of a small clone each time."""
    rooms = [f"lockstep.course.release.{room}" for room in ("plan", "bundle", "release")]
    for room in rooms:
        monkeypatch.setattr(
            f"{room}.read", lambda path: once_read(path) if path.parent == HOME.solutions else read(path)
        )

    def stale_once(source, tree):
        return once_stale(source.name) if source.path.parent == HOME.solutions else stale(source, tree)

    monkeypatch.setattr("lockstep.course.release.plan.stale", stale_once)


@pytest.fixture
def pack(tmp_path) -> Path:
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "own.py").write_text(PACK)
    (folder / "secret.py").write_text("FACTOR = 2.5\n")
    return folder


def cells_of(path):
    return nbformat.read(path, as_version=4).cells


def test_a_bundle_with_everything(tmp_path, pack):
    to, out = tmp_path / "release.toml", tmp_path / "out"
    release, files = new_release(
        HOME, ["5", "04"], to, Outputs(out), drop=["05.6"], with_variants=True, pack=pack, repository="owner/name"
    )
    assert sorted(path.relative_to(out).as_posix() for path in files) == [
        "README.md", "labs/04_collectives.ipynb", "labs/05_data_parallel.ipynb", "labs/AGENTS.md"
    ]  # fmt: skip
    assert sorted(files) == sorted(path for path in out.rglob("*") if path.is_file()), "nothing else is given out"
    assert stat.S_IMODE(to.stat().st_mode) == 0o600
    assert replace(read_release(to), pack=None, made=None) == replace(release, pack=None, made=None)
    everything = "".join(path.read_text() for path in files)
    assert f"{release.seed:064x}" not in everything and "2.5" not in (out / "README.md").read_text()

    sources = [once_read(path) for path in HOME.sources()]
    for number, name in (("04", "04_collectives"), ("05", "05_data_parallel")):
        notebook = nbformat.read(out / "labs" / f"{name}.ipynb", as_version=4)
        nbformat.validate(notebook)
        assert leaks(number, notebook, sources, registry.all()) == []
        assert not any(cell.get("outputs") for cell in notebook.cells)
        text = "\n".join(cell.source for cell in notebook.cells)
        assert f"github/owner/name/blob/main/labs/{name}.ipynb" in notebook.cells[0].source
        assert "git+https://github.com/owner/name@v" in text
        assert f'use_variants(STUDENT, "{variants_key(release.seed)}", lab="{number}")' in text
        assert notebook.metadata.lockstep.release == variants_key(release.seed)[:8]

    ids = [cell.id for cell in cells_of(out / "labs/05_data_parallel.ipynb")]
    assert len(ids) == len(set(ids))
    assert ids.index("variant-05-1") == ids.index("exercise-05-1") - 1
    assert "exercise-05-6" not in ids and "check-05-6" not in ids and "library-05-6" in ids
    added = cells_of(out / "labs/05_data_parallel.ipynb")[-1]
    assert added.source == 'def weigh(numbers):\n    raise NotImplementedError("weigh them")'
    assert "05.21" in added.metadata.tags

    by_id = {one.id: one for one in release.exercises}
    assert "05.6" not in by_id and by_id["05.21"].origin == "pack" and by_id["04.2"].variants
    assert [one.id for one in release.values("05")][-1] == "05.21"
    extra = next(one for one in release.values("05") if one.id == "05.2").draw(3)[-1]
    assert extra.name == "serial=0.125, workers=77"
    assert "dropped: 05.6" in shown(release, files) and "lab 05: 8 exercises, 1 of them in variants" in shown(
        release, files
    )

    (pack / "secret.py").write_text("FACTOR = 9.5\n")
    with pytest.raises(ValueError, match="is not the one that was released"):
        release.values("05")
    with pytest.raises(ValueError, match="another state of the course: the pack"):
        from_release(HOME, to, Outputs(tmp_path / "again"))


def test_refusals(tmp_path, pack):
    to, out = tmp_path / "release.toml", tmp_path / "out"

    def refused(match, labs=("04",), to=to, outputs=None, **more):
        with pytest.raises(ValueError, match=match):
            new_release(HOME, labs, to, outputs or Outputs(out), **more)
        assert not out.exists() or not list(out.rglob("*.ipynb"))

    refused("there is no lab '77'; there are: 00_start_here", labs=["77"])
    refused("name the labs to release", labs=[])
    refused("--drop 05.6: these labs have the exercises 04.1", drop=["05.6"])
    refused("04.2 cannot be dropped: 04.4 builds on it. Drop 04.4 too, or keep 04.2.", drop=["04.2"])
    refused("say what to make", outputs=Outputs())
    refused("no exercise of these labs comes in variants; 04.2, 04.3, 05.1", labs=["00"], with_variants=True)
    refused("which is given out; it holds the seed", to=out / "deep" / "release.toml")
    refused("is a repository on GitHub, as owner/name", repository="https://example.org/x")
    refused("there is no pack", pack=tmp_path / "none")
    refused("05.21 belongs to lab 05, which is not released", pack=pack)
    (pack / "own.py").write_text(PACK.replace("05.21", "04.2"))
    refused("own.py: the id 04.2 is taken", pack=pack)
    (pack / "own.py").write_text(
        PACK.replace("05.21", "04.21").replace(
            "def forgets(numbers): return sum", "def forgets(numbers): return 2.5 * sum"
        )
    )
    refused("the mistake 'forgets' passes", pack=pack)
    (pack / "own.py").write_text("import nowhere_at_all")
    refused("own.py of the pack cannot be loaded: ModuleNotFoundError", pack=pack)
    (pack / "own.py").write_text("EXERCISES = ()")
    refused("holds neither EXERCISES nor CASES", pack=pack)
    out.mkdir()
    (out / "old.txt").write_text("")
    refused("out is not empty \\(it holds old.txt\\)")
    assert not to.exists(), "a release that failed leaves no seed behind"
    (out / "old.txt").unlink()
    to.write_text("mine")
    refused("exists and holds the seed of an earlier release")
    assert to.read_text() == "mine"


def test_only_what_is_built_is_released(clone, tmp_path):
    clone.write()
    with pytest.raises(ValueError, match="only what is built is released: labs/00_counting.ipynb is missing"):
        plan(clone.tree, ["00"], tmp_path / "release.toml")


def test_a_solution_in_a_notebook_stops_the_release(clone, tmp_path, monkeypatch):
    """Student versions have shipped with their solutions in other courses; here nothing is written then."""
    monkeypatch.setattr("lockstep.course.release.plan.stale", lambda source, tree: [])
    clone.changed("Predict the sum before it is printed.", "Write `result = sum(number + 0 for number in numbers)`.")
    with pytest.raises(ValueError, match="nothing was written, since 00_counting would give a solution away"):
        new_release(clone.tree, ["00"], tmp_path / "release.toml", Outputs(tmp_path / "out"))
    assert not (tmp_path / "out").exists() and not (tmp_path / "release.toml").exists()


def test_more_from_one_release(tmp_path):
    to = tmp_path / "release.toml"
    release, _ = new_release(HOME, ["04"], to, Outputs(tmp_path / "out"))
    again, files = from_release(HOME, to, Outputs(tmp_path / "again"))
    assert again.seed == release.seed
    one, two = (folder / "labs/04_collectives.ipynb" for folder in (tmp_path / "out", tmp_path / "again"))
    assert one.read_bytes() == two.read_bytes(), "the same release gives the same bundle"
    to.write_text(to.read_text().replace('sha256 = "', 'sha256 = "f', 1))
    with pytest.raises(ValueError, match="lab 04 has changed since"):
        from_release(HOME, to, Outputs(tmp_path / "third"))


def test_what_builds_on_what():
    cells = [cell for path in HOME.sources() for cell in once_read(path).cells]
    assert built_on(registry.find("04.3"), cells) == ["04.4"]
    assert built_on(registry.find("05.6"), cells) == []
    assert built_on(registry.find("00.1"), cells) == []


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    made = runner.invoke(cli.app, ["release", "out", "--labs", "4", "--drop", "04.5, 04.7", "--variants"])
    assert made.exit_code == 0, made.output
    assert "lab 04: 5 exercises, 2 of them in variants" in made.output and "never publish it" in made.output
    assert read_release("release.toml").dropped == ("04.5", "04.7")
    notebook = json.loads((tmp_path / "out/labs/04_collectives.ipynb").read_text())
    assert any("exercise-04-1" == cell["id"] for cell in notebook["cells"])
    wrong = runner.invoke(cli.app, ["release", "more", "--release", "release.toml", "--labs", "04"])
    assert isinstance(wrong.exception, ValueError) and "says already which labs" in str(wrong.exception)
    right = runner.invoke(cli.app, ["release", "more", "--release", "release.toml"])
    assert right.exit_code == 0 and (tmp_path / "more/labs/04_collectives.ipynb").is_file()
