"""Lab 00, "Start here": a first rank function, and Amdahl's law.

Floor 4, room `exercises`; read `exercise.py` first. What students read around these exercises is in
`solutions/00_start_here.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lockstep.comm import Communicator
from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Exercise, Mistake, Symptom, on_ranks
from lockstep.exercises.judge import Finding, all_of, same_value
from lockstep.exercises.observe import Call, Observation, Simulate
from lockstep.exercises.questions import Option, Question
from lockstep.exercises.symptoms import is_deadlock

# --- 00.1 hello


def hello(comm):
    square = comm.rank**2
    total = torch.tensor(square)
    comm.all_reduce(total)
    return square, total.item()


def hello_with_returned_tensor(comm):
    own = torch.tensor([float(comm.rank * comm.rank)])
    return [own, comm.all_reduce(own.clone())]


def hello_with_one_slot_each(comm):
    slots = torch.zeros(comm.size, dtype=torch.int64)
    slots[comm.rank] = pow(comm.rank, 2)
    comm.all_reduce(slots)
    return int(slots[comm.rank]), int(sum(slots))


def hello_with_handle(comm):
    total = torch.arange(comm.size)[comm.rank] ** 2
    square = int(total)
    comm.all_reduce(total, async_op=True).wait()
    return square, total


def hello_stub(comm):
    square = ...  # noqa: F841 - the skeleton, as students get it
    total = ...  # noqa: F841
    raise NotImplementedError("return this rank's square and the sum of all ranks' squares")


def uses_local_value(comm):
    square = comm.rank**2
    return square, square


def sums_twice(comm):
    square = comm.rank**2
    total = torch.tensor(square)
    comm.all_reduce(total)
    comm.all_reduce(total)
    return square, total.item()


def hard_codes_size(comm):
    square = comm.rank**2
    comm.all_reduce(torch.tensor(square))
    return square, sum(rank**2 for rank in range(4))


def has_four_slots(comm):
    slots = torch.zeros(4)
    slots[comm.rank] = comm.rank**2
    comm.all_reduce(slots)
    return slots[comm.rank].item(), slots.sum().item()


def works_it_out_alone(comm):
    return comm.rank**2, sum(rank**2 for rank in range(comm.size))


def squares_the_sum(comm):
    total = torch.tensor(comm.rank)
    comm.all_reduce(total)
    return comm.rank**2, total.item() ** 2


def overwrites_square(comm):
    square = torch.tensor(comm.rank**2)
    total = comm.all_reduce(square)
    return square, total


def counts_from_one(comm):
    square = (comm.rank + 1) ** 2
    total = torch.tensor(square)
    comm.all_reduce(total)
    return square, total.item()


def takes_the_mean(comm):
    square = float(comm.rank**2)
    total = comm.all_reduce(torch.tensor(square), op="mean")
    return square, total.item()


def reduces_to_rank_0(comm):
    square = comm.rank**2
    total = torch.tensor(square)
    comm.reduce(total, dst=0)
    return square, total.item()


def only_rank_0_calls(comm):
    square = comm.rank**2
    total = torch.tensor(square)
    if comm.rank == 0:
        comm.all_reduce(total)
    return square, total.item()


def returns_total_only(comm):
    total = torch.tensor(comm.rank**2)
    comm.all_reduce(total)
    return total.item()


def swaps_the_two(comm):
    square = comm.rank**2
    total = torch.tensor(square)
    comm.all_reduce(total)
    return total.item(), square


def forgets_to_square(comm):
    total = torch.tensor(comm.rank)
    comm.all_reduce(total)
    return comm.rank**2, total.item()


def squares_nothing(comm):
    total = torch.tensor(comm.rank)
    comm.all_reduce(total)
    return comm.rank, total.item()


def takes_exclusive_or(comm):
    square = comm.rank ^ 2
    total = torch.tensor(square)
    comm.all_reduce(total)
    return square, total.item()


def numbers(fn: Callable[..., Any], comm: Communicator) -> Any:
    """What `fn` returns, with every tensor of one element taken for its number, as the task allows."""
    value = fn(comm)
    if isinstance(value, (list, tuple)):
        one = (torch.Tensor, np.ndarray)
        return [part.item() if isinstance(part, one) and np.prod(part.shape) == 1 else part for part in value]
    return value


def right_numbers(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """As `same_value`, in the words of the task."""
    found = same_value()(case, seen, expected)
    if found is None:
        return None
    said = found.sentence.replace(" at [0]", " for its square").replace(" at [1]", " for the sum")
    return replace(found, sentence=said)


def asks_the_others(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """More than one rank: the sum comes out of an all-reduce."""
    for rank, called in enumerate(seen.collectives):
        if len(seen.collectives) > 1 and "all_reduce" not in called:
            instead = f"calls {', '.join(called)} instead of all_reduce" if called else "never calls comm.all_reduce"
            return Finding(
                f"The numbers are right, but rank {rank} {instead}.",
                "the sum, by comm.all_reduce",
                ", ".join(called) or "no collective",
                ("no all_reduce", [list(names) for names in seen.collectives]),
            )
    return None


def hello_cases(rng: np.random.Generator) -> list[Case]:
    return [on_ranks(ranks) for ranks in (1, 2, 3, 4, 5, int(rng.integers(6, 9)))]


def always_14(case: Case, seen: Observation, expected: Observation) -> bool:
    """0 + 1 + 4 + 9, the sum for four ranks, where there are not four."""
    return case.ranks != 4 and seen.error is None and all(np.shape(v) == (2,) and v[1] == 14 for v in seen.value)


HELLO = Exercise(
    id="00.1",
    title="Hello from every rank",
    function="hello",
    points=2,
    asks=(
        "Every rank returns two numbers: its own rank number squared, and the sum of the squares of all ranks, "
        "obtained with `comm.all_reduce`."
    ),
    reference=hello,
    also_right=(hello_with_returned_tensor, hello_with_one_slot_each, hello_with_handle),
    stub=hello_stub,
    cases=hello_cases,
    observe=Simulate(numbers),
    judge=all_of(right_numbers, asks_the_others),
    hints=(
        (
            "One of the two numbers you know without asking anybody: `comm.rank` gives it. For the other, every "
            "rank has to hand in something. What exactly should each hand in?"
        ),
        (
            "`comm.all_reduce` adds up tensors, not Python numbers. Put your square into a tensor. The call overwrites "
            "that tensor, so keep the square under another name as well."
        ),
        (
            "Four lines: the square as a Python number; a tensor made of it; the all-reduce of the tensor; return the "
            "number and what the tensor holds now. No `if`, no loop, no 4."
        ),
        (
            "The middle two lines are `total = torch.tensor(square)` and `comm.all_reduce(total)`; "
            "`total.item()` is then the sum."
        ),
    ),
    mistakes=(
        Mistake(
            "uses the local value",
            uses_local_value,
            "Your sum is this rank's own square: nothing has come from the other ranks. They do not share your "
            "variables; a number reaches you only through a call such as `comm.all_reduce`.",
        ),
        Mistake(
            "sums twice",
            sums_twice,
            "Your sum is too large by a factor of the number of ranks. After one all-reduce every rank holds the sum; "
            "a second one adds up that many equal sums.",
        ),
        Mistake(
            "hard-codes the size",
            hard_codes_size,
            "Your sum is 14 however many ranks there are: that is 0 + 1 + 4 + 9, right for four ranks only. "
            "The number of ranks is decided when the program starts.",
            symptom=always_14,
        ),
        Mistake(
            "has room for four ranks only",
            has_four_slots,
            "With more than four ranks, rank 4 finds no place in a tensor of four. Make the tensor as long as there "
            "are ranks, or hand in one number only.",
        ),
        Mistake(
            "works it out alone",
            works_it_out_alone,
            "Each rank worked out the others' squares by itself. That succeeds only because squares follow from rank "
            "numbers; gradients do not. Let `comm.all_reduce` bring them.",
        ),
        Mistake(
            "squares the sum",
            squares_the_sum,
            "You added up the rank numbers and squared the result: the square of a sum is not the sum of the squares. "
            "Which of the two steps has to come first?",
        ),
        Mistake(
            "adds up the rank numbers",
            forgets_to_square,
            "Your sum is that of the rank numbers themselves. The others' squares are asked for, so what has to be in "
            "the tensor that you hand in?",
        ),
        Mistake(
            "squares nothing",
            squares_nothing,
            "Nothing is squared: your numbers are the rank itself and the sum of the ranks. With up to two ranks nobody "
            "notices, since 0 and 1 are their own squares.",
        ),
        Mistake(
            "uses ^ for a power",
            takes_exclusive_or,
            "In Python `^` is no power but the exclusive or of two numbers' bits, so `0 ^ 2` is 2. A power is written "
            "`**`.",
        ),
        Mistake(
            "overwrites its square",
            overwrites_square,
            "The sum is right, but the square has become the sum too. `all_reduce` works in place: the tensor you hand "
            "in and the one it returns are the same memory.",
        ),
        Mistake(
            "counts ranks from 1",
            counts_from_one,
            "Your numbers are those of ranks 1, 2, 3 and so on. Ranks count from 0, so the first square is 0.",
        ),
        Mistake(
            "takes the mean",
            takes_the_mean,
            "Your second number is the mean of the squares, the sum divided by the number of ranks. The sum is asked "
            "for, which is what `all_reduce` gives when you do not name an operation.",
        ),
        Mistake(
            "reduces to rank 0 only",
            reduces_to_rank_0,
            "Only rank 0 has the sum; the others still hold their own square. `reduce` gives the result to one rank, "
            "the *all* in `all_reduce` means that every rank gets it.",
        ),
        Mistake(
            "not every rank calls it",
            only_rank_0_calls,
            "Some ranks call a collective and others never do, so those that call wait for ever. Every rank has to "
            "make the call: look for an `if` or a `return` around it.",
            symptom=is_deadlock,
        ),
        Mistake(
            "returns the sum only",
            returns_total_only,
            "You return the sum alone. Two numbers are asked for: this rank's square first, then the sum.",
        ),
        Mistake(
            "swaps the two numbers",
            swaps_the_two,
            "Both numbers are there, in the other order: this rank's square comes first, then the sum.",
        ),
    ),
)


# --- 00.2 amdahl


def amdahl(serial_share, workers):
    return 1 / (serial_share + (1 - serial_share) / workers)


def amdahl_multiplied_out(serial_share, workers):
    return workers / (1 + serial_share * (workers - 1))


def amdahl_in_minutes(serial_share, workers):
    whole = 60.0
    serial = whole * serial_share
    shared = whole - serial
    return whole / (serial + shared / workers)


def amdahl_as_tensor(serial_share, workers):
    parts = torch.tensor([serial_share, 1.0 - serial_share], dtype=torch.float64)
    return (parts / torch.tensor([1, workers])).sum() ** -1


def amdahl_stub(serial_share, workers):
    raise NotImplementedError("return the time with one worker divided by the time with `workers`")


def takes_percent(serial_share, workers):
    share = serial_share / 100
    return 1 / (share + (1 - share) / workers)


def inverts(serial_share, workers):
    return serial_share + (1 - serial_share) / workers


def is_gustafson(serial_share, workers):
    return serial_share + (1 - serial_share) * workers


def multiplies_shared_part(serial_share, workers):
    return 1 / (serial_share + (1 - serial_share) * workers)


def forgets_serial_part(serial_share, workers):
    return 1 / ((1 - serial_share) / workers)


def forgets_the_share(serial_share, workers):
    return float(workers)


def swaps_the_shares(serial_share, workers):
    return 1 / ((1 - serial_share) + serial_share / workers)


def takes_the_limit(serial_share, workers):
    return 1 / serial_share


def rounds(serial_share, workers):
    return round(1 / (serial_share + (1 - serial_share) / workers), 1)


def forgets_the_brackets(serial_share, workers):
    return 1 / serial_share + (1 - serial_share) / workers


def floors_the_shared_part(serial_share, workers):
    return 1 / (serial_share + (1 - serial_share) // workers)


def floors_the_speed_up(serial_share, workers):
    return 1 // (serial_share + (1 - serial_share) / workers)


def multiplies_by_shared_part(serial_share, workers):
    return workers * (1 - serial_share)


def gives(formula: Callable[[float, int], float]) -> Symptom:
    """The value of `formula`, for solutions that take care of a division by zero in ways of their own."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        try:
            return seen.error is None and alike(seen.value, formula(*case.args))
        except ZeroDivisionError:
            return False

    return symptom


