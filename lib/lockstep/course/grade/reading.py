"""From one student's files to one submission for each lab: a result or a sentence, and never an exception.

Floor 4, room `course`; read `collect` (whose files) and `program` (what of a notebook counts) first.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath

from lockstep.course.grade.archive import Piece, Unreadable, is_of_the_course, load, members
from lockstep.course.grade.characters import writable
from lockstep.course.grade.collect import Handin
from lockstep.course.grade.notebook import Notebook, read_notebook
from lockstep.course.grade.program import Built, LabText, build
from lockstep.course.grade.submission import Submission
from lockstep.course.grade.written import answers, predictions

MOST_ZIPS = 50  # of one student
MOST_NOTEBOOKS = 60
MOST_BYTES = 512 * 2**20  # of one student, all files together
PASSED = re.compile(r"(?:^|/)functions/(\d\d\.\d+)\.py$")
LAB = re.compile(r"(?:^|[^\d])(\d\d)(?:_[a-z]|\b)")


@dataclass(frozen=True)
class _Candidate:
    """One notebook that was read, with what `submit()` put beside it."""

    piece: Piece
    lab: str
    notebook: Notebook
    built: Built
    record: bytes | None
    digest: str

    @property
    def order(self) -> tuple:
        """Later, then fuller, then later by name ("lab05-2" after "lab05-1"): the greatest counts."""
        when = self.piece.when.timestamp() if self.piece.when and not len(self.piece.inside) > 1 else 0.0
        numbers = tuple(int(one) for one in re.findall(r"\d+", self.piece.name))
        return when, len(self.built.program.statements), numbers, self.piece.name


def read_handin(handin: Handin, labs: Mapping[str, LabText]) -> list[Submission]:
    """One submission for each lab that was handed in; one with a `problem` where nothing could be read."""
    try:
        return _read(handin, labs)
    except Exception as error:  # a hand-in that we did not foresee costs itself, not the batch
        why = writable(f"The hand-in could not be read ({type(error).__name__}: {str(error)[:200]}).")
        return [_without(handin, labs, why)]


def _without(handin: Handin, labs: Mapping[str, LabText], why: str, digest: str = "") -> Submission:
    lab = next(iter(labs)) if len(labs) == 1 else ""
    origin = handin.pieces[0].path if handin.pieces else Path(handin.student)
    return Submission(
        handin.student, lab, origin, digest or _digest(why.encode()), when=handin.when, problem=why,
        lms_id=handin.lms_id,
    )  # fmt: skip


def _read(handin: Handin, labs: Mapping[str, LabText]) -> list[Submission]:
    said: list[str] = []
    pieces = _opened(handin.pieces, said)
    found, failed = _candidates(pieces, labs, said)
    if not found:
        names = ", ".join(sorted({one.name for one in pieces})[:5]) or "no file at all"
        why = " ".join(failed) or f"There is no notebook among what was handed in ({names})."
        return [replace(_without(handin, labs, why), warnings=tuple(said))]
    said += failed
    return [
        _submission(handin, lab, [one for one in found if one.lab == lab], labs, said)
        for lab in sorted({one.lab for one in found})
    ]


def _opened(pieces: tuple[Piece, ...], said: list[str]) -> list[Piece]:
    """The files, zips replaced by what is in them."""
    found = [one for one in pieces if not one.is_zip]
    waiting = [one for one in pieces if one.is_zip]
    for opened in range(MOST_ZIPS + 1):
        if not waiting:
            break
        if opened == MOST_ZIPS:
            said.append(f"More than {MOST_ZIPS} zips were handed in; only that many were opened.")
            break
        piece = waiting.pop(0)
        try:
            inner, refused = members(piece)
        except Unreadable as error:
            said.append(f"{piece.name}: {error}.")
            continue
        inner = [one for one in inner if not is_of_the_course(PurePosixPath(one.inside[-1]).parts[:-1])]
        found += [one for one in inner if not one.is_zip]
        waiting += [one for one in inner if one.is_zip]
        said += refused[:5]
    return found


def _candidates(
    pieces: list[Piece], labs: Mapping[str, LabText], said: list[str]
) -> tuple[list[_Candidate], list[str]]:
    likely = [one for one in pieces if ".ipynb" in one.name.lower()]
    likely = likely or [one for one in pieces if re.search(r"\.(json|txt|py)$|^[^.]+$", one.name.lower())]
    likely = [one for one in likely if one.name not in ("about.json", "record.json") and not _kept_function(one)]
    if len(likely) > MOST_NOTEBOOKS:
        said.append(f"{len(likely)} notebooks were handed in; only {MOST_NOTEBOOKS} were read.")
    found, failed, spent = [], [], 0
    for piece in likely[:MOST_NOTEBOOKS]:
        try:
            content = load(piece)
            spent += len(content)
            if spent > MOST_BYTES:
                raise Unreadable(f"all files together have more than {MOST_BYTES >> 20} MiB; this one was not read")
            notebook = read_notebook(content, piece.name)
            lab = lab_of(notebook, piece.name, labs)
            found.append(_candidate(piece, lab, notebook, pieces, content, labs[lab]))
        except Unreadable as error:
            failed.append(f"{piece.name}: {error}.")
    return found, failed


def _candidate(
    piece: Piece, lab: str, notebook: Notebook, pieces: list[Piece], content: bytes, text: LabText
) -> _Candidate:
    beside = {_path(one): one for one in pieces if _folder(one) == _folder(piece) or _kept_function(one)}
    near = [one for path, one in sorted(beside.items()) if one.path == piece.path or not piece.inside]
    record = next((_bytes(one) for one in near if one.name == "record.json"), None)
    passed = {
        id: (_bytes(one) or b"").decode("utf-8", errors="replace") for one in near for id in [_kept_function(one)] if id
    }
    passed = {id: source for id, source in passed.items() if id[:2] == lab}
    digest = _digest(content, record or b"", *(f"{id}\n{source}".encode() for id, source in sorted(passed.items())))
    return _Candidate(piece, lab, notebook, build(notebook.cells, text, passed), record, digest)


def _path(piece: Piece) -> str:
    return "/".join((str(piece.path), *piece.inside))


def _folder(piece: Piece) -> tuple[str, ...]:
    """Where a file lies, zips counting as folders."""
    if not piece.inside:
        return (str(piece.path.parent),)
    return (str(piece.path), *piece.inside[:-1], str(PurePosixPath(piece.inside[-1]).parent))


def _kept_function(piece: Piece) -> str:
    found = PASSED.search(_path(piece))
    return found[1] if found else ""


def _bytes(piece: Piece) -> bytes | None:
    try:
        return load(piece)
    except Unreadable:
        return None


def _digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()


def lab_of(notebook: Notebook, name: str, labs: Mapping[str, LabText]) -> str:
    """Which of `labs` a notebook is: by its metadata, its exercises, its file's name; raises Unreadable."""
    made = notebook.metadata.get("lockstep")
    source = made.get("source", "") if isinstance(made, dict) else ""
    votes = Counter(re.findall(r"(\d\d)[_.]", source)[:1] if isinstance(source, str) else [])
    for cell in notebook.cells:
        votes.update(tag[:2] for tag in cell.tags if re.fullmatch(r"\d\d\.\d+", tag))
        votes.update(re.findall(r"\bcheck\(\s*[\"'](\d\d)\.", cell.text))
    for lab in [lab for lab, _ in votes.most_common()] or LAB.findall(name):
        if lab in labs:
            return lab
    text = "\n".join(cell.text for cell in notebook.cells if cell.kind == "code")
    for lab, known in labs.items():
        if any(
            re.search(rf"^[ \t]*(def|class) {re.escape(one)}\b", text, re.MULTILINE) for one in known.functions.values()
        ):
            return lab
    asked = ", ".join(labs)
    said = f"it is lab {votes.most_common(1)[0][0]}" if votes else "no exercise of it can be recognised"
    raise Unreadable(f"{said}, and asked for was lab {asked}")


def _submission(
    handin: Handin, lab: str, found: list[_Candidate], labs: Mapping[str, LabText], said: list[str]
) -> Submission:
    chosen = max(found, key=lambda one: one.order)
    warnings = [*said, *chosen.notebook.warnings, *chosen.built.warnings]
    others = sorted({one.piece.name for one in found if one.digest != chosen.digest})
    if others:
        warnings.append(f"{len(found)} notebooks of lab {lab}: {chosen.piece.name} counts, not {', '.join(others)}.")
    when: datetime | None = handin.when
    return Submission(
        handin.student, lab, chosen.piece.path, chosen.digest, chosen.built.program,
        answers(chosen.notebook.cells, labs[lab].texts), predictions(chosen.notebook.cells, chosen.record),
        when, tuple(dict.fromkeys(warnings)), "", chosen.built.broken, handin.lms_id,
    )  # fmt: skip
