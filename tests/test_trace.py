"""Every measure against answers worked out by hand; pictures in the comments, one column a second."""

import json
import math
import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.trace import (
    Message,
    Span,
    Trace,
    bubble_share,
    bytes_by_pair,
    critical_path,
    idle_share,
    overlap_share,
    report,
    usage,
)
from lockstep.trace.intervals import innermost, intersect, length, subtract, union
from lockstep.trace.units import show_bytes, show_number, show_seconds, show_share


def compute(rank, start, end, name="work", **more):
    return Span(rank, "compute", name, start, end, **more)


def pipeline(stages, micro_batches, forward=1.0, backward=2.0):
    """GPipe with free communication: F staircase, then B staircase the other way, messages of no duration."""
    spans, messages, turn = [], [], micro_batches + stages - 1
    for s in range(stages):
        for m in range(micro_batches):
            start = (s + m) * forward
            spans.append(compute(s, start, start + forward, "forward", micro_batch=m))
            if s + 1 < stages:
                messages.append(Message(s, s + 1, 8, start + forward, start + forward))
            start = turn * forward + (stages - 1 - s + m) * backward
            spans.append(compute(s, start, start + backward, "backward", micro_batch=m))
            if s > 0:
                messages.append(Message(s, s - 1, 8, start + backward, start + backward))
    return Trace.of(stages, spans, messages, "simulated")


class TestIntervals:
    def test_by_hand(self):
        assert union([(3, 4), (0, 2), (1, 3), (5, 5)]) == [(0, 4)]
        assert intersect([(0, 4), (6, 9)], [(1, 2), (3, 7)]) == [(1, 2), (3, 4), (6, 7)]
        assert subtract([(0, 4), (6, 9)], [(1, 2), (3, 7)]) == [(0, 1), (2, 3), (7, 9)]
        assert length([(0, 1), (2, 4)]) == 3

    times = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple), max_size=12)

    @given(times, times)
    def test_against_sets_of_seconds(self, a, b):
        def seconds(intervals):
            return {t for start, end in intervals for t in range(start, end)}

        ua, ub = union(a), union(b)
        assert seconds(ua) == seconds(a)
        assert seconds(intersect(ua, ub)) == seconds(a) & seconds(b)
        assert seconds(subtract(ua, ub)) == seconds(a) - seconds(b)
        assert length(ua) == len(seconds(a))

    @given(times)
    def test_innermost_pieces_cover_the_same_time_once(self, intervals):
        pieces = innermost(compute(0, start, end) for start, end in intervals)
        assert sum(end - start for _, start, end in pieces) == length(union(intervals))
        assert all(span.start <= start < end <= span.end for span, start, end in pieces)

    def test_innermost_of_nested_spans(self):
        # outer  |-----------|
        # inner     |--|
        outer, inner = compute(0, 0, 12, "outer"), compute(0, 3, 6, "inner")
        assert [(s.name, a, b) for s, a, b in innermost([inner, outer])] == [
            ("outer", 0, 3),
            ("inner", 3, 6),
            ("outer", 6, 12),
        ]


