"""A small made-up lab that keeps every rule, to be broken one rule at a time."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.course.source import Source, read
from lockstep.course.tree import Tree

HOME = Path(__file__).resolve().parents[2]
BOXED = ("test_cheats", "test_judging", "test_sandbox", "test_third_attack")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """Keep what runs in a sandbox on one worker of pytest-xdist: each level then imports torch once."""
    for item in items:
        if item.path.name.startswith(BOXED) and item.path.is_relative_to(HOME / "tests/course"):
            item.add_marker(pytest.mark.xdist_group("boxed"))


SMALL_LAB = '''\
# %% [markdown]
# # Lab 00 · Counting
#
# **Time:** 3 minutes, exercises included.
#
# **You will be able to** count. **You need:** fingers.

# %% tags=["parameters"]
RANKS = 2
FAST = False
SEED = 0

# %% [markdown]
# ## 1. Adding up (2 min)
#
# Predict the sum before it is printed.

# %%
from lockstep.exercises import check, predict, reveal

# %%
predict("00.p1", 3)
predict("00.p2", 4)
predict("00.p3", 5)

# %% [markdown]
# ### Exercise 00.1 · `total`
#
# Ranks are counted from zero, and so are the numbers here. Return the sum of the first numbers, because the next
# section adds up larger ones, where counting on fingers ends.

# %% tags=["exercise", "00.1"]
def total(numbers):
    """Return the sum of the numbers."""
    ### BEGIN SOLUTION
    result = sum(number + 0 for number in numbers)
    return result
    ### END SOLUTION

# %% tags=["check", "00.1"]
check("00.1", total)

# %% tags=["stable"]
print("one", "two", sep="-")

# %%
reveal("00.p1", 3)
reveal("00.p2", 4)
reveal("00.p3", 5)

# %% [markdown]
# ## 2. Summary (1 min)
#
# On real hardware: `torchrun --nproc-per-node=2 count.py`.

# %%
def summary(ask, diagnose):
    ask("00.q1")
    diagnose("00.1")

# %% [markdown]
# **References.** Peano, 1889, Arithmetices principia.
'''


def total(numbers):
    result = sum(number + 0 for number in numbers)
    return result


@dataclass
class SmallClone:
    """A clone with one small lab in it."""

    tree: Tree
    text: str = SMALL_LAB
    exercises: list = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.tree.solutions / "00_counting.py"

    def write(self, text: str | None = None) -> Source:
        self.path.write_text(self.text if text is None else text, encoding="utf-8")
        return read(self.path)

    def changed(self, old: str, new: str) -> Source:
        """The small lab with one text in place of another."""
        assert old in self.text, f"the small lab has no {old!r}"
        return self.write(self.text.replace(old, new))


@pytest.fixture
def clone(tmp_path) -> SmallClone:
    """A clone in a temporary folder; its exercise is a stand-in with the fields that the rules read."""
    for folder in ("labs", "solutions"):
        (tmp_path / folder).mkdir()
    shutil.copy(HOME / "pyproject.toml", tmp_path / "pyproject.toml")
    exercise = SimpleNamespace(
        id="00.1", lab="00", core=True, points=3, reference=total, hints=("Add them up.", "`sum` adds numbers up.")
    )
    return SmallClone(Tree(tmp_path), exercises=[exercise])
