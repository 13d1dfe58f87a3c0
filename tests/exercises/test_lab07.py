"""Lab 07: every right order passes, and what students get wrong is named."""

import pytest
from newcomer_07 import FOUND, NONSENSE, RIGHT, of_the_library
from proof import SEEDS, behaviour, verdict_on

from lockstep.exercises import find
from lockstep.exercises.judge import judged
from lockstep.exercises.lab07 import EXERCISES, QUESTIONS, rounds
from lockstep.parallel import pipeline
from lockstep.parallel.pipeline import Action, Schedule
from lockstep.parallel.pipeline.versions import planned_versions


def verdict(exercise_id, fn):
    """Status, known mistake and what was seen: as `check`, without a child process for each function."""
    outcome = verdict_on(find(exercise_id), fn)
    return outcome.status, outcome.mistake, outcome.seen


def test_the_cores_are_those_of_the_plan():
    assert [one.id for one in EXERCISES if one.core] == ["07.1", "07.3", "07.4", "07.6"]
    assert all(find(one.id) is one for one in EXERCISES)


def test_right_answers_stand_in_different_places():
    right = [next(letter for letter, o in q.letters.items() if o.right) for q in QUESTIONS]
    assert len(QUESTIONS) >= 3 and len(set(right)) >= 3


class TestReferencesAgainstTheLibrary:
    """The references are written without the room's own functions, so each is an oracle for the other."""

    @pytest.mark.parametrize("p, m", [(1, 3), (2, 5), (4, 3), (4, 8)])
    def test_schedules(self, p, m):
        for exercise_id, known in (("07.1", pipeline.gpipe), ("07.3", pipeline.one_f_one_b)):
            assert Schedule.of(find(exercise_id).reference(p, m)).actions == known(p, m).actions
        assert Schedule.of(find("07.7").reference(p, m)).actions == pipeline.zero_bubble(p, m).actions
        own = Schedule.of(find("07.5").reference(p, 2 * p, 3))
        assert own.actions == pipeline.interleaved(p, 2 * p, 3).actions

    def test_bubble_and_in_flight(self):
        bubble, in_flight = find("07.2").reference, find("07.4").reference
        for schedule in (pipeline.gpipe(3, 4), pipeline.zbv(3, 6), pipeline.interleaved(3, 6, 2), pipeline.naive(4, 2)):
            timing = schedule.simulate(1, 2, 1.5, 0.5)
            assert bubble(schedule.actions, {"F": 1, "B": 2, "I": 1.5, "W": 0.5}) == pytest.approx(
                sum(timing.idle) / (schedule.ranks * timing.makespan)
            )
            assert in_flight(schedule.actions) == list(schedule.prove().in_flight)

    @pytest.mark.parametrize("sync", [False, True])
    def test_versions(self, sync):
        planned = planned_versions(pipeline.pipedream(4, 9, sync))
        for (rank, i), version in planned.items():
            assert find("07.6").reference(i, rank, 4, sync) == (version, version)


class TestGPipe:
    def test_any_order_that_all_ranks_share_is_right(self):
        def gpipe(p, m):
            there = [*range(1, m, 2), *range(0, m, 2)]
            back = [*range(0, m, 2), *range(1, m, 2)]
            return [[f"{r}F{i}" for i in there] + [f"{r}B{i}" for i in back] for r in range(p)]

        assert verdict("07.1", gpipe)[0] == "passed"

    def test_a_schedule_is_as_good_as_its_lists(self):
        reference = find("07.1").reference
        assert verdict("07.1", lambda p, m: Schedule.of(reference(p, m)))[0] == "passed"

    def test_what_is_no_schedule_is_said(self):
        assert "none" in verdict("07.1", lambda p, m: [[("F", r, 0)] for r in range(p)])[2]
        assert "there are 2 lists" in verdict("07.1", lambda p, m: [["0F0"], ["0B0"]])[2]
        assert "return" in verdict("07.1", lambda p, m: None)[2]
        assert "kinds are F, B" in verdict("07.1", lambda p, m: [["0F0", "0I0", "0W0"]] * p)[2]
        assert verdict("07.1", lambda p, m: 1 / 0)[0] == "crashed"

    def test_slow_orders_are_named_where_they_wait(self):
        def gpipe(p, m):
            forward = [[f"{r}F{i}" for i in (range(m) if r % 2 else reversed(range(m)))] for r in range(p)]
            return [row + [f"{r}B{i}" for i in range(m)] for r, row in enumerate(forward)]

        status, mistake, seen = verdict("07.1", gpipe)
        # Said that they go back in different orders, which they do not.
        assert (status, mistake) == ("wrong", "forward in another order on some ranks")
        assert "longest wait is rank" in seen


