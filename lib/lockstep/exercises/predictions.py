"""Predictions: say a number before it is measured, then look at both and ask why.

Floor 4, room `exercises`. A prediction made after its reveal is marked late; the first one stands. Cells may be
run again in any order. Nothing is scored by closeness.
"""

from __future__ import annotations

import math
from typing import Any

from lockstep.exercises import keep
from lockstep.exercises.card import Card, Row
from lockstep.exercises.registry import words


def predict(id: str, value: Any, reason: str = "") -> Card:
    """Commit to `value` (a number, or a word where a word is measured, or a list of them) before `reveal(id, measured)`; `reason` in your own words.

    None or ... is no prediction. Until the reveal it may be changed; afterwards the first one stands.
    """
    if value is None or value is Ellipsis:
        return Card(
            f"Prediction {id}",
            "open",
            "open",
            (Row("Next", f'Put your guess in place of {value!r}: `predict("{id}", ...)`. Any guess beats none.'),),
        )
    value = _kept(value)
    if isinstance(value, str) and _is_number(keep.read()["predictions"].get(id, {}).get("measured")):
        return Card(f"Prediction {id}", "open", "open", (Row("Next", _asks_for_number(id, value)),))
    with keep.change() as record:
        entry = record["predictions"].setdefault(id, {"value": None, "at": None, "revealed": None})
        if entry.get("value") is None:
            entry.update(value=value, reason=reason, at=keep.now(), late=entry.get("revealed") is not None)
        elif entry.get("revealed") is None:
            if value != entry["value"]:
                entry["earlier"] = [*entry.get("earlier", []), entry["value"]]
            entry.update(value=value, reason=reason or entry.get("reason", ""), at=keep.now())
        entry = dict(entry)
    stands = value == entry["value"]
    if entry["revealed"] is None:
        return Card(
            f"Prediction {id}", "noted", "good", (Row("You say", said(value)), *_reason(entry), *_doubt(id, value))
        )
    rows = [Row("You said", said(entry["value"]))]
    if entry.get("late"):
        rows.append(Row("Late", "The value had already been shown."))
    elif not stands:
        rows.append(
            Row(
                "Unchanged",
                f"The value has been shown: {said(value)} is not taken, your first prediction stands.",
            )
        )
    return Card(f"Prediction {id}", "late" if entry.get("late") else "stands", "open", (*rows, *_reason(entry)))


def reveal(id: str, measured: Any, unit: str = "", why: str = "Before you read on: why?") -> Card:
    """Show the prediction beside what was measured, and ask why. Without a prediction it says so, and shows the value."""
    measured = _kept(measured)
    with keep.change() as record:
        entry = record["predictions"].setdefault(id, {"value": None, "at": None, "revealed": None})
        entry["revealed"] = entry.get("revealed") or keep.now()
        entry["measured"] = measured
        entry = dict(entry)
    now = f"{said(measured)} {unit}".strip()
    if entry.get("value") is None:
        rows = (
            Row("You said", f'nothing yet: `predict("{id}", ...)` comes first, since one learns from a guess that was made.'),
            Row("It is", now),
        )  # fmt: skip
        return Card(f"Prediction {id}", "no prediction", "open", rows)
    late = " (after the value was shown)" if entry.get("late") else ""
    rows = (
        Row("You said", f"{said(entry['value'])} {unit}".strip() + late),
        Row("It is", now),
        Row("Compared", _compared(entry["value"], measured)),
        Row("Next", why), *_reason(entry),
    )  # fmt: skip
    return Card(f"Prediction {id}", "revealed", "note", tuple(row for row in rows if row.text))


def _reason(entry: dict[str, Any]) -> tuple[Row, ...]:
    return (Row("Your reason", entry["reason"]),) if entry.get("reason") else ()


def _kept(value: Any) -> Any:
    """What JSON can keep: numbers of any library as Python numbers, the rest as text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_kept(one) for one in value]
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return value
        return number if math.isfinite(number) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if type(value) in (bool, int, str) else str(value)


def said(value: Any) -> str:
    """A kept value in words; of a number with a fraction at most three digits count."""
    if isinstance(value, list):
        return ", ".join(map(said, value))
    if isinstance(value, float):
        return f"{float(f'{value:.3g}'):.15g}"
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _doubt(id: str, value: Any) -> tuple[Row, ...]:
    """What to say of a text where a number is asked for, or of anything else where one of some words is."""
    asked = words(id)
    if asked:
        listed = ", ".join(f"{word!r}" for word in asked)
        return () if value in asked else (Row("Which one?", f"{value!r} is none of the words asked for: {listed}."),)
    return (Row("A number?", _asks_for_number(id, value)),) if isinstance(value, str) else ()


def _asks_for_number(id: str, value: str) -> str:
    return f'{value!r} is a text. Where it is asked how much or how many, give a number: `predict("{id}", 10)`.'


def _compared(value: Any, measured: Any) -> str:
    if measured == value:
        return "the same"
    if not (_is_number(value) and _is_number(measured)):
        return "only a number can be compared with a number" if _is_number(measured) else ""
    if value <= 0 or measured <= 0:
        return f"{said(abs(measured - value))} apart"
    ratio = max(measured, value) / min(measured, value)
    if ratio < 1.01:
        return "less than 1 % apart"
    order = ": another order of magnitude" if ratio > 10 else ""
    return f"it is {said(ratio)} times {'more' if measured > value else 'less'} than you said{order}"
