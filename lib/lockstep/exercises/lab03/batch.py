"""03.4 `largest_batch`: how many images fit into a GPU's memory.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import same_value
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation

GIB = 2**30


def largest_batch(memory_gib, fixed_bytes, image_bytes):
    room = memory_gib * 2**30 - fixed_bytes
    return max(0, int(room // image_bytes))


def by_flooring(memory_gib, fixed_bytes, image_bytes):
    if fixed_bytes > memory_gib * 1024**3:
        return 0
    return math.floor((memory_gib * 1024**3 - fixed_bytes) / image_bytes)


def by_bisection(memory_gib, fixed_bytes, image_bytes):
    low, high = 0, 2**40
    while high - low > 1:
        middle = (low + high) // 2
        if fixed_bytes + middle * image_bytes <= memory_gib * 1024 * 1024 * 1024:
            low = middle
        else:
            high = middle
    return low


def largest_batch_stub(memory_gib, fixed_bytes, image_bytes):
    raise NotImplementedError("how many images fit")


def gigabytes(memory_gib, fixed_bytes, image_bytes):
    return max(0, int((memory_gib * 10**9 - fixed_bytes) // image_bytes))


def takes_bytes(memory_gib, fixed_bytes, image_bytes):
    return max(0, int((memory_gib - fixed_bytes) // image_bytes))


def rounds_up(memory_gib, fixed_bytes, image_bytes):
    return max(0, math.ceil((memory_gib * GIB - fixed_bytes) / image_bytes))


def rounds(memory_gib, fixed_bytes, image_bytes):
    return max(0, round((memory_gib * GIB - fixed_bytes) / image_bytes))


def does_not_round(memory_gib, fixed_bytes, image_bytes):
    return max(0, (memory_gib * GIB - fixed_bytes) / image_bytes)


def nothing_is_fixed(memory_gib, fixed_bytes, image_bytes):
    return int(memory_gib * GIB // image_bytes)


def fixed_for_each_image(memory_gib, fixed_bytes, image_bytes):
    return int(memory_gib * GIB // (fixed_bytes + image_bytes))


def fewer_than_none(memory_gib, fixed_bytes, image_bytes):
    return int((memory_gib * GIB - fixed_bytes) // image_bytes)


def at_least_one(memory_gib, fixed_bytes, image_bytes):
    return max(1, largest_batch(memory_gib, fixed_bytes, image_bytes))


def leaves_the_last_byte(memory_gib, fixed_bytes, image_bytes):
    return max(0, int((memory_gib * GIB - fixed_bytes - 1) // image_bytes))


def powers_of_two(memory_gib, fixed_bytes, image_bytes):
    fits = largest_batch(memory_gib, fixed_bytes, image_bytes)
    return 2 ** (fits.bit_length() - 1) if fits else 0


def is_gigabytes(case: Case, seen: Observation, expected: Observation) -> bool:
    """With GB, however it is rounded."""
    return _is_number(seen.value) and abs(seen.value - gigabytes(*case.args)) <= 1 < abs(seen.value - expected.value)


def is_bytes(case: Case, seen: Observation, expected: Observation) -> bool:
    """With the GiB taken for bytes, whether or not the negative result is made 0."""
    memory, fixed, image = case.args
    return _is_number(seen.value) and expected.value > 1 and abs(seen.value - (memory - fixed) / image) <= 1


def is_negative(case: Case, seen: Observation, expected: Observation) -> bool:
    return _is_number(seen.value) and seen.value < 0 == expected.value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    million = 10**6
    fixed = (
        (1, 100 * million, 70 * million),
        (16, 2_213 * million, 238 * million),
        (2, GIB, GIB // 8),  # fits to the last byte
        (4, 5 * GIB, 90 * million),  # even the model does not fit
        (1, GIB - 1000, 70 * million),  # the model fits, no image does
        (0.5, 60 * million, 1_300_000),
    )
    drawn = [
        (int(gib), int(rng.integers(200, 4000)) * million, int(rng.integers(3, 400)) * million)
        for gib in rng.choice((12, 24, 40, 80), 3, replace=False)
    ]
    for gib, model, image in (*fixed, *drawn):
        yield Case(f"{gib} GiB, {model:,} bytes fixed, {image:,} bytes an image", (gib, model, image))


OBSERVE, JUDGE = Call(), same_value(rtol=1e-9)

BATCH = Exercise(
    id="03.4",
    title="The largest batch",
    function="largest_batch",
    points=1,
    core=False,
    asks=(
        "Return the largest number of images that fit into a memory of `memory_gib` GiB, when `fixed_bytes` are needed "
        "whatever the batch and `image_bytes` for each image. When not even one fits, return 0."
    ),
    reference=largest_batch,
    also_right=(by_flooring, by_bisection),
    stub=largest_batch_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(  # `int` drops the remainder as well
        "line 3: return max(0, int(room // image_bytes)) -> return max(0, int(room / image_bytes))",
    ),
    hints=(
        "What is left for images when everything that does not depend on the batch has its place? A GiB is not 10^9 bytes.",
        "A GiB is 2**30 bytes. Divide what is left by the bytes of an image and drop the remainder, since half an image "
        "does not train.",
        "`room // image_bytes` drops the remainder. When `room` is negative, the answer is 0.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "GB for GiB",
                gigabytes,
                "Your GiB has 10^9 bytes: that is a GB. A GiB has 2^30, which is 7 % more.",
                symptom=is_gigabytes,
            ),
            Mistake(
                "returns a negative number of images",
                fewer_than_none,
                "There is no batch of fewer than 0 images. When the model alone does not fit, the answer is 0.",
                symptom=is_negative,
            ),
            Mistake(
                "takes GiB for bytes",
                takes_bytes,
                "Your memory is far too small: `memory_gib` counts GiB of 2^30 bytes each, and the other two count bytes.",
                symptom=is_bytes,
            ),
            Mistake(
                "rounds up to the next image",
                rounds_up,
                "You round up. The last image does not fit: out of memory is what a GPU says to it.",
            ),
            Mistake(
                "rounds to the nearest",
                rounds,
                "You round to the nearest number, which is one too many half of the time. Drop the remainder.",
            ),
            Mistake(
                "returns a fraction of an image",
                does_not_round,
                "A batch is a whole number of images: drop the remainder.",
            ),
            Mistake(
                "gives the whole memory to the images",
                nothing_is_fixed,
                "You give the whole memory to the images. Parameters, gradients and the optimizer's state are there first.",
            ),
            Mistake(
                "fixed bytes for each image",
                fixed_for_each_image,
                "You count the fixed bytes for each image. The whole batch shares one model: take them off once.",
            ),
            Mistake(
                "returns at least one image",
                at_least_one,
                "You say 1 where not even one image fits. The answer to that is 0: another GPU, or another precision.",
            ),
            Mistake(
                "leaves the last byte free",
                leaves_the_last_byte,
                "When the batch fills the memory to the last byte, it fits.",
            ),
            Mistake(
                "returns powers of two only",
                powers_of_two,
                "You return a power of two. Any number of images may fit, and the largest is asked for.",
            ),
        ),
    ),
)
