"""The known schedules: the published figures, closed forms, and torch's own tables as oracle."""

import types

import pytest

from lockstep.parallel.pipeline import (
    Action,
    Overlap,
    Schedule,
    dualpipev,
    gpipe,
    interleaved,
    looped_bfs,
    naive,
    one_f_one_b,
    pipedream,
    read_csv,
    write_csv,
    zbv,
    zero_bubble,
)

GRID = [(p, m) for p in (1, 2, 3, 5) for m in (1, 2, 4, 9)]


def torch_table(name, p, m, v):
    """torch's action table, made without a process group."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    total = p * v
    stages = [
        types.SimpleNamespace(
            num_stages=total, group_size=p, group_rank=0, stage_index=i * p, is_last=False, submod=None
        )
        for i in range(v)
    ]
    return getattr(schedules, name)(stages, m)


def of_torch(table):
    """Our value with torch's actions."""

    def item(action):
        if action.sub_actions:
            return Overlap(tuple(item(each) for each in action.sub_actions))
        return Action(action.computation_type.value, action.stage_index, action.microbatch_index)

    return Schedule.of([[item(a) for a in table[rank] if a is not None] for rank in sorted(table)])


def agree(ours, theirs, **costs):
    assert theirs.prove(), str(theirs.prove())
    mine, other = ours.simulate(**costs), theirs.simulate(**costs)
    assert mine.makespan == pytest.approx(other.makespan, rel=1e-12), ours.name
    assert mine.bubble == pytest.approx(other.bubble) and mine.in_flight == other.in_flight, ours.name


@pytest.mark.parametrize(
    "name, ours, v",
    [
        ("ScheduleInterleaved1F1B", interleaved, 1),
        ("ScheduleInterleaved1F1B", interleaved, 2),
        ("ScheduleInterleaved1F1B", interleaved, 3),
        ("ScheduleLoopedBFS", looped_bfs, 2),
        ("ScheduleLoopedBFS", looped_bfs, 3),
        ("ScheduleInterleavedZeroBubble", zero_bubble, 1),
        ("ScheduleZBVZeroBubble", zbv, 2),
        ("ScheduleDualPipeV", dualpipev, 2),
    ],
)
def test_makespan_bubble_and_memory_are_those_of_torchs_tables(name, ours, v):
    compared = 0
    for p, m in GRID:
        try:
            theirs = torch_table(name, p, m, v).pipeline_order
        except ValueError:  # torch wants another number of micro-batches; so do we
            if ours is not zero_bubble:
                with pytest.raises(ValueError, match=f"micro_batches is {m}"):
                    ours(p, m, v) if ours in (interleaved, looped_bfs) else ours(p, m)
            continue
        schedule = ours(p, m, v) if ours in (interleaved, looped_bfs) else ours(p, m)
        assert schedule.prove(), f"{p} {m}: {schedule.prove()}"
        agree(schedule, of_torch(theirs))
        agree(schedule, of_torch(theirs), forward=3, backward=7, input_gradient=4, weight_gradient=2.5, transfer=0.5)
        compared += 1
    assert compared >= 4


# FACTS: makespans at (4, 8) and (4, 16) with F=1, B=2, I=W=1 of a chunk, run from torch's own tables.
PUBLISHED = [
    (gpipe, 33, 57),
    (one_f_one_b, 33, 57),
    (interleaved, 57, 105),
    (looped_bfs, 57, 105),
    (zero_bubble, 27, 51),
    (zbv, 51, 99),
    (dualpipev, 54, 102),
]


@pytest.mark.parametrize("make, eight, sixteen", PUBLISHED, ids=lambda x: getattr(x, "__name__", None))
def test_published_makespans(make, eight, sixteen):
    assert (make(4, 8).simulate().makespan, make(4, 16).simulate().makespan) == (eight, sixteen)


