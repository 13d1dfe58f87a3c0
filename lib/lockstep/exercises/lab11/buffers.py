"""11.4 `double_buffer`: make, send and use blocks with two buffers on each side, all at the same time.

Floor 4, room `exercises`. How it is run and judged; right functions are in `buffers_right.py`, wrong ones in
`buffers_wrong.py`, what they are told in `buffers_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab11.buffers_mistakes import MISTAKES
from lockstep.exercises.lab11.buffers_right import by_swapping, double_buffer, double_buffer_stub, with_queues
from lockstep.exercises.lab11.told import Told, by_what_it_alone_does
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import Words, short
from lockstep.hardware import Link

MS = 1e-3
NUMBERS = 250  # in a block: 1,000 bytes
INSTANT = 1e-7  # seconds


def blocks_through(
    fn: Callable[..., Any], comm: Communicator, count: int, numbers: Tensor, make: float, use: float
) -> dict[str, Any]:
    """Run it; what was used, in which buffers, and which of those were lent to a call meanwhile.

    order: of the blocks that were worked on. begun: when, in seconds. places: in which buffer. used: what was in it then.
    own: blocks in memory that is in neither buffer. strange: calls that were given such memory. lent: blocks whose buffer
    a call still had.
    """
    buffers = [torch.zeros(NUMBERS), torch.zeros(NUMBERS)]
    places = [buffer.data_ptr() for buffer in buffers]
    found: dict[str, list[Any]] = {
        "order": [],
        "begun": [],
        "places": [],
        "used": [],
        "own": [],
        "strange": [],
        "lent": [],
    }

    def work(i: int, buffer: Tensor) -> None:
        lent = [handle.buffer.tensor.data_ptr() for handle in comm.unfinished if handle.buffer is not None]
        found["order"].append(int(i))
        found["begun"].append(comm.now())
        found["places"].append(places.index(buffer.data_ptr()) if buffer.data_ptr() in places else len(places))
        if buffer.data_ptr() not in places:
            found["own"].append(int(i))
        if buffer.data_ptr() in lent:
            found["lent"].append(int(i))
        with comm.span("use" if comm.rank else "make", micro_batch=int(i), cost=use if comm.rank else make):
            if comm.rank:
                found["used"].append(buffer.clone())
            else:
                buffer.copy_(numbers[i])

    for name in ("send", "recv", "isend", "irecv"):
        setattr(comm, name, _noting(getattr(comm, name), places, found["strange"]))
    fn(comm, count, buffers, work)
    return found


def _noting(call: Callable[..., Any], places: list[int], strange: list[str]) -> Callable[..., Any]:
    """`call`, noting its name when its tensor is none of the buffers."""

    def noting(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensor, Tensor) and tensor.data_ptr() not in places:
            strange.append(call.__name__)
        return call(tensor, *args, **kwargs)

    return noting


def in_words(found: list[dict[str, list[Any]]], seconds: float) -> list[Words]:
    """By rank the blocks, their buffers and when each began: what `diagnose` tells beside the timeline."""
    told = []
    for rank, one in enumerate(found):
        blocks, begun = _listed(one["order"]), _listed(f"{when / MS:.4g}" for when in one["begun"])
        where = _listed("neither" if place > 1 else place for place in one["places"])
        verb = ("makes", "uses")[rank]
        did = f"{verb} blocks {blocks} in buffers {where}, from {begun} ms" if blocks else f"{verb} nothing"
        held = f", while a call has the buffer of {_listed(one['lent'])}" if one["lent"] else ""
        calls = f", another tensor goes into {one['strange'][0]}" if one["strange"] else ""
        told.append(Words(f"{did}{held}{calls}; {seconds / MS:.4g} ms in all"))
    return told


def _listed(values: Iterable[object]) -> str:
    return " ".join(map(str, values))


def every_block_arrives(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    count = case.args[0]
    for rank, (word, got) in enumerate(zip(("makes", "uses"), seen.arguments, strict=True)):
        if got["order"] != list(range(count)):
            return Finding(
                f"Rank {rank} {word} {_blocks(got['order'])}; it has to be each of the {count} once, in order.",
                short(list(range(count))), short(got["order"]), ("order", rank, got["order"]),
            )  # fmt: skip
    for i, (mine, right) in enumerate(zip(seen.arguments[1]["used"], expected.arguments[1]["used"], strict=True)):
        difference = differs(mine, right)
        if difference:
            return Finding(
                f"What rank 1 uses as block {i} is not what rank 0 has made: {difference}.",
                short(right), short(mine), (seen.arguments[1]["used"],),
            )  # fmt: skip
    return None


def _blocks(order: list[int]) -> str:
    if len(order) < 2:
        return f"block {order[0]} alone" if order else "no block"
    return f"blocks {', '.join(map(str, order[:8]))}" + ", …" * (len(order) > 8)


def in_the_two_buffers(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, (word, got) in enumerate(zip(("make", "use"), seen.arguments, strict=True)):
        if got["own"]:
            return Finding(
                f"The blocks are right, but rank {rank} {word}s block {got['own'][0]} in memory that is none of `buffers`.",
                "one of the two buffers", "memory of its own", ("own", rank),
            )  # fmt: skip
        if got["strange"]:
            return Finding(
                f"The blocks are right, but on rank {rank} a tensor that is none of `buffers` goes into "
                f"`{got['strange'][0]}`.",
                "the two buffers", "memory of its own", ("strange", rank),
            )  # fmt: skip
        if got["lent"]:
            return Finding(
                f"The blocks are right, but while rank {rank} {word}s block {got['lent'][0]}, a launched call has the same "
                "buffer.",
                "a buffer that no call has", "one that is on its way", ("lent", rank, got["lent"]),
            )  # fmt: skip
    return None


def no_later(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """It takes no longer than two buffers need."""
    if seen.seconds <= expected.seconds + INSTANT:
        return None
    shown = [f"{one.seconds / MS:.2f} ms" for one in (expected, seen)]
    return Finding(
        f"The blocks are right, but it takes {shown[1]} where {shown[0]} are enough: something waits too early.",
        *shown, ("late", seen.seconds, [one["begun"] for one in seen.arguments]),
    )  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Blocks, and milliseconds to make, send and use one: each of the three is slowest once."""
    drawn = [float(rng.integers(20, 60)) / 10 for _ in range(3)]
    for count, make, send, use in (
        (1, 2, 3, 2),
        (2, 2, 3, 2.5),
        (3, 4, 3, 5),
        (4, 6, 2, 3),
        (5, 2, 3, 6),
        (5, 2, 7, 3),
        (6, *drawn),
    ):
        numbers = torch.tensor(rng.normal(size=(count, NUMBERS)), dtype=torch.float32)
        link = Link(latency=0.5 * MS, bandwidth=4 * NUMBERS / ((send - 0.5) * MS))
        many = f"{count} block{'s' * (count > 1)}"
        name = f"{many}: {make:g} ms to make one, {send:g} to send it, {use:g} to use it"
        yield on_ranks(2, count, numbers, make * MS, use * MS, name=name, cluster=link)


