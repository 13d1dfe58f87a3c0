"""The simulator: unequal stages, links that take time, ports, and what it gives to a figure."""

import pytest

from lockstep.parallel.pipeline import Schedule, dualpipev, gpipe, naive, one_f_one_b, zero_bubble
from lockstep.trace import bubble_share


def test_one_micro_batch_takes_the_sum_of_everything():
    timing = naive(3, 1).simulate([1, 2, 3], [4, 5, 6], transfer=[0.5, 0.25])
    assert timing.makespan == 1 + 2 + 3 + 4 + 5 + 6 + 2 * 0.75
    assert timing.idle == (22.5 - 5, 22.5 - 7, 22.5 - 9)
    assert timing.bubble == pytest.approx([idle / 22.5 for idle in timing.idle])


def test_the_slowest_stage_sets_the_pace():
    # One slow stage of s among m micro-batches: m s, plus what comes before and after it once.
    m, slow = 10, 5
    assert gpipe(3, m).simulate([1, slow, 1], [2, 2 * slow, 2]).makespan == m * 3 * slow + 2 * 3
    # A slow link as well: forward 3 + m T for the last to arrive, and the same back.
    assert gpipe(2, m).simulate(1, 1, transfer=4).makespan == 2 * (m * 4 + 1) + 2
    # Messages that take less than the work hide behind it, except where the pipeline fills and drains.
    assert gpipe(2, m).simulate(1, 1, transfer=0.5).makespan == 2 * (m + 1) + 2 * 0.5


def test_ports_carry_one_message_at_a_time():
    # Rank 1 sends an activation on and a gradient back at once: its send port does one after the other.
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B1", "1F1", "1B0"], ["2F0", "2F1", "2B1", "2B0"]]
    assert not Schedule.of(rows).prove()
    timing = one_f_one_b(3, 4).simulate(transfer=0.75)
    for port in ("src", "dst"):
        for rank in range(3):
            used = sorted((start, end) for t, start, end in timing.transfers if getattr(t, port) == rank)
            assert all(before[1] <= after[0] for before, after in zip(used, used[1:], strict=False))
    assert len(timing.transfers) == 2 * 2 * 4


def test_order_of_events_and_costs_of_overlaps():
    timing = dualpipev(2, 4).simulate(forward=[1, 2, 3, 4], backward=[2, 4, 6, 8])
    for rank in range(2):
        own = [event for event in timing.events if event.rank == rank]
        assert [event.item for event in own] == list(dualpipev(2, 4).actions[rank])
        assert all(a.end <= b.start for a, b in zip(own, own[1:], strict=False))
        assert all(e.end - e.start == sum(timing.seconds[p] for p in e.item.parts) for e in own)


def test_a_timing_is_a_trace():
    timing = one_f_one_b(4, 8).simulate(transfer=0)
    assert timing.trace.seconds == timing.makespan and not timing.trace.messages
    assert bubble_share(timing.trace) == pytest.approx(3 / 11)
    assert len(one_f_one_b(4, 8).simulate(transfer=0.1).trace.messages) == 2 * 3 * 8
    assert {s.name for s in zero_bubble(2, 2).simulate().trace.spans} == {
        "forward",
        "input gradient",
        "weight gradient",
    }
    assert len(dualpipev(2, 4).simulate().trace.spans) == len(dualpipev(2, 4).parts())
    assert repr(gpipe(2, 2).simulate()) == (
        "Timing(makespan=9.0, idle=(3.0, 3.0), bubble=(0.3333333333333333, 0.3333333333333333), in_flight=(2, 2))"
    )


def test_micro_batches_of_unequal_cost():
    # Rank 1 has nothing to do until micro-batch 0 is through rank 0 (3 s), and waits again for micro-batch 1 (at 8 s).
    timing = gpipe(2, 2).simulate([[3, 5], 1], [[1, 1], [2, 4]])
    assert [(e.start, e.end) for e in timing.events if e.rank == 1] == [(3, 4), (8, 9), (9, 13), (13, 15)]
    assert timing.makespan == 16 and timing.idle == (16 - 10, 16 - 8)


def test_bad_costs_get_a_sentence():
    for costs, said in (
        ({"forward": [1, 2, 3]}, "forward has 3 costs: give one number, or 2"),
        ({"transfer": [1, 2]}, "transfer has 2 costs"),
        ({"backward": -1}, "backward costs -1"),
        ({"backward": [[1, 2], [1, 2, 3]]}, "backward of a chunk has 3 costs: give one for each of 2 micro-batches"),
        ({"backward": [1, None]}, "backward costs None"),
        ({"transfer": [[1, 2]]}, "transfer of a chunk has 2 costs: give one for each of 1"),
        ({"weight_gradient": float("nan")}, "weight gradient costs nan"),
    ):
        with pytest.raises(ValueError, match=said):
            gpipe(2, 2).simulate(**costs)
    nothing = gpipe(2, 2).simulate(0, 0)
    assert nothing.makespan == 0 and nothing.bubble == (0.0, 0.0)
