"""No cheat gains a point, at any level of isolation, and the batch goes on after each."""

import ast
import copy
import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from cheats import CHEATS, SCALED, TOTAL, Cheat, cases, scaled

from lockstep.course.grade.judging import grade_program
from lockstep.course.grade.submission import Program, Statement
from lockstep.course.sandbox import box as boxes
from lockstep.course.sandbox import levels, trying

pytestmark = pytest.mark.skipif(bool(levels.lacking("process")), reason="students' code is graded on Linux only")
ANSWER = "def scaled(x, k):\n    return x * k + 1\n"


def program(text):
    lines = text.splitlines()
    return Program(
        tuple(
            Statement("\n".join(lines[node.lineno - 1 : node.end_lineno]), 1, node.lineno)
            for node in ast.parse(text).body
        )
    )


@pytest.fixture
def world_outside(tmp_path, monkeypatch):
    """What the cheats are after: a file of the grader's, a server that knows, a file that must not appear."""
    monkeypatch.setenv("SECRET_OF_THE_GRADER", "1")
    answer = tmp_path / "answer.py"
    answer.write_text(ANSWER)
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_tell, args=(server,), daemon=True).start()
    shown = {len(case.args[0]): scaled(*case.args) for case in cases(np.random.default_rng(0))}
    marks = {
        "answer": answer, "port": server.getsockname()[1], "target": tmp_path / "forged.csv", "grader": os.getpid(),
        "library": repr(str(Path(trying.__file__).parents[3])), "shown": repr(shown),
    }  # fmt: skip
    yield marks
    server.close()


@pytest.fixture(scope="module", autouse=True)
def one_box_for_two_levels():
    """What "process" and "user" start is the same; they differ in what the children become. It imports torch once."""
    if not levels.lacking("user"):
        boxes._boxes["user"] = copy.copy(boxes.box("process"))
        boxes._boxes["user"].level, boxes._boxes["user"].user = "user", levels.FIRST_USER
    yield
    boxes._boxes.pop("user", None)


def _tell(server):
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.sendall(ANSWER.encode())


def filled(text, marks):
    for name, value in marks.items():
        text = text.replace(f"«{name}»", str(value))
    return text


def graded(cheat, marks, level, monkeypatch):
    # Who only ends with the time is given little of it; the others what a busy machine may need.
    few_or_enough = {"EACH": (0.3, 1.0), "PATIENCE": (3.0, 10.0), "GRACE": (0.3, 1.0), "STATEMENT": (0.3, 3.0)}
    for name, seconds in few_or_enough.items():
        monkeypatch.setattr(trying, name, seconds[0] if cheat.endless else seconds[1])
    exercise = TOTAL if cheat.ranks else SCALED
    (outcome,) = grade_program(
        "05", program(filled(cheat.text, marks)), "secret", exercises=[exercise], isolation=level
    )
    return outcome


HONEST = Cheat("an honest answer", ANSWER, ("passed",))
HONEST_RANKS = Cheat(
    "an honest answer on ranks",
    "import torch\ndef total(comm, x):\n    y = x.clone()\n    for peer in range(comm.size):\n        if peer != comm.rank:\n"
    "            part = torch.empty_like(x)\n            comm.exchange([(x, peer)], [(part, peer)])\n            y += part\n"
    "    return y\n",
    ("passed",),
    True,
)


@pytest.mark.parametrize("level", levels.LEVELS)
@pytest.mark.timeout(600)
def test_no_cheat_gains_a_point_and_none_stops_the_batch(level, world_outside, monkeypatch):
    if why := levels.lacking(level):
        pytest.skip(why)
    table, gains = [], []
    for cheat in (HONEST, HONEST_RANKS, *CHEATS, HONEST):
        outcome = graded(cheat, world_outside, level, monkeypatch)
        table.append(f"{cheat.name:70} {outcome.verdict:13} {outcome.points}  {outcome.sentence[:90]}")
        if outcome.verdict not in cheat.verdicts or (outcome.points and cheat.verdicts != ("passed",)):
            gains.append(table[-1])
    print("\n".join([f"--- {level}", *table]))
    assert not gains, "\n".join(gains)
    time.sleep(0.6)  # for the process that would have stayed
    assert not world_outside["target"].exists()
    assert not [one for one in psutil.Process().children(recursive=True) if _is_students(one)]


def _is_students(process):
    """They begin in a folder of their own, and so does what they start; orphans become the box's children."""
    try:
        return "/box-" in process.cwd()
    except psutil.Error:
        return False
