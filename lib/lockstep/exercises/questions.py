"""Questions with one right option: a question is data, and every wrong option has its sentence.

Floor 4, room `exercises`. `ask` shows a question, `answer` gives choice and confidence; where there are widgets,
clicking does the same. `recall` opens a lab with questions from earlier labs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """One answer to choose. `because` is what is said to who chooses it: why it is wrong, or why it is right."""

    text: str
    because: str
    right: bool = False


@dataclass(frozen=True)
class Question:
    """A question of a lab, "00.q1"; its options are called a, b, c in their order, and exactly one is right."""

    id: str
    text: str
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        right = sum(option.right for option in self.options)
        if right != 1 or len(self.options) < 2:
            raise ValueError(
                f"question {self.id} has {len(self.options)} options of which {right} are right; exactly one must be"
            )
        silent = [option.text for option in self.options if not option.because.strip()]
        if silent:
            raise ValueError(f"question {self.id} says nothing to who chooses {silent[0]!r}")

    @property
    def letters(self) -> dict[str, Option]:
        return dict(zip("abcdefgh", self.options, strict=False))
