"""03.5 `checkpoint_every`: the length of a segment for activation checkpointing.

Floor 4, room `exercises`. Chen, Xu, Zhang, Guestrin 2016, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short
from lockstep.trace.units import show_bytes


def checkpoint_every(layers, input_bytes, kept_bytes):
    def memory(every):
        return math.ceil(layers / every) * input_bytes + every * kept_bytes

    return min(range(1, layers + 1), key=memory)


def by_number_of_segments(layers, input_bytes, kept_bytes):
    best = None
    for segments in range(1, layers + 1):
        every = -(-layers // segments)
        bytes_ = -(-layers // every) * input_bytes + every * kept_bytes
        if best is None or bytes_ < best[0]:
            best = (bytes_, every)
    return best[1]


def by_table(layers, input_bytes, kept_bytes):
    every = np.arange(1, layers + 1)
    return every[np.argmin((layers + every - 1) // every * input_bytes + every * kept_bytes)]


def checkpoint_every_stub(layers, input_bytes, kept_bytes):
    raise NotImplementedError("the segment length that needs the least memory")


def kept(layers: int, input_bytes: int, kept_bytes: int, every: int) -> int:
    """Bytes with segments of `every` layers."""
    return -(-layers // every) * input_bytes + every * kept_bytes


def always_the_root(layers, input_bytes, kept_bytes):
    return max(1, round(math.sqrt(layers)))


def every_layer(layers, input_bytes, kept_bytes):
    return 1


def never(layers, input_bytes, kept_bytes):
    return layers


def number_of_segments(layers, input_bytes, kept_bytes):
    return math.ceil(layers / checkpoint_every(layers, input_bytes, kept_bytes))


def sizes_swapped(layers, input_bytes, kept_bytes):
    return checkpoint_every(layers, kept_bytes, input_bytes)


def not_rounded(layers, input_bytes, kept_bytes):
    return math.sqrt(layers * input_bytes / kept_bytes)


def remainder_dropped(layers, input_bytes, kept_bytes):
    return min(range(1, layers + 1), key=lambda every: layers // every * input_bytes + every * kept_bytes)


def fraction_of_a_segment(layers, input_bytes, kept_bytes):
    return min(range(1, layers + 1), key=lambda every: layers / every * input_bytes + every * kept_bytes)


def most_memory(layers, input_bytes, kept_bytes):
    return max(range(1, layers + 1), key=lambda every: kept(layers, input_bytes, kept_bytes, every))


def the_bytes(layers, input_bytes, kept_bytes):
    return kept(layers, input_bytes, kept_bytes, checkpoint_every(layers, input_bytes, kept_bytes))


def half_of_them(layers, input_bytes, kept_bytes):
    return max(1, layers // 2)


def least_memory(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Any length that needs no more than the best one."""
    layers = case.args[0]
    number = seen.value.item() if isinstance(seen.value, np.ndarray) and seen.value.ndim == 0 else seen.value
    if type(number) is not int and not (type(number) is float and number.is_integer()):
        return Finding(
            "It should return a whole number of layers." if number is not None else "The function returns None.",
            short(expected.value), short(seen.value), ("no whole number", seen.value),
        )  # fmt: skip
    if not 1 <= number <= layers:
        return Finding(
            f"A segment has 1 to {layers} layers.", short(expected.value), short(number), ("out of range", number)
        )
    got, want = (kept(*case.args, int(one)) for one in (number, expected.value))
    if got <= want:
        return None
    return Finding(
        f"Segments of {int(number)} layers keep {show_bytes(got)}; segments of {expected.value} keep {show_bytes(want)}.",
        short(expected.value), short(number), ("length", number),
    )  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    million = 10**6
    fixed = ((16, 1, 1), (36, 4, 1), (3, 2, 1), (50, 1, 3), (10, 5, 2), (7, 100, 1), (12, 1, 40), (1, 3, 5))
    drawn = [(int(rng.integers(20, 200)), int(rng.integers(1, 60)), int(rng.integers(1, 60))) for _ in range(5)]
    for layers, inputs, inside in (*fixed, *drawn):
        name = f"{layers} layer{'s' * (layers > 1)}, inputs of {inputs} MB, {inside} MB kept in a layer"
        yield Case(name, (layers, inputs * million, inside * million))


OBSERVE, JUDGE = Call(), least_memory

SEGMENTS = Exercise(
    id="03.5",
    title="Where to put checkpoints",
    function="checkpoint_every",
    points=2,
    core=False,
    asks=(
        "A chain of `layers` equal layers is cut into segments of the same length; only the last may be shorter. The input "
        "of every segment is kept, `input_bytes` each, and while a segment is computed again `kept_bytes` for each of its "
        "layers. Return the length that needs the least memory; among equals, any."
    ),
    reference=checkpoint_every,
    also_right=(by_number_of_segments, by_table),
    stub=checkpoint_every_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(  # a segment longer than the chain never needs less
        "line 5: return min(range(1, layers + 1), key=memory) -> return min(range(1, layers + 2), key=memory)",
    ),
    hints=(
        "Two things are added up: one grows when segments get longer, the other when they get shorter. Write the sum down "
        "as a function of the length.",
        "With segments of `every` layers there are `ceil(layers / every)` of them. How many bytes are their inputs, and how "
        "many the inside of the longest one?",
        "There are at most `layers` lengths to try: `min(range(1, layers + 1), key=memory)` finds the one with the least.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "counts a fraction of a segment",
                fraction_of_a_segment,
                "You count `layers / every` segments, which may be a fraction. A shorter segment at the end has an input that "
                "is kept whole: round up.",
            ),
            Mistake(
                "leaves out the shorter last segment",
                remainder_dropped,
                "When the length does not divide the number of layers, there is one segment more, and its input is kept "
                "too: round up.",
            ),
            Mistake(
                "the square root of the number of layers, always",
                always_the_root,
                "The square root of the number of layers is right when an input is as large as what a layer keeps. When "
                "they differ, the balance lies elsewhere.",
            ),
            Mistake(
                "one layer in each segment, always",
                every_layer,
                "With segments of one layer you keep the input of every layer, which is nearly as much as without "
                "checkpoints.",
            ),
            Mistake(
                "a single segment with all the layers",
                never,
                "One segment with all the layers is no checkpointing at all: while it is computed again, everything is kept.",
            ),
            Mistake(
                "returns the number of segments",
                number_of_segments,
                "That is how many segments there are. How many layers each of them has is asked for.",
            ),
            Mistake(
                "swaps the two sizes",
                sizes_swapped,
                "You take what a layer keeps for the size of an input. Large inputs call for few, long segments.",
            ),
            Mistake(
                "returns a fraction of a layer",
                not_rounded,
                "A segment has a whole number of layers, between 1 and all of them. Compare the whole numbers.",
            ),
            Mistake("the length that needs the most memory", most_memory, "That length needs the *most* memory."),
            Mistake(
                "returns the bytes that are kept",
                the_bytes,
                "You return how many bytes are kept. The length of a segment is asked for.",
            ),
            Mistake(
                "two segments, always",
                half_of_them,
                "Two segments keep half of all activations. More and shorter ones keep less, up to a point.",
            ),
        ),
    ),
)