OBSERVE, JUDGE = Told(Simulate(blocks_through), in_words), all_of(every_block_arrives, in_the_two_buffers, no_later)

DOUBLE_BUFFER = Exercise(
    id="11.4",
    title="Two buffers",
    function="double_buffer",
    points=3,
    asks=(
        "Two ranks. Rank 0 makes block i by `work(i, buffer)`, which fills the buffer, and sends it to rank 1, which "
        "receives it and uses it by `work(i, buffer)`, for i from 0 to `count` - 1; `count` is at least 1. Both have two `buffers`, and use no "
        "others. Making, sending and using go on at the same time; a buffer that a launched call has is not touched before "
        "its `wait()`."
    ),
    reference=double_buffer,
    also_right=(with_queues, by_swapping),
    stub=double_buffer_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "Draw both ranks' time for three blocks. While rank 1 uses block 0, where is block 1, and where does rank 0 make "
        "block 2?",
        "Block i lives in `buffers[i % 2]` on both ranks. Rank 0 fills, launches `isend`, and goes on; before it fills the "
        "same buffer again, two blocks later, it waits for that send. After the loop it waits for what is left.",
        "Rank 1 launches the receive of block 0 before the loop. In the loop: launch the receive of block i + 1 into the "
        "other buffer, if there is such a block; wait for block i; use it.",
        "Keep the handles in a list of two, `handles[i % 2]`. On rank 0: `if handles[i % 2] is not None:` wait for it, then "
        "`work(i, buffers[i % 2])`.",
    ),
    mistakes=by_what_it_alone_does(OBSERVE, JUDGE, MISTAKES),
    equivalent_mutants=tuple(
        f"line 15: handles[(i + 1) % 2] = comm.irecv(buffers[(i + 1) % 2], src=0) -> {changed}"
        for changed in (  # of two, the next and the one before are the same
            "handles[(i - 1) % 2] = comm.irecv(buffers[(i + 1) % 2], src=0)",
            "handles[(i + 1) % 2] = comm.irecv(buffers[(i - 1) % 2], src=0)",
        )
    ),
)
