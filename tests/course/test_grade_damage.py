"""Notebooks that were damaged by chance, and text that is made to be slow: both are read, and nothing reaches the top."""

import random

import pytest
from hand_ins import MEAN, TOTAL, code, notebook, old, reader, small_lab, texts, zipped

from lockstep.course.grade.collect import collect
from lockstep.course.grade.reading import read_handin

WHOLE = notebook(total=TOTAL, mean=MEAN)
HARM = {
    "a line of spaces": " " * 100_000 + "x ! y\ndef (",
    "empty lines": "\n" * 100_000 + "def (",
    "statements that chain": "".join(f"a{i} = a{i + 1}\n" for i in range(8_000)) + "total = a0",
    "a long line that is broken": "def total(x):\n" + "    x = (" + "1 + " * 30_000,
    "many broken lines": "def f(:\n" * 5_000,
    "an endless attribute": "total = a" + ".b" * 100_000,
    "an endless sum": "total = " + "-" * 100_000 + "1",
    "a huge number": "total = " + "9" * 100_000,
}


@pytest.mark.parametrize("harm", HARM)
def test_text_that_is_made_to_be_slow_is_read_all_the_same(tmp_path, harm):
    (one,) = reader(tmp_path)({"a.ipynb": notebook(code(HARM[harm]), code(MEAN, "exercise", "00.2"))}).values()
    assert not one.problem or "RecursionError" in one.problem


def damaged(content, rng):
    """One of many things that happen to files: bytes lost, doubled, changed, exchanged, or cut off."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 40))):
        at, length = rng.randrange(len(content) or 1), rng.choice((1, 1, 3, 30, 400))
        kind = rng.randrange(6)
        if kind == 0:
            del content[at : at + length]
        elif kind == 1:
            content[at:at] = bytes(rng.randrange(256) for _ in range(length))
        elif kind == 2:
            content[at:at] = content[at : at + length]
        elif kind == 3:
            content[at : at + length] = rng.choice(
                (b"{", b"]", b'"', b"\\", b"null", b"\0", b"\xff", b"1e9999", b"[[[[")
            )
        elif kind == 4:
            content[at : at + 1] = bytes([content[at] ^ (1 << rng.randrange(8))]) if content else b""
        else:
            del content[at + rng.randrange(len(content) + 1) :]
    return bytes(content)


def test_500_damaged_notebooks_give_a_result_each(tmp_path):
    rng = random.Random(24)
    labs = {"00": small_lab(tmp_path)}
    kinds = (
        WHOLE,
        old(3),
        zipped({"00_counting.ipynb": WHOLE, "record.json": b'{"predictions": {"00.p1": {"value": 3}}}'}),
    )
    place, read, with_program = tmp_path / "in", 0, 0
    place.mkdir()
    for i in range(500):
        kind = rng.choice((0, 0, 0, 1, 2))
        (place / f"s{i:03}{'.zip' if kind == 2 else '.ipynb'}").write_bytes(damaged(kinds[kind], rng))
    handins, _ = collect(place)
    for handin in handins:
        for one in read_handin(handin, labs):
            read += 1
            assert "could not be read (" not in one.problem, (
                handin.student,
                one.problem,
            )  # an exception, caught at the top
            with_program += any("def total" in text for text in texts(one))
    assert len(handins) == 500 and read >= 500 and with_program > 200
