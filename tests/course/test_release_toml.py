"""release.toml: what is written is read again, it is private, and a damaged one gets a sentence."""

import stat
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lockstep.course.release.students import mismatch, stated_student
from lockstep.course.release.toml import (
    Pack,
    Release,
    ReleasedExercise,
    ReleasedLab,
    as_toml,
    read_release,
    write_release,
)
from lockstep.exercises.registry import find


@pytest.fixture
def release(tmp_path) -> Release:
    return Release(
        path=tmp_path / "release.toml",
        made=datetime(2026, 9, 1, 12, tzinfo=UTC),
        lockstep="0.1.0",
        seed=2**255 + 12345,
        labs=(ReleasedLab("04", 'a "strange" \\ name\x7f\n.ipynb', "ab" * 32), ReleasedLab("05", "ü.ipynb", "")),
        exercises=(
            ReleasedExercise("04.2", 1, 3, variants=("to the right", "to the left")),
            ReleasedExercise("05.21", 7, 0, core=False, origin="pack"),
        ),
        dropped=("05.6",),
        repository="https://github.com/owner/name",
        has_variants=True,
        pack=Pack(tmp_path / "private", "cd" * 32),
    )


def test_what_is_written_is_read_again(release):
    write_release(release)
    read = read_release(release.path)
    assert replace(read, pack=None) == replace(release, pack=None)
    assert read.pack.path.resolve() == release.pack.path.resolve() and read.pack.sha256 == release.pack.sha256
    assert read.listed("05") == (release.exercises[1],)
    plain = replace(release, path=release.path.with_name("plain.toml"), pack=None, repository="", dropped=())
    write_release(plain)
    assert read_release(plain.path) == plain
    with pytest.raises(ValueError, match="lab '06' is not in plain.toml, which releases 04, 05"):
        plain.listed("06")


def test_the_file_is_private_and_an_old_seed_is_never_lost(release):
    write_release(release)
    assert stat.S_IMODE(release.path.stat().st_mode) == 0o600
    before = release.path.read_bytes()
    with pytest.raises(ValueError, match="holds the seed of an earlier release"):
        write_release(replace(release, seed=1))
    assert release.path.read_bytes() == before


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("format = 1", "format = 2", "has format 2"),
        ("seed = ", "seed = 7 # ", "not a release"),
        ("seed = ", "# ", "'seed' is missing"),
        ("points = 3", "points = -3", "04.2 is worth -3 points"),
        ("points = 3", "points = 2.5", "04.2 is worth 2.5 points"),
        ("points = 3", "pionts = 3", "unknown entry 'pionts'"),
        ('id = "04.2"', 'id = "05.21"', "listed twice"),
        ('id = "04.2"', 'id = "09.2"', "09.2 belongs to none of its labs"),
        ('from = "pack"', 'from = "home"', "comes from 'home'"),
        ("[[labs]]", "[[labs", "not valid TOML"),
        ("variants = true", "", "'variants' is missing"),
    ],
)
def test_a_damaged_file_gets_a_sentence(release, old, new, said):
    text = as_toml(release)
    assert old in text
    release.path.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=said) as error:
        read_release(release.path)
    assert "release.toml" in str(error.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_release(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="binary.toml is not valid TOML"):
        read_release(tmp_path / "binary.toml")


def test_values_carry_the_points_of_the_file_and_the_students_variant(release):
    one = replace(release, pack=None, exercises=release.exercises[:1])
    names = {student: one.variant("04.2", student) for student in map(str, range(40))}
    assert set(names.values()) == {"to the right", "to the left"}
    assert 8 < sum(name == "to the left" for name in names.values()) < 32
    assert one.variant("04.2", " ANA  Sá ") == one.variant("04.2", "ana sá") == one.variant("04.2", "ana sa\u0301")
    left = next(student for student, name in names.items() if name == "to the left")
    (value,) = replace(one, exercises=(replace(one.exercises[0], points=11),)).values("04", left)
    assert value.points == 11 and "turns to the left" in value.asks
    (plain,) = replace(one, has_variants=False).values("04", left)
    assert plain == find("04.2")
    assert one.variant("04.2", "") == ""
    assert len({replace(one, seed=seed).variant("04.2", left) for seed in range(20)}) == 2, (
        "another release, another choice"
    )


def test_drift_names_what_is_not_as_it_was_released(release):
    one = replace(release, pack=None, lockstep="0.0.9")
    said = "\n".join(one.drift())
    assert "made with Lockstep 0.0.9" in said
    assert "exercise 05.21 of release.toml does not exist" in said
    older = replace(one, exercises=(ReleasedExercise("04.2", 0, 3, variants=("up",)),))
    said = "\n".join(older.drift())
    assert "04.2 was released as version 0" in said and "with the variants ['up']" in said


def test_whose_a_notebook_says_it_is(release):
    assert stated_student(["import torch", 'STUDENT = "ana"', "x = 1", 'STUDENT = "bo"  # mine']) == "bo"
    assert stated_student(['STUDENT = ""']) is None
    assert stated_student(["STUDENT = name", "def f(:", 'STUDENT: str = "ana"']) is None
    one = replace(release, pack=None, exercises=release.exercises[:1])
    assert mismatch(one, "04", "Ana", "ana ") == ""
    assert "does not say whose it is" in mismatch(one, "04", "ana", None)
    said = {mismatch(one, "04", "ana", str(other)) for other in range(12)}
    assert any("different variants of 04.2" in one for one in said) and any("the same" in one for one in said)
    assert mismatch(replace(one, has_variants=False), "04", "ana", "bo") == ""
