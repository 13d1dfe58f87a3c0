"""The `lockstep` command: what a student, an author and CI type.

Floor 4, room `course`. Each command is a few lines that call the module of its name; those are imported inside,
so that `--help` does not wait for torch.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from lockstep.course.grade.options import grade, regrade
from lockstep.course.tree import NoClone, Tree, here

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
HANDS_ON = {"ignore_unknown_options": True, "allow_extra_args": True}


def main() -> None:
    """Entry point; a command that needs the clone says so in one line."""
    try:
        app()
    except (NoClone, ValueError) as error:
        print(f"lockstep: {error}", file=sys.stderr)
        sys.exit(2)


@app.command(context_settings=HANDS_ON)
def lab(context: typer.Context) -> None:
    """Look at this machine, then open JupyterLab at labs/. Options go to JupyterLab: --no-browser, --port 8889."""
    from lockstep.course import doctor
    from lockstep.course.jupyter import lab_command

    tree = here()
    report = doctor()
    print(report, flush=True)
    if not report.usable:
        print("The labs will not run until that is mended; JupyterLab opens all the same.", flush=True)
    raise typer.Exit(_become([*lab_command(tree.labs), *context.args], tree.labs))


def _become(command: list[str], folder: Path) -> int:
    """Turn into another program; on Windows, which cannot, wait for it. Ctrl-C and signals are then its to handle."""
    if os.name != "nt":
        os.chdir(folder)
        os.execv(command[0], command)
    process = subprocess.Popen(command, cwd=folder)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


@app.command()
def run(
    labs: Annotated[list[str] | None, typer.Argument(help="Labs by number, or 'all'.")] = None,
    solutions: Annotated[bool, typer.Option("--solutions", help="The solutions instead of the labs.")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Short training: FAST = True.")] = False,
) -> None:
    """Execute labs without a screen and print a table: seconds, checks passed."""
    from lockstep.course import run as runner

    tree = here()
    outcomes = []
    for source in _chosen(tree, labs or ["all"]):
        notebook = (tree.solutions if solutions else tree.labs) / f"{source.stem}.ipynb"
        if not notebook.exists():
            raise ValueError(
                f"{notebook.parent.name}/{notebook.name} is not built yet: lockstep build {source.stem[:2]}"
            )
        bar = runner.has_terminal()
        if not bar:
            print(f"running {notebook.parent.name}/{notebook.name} ...", file=sys.stderr, flush=True)
        outcomes.append(runner.run(notebook, tree, fast=fast, keep=not solutions, quiet=not bar))
    runner.show_runs(outcomes, tree)
    wrong = [one for one in outcomes if one.error or (solutions and one.passed < len(one.checks))]
    raise typer.Exit(1 if wrong else 0)


def _chosen(tree: Tree, labs: list[str]) -> list[Path]:
    return tree.sources() if labs == ["all"] else [tree.find(lab) for lab in labs]


@app.command()
def check(notebook: Annotated[str, typer.Argument(help="A notebook, or a lab by number.")]) -> None:
    """Check the functions in a notebook without a screen, and print a table of its exercises."""
    from lockstep.course.run import check_functions, show_checks

    tree = here()
    path = Path(notebook)
    if path.suffix != ".ipynb":
        path = tree.labs / f"{tree.find(notebook).stem}.ipynb"
    if not path.is_file():
        raise ValueError(f"there is no notebook {path}")
    outcome = check_functions(path.resolve(), tree)
    show_checks(outcome)
    if outcome.error:
        print(f"{path.name}: {outcome.error}.", file=sys.stderr)
    raise typer.Exit(0 if outcome.passed == len(outcome.checks) and not outcome.error else 1)


@app.command(context_settings=HANDS_ON)
def test(context: typer.Context) -> None:
    """Everything that CI runs. With arguments: pytest with these (./course test -k ring)."""
    from lockstep.course.suite import run_suite, run_tests

    tree = here()
    raise typer.Exit(run_tests(tree, context.args) if context.args else run_suite(tree))


@app.command()
def doctor() -> None:
    """Say what this machine offers and what that means for the labs; fails only when they cannot run."""
    from lockstep.course.machine import examine

    report = examine()
    print(report)
    raise typer.Exit(0 if report.usable else 1)


@app.command()
def build(
    labs: Annotated[list[str] | None, typer.Argument(help="Labs by number; without any, those that are stale.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing: say what is stale, leaked or breaks a rule.")
    ] = False,
) -> None:
    """Make the notebooks of labs/ and solutions/ from their sources."""
    from lockstep.course.build import BuildError, stale
    from lockstep.course.build import build as build_one
    from lockstep.course.products import problems
    from lockstep.course.source import read

    tree = here()
    if check:
        found = problems(tree)
        print("\n".join(found) or "all products are right")
        raise typer.Exit(1 if found else 0)
    for path in _chosen(tree, labs or ["all"]):
        if labs or stale(read(path), tree):
            try:
                for product in build_one(path, tree):
                    print(f"{product.relative_to(tree.root)}: {product.stat().st_size:,} bytes")
            except BuildError as error:
                print(error, file=sys.stderr)
                raise typer.Exit(1) from None


@app.command()
def release(
    out: Annotated[Path | None, typer.Argument(help="A new folder for what students get.")] = None,
    labs: Annotated[str, typer.Option("--labs", help="By number: 04,05")] = "",
    drop: Annotated[str, typer.Option("--drop", help="Exercises that do not count: 05.6,05.7")] = "",
    variants: Annotated[bool, typer.Option("--variants", help="Exercises in variants, chosen by the name.")] = False,
    pack: Annotated[Path | None, typer.Option("--pack", help="A folder with your own exercises and cases.")] = None,
    repository: Annotated[str, typer.Option("--repository", help="Yours on GitHub, as owner/name.")] = "",
    nbgrader: Annotated[Path | None, typer.Option("--nbgrader", help="nbgrader's source folder.")] = None,
    gradescope: Annotated[Path | None, typer.Option("--gradescope", help="An autograder zip to write.")] = None,
    to: Annotated[Path, typer.Option("--to", help="Where the private file goes.")] = Path("release.toml"),
    old: Annotated[Path | None, typer.Option("--release", help="Make more from this release.")] = None,
) -> None:
    """Give labs to students: a bundle without solutions, and a private release.toml that grading needs."""
    from lockstep.course.release.release import Outputs, from_release, new_release
    from lockstep.course.release.shown import shown

    outputs = Outputs(out, nbgrader, gradescope)
    if old is not None:
        if labs or drop or variants or pack or repository:
            raise ValueError(f"{old} says already which labs and exercises; give --release without --labs and the like")
        made = from_release(here(), old, outputs)
    else:
        chosen = {"drop": _listed(drop), "with_variants": variants, "pack": pack, "repository": repository}
        made = new_release(here(), _listed(labs), to, outputs, **chosen)
    print(shown(*made))


def _listed(text: str) -> list[str]:
    """ "04, 05" -> ["04", "05"]."""
    return list(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))


app.command()(grade)
app.command()(regrade)


@app.command(context_settings=HANDS_ON)
def author(context: typer.Context, lab: Annotated[str, typer.Argument(help="A lab by number.")]) -> None:
    """Open the source of a lab as a notebook and remake its products on every save."""
    from lockstep.course.author import author as open_source

    tree = here()
    raise typer.Exit(open_source(tree.find(lab), tree, context.args))


@app.command(context_settings=HANDS_ON, add_help_option=False)
def train(context: typer.Context) -> None:
    """Train a network with any strategy by name; `lockstep train --help` lists them."""
    raise typer.Exit(subprocess.call([sys.executable, "-m", "lockstep.train", *context.args]))


@app.command(context_settings=HANDS_ON)
def bench(context: typer.Context, name: Annotated[str, typer.Argument(help="Which one to run.")] = "") -> None:
    """List the side-by-side measurements, or run one."""
    folder = here().root / "bench"
    files = {path.stem: path for path in sorted(folder.glob("*.py"))}
    if not name:
        for stem, path in files.items():
            print(f"{stem:12} {_first_line(path)}")
        return
    if name not in files:
        raise ValueError(f"there is no bench {name!r}; there are: {', '.join(files) or 'none yet'}")
    raise typer.Exit(subprocess.call([sys.executable, str(files[name]), *context.args], cwd=folder.parent))


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


if __name__ == "__main__":
    main()
