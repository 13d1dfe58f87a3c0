"""What an instructor decides beyond the exercises: lateness, and points for predictions and answers.

Floor 4, room `course`. Without a policy file nothing is taken off and words earn nothing. The file::

    [late]
    grace_hours = 1
    percent_per_day = 10     # of the points reached, for each day begun
    at_most = 50             # percent

    [predictions]
    points = 0.5             # each: half for saying a number in time, half for a reason; never for being close

    [answers."05.w1"]
    points = 4
    question = "Why does the ring send less?"
    rubric = "0 to 4: names both phases (2), counts the bytes (2)"
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Late:
    """percent_per_day: of the points reached, for each day begun after `grace_hours`; at_most: percent in all."""

    grace_hours: float = 0.0
    percent_per_day: float = 0.0
    at_most: float = 100.0

    def penalty(self, raw: float, hours: float | None) -> float:
        """Points taken off a raw score that came `hours` late."""
        if hours is None or hours <= self.grace_hours:
            return 0.0
        days = math.ceil((hours - self.grace_hours) / 24)
        return round(raw * min(self.at_most, days * self.percent_per_day) / 100, 6)


@dataclass(frozen=True)
class Answer:
    """A question to be answered in words: its points, its text, and by what it is marked."""

    points: float
    question: str = ""
    rubric: str = ""


@dataclass(frozen=True)
class Policy:
    """See the module's docstring. predictions: points for each."""

    late: Late = Late()
    predictions: float = 0.0
    answers: Mapping[str, Answer] = field(default_factory=dict)


def read_policy(path: Path | None) -> Policy:
    """Read a policy file, or the policy without one; raises ValueError with the entry that is wrong."""
    if path is None:
        return Policy()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"the policy {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    unknown = set(table) - {"late", "predictions", "answers"}
    if unknown:
        raise ValueError(f"{path} has an unknown part [{sorted(unknown)[0]}]; there are late, predictions and answers")
    late = Late(**_numbers(table.get("late", {}), [one.name for one in fields(Late)], f"{path}, [late]"))
    each = _numbers(table.get("predictions", {}), ["points"], f"{path}, [predictions]").get("points", 0.0)
    return Policy(
        late, each, {id: _answer(entry, f'{path}, [answers."{id}"]') for id, entry in table.get("answers", {}).items()}
    )


def _numbers(entries: Mapping[str, Any], known: list[str], where: str) -> dict[str, float]:
    for name, value in entries.items():
        if name not in known:
            raise ValueError(f"{where} has an unknown entry {name!r}; there are {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise ValueError(f"{where}: {name} is {value!r}; a number from 0 on is needed")
    return {name: float(value) for name, value in entries.items()}


def _answer(entry: Mapping[str, Any], where: str) -> Answer:
    points = _numbers({"points": entry.get("points")}, ["points"], where)["points"]
    texts = {name: value for name, value in entry.items() if name != "points"}
    if set(texts) - {"question", "rubric"} or not all(isinstance(value, str) for value in texts.values()):
        raise ValueError(f"{where} has entries points, question and rubric (texts), nothing else")
    return Answer(points, **texts)
