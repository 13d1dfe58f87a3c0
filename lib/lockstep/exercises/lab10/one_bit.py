"""10.2 `one_bit`: a bit for each number, and two means.

Floor 4, room `exercises`. Which bit of a byte comes first is free.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab10.one_bit_mistakes import MISTAKES
from lockstep.exercises.lab10.one_bit_right import bit_by_bit, one_bit, one_bit_stub, with_numpy
from lockstep.exercises.lab10.results import is_number
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import as_numpy, kind, short


def is_a_triple(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    got = seen.value
    if isinstance(got, (tuple, list)) and len(got) == 3:
        return None
    return Finding(
        f"The function returns {kind(got)}; asked are three: bits, low and high.", "(bits, low, high)", short(got)
    )


def right_bits(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    g, bits = case.args[0], seen.value[0]
    size = -(-len(g) // 8)
    if isinstance(bits, Tensor):
        bits = as_numpy(bits)
    if not isinstance(bits, np.ndarray) or bits.dtype != np.uint8 or bits.shape != (size,):
        said = f"The bits are {kind(seen.value[0])}; {len(g)} bits take {size} byte{'s' if size > 1 else ''} of uint8."
        return Finding(said, f"uint8[{size}]", short(seen.value[0]), ("bits", kind(seen.value[0])))
    wanted = (g >= 0).numpy().astype(np.uint8)
    either = [np.unpackbits(bits, bitorder=order)[: len(g)] for order in ("little", "big")]
    if any((one == wanted).all() for one in either):
        return None
    wrong = min((one != wanted for one in either), key=np.count_nonzero)
    at = int(wrong.argmax())
    said = f"{wrong.sum()} of {len(g)} bits are wrong, the first at {at}, where the number is {short(g[at].item())}."
    return Finding(said, short(wanted.tolist()), short(bits.tolist()), ("bits", wrong))


def right_means(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for place, of in ((1, "numbers below zero"), (2, "other numbers")):
        mine, right = seen.value[place], expected.value[place]
        gap = differs(float(mine), float(right), 1e-5, 1e-7) if is_number(mine) else f"got {kind(mine)}"
        if gap is not None:
            said = f"The bits are right. The mean of the {of} is not: {gap}."
            return Finding(said, short(right), short(mine), (seen.value[1:],))
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for n, words in (
        (3, ""), (8, ""), (9, ""), (21, "two of them zero"), (16, ""), (11, "none below zero"), (10, "all below zero"),
    ):  # fmt: skip
        g = torch.tensor(rng.normal(size=n), dtype=torch.float32)
        g[0], g[1] = g[0].abs() + 0.1, -g[1].abs() - 0.1
        if "two" in words:
            g[5] = g[18] = 0.0
        if "below" in words:
            g = (g.abs() + 0.2) * (1 if "none" in words else -1)
        yield Case(f"{n} numbers" + (f", {words}" if words else ""), (g,))


OBSERVE = Call()


JUDGE = all_of(is_a_triple, right_bits, right_means)


ONE_BIT = Exercise(
    id="10.2",
    title="One bit",
    function="one_bit",
    points=2,
    core=False,
    asks=(
        "Return `(bits, low, high)`: a bit for each number of `g`, 1 where it is at least zero, eight neighbours to a byte of "
        "uint8 (the first byte holds the first eight; which bit of a byte comes first is up to you); the mean of the numbers "
        "below zero; and the mean of the others. A kind that has no numbers has mean 0."
    ),
    reference=one_bit,
    also_right=(with_numpy, bit_by_bit),
    stub=one_bit_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "What would a receiver need to give each number the mean of its kind? How many bytes is that for a million numbers?",
        "Fill up with zeros to a multiple of 8, see the bits as rows of 8, and give each its weight: `<< torch.arange(8)`.",
        "`F.pad(above.long(), (0, -len(g) % 8)).view(-1, 8)` are the rows; a sum over each row is a byte.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
