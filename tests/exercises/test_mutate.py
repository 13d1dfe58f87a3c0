"""Mutants differ from the reference in one place, say where, and end."""

import pytest

from lockstep.exercises.mutate import EndlessMutant, mutants

OUTSIDE = 10


def example(numbers, flag=True):
    """Counts 3 things."""
    total = 0
    for n in numbers[1:]:
        if n > 2 and not n == 5:
            total += n * OUTSIDE
    numbers.sort()
    return total - 1


def test_each_kind_of_change_is_made_and_described():
    said = [one.description for one in mutants(example)]
    for wanted in (
        "line 3: total = 0 -> total = 1", "line 3: total = 0 -> total = -1",
        "line 4: for n in numbers[1:]: -> for n in numbers[1 + 1:]:",
        "line 5: if n > 2 and (not n == 5): -> if n >= 2 and (not n == 5):",
        "line 5: if n > 2 and (not n == 5): -> if n > 2 or not n == 5:",
        "line 5: if n > 2 and (not n == 5): -> if n > 2 and (not n != 5):",
        "line 5: if n > 2 and (not n == 5): -> if n > 2 and (not not n == 5):",
        "line 6: total += n * OUTSIDE -> total -= n * OUTSIDE",
        "line 6: total += n * OUTSIDE -> total += n // OUTSIDE",
        "line 7: numbers.sort() -> None",
        "line 8: return total - 1 -> return total + 1",
        "line 8: return total - 1 -> return -(total - 1)",
    ):  # fmt: skip
        assert wanted in said, said
    assert len(said) == len(set(said))


def test_mutants_run_in_the_references_module_and_leave_it_alone():
    changed = {one.description: one.function for one in mutants(example)}
    assert changed["line 8: return total - 1 -> return total + 1"]([0, 3, 5]) == 31
    assert example([0, 3, 5]) == 29


def counts_down(n):
    while n > 0:
        n -= 1
    return n


def test_a_mutant_that_does_not_end_is_ended():
    endless = next(one for one in mutants(counts_down) if "n += 1" in one.description)
    with pytest.raises(EndlessMutant):
        endless.function(3)


def calls_itself(n):
    return 1 if n < 2 else n * calls_itself(n - 1)


def test_a_mutant_calls_itself_and_sees_what_its_closure_holds():
    swapped = next(one for one in mutants(calls_itself) if "n // calls" in one.description)
    assert swapped.function(3) == 3 // (2 // 1)
    step = 5

    def closes_over(n):
        return n + step

    assert {one.function(7) for one in mutants(closes_over)} == {2, -12}


def test_a_function_without_source_is_refused():
    with pytest.raises(ValueError, match="no source"):
        mutants(len)