class TestUsage:
    def test_the_example_of_the_docstring(self):
        # rank 0  CCCCCC....     rank 0 sends at 4 while it computes; the message arrives at 9
        # message     >>>>>      rank 1 ends the run at 10
        trace = Trace.of(2, [compute(0, 0, 6), compute(1, 9, 10)], [Message(0, 1, 5, 4, 9)])
        first, second = usage(trace)
        assert (first.computing, first.hidden, first.exposed, first.idle) == (6, 2, 3, 1)
        assert (second.computing, second.hidden, second.exposed, second.idle) == (1, 0, 5, 4)
        assert overlap_share(trace) == 2 / 10
        assert idle_share(trace) == (0.1, 0.4)
        assert bubble_share(trace) == pytest.approx(1 - 7 / 20)

    def test_blocked_before_the_message_moves_is_idle(self):
        # rank 0 computes 0-3, sends 3-4; rank 1 sits in recv from 0: three seconds idle, one exposed
        trace = Trace.of(
            2,
            [compute(0, 0, 3), Span(0, "send", "send", 3, 4), Span(1, "recv", "recv", 0, 4)],
            [Message(0, 1, 8, 3, 4)],
        )
        assert (usage(trace)[1].exposed, usage(trace)[1].idle) == (1, 3)

    def test_a_collective_moves_when_its_last_rank_has_entered(self):
        # rank 0  CC[########]     rank 1 enters at 6, so rank 0 waits 2-6 and communicates 6-8
        # rank 1  CCCCCC[####]
        detail = {"group": (0, 1), "sequence": 1}
        spans = [
            compute(0, 0, 2),
            Span(0, "collective", "all_reduce", 2, 8, detail=detail),
            compute(1, 0, 6),
            Span(1, "collective", "all_reduce", 6, 8, detail=detail),
        ]
        first, second = usage(Trace.of(2, spans, []))
        assert (first.idle, first.exposed) == (4, 2)
        assert (second.idle, second.exposed) == (0, 2)

    def test_a_collective_without_a_number_counts_whole(self):
        spans = [Span(0, "collective", "all_reduce", 2, 8), compute(0, 0, 2)]
        assert usage(Trace.of(1, spans, []))[0].exposed == 6

    def test_communication_beside_computation_is_hidden(self):
        # own work  CCCC..CC      a collective on stream 1 over 2-5: two seconds hidden, one exposed
        # stream 1    ####
        spans = [compute(0, 0, 4), compute(0, 6, 8), Span(0, "collective", "all_reduce", 2, 5, stream=1)]
        only = usage(Trace.of(1, spans, []))[0]
        assert (only.computing, only.hidden, only.exposed, only.idle) == (6, 2, 1, 1)

    def test_a_wait_inside_a_computing_span_is_not_computing(self):
        spans = [compute(0, 0, 10, "backward"), Span(0, "wait", "wait", 4, 7)]
        assert usage(Trace.of(1, spans, []))[0].computing == 7

    def test_shares_begin_with_the_first_event(self):
        # Found on a run of real processes: 80 ms of setting up made every rank look 90 % idle.
        trace = Trace.of(1, [compute(0, 100, 102), compute(0, 103, 104)], [])
        assert idle_share(trace) == (0.25,)

    @pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (2, 3), (4, 8), (8, 4)])
    def test_the_bubble_of_gpipe(self, stages, micro_batches):
        trace = pipeline(stages, micro_batches)
        assert trace.seconds == 3 * (micro_batches + stages - 1)
        assert bubble_share(trace) == pytest.approx((stages - 1) / (micro_batches + stages - 1))

    def test_nothing_happened(self):
        empty = Trace.of(3, [], [])
        assert idle_share(empty) == (0.0, 0.0, 0.0)
        assert bubble_share(empty) == 0.0
        assert overlap_share(empty) is None
        assert critical_path(empty) == ()

    def test_bytes_by_pair(self):
        messages = [Message(1, 0, 5, 0, 1), Message(0, 1, 3, 0, 1), Message(1, 0, 7, 2, 3)]
        assert bytes_by_pair(Trace.of(2, [], messages)) == {(0, 1): 3, (1, 0): 12}


class TestCriticalPath:
    def test_the_example_of_the_docstring(self):
        # rank 0  CC.>C     rank 1's three seconds, the message, and rank 0's last second
        # rank 1  CCC>
        message = Message(1, 0, 8, 3, 4)
        last = compute(0, 4, 5, "last")
        trace = Trace.of(2, [compute(0, 0, 2, "short"), compute(1, 0, 3, "long"), last], [message])
        assert critical_path(trace) == (compute(1, 0, 3, "long"), message, last)

    @pytest.mark.parametrize(("stages", "micro_batches"), [(2, 3), (4, 8)])
    def test_a_pipeline_has_no_gap_on_its_path(self, stages, micro_batches):
        path = critical_path(pipeline(stages, micro_batches))
        work = [e for e in path if isinstance(e, Span)]
        assert sum(s.seconds for s in work) == 3 * (micro_batches + stages - 1)
        assert all(a.end == b.start for a, b in pairwise(work))

    def test_a_collective_leads_to_the_rank_that_came_last(self):
        detail = {"group": (0, 1), "sequence": 4}
        spans = [compute(0, 0, 2), compute(1, 0, 6, "slow"), compute(0, 8, 9, "step")]
        spans += [Span(r, "collective", "all_reduce", s, 8, detail=detail) for r, s in ((0, 2), (1, 6))]
        assert [e.name for e in critical_path(Trace.of(2, spans, []))] == ["slow", "all_reduce", "step"]

    def test_an_interrupted_span_appears_in_pieces(self):
        # rank 0 sends in the middle of its backward pass
        spans = [compute(0, 0, 10, "backward"), Span(0, "send", "send", 4, 6)]
        path = critical_path(Trace.of(2, spans, [Message(0, 1, 8, 4, 6)]))
        assert [(e.start, e.end) if isinstance(e, Span) else (e.sent, e.received) for e in path] == [
            (0, 4),
            (4, 6),
            (6, 10),
        ]

    def test_messages_without_duration_do_not_go_in_circles(self):
        messages = [Message(0, 1, 8, 1, 1), Message(1, 0, 8, 1, 1), Message(1, 2, 8, 1, 1)]
        path = critical_path(Trace.of(3, [compute(0, 0, 1), compute(2, 1, 2)], messages))
        assert path[0] == compute(0, 0, 1)
        assert path[-1] == compute(2, 1, 2)
        assert len(path) == len(set(map(repr, path)))