class TestOneFOneB:
    def test_other_forms_of_known_mistakes_get_their_names(self):
        # Both got no cause: one misses backwards in another way, the other fails before it returns.
        def no_cool_down(p, m):
            rows = [[f"{r}F{i}" for i in range(min(p - r, m))] for r in range(p)]
            return [
                row + [f"{r}{kind}{i + len(row) * (kind == 'F')}" for i in range(m - len(row)) for kind in "BF"]
                for r, row in enumerate(rows)
            ]

        def beyond(p, m):
            return [
                [Action("F", r, i) for i in range(p - 1 - r)]
                + [Action(k, r, i + (p - 1 - r) * (k == "F")) for i in range(m - p + 1 + r) for k in "FB"]
                + [Action("B", r, i) for i in range(m - p + 1 + r, m)]
                for r in range(p)
            ]

        assert verdict("07.3", no_cool_down)[1] == "no cool-down"
        assert verdict("07.3", beyond)[1] == "warm-up longer than there are micro-batches"

    def test_another_order_of_micro_batches_is_right(self):
        reference = find("07.3").reference

        def one_f_one_b(p, m):
            return [[Action(a.kind, a.chunk, m - 1 - a.micro_batch) for a in row] for row in reference(p, m)]

        assert verdict("07.3", one_f_one_b)[0] == "passed"

    def test_too_much_in_flight_is_said_with_rank_and_number(self):
        assert "rank 0 has 4 micro-batches in flight at once; 2 would do" in verdict("07.3", find("07.1").reference)[2]

    def test_a_schedule_that_hangs_is_never_run(self):
        def one_f_one_b(p, m):
            return [
                [f"{r}{kind}{i}" for i in (range(m) if r else reversed(range(m))) for kind in "FB"] for r in range(p)
            ]

        status, _, seen = verdict("07.3", one_f_one_b)
        assert status == "wrong" and "waits for ever" in seen


class TestDesign:
    @pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b"])
    def test_the_known_ones_without_a_split_do_not_pass(self, name):
        known = {"naive": pipeline.naive, "gpipe": pipeline.gpipe, "1f1b": pipeline.one_f_one_b}[name]
        assert verdict("07.7", lambda p, m: known(p, m).actions)[0] == "wrong"

    def test_stages_may_lie_on_any_ranks(self):
        reference = find("07.7").reference
        assert verdict("07.7", lambda p, m: reference(p, m)[::-1])[0] == "passed"

    def test_two_chunks_a_rank_are_not_what_is_asked(self):
        assert verdict("07.7", lambda p, m: pipeline.zbv(p, m).actions)[0] == "wrong"


def test_a_shorter_warm_up_is_as_fast_while_messages_are_free():
    # The lab says so, and the check accepts it: Megatron's warm-up pays with memory for messages that take time.
    less = Schedule.of(rounds.with_less_in_flight(4, 8, 2))
    usual = pipeline.interleaved(4, 8, 2)
    assert less.simulate().makespan == usual.simulate().makespan
    assert max(less.prove().in_flight) == 8 < max(usual.prove().in_flight)
    assert less.simulate(transfer=0.1).makespan > usual.simulate(transfer=0.1).makespan


def test_a_micro_batch_need_not_have_the_cut_of_tensor_split():
    def micro_batch_gradients(model, loss, inputs, targets, micro_batches):
        size = -(-len(inputs) // micro_batches)
        for x, y in zip(inputs.split(size), targets.split(size), strict=True):
            (loss(model(x), y) * len(x) / len(inputs)).backward()

    assert verdict("07.8", micro_batch_gradients)[0] == "passed"


@pytest.mark.parametrize("exercise_id, fn, name", FOUND, ids=[f"{id}-{fn.__name__}" for id, fn, _ in FOUND])
def test_what_a_newcomer_wrote_gets_its_cause(exercise_id, fn, name):
    outcome = verdict_on(find(exercise_id), fn)
    assert outcome.status == "wrong" and outcome.mistake == name, outcome.text


@pytest.mark.parametrize("exercise_id, fn", RIGHT, ids=[f"{id}-{fn.__name__}" for id, fn in RIGHT])
def test_what_a_newcomer_wrote_and_is_right_passes(exercise_id, fn):
    for seed in SEEDS:
        assert verdict_on(find(exercise_id), fn, seed).passed


def test_the_library_may_not_count():
    assert verdict_on(find("07.4"), of_the_library).status == "forbidden"


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda one: one.id)
def test_whatever_is_returned_gets_a_verdict(exercise):
    # Symptoms read the lists of what was no list, and the check itself failed.
    for value in NONSENSE:
        assert verdict_on(exercise, lambda *args, value=value: value).status == "wrong"


ALIKE = {
    # without vertical sync there is no difference
    "07.6": {"always in sync", "sync the wrong way round"},
}


@pytest.mark.parametrize("exercise_id", ["07.2", "07.4", "07.6", "07.8"])
def test_mistakes_that_fail_at_the_same_case_are_told_apart_there(exercise_id):
    # Causes go by the first case that fails. It was so small that many mistakes gave the same number.
    exercise = find(exercise_id)
    cases, expected = exercise.draw(), behaviour(exercise, exercise.reference, 0)
    first = {}
    for mistake in exercise.mistakes:
        runs = zip(cases, behaviour(exercise, mistake.function, 0), expected, strict=True)
        at, finding = next((at, f) for at, run in enumerate(runs) if (f := judged(exercise.judge, *run)))
        first.setdefault(at, {})[mistake.name] = finding
    for found in first.values():
        pairs = {frozenset((a, b)) for a in found for b in found if a != b and found[a].like(found[b])}
        assert pairs <= {frozenset(ALIKE.get(exercise_id, ()))}
