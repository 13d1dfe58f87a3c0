"""Models of a few numbers that are hard to train in parallel, and data for them.

Floor 4, room `exercises`, used by the exercises of lab 05: tied, frozen, unused parameters, a buffer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.exercises.compare import differs
from lockstep.exercises.plain import short


class TiedAndFrozen(nn.Module):
    """Two layers share one weight, one parameter is frozen, and there is a buffer: all of them matter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.rand(3) + 0.5, requires_grad=False)
        self.register_buffer("shift", torch.rand(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x)) * self.scale + self.shift
        return self.last(torch.tanh(self.second(hidden)))


class TwoHeads(nn.Module):
    """A second head that is used only where `both` is set, so that it has no gradient elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.other = nn.Linear(3, 2), nn.Linear(2, 1), nn.Linear(2, 1)
        self.both = False

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.body(x))
        return self.head(hidden) + self.other(hidden) if self.both else self.head(hidden)


def build(kind: str, seed: int) -> nn.Module:
    """A model "plain", "tied" or "heads" with the parameters that `seed` fixes."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would look for GPUs each time
    if kind == "tied":
        return TiedAndFrozen()
    return TwoHeads() if kind == "heads" else nn.Sequential(nn.Linear(3, 2, bias=False), nn.Tanh(), nn.Linear(2, 1))


def shards(rng: np.random.Generator, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """For each rank so many inputs (n, 3) and targets (n, 1)."""
    data = [(rng.normal(size=(n, 3)), rng.normal(size=(n, 1))) for n in sizes]
    return [(torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)) for x, y in data]


def in_words(numbers: Sequence[int]) -> str:
    """ "1", "1 and 4", "3, 2 and 1"."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def named_first(sentence: str, words: str = "{}") -> str:
    """ "Rank 0: expected 1 at ['bias'], got 2." with the name in front: "Rank 0, bias: expected 1, got 2"."""
    found = re.search(r" at \['([^']+)'\]", sentence)
    if found is None:
        return sentence
    rest, name = sentence.replace(found[0], "", 1), words.format(f"`{found[1]}`")
    rank = re.match(r"[Rr]ank \d+: ", rest)
    if rank is None:
        return f"{name[0].upper()}{name[1:]}: {rest[0].lower()}{rest[1:]}"
    return f"{rank[0][:-2]}, {name}: {rest[len(rank[0]) :]}"


def first_that_differs(got: dict[str, Tensor], want: dict[str, Tensor]) -> tuple[str, str]:
    """Expected and got of the first entry that is not the same, as short texts."""
    name = next((n for n in want if n not in got or differs(got[n], want[n], 1e-4, 1e-6) is not None), None)
    if name is None or name not in got:
        return short(want), short(got)
    return f"{name}: {short(want[name])}", f"{name}: {short(got[name])}"