def is_rounded(case: Case, seen: Observation, expected: Observation) -> bool:
    """The right value, to fewer digits."""
    return seen.error is None and any(alike(seen.value, round(expected.value, digits)) for digits in range(5))


def amdahl_cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = zip(rng.uniform(0.01, 0.9, 4).round(3), rng.integers(3, 2000, 4), strict=True)
    # 0.1 and 3: there every known mistake but rounding gives another value. 0 and 1: floor division is right there only.
    for share, workers in ((0.1, 3), (0.5, 1), (0.0, 1), (0.0, 4), (1.0, 8), *drawn):
        yield Case(f"serial_share={share:g}, workers={workers}", (float(share), int(workers)))


AMDAHL = Exercise(
    id="00.2",
    title="Amdahl's law",
    function="amdahl",
    points=1,
    asks=(
        "Return the speed-up: the time with one worker divided by the time with `workers` of them, when "
        "`serial_share` of the job (0 to 1) cannot be shared out. Do not round."
    ),
    reference=amdahl,
    also_right=(amdahl_multiplied_out, amdahl_in_minutes, amdahl_as_tensor),
    stub=amdahl_stub,
    cases=amdahl_cases,
    observe=Call(),
    judge=same_value(rtol=1e-6),
    hints=(
        (
            "Let the whole job take 1 second on one worker. How long does its serial part take when there are "
            "`workers` of them? And the rest?"
        ),
        "The new time is the sum of those two. A speed-up is the old time over the new time, so more than 1 is good.",
        (
            "The serial part takes `serial_share` seconds, whatever `workers` is. The rest is `1 - serial_share` "
            "seconds of work, split evenly. Divide 1 by the sum of the two."
        ),
    ),
    mistakes=(
        Mistake(
            "percent for share",
            takes_percent,
            "You treat the share as percent. It is a number between 0 and 1: half of the job is 0.5, not 50.",
        ),
        Mistake(
            "inverts",
            inverts,
            "That is the new time as a part of the old one; it falls when workers are added. The speed-up is the other "
            "way round: the old time over the new.",
        ),
        Mistake(
            "Gustafson's law instead",
            is_gustafson,
            "That is Gustafson's law, which lets the job grow with the workers. Here the job stays the same, and only "
            "its time shrinks.",
        ),
        Mistake(
            "multiplies the shared part",
            multiplies_shared_part,
            "More workers make your job slower: the part that is shared out must take less time with more workers, so "
            "it is divided by them.",
        ),
        Mistake(
            "forgets the serial part",
            forgets_serial_part,
            "Your new time holds only the part that is shared out. The serial part still has to be done, and no worker "
            "makes it shorter: add it.",
            symptom=gives(forgets_serial_part),
        ),
        Mistake(
            "divides everything",
            forgets_the_share,
            "Your speed-up equals the number of workers, as if the whole job could be shared out. The serial part "
            "takes as long as before.",
        ),
        Mistake(
            "swaps the shares",
            swaps_the_shares,
            "You share out the serial part and leave the rest alone. `serial_share` is the part that *cannot* be "
            "shared out.",
        ),
        Mistake(
            "only the limit",
            takes_the_limit,
            "That is the limit for endlessly many workers. With `workers` of them the shared part still takes some "
            "time.",
            symptom=gives(takes_the_limit),
        ),
        Mistake(
            "rounds",
            rounds,
            "The formula is right, but the result is rounded. Return it as it is; rounding is for showing a number.",
            symptom=is_rounded,
        ),
        Mistake(
            "forgets the brackets",
            forgets_the_brackets,
            "Division goes before addition, so 1 is divided by the serial part alone. Put brackets around the whole "
            "new time.",
            symptom=gives(forgets_the_brackets),
        ),
        Mistake(
            "divides the shared part by //",
            floors_the_shared_part,
            "`//` drops what comes after the point, and the shared part of the time is less than 1: nothing is left of "
            "it. Divide with `/`.",
        ),
        Mistake(
            "divides the times by //",
            floors_the_speed_up,
            "Your speed-up is a whole number: `//` drops what comes after the point. Divide with `/`.",
        ),
        Mistake(
            "multiplies by the shared part",
            multiplies_by_shared_part,
            "You count the workers once for the shared part and nobody for the serial one. Times cannot be skipped: "
            "work out how long each part takes, add the two, and compare with the time before.",
        ),
    ),
)

