"""From what a release lists to exercises as values: the course's or the pack's, in a student's variant.

Floor 4, room `course`; read `toml.py` first, and `variants.py` of the room `exercises`.
"""

from __future__ import annotations

import hmac
from dataclasses import replace

import lockstep
from lockstep.course.release.pack import digest, load
from lockstep.course.release.toml import Release, ReleasedExercise
from lockstep.exercises.exercise import Exercise
from lockstep.exercises.registry import Unknown, find, variants
from lockstep.exercises.variants import choose, varied

SEED_BYTES = 32


def variants_key(seed: int) -> str:
    """What students' notebooks carry to choose variants by; it follows from the seed, and nobody gets the seed from it."""
    return hmac.digest(seed.to_bytes(SEED_BYTES), b"lockstep variants", "sha256").hex()[:32]


def variant_of(release: Release, exercise: str, student: str) -> str:
    """See `Release.variant`."""
    chosen = choose(variants_key(release.seed), student, exercise) if release.has_variants and student else None
    return chosen.name if chosen else ""


def value(release: Release, one: ReleasedExercise, student: str) -> Exercise:
    """One exercise to judge with. Raises ValueError when it no longer exists or the pack is not the one released."""
    exercise = source_of(release, one)
    return replace(varied(exercise, variant_of(release, one.id, student)), points=one.points)


def source_of(release: Release, one: ReleasedExercise) -> Exercise:
    """The exercise itself, with the cases that the pack adds to it."""
    pack = None
    if release.pack is not None:
        found = digest(release.pack.path)
        if found != release.pack.sha256:
            raise ValueError(
                f"the pack {release.pack.path} is not the one that was released: {found[:12]}, not "
                f"{release.pack.sha256[:12]}. Put the old files back, or make a new release."
            )
        pack = load(release.pack.path)
    try:
        exercise = find(one.id) if one.origin == "course" else pack.exercises[one.id]
    except (Unknown, KeyError, AttributeError):
        raise ValueError(f"exercise {one.id} of {release.path.name} does not exist in this version") from None
    return pack.with_cases(exercise) if pack else exercise


def drift(release: Release) -> list[str]:
    """See `Release.drift`."""
    said = []
    if release.lockstep != lockstep.__version__:
        said.append(f"the release was made with Lockstep {release.lockstep}; this is {lockstep.__version__}")
    for one in release.exercises:
        try:
            exercise = source_of(release, one)
        except ValueError as error:
            said.append(str(error))
            continue
        if exercise.version != one.version:
            said.append(f"{one.id} was released as version {one.version} and is version {exercise.version} now")
        names = tuple(variant.name for variant in variants(one.id)) if release.has_variants else ()
        if names != one.variants:
            said.append(f"{one.id} was released with the variants {list(one.variants)} and has {list(names)} now")
    return list(dict.fromkeys(said))