class TestChrome:
    @pytest.fixture
    def trace(self):
        rng = random.Random(5)
        spans = list(pipeline(3, 4).spans)
        spans += [
            compute(0, 0.5, 30.25, "overlaps without nesting"),
            Span(1, "collective", "all_reduce", 1, 9, stream=1),
        ]
        spans.append(
            Span(2, "wait", "wait", 1, 2, bytes=8, detail={"shape": (2, 3), "loss": math.nan, "group": [0, 1]})
        )
        messages = []
        for _ in range(30):  # several at once between the same ranks
            src, sent = rng.randrange(3), rng.uniform(0, 20)
            messages.append(Message(src, (src + 1) % 3, 100, sent, sent + rng.choice([0.0, rng.uniform(0, 5)])))
        return Trace.of(3, spans, messages)

    def test_the_file_follows_the_format(self, trace, tmp_path):
        text = trace.to_chrome(tmp_path / "run.json").read_text(encoding="utf-8")

        def refuse(constant):
            raise AssertionError(f"{constant} is not JSON")

        content = json.loads(text, parse_constant=refuse)
        events = content["traceEvents"]
        assert {e["ph"] for e in events} == {"M", "X", "s", "f"}
        for event in events:
            assert isinstance(event["pid"], int)
            assert isinstance(event["tid"], int)
            assert isinstance(event["name"], str)
            if event["ph"] != "M":
                assert isinstance(event["ts"], (int, float))
            if event["ph"] == "X":
                assert event["dur"] >= 0
        names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        assert names == {0: "rank 0", 1: "rank 1", 2: "rank 2"}
        threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
        assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= threads

    def test_times_are_microseconds(self, tmp_path):
        trace = Trace.of(1, [compute(0, 0.001, 0.0015, micro_batch=3)], [])
        (box,) = [e for e in json.loads(trace.to_chrome(tmp_path / "t").read_text())["traceEvents"] if e["ph"] == "X"]
        assert (box["ts"], box["dur"], box["args"]) == (1000.0, 500.0, {"micro_batch": 3})

    def test_arrows_come_in_pairs_and_start_and_end_in_boxes(self, trace, tmp_path):
        events = json.loads(trace.to_chrome(tmp_path / "t").read_text())["traceEvents"]
        starts = {e["id"]: e for e in events if e["ph"] == "s"}
        ends = {e["id"]: e for e in events if e["ph"] == "f"}
        assert starts.keys() == ends.keys()
        assert len(starts) == len([e for e in events if e["ph"] == "s"]) == 30
        for number, start in starts.items():
            assert start["ts"] <= ends[number]["ts"]
        boxes = [e for e in events if e["ph"] == "X"]
        for arrow in [*starts.values(), *ends.values()]:
            around = [
                b
                for b in boxes
                if (b["pid"], b["tid"]) == (arrow["pid"], arrow["tid"])
                and b["ts"] <= arrow["ts"] < b["ts"] + b["dur"] + 1e-9
            ]
            assert around

    def test_boxes_of_one_track_are_nested_or_apart(self, trace, tmp_path):
        events = json.loads(trace.to_chrome(tmp_path / "t").read_text())["traceEvents"]
        lanes = {}
        for e in events:
            if e["ph"] == "X":
                start = round(e["ts"] * 1e3)
                lanes.setdefault((e["pid"], e["tid"]), []).append((start, start + round(e["dur"] * 1e3)))
        for boxes in lanes.values():
            for a in boxes:
                for b in boxes:
                    assert not (a[0] < b[0] < a[1] < b[1]), (a, b)

    def test_a_time_that_is_no_number_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="'work' has the time nan"):
            Trace.of(1, [compute(0, 0, math.nan)], []).to_chrome(tmp_path / "t")


