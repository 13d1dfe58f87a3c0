"""Halves of a backward that are put together again, with a search through all ways as oracle."""

import itertools

import pytest

from lockstep.parallel.pipeline import InvalidSchedule, Schedule, fuse_backward, one_f_one_b, zbv, zero_bubble

MEASURED = {"forward": 8.3, "backward": 11.8, "input_gradient": 7.3, "weight_gradient": 6.1, "transfer": 1.2}


def played(rows, costs):
    """Makespan of two stages on two ranks, whose rows are lists of (kind, micro-batch): its own few lines."""
    seconds = dict(zip("FBIW", list(costs.values())[:4], strict=True))
    free, at, ready = [0.0, 0.0], [0, 0], {}
    while at != [len(rows[0]), len(rows[1])]:
        for rank in (0, 1):
            if at[rank] == len(rows[rank]):
                continue
            kind, i = rows[rank][at[rank]]
            waits = (kind == "F" and rank == 1) or (kind in "BI" and rank == 0)
            if waits and (kind == "F", i) not in ready:
                continue
            start = max(free[rank], ready[kind == "F", i] + costs["transfer"]) if waits else free[rank]
            free[rank] = start + seconds[kind]
            if (kind == "F" and rank == 0) or (kind in "BI" and rank == 1):
                ready[kind == "F", i] = free[rank]
            at[rank] += 1
    return max(free)


def all_ways(schedule):
    """The rows of the schedule with every set of its backwards whole."""
    m = schedule.micro_batches
    for whole in itertools.product((False, True), repeat=2 * m):
        rows = []
        for rank in (0, 1):
            mine = whole[rank * m : (rank + 1) * m]
            kinds = {("I", True): "B", ("W", True): ""}
            row = [(kinds.get((a.kind, mine[a.micro_batch]), a.kind), a.micro_batch) for a in schedule.actions[rank]]
            rows.append([each for each in row if each[0]])
        yield rows


@pytest.mark.parametrize("memory", [2, 3, 4])
def test_no_set_of_whole_backwards_is_shorter(memory):
    schedule = zero_bubble(2, 4, memory, 8.3, 7.3, 6.1)
    fused = fuse_backward(schedule, **MEASURED)
    assert fused.prove() and max(fused.prove().in_flight) <= memory
    least = min(played(rows, MEASURED) for rows in all_ways(schedule))
    assert fused.simulate(**MEASURED).makespan == pytest.approx(least)
    assert least < schedule.simulate(**MEASURED).makespan
    assert least < one_f_one_b(2, 4).simulate(8.3, 11.8, transfer=1.2).makespan


def test_what_gains_by_halves_stays_in_halves():
    costs = (1, 2, 1, 1)
    for schedule in (zero_bubble(3, 6), zbv(2, 4)):
        fused = fuse_backward(schedule, *costs)
        assert fused.prove() and fused.simulate(*costs).makespan <= schedule.simulate(*costs).makespan
        kinds = {part.kind for part in fused.parts()}
        assert {"B", "I", "W"} <= kinds and fused.name.endswith(", fused")
    whole = one_f_one_b(3, 6)
    assert fuse_backward(whole, *costs) is whole
    with pytest.raises(ValueError, match="backward costs -1"):
        fuse_backward(whole, 1, -1, 1, 1)
    with pytest.raises(InvalidSchedule):
        fuse_backward(Schedule.of([["0F0", "0F1"]]), *costs)
