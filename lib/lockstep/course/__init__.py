"""The course as a product: built from one source, run without a screen, installed by one command.

Floor 4, room `course`. Read `source.py` (what an author writes) first, then `build.py` (what comes out of it)
and `spine.py` (the rules that every lab keeps). `install.py` is what `./course` runs before anything exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.course.machine import Report

__all__ = ["doctor"]


def doctor() -> Report:
    """Look at this machine and say what each finding means for the labs; takes a few seconds."""
    from lockstep.course.machine import examine  # imports torch: not needed to build a lab or to print help

    return examine()
