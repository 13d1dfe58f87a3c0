"""09.1 `state_bytes`: bytes of a rank by part, for each stage.

Floor 4, room `exercises`. The count is that of Rajbhandari et al. 2020, section 3.1. Right functions are in
`state_right.py`, wrong ones in `state_wrong.py`, what they are told in `state_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import all_of, same_value
from lockstep.exercises.lab03.state import has_the_keys
from lockstep.exercises.lab03.words import by_wrong_number
from lockstep.exercises.lab09.state_mistakes import MISTAKES
from lockstep.exercises.lab09.state_right import by_a_table, part_by_part, state_bytes, state_bytes_stub
from lockstep.exercises.observe import Call


def as_a_plain_dict(fn: Callable[..., Any], *args: Any) -> Any:
    """What it returns; a `defaultdict` or another kind of dictionary is as good."""
    value = fn(*args)
    return dict(value) if isinstance(value, dict) else value


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, stage, optimizer, precision, over in (
        (2, 0, "adam", "fp32", 1), (2, 1, "adam", "fp32", 1), (4, 2, "momentum", "fp32", 1), (3, 3, "adam", "fp32", 1),
        (4, 0, "sgd", "mixed", 1), (8, 1, "adam", "mixed", 1), (16, 2, "adam", "mixed", 1),
        (64, 3, "momentum", "mixed", 1), (5, 1, "momentum", "mixed", 1),
        (4, 3, "adam", "mixed", 0), (1, 3, "adam", "mixed", 0), (8, 3, "adam", "fp32", -3),
    ):  # fmt: skip
        parameters = ranks + over if over < 0 else ranks * int(rng.integers(3, 40)) + over
        name = f"stage {stage}, {ranks} ranks, {parameters:,} parameters, {optimizer}, {precision}"
        yield Case(name, (parameters, ranks, stage, optimizer, precision))


STATE_BYTES = Exercise(
    id="09.1",
    title="What a rank holds",
    function="state_bytes",
    points=2,
    asks=(
        'Return a dictionary of the bytes that one rank holds: "parameters", "gradients" and "optimizer", where a master '
        "copy counts with the optimizer. Stage 0 is plain data parallel; stage 1 shards the optimizer's part, stage 2 the "
        "gradients too, stage 3 the parameters too. A shard has as many numbers on every rank, the last one padded. "
        '`optimizer` is "sgd", "momentum" or "adam", `precision` "fp32" or "mixed", as in lab 03.'
    ),
    reference=state_bytes,
    also_right=(part_by_part, by_a_table),
    stub=state_bytes_stub,
    cases=cases,
    observe=Call(as_a_plain_dict),
    judge=all_of(has_the_keys, same_value(rtol=1e-12)),
    hints=(
        "First write down what each part takes without sharding: how many bytes for one parameter, in each precision? "
        "Then ask for each part from which stage on only a shard of it is held.",
        "A shard has `parameters / ranks` numbers, rounded *up*: the flat tensor is padded until it divides. Optimizer "
        "from stage 1 on, gradients from stage 2, parameters from stage 3.",
        "In mixed precision parameters and gradients take 2 bytes each. The optimizer's part is a master copy of 4 bytes "
        "and 4 for each number that it keeps: 12 for Adam, which is the paper's K.",
    ),
    mistakes=by_wrong_number(MISTAKES),
)
