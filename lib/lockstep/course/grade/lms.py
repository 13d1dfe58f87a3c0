"""How learning platforms name what students handed in, and when: Canvas, Moodle, Gradescope.

Floor 4, room `course`. Only names and small text files are read here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime

# Canvas: doejane_LATE_1234_56789_lab05-1.ipynb. Moodle: "Jane Doe_1234_assignsubmission_file_/lab05.ipynb", older ones
# without the slash. Gradescope: submission_1234/lab05.ipynb beside submission_metadata.yml.
CANVAS = re.compile(r"^(?P<student>[^_/]+?)(?:_LATE)?_(?P<id>\d+)_(?P<submission>\d+)_(?P<file>.+)$")
MOODLE = re.compile(r"^(?P<student>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)$")
GRADESCOPE = re.compile(r"^submission_(?P<id>\d+)$")


@dataclass(frozen=True)
class Sender:
    """Whose a file is, by its name: the student's key and the platform's number (of student or submission)."""

    student: str
    id: str
    platform: str


def sender(name: str) -> Sender | None:
    """Whose a file or folder is, None when no platform named it."""
    # Canvas before Moodle: its names end in one that the student chose, and which could be as Moodle names another's.
    for platform, pattern in (("canvas", CANVAS), ("moodle", MOODLE), ("gradescope", GRADESCOPE)):
        found = pattern.match(name)
        if found:
            parts = found.groupdict()
            return Sender(parts.get("student") or f"submission {parts['id']}", parts["id"], platform)
    return None


@dataclass(frozen=True)
class Handed:
    """What Gradescope's metadata says of one submission folder."""

    student: str
    id: str
    when: datetime | None


def gradescope_metadata(text: str) -> dict[str, Handed]:
    """By folder name ("submission_1234"): who and when, from the `submission_metadata.yml` of an export.

    Only what stands right below a submission counts, and of its students the first. Further in are the results of an
    autograder, in which a student's words can stand, and the times of earlier submissions.
    """
    found: dict[str, Handed] = {}
    for block in re.split(r"^(?=submission_\d+:)", text, flags=re.MULTILINE):
        head = re.match(r"(submission_\d+):", block)
        if head:
            parts = _entries(block.partition("\n")[2])
            fields = dict(
                re.findall(
                    r"^[ \t]*(?:- )?:?(name|sid|email): *(.*)$", _first(parts.get("submitters", "")), re.MULTILINE
                )
            )
            fields = {key: value.strip("'\" ") for key, value in fields.items()}
            student = fields.get("email") or fields.get("name") or head[1]
            found[head[1]] = Handed(student, fields.get("sid", ""), moment(parts.get("created_at", "").strip("'\" \n")))
    return found


def _entries(block: str) -> dict[str, str]:
    """The entries of a YAML mapping by key, each with the lines that belong to it; the first of a name counts."""
    indent = re.match(r" *", block)[0]
    found: dict[str, str] = {}
    for part in re.split(rf"^{indent}(?=:?\w+:)", block, flags=re.MULTILINE)[1:]:
        key, _, value = part.removeprefix(":").partition(":")
        found.setdefault(key, value)
    return found


def _first(listed: str) -> str:
    """The first item of a YAML list."""
    items = re.split(r"^ *- ", listed, flags=re.MULTILINE)
    return items[1] if len(items) > 1 else ""


def gradescope_json(text: str) -> Handed:
    """Who and when, from the `submission_metadata.json` that Gradescope's autograder finds beside a submission."""
    try:
        whole = json.loads(text)
        users = whole.get("users") or [{}]
        return Handed(str(users[0].get("email") or ""), str(users[0].get("sid") or ""), moment(whole["created_at"]))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"this is no submission_metadata.json of Gradescope ({error})") from None


def moment(text: object) -> datetime | None:
    """A time as platforms write it, with its offset (local time where none is given); None when it is none."""
    said = re.sub(r"(\.\d{1,6})\d*", r"\1", str(text).strip()).replace(" Z", "+00:00").replace(" UTC", "+00:00")
    said = re.sub(r" ([+-]\d\d:?\d\d)$", r"\1", said)
    try:
        found = datetime.fromisoformat(said)
    except ValueError:
        found = next((one for form in FORMS if (one := _as(said, form)) is not None), None)
        if found is None:
            return None
    if not 1 < found.year < 9999:  # a day's shift from there to another zone is no date that Python has
        return None
    try:
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError, OSError):  # before 1970, on some systems
        return None


FORMS = ("%d/%m/%Y %H:%M", "%A, %d %B %Y, %I:%M %p", "%b %d at %I:%M%p %Y", "%m/%d/%Y %I:%M %p")


def _as(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)
    except ValueError:
        return None


def in_utc(when: datetime) -> datetime:
    """The same moment, by Greenwich, so that two hosts write one text."""
    return when.astimezone(UTC)
