"""Every rule of a lab's spine, broken once on a small lab that keeps them all."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from lockstep.course import spine
from lockstep.course.spine import RULES, Lab, broken

RULE = {rule.__name__: rule for rule in RULES}


def says(clone, rule, old, new, **changes):
    """What a rule says once one text of the small lab is replaced by another."""
    source = clone.changed(old, new) if old else clone.write()
    return RULE[rule](replace(Lab(source, clone.exercises), **changes))


def test_the_small_lab_keeps_every_rule(clone):
    assert broken(Lab(clone.write(), clone.exercises)) == []


MARKED = """\
    ### BEGIN SOLUTION
    result = sum(number + 0 for number in numbers)
    return result
    ### END SOLUTION
"""

BROKEN = [
    ("opens_with_title_time_goals_and_needs", "# # Lab 00", "# Lab 00", "lacks a title"),
    ("opens_with_title_time_goals_and_needs", "**Time:** 3 minutes", "Three minutes", "lacks '**Time:**"),
    ("opens_with_title_time_goals_and_needs", "**You need:**", "Bring", "lacks '**You need:**'"),
    ("has_one_parameters_cell", '# %% tags=["parameters"]', "# %%", "there are 0"),
    ("has_one_parameters_cell", "FAST = False\n", "", "does not set FAST"),
    ("adds_up_its_minutes", "Summary (1 min)", "Summary (5 min)", "add up to 7, the lab says 3"),
    ("leads_in_to_each_exercise", "Ranks are counted from zero, and so are the numbers here. Return the sum", "", "exercise 00.1 needs"),
    ("leads_in_to_each_exercise", '# %% tags=["exercise"', '# %%\nx = 1\n\n# %% tags=["exercise"', "exercise 00.1 needs"),
    ("marks_each_solution", MARKED, "    return sum(numbers)\n", "exercise 00.1 has no lines"),
    ("checks_each_exercise", 'check("00.1", total)', 'check("00.2", total)', "after exercise 00.1 must be its check"),
    ("checks_each_exercise", '# %% tags=["check", "00.1"]', "# %%", "after exercise 00.1 must be its check"),
    ("asks_every_exercise_of_its_module", '["exercise", "00.1"]', '["exercise", "00.9"]', "00.9 is not among the registered"),
    ("asks_every_exercise_of_its_module", '["exercise", "00.1"]', '["stable"]', "00.1 is registered, but the lab does not"),
    ("keeps_core_solutions_short", "    return result\n", "    result += 0\n" * 24 + "    return result\n", "has 26 lines"),
    ("predicts_before_it_reveals", 'predict("00.p1", 3)\n', "", "00.p1 is revealed but never predicted"),
    ("predicts_before_it_reveals", 'reveal("00.p1", 3)\n', "", "prediction 00.p1 is never revealed"),
    ("predicts_before_it_reveals", '# %%\npredict("00.p1", 3)', '# %%\nreveal("00.p1", 3)\n\n# %%\npredict("00.p1", 3)', "before it is predicted"),
    ("predicts_three_times", 'predict("00.p3", 5)\n', "", "this one has 2"),
    ("asks_and_diagnoses", '    ask("00.q1")\n', "", "a call of `ask`"),
    ("asks_and_diagnoses", '    diagnose("00.1")\n', "    pass\n", "a call of `diagnose`"),
    ("names_its_references", "**References.** Peano, 1889", "Peano, 1889", "no section 'References'"),
    ("names_its_references", "Peano, 1889", "Peano", "name no year"),
    ("shows_the_torchrun_line", "torchrun --nproc", "run --nproc", "no `torchrun` line"),
    ("introduces_terms_in_order", "# Predict the sum", "# A pipeline cuts a batch into micro-batches. Predict the sum", "'micro-batch' is introduced in lab 07"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "old", "new", "sentence"), BROKEN)
def test_a_broken_rule_is_named(clone, rule, old, new, sentence):
    said = says(clone, rule, old, new)
    assert len([line for line in said if sentence in line]) == 1


def test_a_stretch_solution_may_be_long(clone):
    clone.exercises[0].core = False
    long = "    result += 0\n" * 24 + "    return result\n"
    assert says(clone, "keeps_core_solutions_short", "    return result\n", long) == []


def test_only_the_last_hint_may_hold_a_line_of_the_solution(clone):
    line = "result = sum(number + 0 for number in numbers)"
    clone.exercises[0].hints = ("Add.", f"Write `{line}`.")
    assert says(clone, "hints_do_not_solve", "", "") == []
    clone.exercises[0].hints = (f"Write `{line}`.", "Add.")
    assert says(clone, "hints_do_not_solve", "", "") == [f"hint 1 of 00.1 holds a line of its solution: {line}"]


def test_later_labs_open_with_questions_from_earlier_ones(clone):
    source = clone.write()
    later = clone.path.rename(clone.path.with_name("01_counting.py"))
    lab = Lab(replace(source, path=later), clone.exercises)
    assert RULE["recalls_earlier_labs"](lab) == [
        "from lab 01 on, a lab opens with questions from earlier labs: `recall(...)`"
    ]
    assert RULE["recalls_earlier_labs"](Lab(source)) == []


def test_a_term_may_be_announced_with_its_lab_and_only_with_it(clone):
    def said(sentence):
        return says(clone, "introduces_terms_in_order", "# Predict the sum", f"# {sentence} Predict the sum")

    assert said("Micro-batches come in lab 07.") == []
    assert len(said("Micro-batches come in lab 06.")) == 1
    assert said("Two divides by zero, and `GPipe` in code is a name.") == []  # ZeRO is a term, zero is not
    assert len(said("ZeRO saves memory.")) == 1


def shown(*cells):
    """An executed notebook of code cells: (tags, HTML or image data)."""
    made = [
        new_code_cell("", id=f"c{place}", metadata={"tags": tags}, outputs=[new_output("display_data", data)])
        for place, (tags, data) in enumerate(cells)
    ]
    return new_notebook(cells=made)


FIGURE = {"text/html": '<img alt="two bars" src="data:">'}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"image/png": "iVBO"}, "c0 shows an image without a text alternative"),
        ({"text/html": '<img src="data:">'}, "c0 shows an <img> without alt text"),
        ({"text/html": '<img alt="" src="data:">'}, "c0 shows an <img> without alt text"),
    ],
)
def test_a_figure_without_words_is_found(clone, data, sentence):
    rule = "says_what_figures_show"
    assert sentence in says(clone, rule, "", "", executed=shown(([], data)))[0]
    assert says(clone, rule, "", "", executed=shown(([], FIGURE))) == []


def test_a_widget_comes_after_its_figure(clone):
    rule, nothing = "shows_the_figure_before_its_widget", {"text/plain": ""}
    assert says(clone, rule, "", "", executed=shown(([], FIGURE), (["widget"], nothing))) == []
    assert "c0 comes before" in says(clone, rule, "", "", executed=shown((["widget"], nothing), ([], FIGURE)))[0]
    twice = shown(([], FIGURE), (["widget"], nothing), (["widget"], nothing))
    assert "c2 comes before" in says(clone, rule, "", "", executed=twice)[0]


def test_every_rule_is_broken_by_a_test_here():
    by_name = {rule for rule, *_ in BROKEN}
    by_hand = {
        "hints_do_not_solve",
        "recalls_earlier_labs",
        "says_what_figures_show",
        "shows_the_figure_before_its_widget",
    }
    assert by_name | by_hand == set(RULE)


def test_every_term_belongs_to_a_lab_on_the_path():
    path, terms = spine._glossary()
    assert set(terms.values()) <= set(path) and len(path) == len(set(path)) == 16


def test_an_unknown_exercise_is_told_apart_from_a_missing_one(clone):
    clone.exercises.append(SimpleNamespace(id="00.2", core=True, reference=len, hints=()))
    said = says(clone, "asks_every_exercise_of_its_module", "", "")
    assert said == ["exercise 00.2 is registered, but the lab does not ask it"]