EXERCISES = (HELLO, AMDAHL)


# --- questions

QUESTIONS = (
    Question(
        "00.q1",
        "Look again at the picture at the top of lab 00. Why is row 0 pale for the longest time?",
        (
            Option(
                "Rank 0 collects everybody's numbers, so it has the most to do.",
                "No rank is special in an all-reduce, and pale means that nothing moves. Give rank 0 the most to "
                "compute, and the longest pale part moves to another row.",
            ),
            Option(
                "Rank 0 has the least to compute, arrives first, and waits for the others.",
                "An all-reduce can begin only when the last rank has arrived. The row that is hardly pale at all shows "
                "whom the others wait for.",
                right=True,
            ),
            Option(
                "Rank 0 runs on a slower core.",
                "A slower core would stretch its computation, and that bar is the shortest of all.",
            ),
            Option(
                "Rank 0 hands in a larger tensor.",
                "Every rank hands in a tensor of the same shape, here a single number; and moving it is not waiting.",
            ),
        ),
    ),
    Question(
        "00.q2",
        "A run on four ranks ends with a deadlock report: rank 0 waits in all_reduce, ranks 1, 2 and 3 have finished. "
        "Which program was it?",
        (
            Option(
                "while comm.rank == 0: pass",
                "A loop computes, it does not wait. Such a run ends at its time limit, and the report shows the line "
                "of the loop.",
            ),
            Option(
                "if comm.rank > 0: comm.all_reduce(tensor)",
                "Here ranks 1, 2 and 3 call it and would be the ones that wait, with rank 0 finished.",
            ),
            Option(
                "if comm.rank == 0: comm.all_reduce(tensor)",
                "Only rank 0 makes the call, and the others are gone when it waits for them. Every rank has to make "
                "the same collectives.",
                right=True,
            ),
            Option(
                "if comm.rank == 0: raise ValueError",
                "An exception ends the run at once, and its report begins with that rank and its line.",
            ),
        ),
    ),
    Question(
        "00.q3",
        "A tenth of a job is serial, and it runs on 100 workers. Somebody offers you 1,000. What do you gain?",
        (
            Option(
                "It becomes ten times as fast.",
                "Only the shared part shrinks to a tenth, and with 100 workers that part is already the smaller one.",
            ),
            Option(
                "Nothing at all: it is at its limit already.",
                "Nearly. The limit is 10, and 100 workers reach 9.2; it is approached, never reached.",
            ),
            Option(
                "It becomes about twice as fast.",
                "That would be a speed-up of 18, and no number of workers gets past 1 / 0.1 = 10.",
            ),
            Option(
                "Less than a tenth: the speed-up goes from 9.2 to 9.9.",
                "The serial tenth of the work already takes most of the time with 100 workers. Whoever wants more has "
                "to shrink the serial part.",
                right=True,
            ),
        ),
    ),
)
