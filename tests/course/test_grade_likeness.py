"""Likeness by structure, for a person to look at; and questions about a student's own code."""

from types import SimpleNamespace

import pytest

from lockstep.course.grade import public
from lockstep.course.grade.likeness import GROUP, alike, fingerprints
from lockstep.course.grade.look import likeness_csv, likeness_page
from lockstep.course.grade.program import LabText
from lockstep.course.grade.public import library_texts, likenesses
from lockstep.course.grade.result import Result
from lockstep.course.grade.submission import Program, Statement, Submission
from lockstep.course.grade.viva import viva

RING = '''
def ring_all_reduce(comm, x):
    """Sum over ranks."""
    chunks = list(x.chunk(comm.size))
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(comm.size - 1):
        out, into = (comm.rank - step) % comm.size, (comm.rank - step - 1) % comm.size
        received = torch.empty_like(chunks[into])
        comm.exchange([(right, chunks[out])], [(left, received)])
        chunks[into] += received
    for step in range(comm.size - 1):
        out, into = (comm.rank + 1 - step) % comm.size, (comm.rank - step) % comm.size
        received = torch.empty_like(chunks[into])
        comm.exchange([(right, chunks[out])], [(left, received)])
        chunks[into] = received
    return torch.cat(chunks)
'''
RENAMED = (  # what is done so that a copy does not look like one
    RING.replace("chunks", "parts").replace("received", "buffer").replace("step", "k").replace('"""Sum over ranks."""', "# mine")
    .replace("    return torch.cat(parts)", "    # all of them\n\n    return torch.cat(parts)")
    .replace("out, into", "a, b").replace("[out]", "[a]").replace("[into]", "[b]")
)  # fmt: skip
OWN = """
def ring_all_reduce(comm, x):
    n = comm.size
    pieces = torch.tensor_split(x.flatten(), n)
    pieces = [piece.clone() for piece in pieces]
    def turn(first, combine):
        where = first
        for _ in range(n - 1):
            box = pieces[(where - 1) % n].clone()
            handle = comm.irecv(box, src=(comm.rank + n - 1) % n)
            comm.isend(pieces[where % n], dst=(comm.rank + 1) % n).wait()
            handle.wait()
            if combine:
                pieces[(where - 1) % n] = pieces[(where - 1) % n] + box
            else:
                pieces[(where - 1) % n] = box
            where -= 1
    turn(comm.rank, True)
    turn(comm.rank + 1, False)
    return torch.cat(pieces).reshape(x.shape)
"""
SHORT = "def double(x):\n    return 2 * x"


def test_a_copy_with_other_names_is_found_and_own_work_is_not():
    found = alike("04.4", {"ann": RING, "bob": RENAMED, "cleo": OWN})
    assert [(one.student, one.other, one.public) for one in found] == [("ann", "bob", False)] and found[0].share == 1.0
    assert fingerprints(RING) == fingerprints(RENAMED) and not alike("x", {"a": SHORT, "b": SHORT})


def test_part_of_a_copy_is_found_too():
    half = RING.replace(
        "    return torch.cat(chunks)", "    y = torch.cat(chunks)\n    assert y.shape == x.shape\n    return y"
    )
    (one,) = alike("04.4", {"ann": RING, "bob": half})
    assert 0.75 <= one.share < 1.0


def test_what_everybody_can_read_is_named_by_its_place():
    public = {"course: ring_all_reduce": fingerprints(RING), "lib: comm/ring.py, tree": fingerprints(OWN)}
    found = alike("04.4", {"ann": RENAMED, "bob": OWN}, public)
    assert {(one.student, one.other) for one in found if one.public} == {
        ("ann", "course: ring_all_reduce"), ("bob", "lib: comm/ring.py, tree"),
    }  # fmt: skip


def test_the_skeleton_and_what_most_of_a_group_write_tell_nothing():
    assert not alike("04.4", {"ann": RING, "bob": RENAMED}, skeleton=RING)
    everybody = {f"s{i}": RING for i in range(GROUP)}
    assert not alike("04.4", everybody), "when all write it, it is how the exercise is written"


@pytest.mark.parametrize("text", ["", "def f(:", "x = 1", "\0", "(" * 500])
def test_texts_that_tell_nothing_have_no_fingerprints(text):
    assert fingerprints(text) == frozenset()


def test_a_batch_is_compared_with_itself_and_the_course(tmp_path, monkeypatch):
    def ring(comm, x):
        return x

    def result(student, text):
        program = Program((Statement(text.strip(), 1, 1),))
        return Result(Submission(student, "04", None, "d", program), (), student[:3])

    exercise = SimpleNamespace(id="04.4", lab="04", function="ring_all_reduce", reference=ring, also_right=())
    batch = [result("ann", RING), result("bob <b>", RENAMED), result("cleo", OWN), result("dan", SHORT)]
    labs = {"04": LabText("04", {"04.4": "ring_all_reduce"})}
    pairs, texts = likenesses(batch, [exercise], labs, tmp_path / "cache")
    with monkeypatch.context() as patch:  # the library's fingerprints are kept, and damage to them counts as none
        patch.setattr(public, "fingerprints", lambda text: frozenset())
        (kept,) = (tmp_path / "cache").iterdir()
        assert public._library_prints(tmp_path / "cache") == {p: fingerprints(t) for p, t in library_texts()}
        kept.write_text("{")
        assert not any(public._library_prints(tmp_path / "cache").values())
    assert [(one.student, one.other) for one in pairs if not one.public] == [("ann", "bob <b>")]
    page = likeness_page(pairs, texts)
    assert (
        "bob &lt;b&gt;" in page and "parts = list(x.chunk" in page and "04.4,ann,bob <b>,100 %" in likeness_csv(pairs)
    )
    assert any(place.startswith("lib: comm/collectives/ring.py, ") for place, _ in library_texts())


# Questions.


def test_three_questions_are_about_three_lines_of_the_students_own():
    asked = viva({"ring_all_reduce": RING.strip()}, 3, "seed")
    assert len(asked) == 3 == len({one.split(":")[0] for one in asked})
    for one in asked:
        line = int(one.split("line ")[1].split(":")[0])
        assert f"`{RING.strip().splitlines()[line - 1].strip()}`" in one
    assert "Draw the timeline of 3 ranks" in asked[0]
    assert asked == viva({"ring_all_reduce": RING.strip()}, 3, "seed")
    assert any(viva({"f": RING}, 3, f"{i}") != viva({"f": RING}, 3, "seed") for i in range(9))


def test_little_code_gives_few_questions_and_no_code_none():
    assert len(viva({"double": SHORT}, 3, "s")) == 1 and not viva({"f": "def f(:"}, 3, "s") and not viva({}, 3, "s")
