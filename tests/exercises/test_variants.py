"""Variants: each is an exercise like any other, another variant's answer is wrong in it, and a student keeps theirs."""

from dataclasses import replace

import pytest
from proof import hints_do_not_solve, mistakes_get_their_sentences, verdict_on

from lockstep.exercises import check, hint, keep, mine, registry
from lockstep.exercises.registry import Unknown, find
from lockstep.exercises.variants import choose, chosen, in_variant, use_variants, variant, varied
from lockstep.world import simulate

FORMS = [(one.id, form.name) for one in registry.all() for form in registry.variants(one.id)]
KEY = "0123456789abcdef"


@pytest.fixture(autouse=True)
def nobody_yet(monkeypatch):
    monkeypatch.setattr("lockstep.exercises.variants._here", {})
    monkeypatch.setattr("lockstep.exercises.variants._unnamed", set())


def test_three_exercises_of_three_labs_have_variants():
    ids = {id for id, _ in FORMS}
    assert {"04.2", "05.1", "08.1"} <= ids
    for id in ids:
        forms = registry.variants(id)
        assert len(forms) >= 2 and len({one.name for one in forms}) == len(forms)
        assert len({one.parameter for one in forms}) == 1


@pytest.mark.parametrize("id, name", FORMS, ids=lambda value: value.replace(" ", "-"))
def test_a_variant_is_an_exercise_of_its_own(id, name):
    """What a narrowed one takes over from the exercise is proved there: its judge finds all that the exercise's does."""
    exercise, original = varied(find(id), name), find(id)
    assert len({one.name for one in exercise.mistakes}) == len(exercise.mistakes)
    before = {one.sentence for one in original.mistakes}
    own = tuple(one for one in exercise.mistakes if one.sentence not in before)
    if exercise.reference is original.reference and not own:
        return  # it is the exercise as the lab has it
    hints_do_not_solve(exercise)
    shared = [one for one in exercise.mistakes if one.sentence in before][: max(0, 4 - len(own))]
    exercise = replace(exercise, mistakes=(*own, *shared))
    assert len(exercise.also_right) >= 2
    for fn in (exercise.reference, *exercise.also_right):
        assert verdict_on(exercise, fn).passed, fn.__name__
    mistakes_get_their_sentences(exercise)


@pytest.mark.parametrize("id", sorted({id for id, _ in FORMS}))
def test_the_answer_to_another_variant_is_wrong(id):
    names = [name for other, name in FORMS if other == id]
    forms = {name: varied(find(id), name) for name in names}
    forms = {name: replace(one, mistakes=one.mistakes[:1]) for name, one in forms.items()}  # the first is just that
    for asked in names:
        for given in names:
            verdict = verdict_on(forms[asked], forms[given].reference)
            assert verdict.passed == (asked == given), f"{given} where {asked} is asked\n{verdict.text}"
            if not verdict.passed:
                assert "variant" in verdict.cause or "first axis varies fastest" in verdict.cause


def test_an_answer_serves_the_cells_that_follow():
    """What `mine` gives later cells is as they expect it, whatever the variant."""
    exercise = find("08.1")
    for name in ("the last", "the first"):
        turn = next(one for one in registry.variants("08.1") if one.name == name).as_asked
        answer = varied(exercise, name).reference
        assert verdict_on(exercise, turn(answer) if turn else answer).passed
    for id in ("04.2", "04.3", "05.1"):
        for form in registry.variants(id):
            assert verdict_on(find(id), varied(find(id), form.name).reference).passed, "it asks for more, not for else"


def student_with(id, name):
    return next(one for one in map(str, range(50)) if choose(KEY, one, id).name == name)


def test_check_and_hint_are_about_the_students_own_variant(capsys):
    first = varied(find("05.1"), "the first ranks").reference
    assert "Write it, as" in use_variants("", KEY, "05").text and chosen("05.1") == ""
    assert "chosen by your name" in variant("05.1").text and "one form" in variant("05.2").text
    unknown = check("05.1", first)
    assert unknown.status == "cannot run" and "at the top of the notebook" in unknown.seen
    shown = use_variants(student_with("05.1", "the last ranks"), KEY, "05").text
    assert "*last* ranks have one image more" in shown
    verdict = check("05.1", first)
    assert not verdict.passed and "In your variant: where the images do not divide, the *last*" in verdict.asked
    assert "*last*" in variant("05.1").text and "Shuffle" in (hint("05.1"), hint("05.1"))[1].text
    assert "which rank takes it?" in hint("05.1").text
    use_variants(student_with("05.1", "the first ranks"), KEY, "05")
    assert check("05.1", first).passed
    assert chosen("04.2") == "", "only the lab of the notebook"
    use_variants("ana", KEY, "04")
    assert chosen("04.2") == chosen("04.3") != "", "one ring, one direction"
    mine("04.3")
    assert "the library's" in capsys.readouterr().out


def test_mine_turns_an_answer_back(capsys):
    use_variants(student_with("08.1", "the first"), KEY, "08")
    answer = in_variant(find("08.1")).reference
    assert check("08.1", answer).passed

    def where(comm):
        return mine("08.1")(comm, {"data": 2, "tensor": 3})[0]

    assert simulate(where, 6).values[1] == {"data": 0, "tensor": 1}, "as the text of the lab has it"
    assert "your own" in capsys.readouterr().out


def test_the_choice_outlives_the_kernel(monkeypatch):
    use_variants(student_with("04.2", "to the left"), KEY, "04")
    monkeypatch.setattr("lockstep.exercises.variants._here", {})
    assert chosen("04.2") == "to the left"
    with keep.change() as record:
        record["variants"] = {"04.2": "sideways"}
    assert chosen("04.2") == ""
    with keep.change() as record:
        record["variants"] = ["damaged"]
    assert chosen("04.2") == "" and use_variants("ana", KEY, "04")
    with pytest.raises(Unknown, match="no variant 'sideways'. There are: 'to the right', 'to the left'"):
        varied(find("04.2"), "sideways")
