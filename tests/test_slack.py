"""Slack against runs that are played again with one event longer, which is what it is about."""

import numpy as np
import pytest

from lockstep.exercises.lab11.traces import drawn, played
from lockstep.trace import Message, Span, Trace, critical_path, slack


def of(event):
    """What tells an event from the others; spans cannot be keys."""
    if isinstance(event, Message):
        return event.src, event.dst, event.sent
    return event.rank, event.name


def by_event(trace):
    return {of(one.event): one.seconds for one in slack(trace)}


def test_the_example_of_the_docstring():
    # rank 0  CC..>C     rank 0's first two seconds might have ended a second later
    # rank 1  CCC>
    spans = [Span(0, "compute", "a", 0, 2), Span(1, "compute", "b", 0, 3), Span(0, "compute", "c", 4, 5)]
    found = by_event(Trace.of(2, spans, [Message(1, 0, 8, 3, 4)]))
    assert found == {(0, "a"): 1, (1, "b"): 0, (1, 0, 3): 0, (0, "c"): 0}
    assert slack(Trace.of(3, [], [])) == ()


def test_a_hidden_bucket_has_slack_until_it_is_waited_for():
    # own stream  C0 C1 C2 C3 w C4      bucket 1 is on its way over 1-2, and waited for at 5 with bucket 2, which is over
    # beside         11    2222         at 5: so bucket 1 may end 1 s later, when bucket 2 begins, and none of C0 to C2
    spans = [Span(0, "compute", f"C{i}", i, i + 1) for i in range(4)]
    spans += [Span(0, "wait", "w", 4, 5), Span(0, "compute", "C4", 5, 6)]
    detail = {"group": (0,), "sequence": 1}
    first = Span(0, "collective", "all_reduce", 1, 2, stream=1, detail=detail)
    second = Span(0, "collective", "all_reduce", 3, 5, stream=1, detail=detail | {"sequence": 2})
    found = {one.event.name if one.event.stream == 0 else one.event.start: one.seconds
             for one in slack(Trace.of(1, [*spans, first, second], []))}  # fmt: skip
    assert found == {"C0": 0, "C1": 0, "C2": 0, "C3": 1, "C4": 0, 1: 1, 3: 0}


def random_blocking_program(rng, ranks, length):
    program = [("work", rank, float(rng.integers(1, 9))) for rank in range(ranks)]
    for _ in range(length):
        src, dst = (int(rank) for rank in rng.choice(ranks, 2, replace=False))
        seconds = float(rng.integers(1, 9))
        program.append(("work", src, seconds) if rng.random() < 0.6 else ("send", src, dst, seconds))
    return program


@pytest.mark.parametrize("seed", range(4))
def test_an_event_longer_by_its_slack_costs_nothing_and_longer_by_more_costs_that(seed):
    rng = np.random.default_rng(seed)
    ranks = 2 + seed % 3
    program = random_blocking_program(rng, ranks, 14)
    trace = played(ranks, program)
    found = by_event(trace)
    begun = {}  # events of the trace in the order of the program
    for place, (what, *args) in enumerate(program):
        if what == "work":
            number = sum(one[0] == "work" and one[1] == args[0] for one in program[:place])
            begun[place] = next(s for s in trace.spans if s.rank == args[0] and s.name == f"work {number}")
        else:
            many = sum(one[0] == "send" and one[1:3] == tuple(args[:2]) for one in program[:place])
            begun[place] = [m for m in trace.messages if (m.src, m.dst) == tuple(args[:2])][many]
    for place, event in begun.items():
        for more, costs in ((found[of(event)], 0.0), (found[of(event)] + 0.5, 0.5)):
            *what, seconds = program[place]
            longer = [*program[:place], (*what, seconds + more), *program[place + 1 :]]
            assert played(ranks, longer).seconds == trace.seconds + costs, (event, more)


def test_what_is_on_the_critical_path_has_none():
    for seed in range(20):
        trace = drawn(np.random.default_rng(seed), 2 + seed % 4, 30)
        found = by_event(trace)
        assert all(found[of(event)] == 0 for event in critical_path(trace))
        assert min(found.values()) == 0 and len(found) == len(slack(trace))