@dataclass
class Sent:
    bytes_sent: int = 0
    nominal: dict = field(default_factory=dict)


@dataclass
class Finished:
    trace: Trace
    seconds: float
    traffic: list = field(default_factory=list)


class TestReport:
    one = Finished(Trace.of(1, [compute(0, 0, 8)], []), 8.0, [Sent()])
    four = Finished(
        Trace.of(4, [compute(r, 0, 2) for r in range(4)] + [Span(0, "collective", "all_reduce", 2, 2.5)], [], "paced"),
        2.5,
        [Sent(1000, {"all_reduce": 500})] + [Sent(100)] * 3,
    )

    def test_strong_scaling_by_hand(self):
        first, second = report({"1 rank": self.one, "4 ranks": self.four}, steps=3).rows
        assert (first["speed_up"], first["efficiency"]) == (1.0, 1.0)
        assert second["speed_up"] == pytest.approx(3.2)
        assert second["efficiency"] == pytest.approx(0.8)
        assert second["bytes_per_step"] == 500
        assert second["exposed_seconds"] == 0.125  # half a second on one rank of four
        assert second["idle_share"] == pytest.approx(0.15)  # half a second of 2.5 on three ranks of four
        assert second["samples_per_second"] is None

    def test_weak_scaling_by_hand(self):
        table = report({"1": self.one, "4": self.four}, samples={"1": 80, "4": 320})
        assert table.rows[0]["samples_per_second"] == 10
        assert table.rows[1]["samples_per_second"] == 128
        assert table.rows[1]["speed_up"] == pytest.approx(12.8)
        assert table.rows[1]["efficiency"] == pytest.approx(3.2)

    def test_another_baseline(self):
        assert report({"1": self.one, "4": self.four}, baseline="4").rows[0]["speed_up"] == pytest.approx(2.5 / 8)

    def test_columns_that_nobody_measured_are_left_out(self):
        plain = report({"1": self.one})
        assert "peak_memory" not in plain.columns
        assert "samples_per_second" not in plain.columns
        full = report({"1": self.one, "4": self.four}, peak_memory={"4": 2_000_000}, accuracy={"1": 0.975})
        assert full.rows[0]["peak_memory"] is None
        assert {"peak_memory", "accuracy"} <= set(full.columns)
        assert "2 MB" in repr(full)
        assert "97.5%" in repr(full)

    def test_text_and_html_say_the_same(self):
        table = report({"<b>": self.one, "4": self.four}, samples=100)
        page = table._repr_html_()
        assert "&lt;b&gt;" in page
        assert "3.20×" in page
        assert "3.20×" in repr(table)
        assert "relative to '<b>'" in repr(table)

    def test_a_run_without_events_has_no_shares(self):
        row = report({"empty": Finished(Trace.of(2, [], []), 1.0)}).rows[0]
        assert row["idle_share"] is None
        assert row["bytes_per_step"] is None

    def test_bad_input_is_a_sentence(self):
        with pytest.raises(ValueError, match="at least one run"):
            report({})
        with pytest.raises(ValueError, match="no run '8'; the runs are '1'"):
            report({"1": self.one}, baseline="8")
        with pytest.raises(ValueError, match="steps is 0"):
            report({"1": self.one}, steps=0)


def test_units():
    assert [show_seconds(s) for s in (0, 95, 1.5, 0.0123, 4.56e-6, 3e-9)] == [
        "0 s",
        "95 s",
        "1.5 s",
        "12.3 ms",
        "4.56 µs",
        "3 ns",
    ]
    assert [show_bytes(b) for b in (0, 12, 1500, 1_500_000, 2e9)] == ["0 B", "12 B", "1.5 kB", "1.5 MB", "2 GB"]
    assert [show_share(s) for s in (0, 1e-4, 0.0042, 0.5, 1)] == ["0 %", "< 0.1 %", "0.4 %", "50 %", "100 %"]
    assert [show_number(n) for n in (12345.6, 1.2345, 7.0)] == ["12,346", "1.23", "7"]
