"""The proofs themselves catch a bad exercise: a check that accepts a mistake, equal inputs, a hint that solves."""

from dataclasses import replace

import pytest
import small
from proof import (
    PROOFS,
    cases_can_tell,
    forbidden_names_exist,
    hints_do_not_solve,
    mistakes_get_their_sentences,
    mutants_fail,
    right_ones_pass,
    stub_is_not_attempted,
    the_reference_ends_without_an_error,
)
from small import HALVES

from lockstep.exercises.exercise import Case, Exercise, Mistake, on_ranks
from lockstep.exercises.mutate import mutants


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.__name__)
def test_a_good_exercise_passes(proof):
    proof(HALVES)


def twice_as_much(numbers):
    return [n + n for n in numbers]


def fails(numbers):
    raise ZeroDivisionError


def zero_cases(rng):
    yield Case("one zero", ([0.0],))
    yield Case("two zeros", ([0.0, 0.0],))


def many(words):
    return tuple(replace(one, sentence=words) for one in HALVES.mistakes)


def draws_seed_0(rng):
    return rng.bit_generator.seed_seq.entropy == 0


AMBIGUOUS = (*HALVES.mistakes, Mistake("doubles again", twice_as_much, "Another sentence for the same."))
BAD = {
    "accepts everything": (replace(HALVES, judge=lambda *_: None), mistakes_get_their_sentences, "'doubles' passes"),
    "equal inputs with another seed": (
        replace(HALVES, cases=lambda rng: HALVES.cases(rng) if draws_seed_0(rng) else zero_cases(rng)),
        mistakes_get_their_sentences,
        "'doubles' passes with other cases",
    ),
    "equal inputs": (replace(HALVES, cases=zero_cases), mistakes_get_their_sentences, "'doubles' passes"),
    "equal inputs, mutants": (replace(HALVES, cases=zero_cases), mutants_fail, "passes: line 2"),
    "two mistakes alike": (replace(HALVES, mistakes=AMBIGUOUS), mistakes_get_their_sentences, "is taken for 'doubles'"),
    "one sentence for all": (replace(HALVES, mistakes=many("Wrong.")), mistakes_get_their_sentences, "comes twice"),
    "three mistakes": (replace(HALVES, mistakes=HALVES.mistakes[:3]), mistakes_get_their_sentences, "at least four"),
    "a right mistake": (replace(HALVES, mistakes=(*HALVES.mistakes, Mistake("?", small.halves_by_array, "?"))),
                        mistakes_get_their_sentences, "passes"),
    "a reference that fails": (replace(HALVES, reference=fails), the_reference_ends_without_an_error, "one number: .*Zero"),
    "one other solution": (replace(HALVES, also_right=HALVES.also_right[:1]), right_ones_pass, "at least two"),
    "a wrong solution": (replace(HALVES, also_right=(small.doubles, small.halves_by_array)), right_ones_pass, "Twice"),
    "a stub that solves": (replace(HALVES, stub=small.doubles), stub_is_not_attempted, "does something"),
    "no such mutant": (replace(HALVES, equivalent_mutants=("line 9: a -> b",)), mutants_fail, "no such mutants"),
    "not equivalent": (replace(HALVES, equivalent_mutants=(mutants(small.halves)[0].description,)), mutants_fail,
                       "listed as equivalent"),
    "the first hint solves": (replace(HALVES, hints=("`return [n / 2 for n in numbers]`", "?")), hints_do_not_solve,
                              "line of the solution"),
    "one hint": (replace(HALVES, hints=("?",)), hints_do_not_solve, "two to four"),
    "constant arrays": (replace(HALVES, cases=lambda rng: [Case(str(n), (small.np.ones(n),)) for n in (2, 3)]),
                        cases_can_tell, "one number again"),
    "ranks alike": (replace(HALVES, cases=lambda rng: [on_ranks(n, each=[(7,)] * n) for n in (1, 2)]), cases_can_tell,
                    "all ranks get the same"),
    "unseeded": (replace(HALVES, cases=lambda rng: [Case(str(n), (small.np.random.rand(),)) for n in (1, 2)]),
                 cases_can_tell, "equal seeds"),
    "misspelt": (replace(HALVES, forbidden=("numpy.dividde",)), forbidden_names_exist, "check its spelling"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_exercise_is_caught(name):
    exercise, proof, words = BAD[name]
    with pytest.raises((AssertionError, ValueError), match=words):
        proof(exercise)


def test_an_id_has_two_digits_and_a_number():
    with pytest.raises(ValueError, match=r"'04.2'"):
        Exercise(**{**{field: getattr(HALVES, field) for field in HALVES.__dataclass_fields__}, "id": "4.2"})


def test_a_case_has_arguments_for_each_rank():
    with pytest.raises(ValueError, match="3 ranks but arguments for 2"):
        on_ranks(3, each=[(1,), (2,)])