@pytest.mark.parametrize("p, m", GRID)
def test_closed_forms(p, m):
    for make in (gpipe, one_f_one_b):  # Huang et al. 2019, section 2.3
        timing = make(p, m).simulate()
        assert timing.makespan == 3 * (m + p - 1)
        assert timing.bubble == pytest.approx([(p - 1) / (m + p - 1)] * p)
        assert timing.idle == (3 * (p - 1),) * p
    assert gpipe(p, m).simulate().in_flight == (m,) * p
    assert one_f_one_b(p, m).simulate().in_flight == tuple(min(m, p - r) for r in range(p))
    assert naive(p, m).simulate().makespan == 3 * m * p and naive(p, m).simulate().in_flight == (1,) * p
    assert pipedream(p, m).simulate().makespan == 3 * (m + p - 1)

    h1 = zero_bubble(p, m)  # Qi et al. 2023, table 1
    if m >= p:
        assert h1.simulate().makespan == 3 * m + p - 1
        assert h1.simulate().in_flight == (p,) * p
        assert h1.prove().in_flight_until_input == tuple(p - r for r in range(p))
        for f, i, w in ((1, 2, 1), (2, 3, 1), (1, 1, 1)):  # (p - 1) max(F, F + I - W)
            timing = h1.simulate(forward=f, input_gradient=i, weight_gradient=w)
            assert timing.makespan == (f + i + w) * m + (p - 1) * max(f, f + i - w)

    for v in (1, 2, 3):  # Narayanan et al. 2021, section 2.2
        if m % max(1, m // p):
            continue
        k = m // max(1, m // p)
        timing = interleaved(p, m, v).simulate()
        assert timing.in_flight == tuple(min(v * m, (v - 1) * k + 2 * (p - 1 - r) + 1) for r in range(p)) or v == 1
        if m >= p:
            assert timing.idle == (3 * (p - 1),) * p


def test_zero_bubble_within_a_budget():
    for p, m in ((2, 5), (4, 8), (4, 3), (5, 12)):
        before = None
        for memory in (1, 2, p, 2 * p - 1, 3 * p):
            schedule = zero_bubble(p, m, memory, 2, 3, 1)
            assert schedule.prove() and max(schedule.prove().in_flight) <= memory
            makespan = schedule.simulate(2, 0, 3, 1).makespan
            assert before is None or makespan <= before
            before = makespan
        assert before <= zero_bubble(p, m).simulate(2, 0, 3, 1).makespan
    # With equal costs p is enough; with others ZB-H2's memory buys what ZB-H1 cannot reach (table 1 of the paper).
    assert zero_bubble(4, 8, 4).simulate().makespan == 27
    costs = {"forward": 1, "input_gradient": 1.4, "weight_gradient": 0.7}
    few, many = (zero_bubble(4, 16, memory, **costs).simulate(**costs).makespan for memory in (4, 7))
    assert many < few - 1
    with pytest.raises(ValueError, match="memory is 0"):
        zero_bubble(2, 2, 0)
    with pytest.raises(ValueError, match="F takes 0"):
        zero_bubble(2, 2, 2, forward=0)


@pytest.mark.parametrize("p, m", [(1, 3), (2, 4), (3, 7)])
def test_pipedream_meets_the_versions_of_the_paper(p, m):
    # Narayanan et al. 2019, section 3.3: stage s of n, both from 1, uses version t - n + s for micro-batch t.
    for r in range(p):
        updates = 0
        for action in pipedream(p, m).parts(r):
            if action.kind == "F":
                assert updates == max(0, action.micro_batch - (p - 1 - r))
            updates += action.kind == "U"
        assert updates == m


def test_bad_numbers_get_a_sentence():
    for make in (naive, gpipe, one_f_one_b, pipedream, zero_bubble, zbv, interleaved, looped_bfs, dualpipev):
        with pytest.raises(ValueError, match="stages is 0"):
            make(0, 4)
        with pytest.raises(ValueError, match="micro_batches is -1"):
            make(2, -1)
        with pytest.raises(TypeError, match=r"stages is 2\.0"):
            make(2.0, 4)
    with pytest.raises(ValueError, match=r"micro_batches is 7.*3 rounds.*Use 6 or 9"):
        interleaved(2, 7)
    with pytest.raises(ValueError, match="needs at least 4"):
        dualpipev(2, 3)


def test_a_table_goes_to_torch_and_back(tmp_path):
    for make, name, v in (
        (interleaved, "ScheduleLoopedBFS", 2),
        (zero_bubble, "ScheduleInterleaved1F1B", 1),
        (zbv, "ScheduleZBVZeroBubble", 2),
        (dualpipev, "ScheduleZBVZeroBubble", 2),
    ):
        ours = make(2, 4)
        path = write_csv(ours, tmp_path / "ours.csv")
        assert read_csv(path, ours.name) == ours
        theirs = torch_table(name, 2, 4, v)
        theirs._load_csv(str(path))  # which also validates it, and derives messages
        assert of_torch(theirs.pipeline_order).actions == ours.actions
        theirs._dump_csv(str(tmp_path / "theirs.csv"))  # with the messages, which are left out here
        assert read_csv(tmp_path / "theirs.csv").actions == ours.actions or make is dualpipev
        theirs._dump_csv(str(tmp_path / "theirs.csv"), format="compute_only")
        assert read_csv(tmp_path / "theirs.csv").actions == ours.actions
    with pytest.raises(ValueError, match="no such action"):
        write_csv(pipedream(2, 2), tmp_path / "no.csv")
    (tmp_path / "bad.csv").write_text("0F0,,0X1\n")
    with pytest.raises(ValueError, match="row 0, cell 2: '0X1' is no action"):
        read_csv(tmp_path / "bad.csv")


def test_a_schedule_is_a_value():
    ours = Schedule.of([["0F0", Action("B", 0, 0)], ["1F0", "1B0"]])
    assert (ours.ranks, ours.chunks, ours.micro_batches, ours.placement) == (2, 2, 1, {0: 0, 1: 1})
    assert ours.actions == naive(2, 1).actions and ours != naive(2, 1) and ours == Schedule.of(ours.actions)
    assert "rank 1: 1F0 1B0" in str(ours) and repr(Action("W", 3, 12)) == "3W12"
    for wrong, error in (
        (lambda: Action("X", 0, 0), "'X'"),
        (lambda: Action("F", 0, -1), "micro_batch is -1"),
        (lambda: Action.parse("F0"), "'F0' is no action"),
        (lambda: Schedule.of([]), "empty"),
        (lambda: Overlap((Action("F", 0, 0),)), "a forward and a backward"),
    ):
        with pytest.raises(ValueError, match=error):
            wrong()
    for wrong, error in (
        (lambda: Schedule.of([[("F", 0, 0)]]), "rank 0 has"),
        (lambda: Schedule.of(["0F0"]), "rank 0 are"),
        (lambda: Action("F", 0.0, 0), r"chunk is 0\.0"),
    ):
        with pytest.raises(TypeError, match=error):
            wrong()
