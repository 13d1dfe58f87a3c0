"""What must hold for an exercise, as functions that raise AssertionError; tests apply them to every exercise.

They take the same way as `check` (observe, judge, assess), in this process for speed.
"""

import textwrap

import numpy as np
import torch

from lockstep.exercises.assess import forbidden, weigh
from lockstep.exercises.compare import alike
from lockstep.exercises.forbidden import resolve
from lockstep.exercises.judge import judged
from lockstep.exercises.known import Behaviour, known
from lockstep.exercises.mentions import find_in_source
from lockstep.exercises.mutate import mutants
from lockstep.exercises.plain import plain
from lockstep.exercises.source import is_blank, source_of

SEEDS = (0, 1, 2)

# The first optimizer of a process imports torch's compiler: seconds that, inside a simulated rank on a busy machine,
# became its time limit.
torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1)


def behaviour(exercise, fn, seed):
    return known(exercise, seed).of(fn)


def verdict_on(exercise, fn, seed=0):
    """As `check`; but a case is run when the verdict asks for it, and after the first that fails few are."""
    ours, seen = known(exercise, seed), behaviour(exercise, fn, seed)
    verdict = weigh(exercise, ours.cases, seen, ours.expected, lambda mistake: ours.of(mistake.function))
    called = next((one.forbidden[0] for one in seen.seen.values() if one.forbidden), None)
    return forbidden(exercise, called) if called else verdict


def fails(exercise, fn, seed):
    """On some case; those after it are not run."""
    ours = known(exercise, seed)
    tried = zip(ours.cases, Behaviour(exercise, fn, ours.cases), ours.expected, strict=True)
    return any(seen.forbidden or judged(exercise.judge, case, seen, want) is not None for case, seen, want in tried)


def the_reference_ends_without_an_error(exercise):
    """Once the library failed on empty tensors, the reference with it, and whoever failed alike was right."""
    for seed in SEEDS:
        cases = known(exercise, seed).cases
        for case, seen in zip(cases, behaviour(exercise, exercise.reference, seed), strict=True):
            assert seen.error is None, f"{case.name}: {seen.error}"


def right_ones_pass(exercise):
    assert len(exercise.also_right) >= 2, "at least two other right solutions"
    assert len({source_of(one) for one in (exercise.reference, *exercise.also_right)}) == len(exercise.also_right) + 1
    for fn in (exercise.reference, *exercise.also_right):
        for seed in SEEDS:
            verdict = verdict_on(exercise, fn, seed)
            assert verdict.passed, f"{fn.__name__}, seed {seed}\n{verdict.text}"


def stub_is_not_attempted(exercise):
    assert is_blank(exercise.stub, exercise.stub)
    assert verdict_on(exercise, exercise.stub).status == "not attempted", "the stub does something"
    assert not is_blank(exercise.reference, exercise.stub)


def mistakes_get_their_sentences(exercise):
    assert len(exercise.mistakes) >= 4, "at least four known mistakes"
    for what in ("name", "sentence"):
        assert len({getattr(one, what) for one in exercise.mistakes}) == len(exercise.mistakes), f"a {what} comes twice"
    for mistake in exercise.mistakes:
        assert find_in_source(mistake.function, exercise.forbidden) is None, f"{mistake.name!r} calls what it may not"
        verdict = verdict_on(exercise, mistake.function)
        assert not verdict.passed, f"{mistake.name!r} passes"
        assert verdict.cause == mistake.sentence, f"{mistake.name!r} is taken for {verdict.mistake!r}\n{verdict.text}"
        assert fails(exercise, mistake.function, seed=1), f"{mistake.name!r} passes with other cases"


def mutants_fail(exercise):
    equivalent, all_descriptions = set(exercise.equivalent_mutants), set()
    for mutant in mutants(exercise.reference):
        all_descriptions.add(mutant.description)
        survives = not fails(exercise, mutant.function, seed=0)
        if mutant.description in equivalent:
            assert survives, f"listed as equivalent, but it fails: {mutant.description}"
        else:
            assert not survives, f"passes: {mutant.description}"
    assert equivalent <= all_descriptions, f"there are no such mutants: {equivalent - all_descriptions}"


def hints_do_not_solve(exercise):
    assert 2 <= len(exercise.hints) <= 4, "two to four hints"
    for hint in exercise.hints[:-1]:
        for line in textwrap.dedent(source_of(exercise.reference)).splitlines()[1:]:
            assert len(line.strip()) < 8 or line.strip() not in hint, f"holds a line of the solution: {hint}"


def cases_can_tell(exercise):
    """Unlike inputs: where all were equal, a wrong answer passed."""
    cases = exercise.draw(0)
    assert len(cases) >= 2
    again = exercise.draw(0)
    assert [one.name for one in again] == [one.name for one in cases], "equal seeds draw equal cases"
    assert alike(_inputs(cases), _inputs(again)), "equal seeds draw equal cases"
    assert len({case.name for case in cases}) == len(cases), "two cases have one name"
    arrays = [one for case in cases for one in _arrays((case.args, case.each)) if one.size > 1]
    assert not arrays or any(one.min() != one.max() for one in arrays), "every array holds one number again and again"
    many = [case for case in cases if case.each is not None and case.ranks > 1]
    assert not many or not all(_all_alike(case.each) for case in many), "all ranks get the same"


def _inputs(cases):
    return plain([(one.args, one.each, dict(one.kwargs)) for one in cases])


def _all_alike(each):
    return all(alike(plain(each[0]), plain(other)) for other in each)


def _arrays(value):
    if isinstance(value, (list, tuple)):
        return [array for one in value for array in _arrays(one)]
    if isinstance(value, torch.Tensor):
        return [value.detach().to(torch.float64).numpy()]
    return [value] if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" else []


def forbidden_names_exist(exercise):
    for name in exercise.forbidden:
        assert name.startswith("comm.") or resolve(name) is not None


PROOFS = (
    the_reference_ends_without_an_error, right_ones_pass, stub_is_not_attempted, mistakes_get_their_sentences,
    mutants_fail, hints_do_not_solve, cases_can_tell, forbidden_names_exist,
)  # fmt: skip
