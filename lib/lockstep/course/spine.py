"""The rules of a lab's spine, one small function each; what it returns is what is wrong, a sentence for each place.

Floor 4, room `course`; read `source.py` first. `RULES` holds them all. A rule sees the lab's source, its exercises,
and the executed solution when there is one. Each rule has a test that breaks it.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.course.leak import telling_lines, without_spaces
from lockstep.course.source import Cell, Source

LEAD_IN = 20  # words
CORE_SOLUTION = 25  # lines
PREDICTIONS = 3


@dataclass(frozen=True)
class Lab:
    """What the rules look at. exercises: the registered ones of this lab. executed: the solution with its outputs."""

    source: Source
    exercises: Sequence[Any] = ()
    executed: Any = None

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.source.cells

    def tagged(self, tag: str) -> Iterator[tuple[int, Cell]]:
        return ((place, cell) for place, cell in enumerate(self.cells) if tag in cell.tags)

    def calls(self, function: str) -> list[tuple[int, str]]:
        """(cell, first argument) of every call of a function, in order."""
        return [(place, said) for place, cell in enumerate(self.cells) for said in cell.calls(function)]


Rule = Callable[[Lab], list[str]]


def opens_with_title_time_goals_and_needs(lab: Lab) -> list[str]:
    first = lab.cells[0] if lab.cells else Cell("code", "")
    wanted = {
        "a title": r"^# \S",
        "'**Time:** N minutes'": r"\*\*Time:\*\* \d+ minutes",
        "'**You will be able to**'": r"\*\*You will be able to",
        "'**You need:**'": r"\*\*You need",
    }
    if first.kind != "markdown":
        return ["the first cell must be markdown: title, time, goals, needs"]
    return [f"the first cell lacks {what}" for what, how in wanted.items() if not re.search(how, first.text, re.M)]


def has_one_parameters_cell(lab: Lab) -> list[str]:
    found = [cell for _, cell in lab.tagged("parameters")]
    if len(found) != 1:
        return [f"there must be one cell tagged 'parameters'; there are {len(found)}"]
    names = ("RANKS", "FAST", "SEED")
    return [f"the parameters cell does not set {n}" for n in names if not re.search(rf"^{n} *=", found[0].text, re.M)]


def adds_up_its_minutes(lab: Lab) -> list[str]:
    stated = re.search(r"\*\*Time:\*\* (\d+) minutes", lab.source.prose)
    sections = [int(minutes) for minutes in re.findall(r"^#+ .*\((\d+) min\)\s*$", lab.source.prose, re.M)]
    if stated is None or sum(sections) == int(stated[1]):
        return []
    return [f"the sections' minutes add up to {sum(sections)}, the lab says {stated[1]}"]


def leads_in_to_each_exercise(lab: Lab) -> list[str]:
    said = []
    for place, cell in lab.tagged("exercise"):
        before = lab.cells[place - 1] if place else Cell("code", "")
        prose = re.sub(r"^#.*$", "", before.text, flags=re.M).split()
        if before.kind != "markdown" or len(prose) < LEAD_IN:
            said.append(
                f"exercise {cell.exercise} needs a markdown cell right before it that says what and why "
                f"(at least {LEAD_IN} words)"
            )
    return said


def marks_each_solution(lab: Lab) -> list[str]:
    return [
        f"exercise {cell.exercise} has no lines between '### BEGIN SOLUTION' and '### END SOLUTION'"
        for _, cell in lab.tagged("exercise")
        if not "".join(cell.solution_lines).strip()
    ]


def checks_each_exercise(lab: Lab) -> list[str]:
    said = []
    for place, cell in lab.tagged("exercise"):
        after = next((other for other in lab.cells[place + 1 :] if other.kind == "code"), Cell("code", ""))
        if "check" not in after.tags or after.exercise != cell.exercise or after.calls("check") != [cell.exercise]:
            said.append(
                f"the code cell after exercise {cell.exercise} must be its check: "
                f'tags=["check", "{cell.exercise}"] and check("{cell.exercise}", ...)'
            )
    return said


def asks_every_exercise_of_its_module(lab: Lab) -> list[str]:
    asked = [cell.exercise for _, cell in lab.tagged("exercise")]
    known = [exercise.id for exercise in lab.exercises]
    said = [f"exercise {id} is asked more than once" for id in sorted({i for i in asked if i and asked.count(i) > 1})]
    said += [f"an exercise cell has no id among its tags: {asked}" for id in asked if id is None]
    said += [f"exercise {id} is not among the registered ones" for id in asked if id and id not in known]
    return said + [f"exercise {id} is registered, but the lab does not ask it" for id in known if id not in asked]


def keeps_core_solutions_short(lab: Lab) -> list[str]:
    stretch = {exercise.id for exercise in lab.exercises if not exercise.core}
    said = []
    for _, cell in lab.tagged("exercise"):
        lines = len([line for line in cell.solution_lines if line.strip() and not line.strip().startswith("#")])
        if cell.exercise not in stretch and lines > CORE_SOLUTION:
            said.append(f"the solution of core exercise {cell.exercise} has {lines} lines; at most {CORE_SOLUTION}")
    return said


def predicts_before_it_reveals(lab: Lab) -> list[str]:
    predicted = {id: place for place, id in reversed(lab.calls("predict"))}
    revealed = {id: place for place, id in reversed(lab.calls("reveal"))}
    said = [f"prediction {id} is never revealed" for id in predicted if id not in revealed]
    for id, place in revealed.items():
        if id not in predicted:
            said.append(f"{id} is revealed but never predicted")
        elif predicted[id] >= place:
            said.append(f"{id} is revealed before it is predicted")
    return said


def predicts_three_times(lab: Lab) -> list[str]:
    count = len({id for _, id in lab.calls("predict")})
    return [] if count >= PREDICTIONS else [f"a lab has at least {PREDICTIONS} predictions; this one has {count}"]


def hints_do_not_solve(lab: Lab) -> list[str]:
    """At most the last hint may hold a line of the solution."""
    written = {cell.exercise: cell.solution_lines for _, cell in lab.tagged("exercise")}
    said = []
    for exercise in lab.exercises:
        reference = inspect.getsource(exercise.reference).split("\n")
        lines = telling_lines([*reference, *written.get(exercise.id, [])])
        for number, hint in enumerate(exercise.hints[:-1], 1):
            shown = [line for key, line in lines.items() if key in without_spaces(hint)]
            said += [f"hint {number} of {exercise.id} holds a line of its solution: {line}" for line in shown]
    return said


def asks_and_diagnoses(lab: Lab) -> list[str]:
    return [f"the summary needs a call of `{name}`" for name in ("ask", "diagnose") if not _mentions(lab, name)]


def recalls_earlier_labs(lab: Lab) -> list[str]:
    if lab.source.number == "00" or _mentions(lab, "recall"):
        return []
    return ["from lab 01 on, a lab opens with questions from earlier labs: `recall(...)`"]


def _mentions(lab: Lab, function: str) -> bool:
    return any(cell.kind == "code" and re.search(rf"\b{function}\(", cell.text) for cell in lab.cells)


def names_its_references(lab: Lab) -> list[str]:
    section = re.search(r"^#+ *(?:\d+\. *)?References.*$|\*\*References\W", lab.source.prose, re.M | re.I)
    if section is None:
        return ["there is no section 'References'"]
    rest = lab.source.prose[section.end() :]
    return [] if re.search(r"\b(1[6-9]|20)\d\d\b", rest) else ["the references name no year"]


def shows_the_torchrun_line(lab: Lab) -> list[str]:
    shown = any("torchrun " in cell.text for cell in lab.cells)
    return [] if shown else ["there is no `torchrun` line that runs the lab's idea on real hardware"]


def says_what_figures_show(lab: Lab) -> list[str]:
    """Every image in the executed solution has a text alternative."""
    said = []
    for cell in _executed_code(lab):
        for output in cell.outputs:
            data = output.get("data", {})
            shown = "".join(data.get("text/html", ""))
            if not shown and any(kind.startswith("image/") for kind in data):
                said.append(
                    f"cell {cell.id} shows an image without a text alternative: show `viz.Figure(figure, alt=...)`"
                )
            images = re.findall(r"<img\b[^>]*>", shown)
            if any(not re.search(r"\balt=([\"'])(?=\S)(?!\1)", image) for image in images):
                said.append(f"cell {cell.id} shows an <img> without alt text")
    return said


def shows_the_figure_before_its_widget(lab: Lab) -> list[str]:
    seen_figure, said = False, []
    for cell in _executed_code(lab):
        if "widget" in cell.metadata.get("tags", []):
            if not seen_figure:
                said.append(f"widget cell {cell.id} comes before any static figure")
            seen_figure = False
        seen_figure = seen_figure or any(
            "<img" in "".join(o.get("data", {}).get("text/html", "")) for o in cell.outputs
        )
    return said


def _executed_code(lab: Lab) -> list[Any]:
    return [cell for cell in lab.executed.cells if cell.cell_type == "code"] if lab.executed is not None else []


def introduces_terms_in_order(lab: Lab) -> list[str]:
    path, terms = _glossary()
    here = path.index(lab.source.number) if lab.source.number in path else len(path)
    said = []
    for sentence in _sentences(lab.source.prose):
        named = re.findall(r"\blabs? (\d\d)\b", sentence, re.I)
        for term, at in terms.items():
            case = 0 if term != term.lower() else re.IGNORECASE  # ZeRO is not zero
            later = path.index(at) > here and at not in named
            if later and re.search(rf"(?<![\w-]){re.escape(term)}(?:s|es)?(?![\w-])", sentence, case):
                said.append(f"'{term}' is introduced in lab {at}, but used here: {sentence.strip()[:80]}")
    return said


def _sentences(prose: str) -> list[str]:
    without_code = re.sub(r"```.*?```|`[^`\n]*`", " ", prose, flags=re.S)
    return re.split(r"(?<=[.!?:])\s+|\n\s*\n|\n(?=[-#|])", without_code)


@cache
def _glossary() -> tuple[list[str], dict[str, str]]:
    """The order of the labs, and for each term the lab that introduces it."""
    table = tomllib.loads((Path(__file__).parent / "glossary.toml").read_text(encoding="utf-8"))
    return table["path"], {term: at for at, terms in table["terms"].items() for term in terms}


RULES: tuple[Rule, ...] = (
    opens_with_title_time_goals_and_needs,
    has_one_parameters_cell,
    adds_up_its_minutes,
    leads_in_to_each_exercise,
    marks_each_solution,
    checks_each_exercise,
    asks_every_exercise_of_its_module,
    keeps_core_solutions_short,
    predicts_before_it_reveals,
    predicts_three_times,
    hints_do_not_solve,
    asks_and_diagnoses,
    recalls_earlier_labs,
    names_its_references,
    shows_the_torchrun_line,
    says_what_figures_show,
    shows_the_figure_before_its_widget,
    introduces_terms_in_order,
)


def broken(lab: Lab) -> list[str]:
    """Everything that is wrong with a lab's spine, each with the rule's name."""
    return [f"{sentence}  [{rule.__name__}]" for rule in RULES for sentence in rule(lab)]
