"""Exercise 00.2: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `amdahl.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.observe import Observation


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


MISTAKES = (
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
        "That is the limit for endlessly many workers. With `workers` of them the shared part still takes some time.",
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
)
