"""The Gantt chart of a schedule, the predicted and the measured step, and the explorer say the right numbers."""

import pytest

from lockstep.parallel.pipeline import Schedule, dualpipev, gpipe, interleaved, one_f_one_b, zero_bubble
from lockstep.trace import Span, Trace
from lockstep.viz import gantt, measured_step, pipeline_explorer, predicted_and_measured
from lockstep.viz.predicted import idle_shares


def drawn(axes):
    """(start, rank, length) of each box: what has a white outline."""
    found = []
    for collection in axes.collections:
        if collection.get_zorder() == 2.2:
            for path in collection.get_paths():
                (left, low), (right, _) = path.vertices[:2]
                found.append((round(left, 6), int(low), round(right - left, 6)))
    return sorted(found)


def labelled(axes):
    """(micro-batch, time, row) of each label, at its middle."""
    labels = [one for one in axes.collections if one.get_gid()]
    return sorted((int(one.get_gid()), float(x), round(float(y), 6)) for one in labels for x, y in one.get_offsets())


def trace_of(schedule, forward, backward, steps=1, pause=0.0):
    """A run that took exactly what the simulator says, `steps` times; step n is longer by n pauses at its end."""
    timing, spans, at = schedule.simulate(forward, backward), [], 0.0
    for step in range(steps):
        spans += [
            Span(s.rank, s.kind, s.name, at + s.start, at + s.end + step * pause, s.micro_batch)
            for s in timing.trace.spans
        ]
        at += timing.makespan + 1 + step * pause
    return Trace.of(schedule.ranks, spans, [], "processes")


def test_every_action_is_a_box_where_the_simulator_puts_it():
    figure = gantt(one_f_one_b(3, 4), "Mine")
    assert figure.alt.startswith("Mine (simulated). 1F1B: makespan 18, bubble 33 %; 3 ranks, 4 micro-batches")
    assert "in flight by rank 3, 2, 1; idle by rank 33 %, 33 %, 33 %" in figure.alt
    (axes,) = figure.matplotlib.axes
    timing = one_f_one_b(3, 4).simulate()
    assert drawn(axes) == sorted((e.start, e.rank, e.end - e.start) for e in timing.events)
    assert {t.get_text() for t in axes.texts} >= {"33 %", "idle", "most in flight"}
    middles = [(e.item.parts[0].micro_batch, (e.start + e.end) / 2, e.rank + 0.5) for e in timing.events]
    assert labelled(axes) == sorted(middles)


def test_several_are_compared_as_equal_models():
    figure = gantt({"flat": gpipe(4, 8), "round": interleaved(4, 8, 2), "split": zero_bubble(4, 8)})
    assert (
        "flat: makespan 33" in figure.alt
        and "round: makespan 28.5" in figure.alt
        and "split: makespan 27" in figure.alt
    )
    assert "most chunks in flight by rank 11, 9, 7, 5" in figure.alt
    first, second, _ = figure.matplotlib.axes
    assert first.get_xlim() == second.get_xlim() == (0, 33)
    assert {"5.5", "4.5"} <= {t.get_text() for t in second.texts}, "a chunk of two counts half a stage"
    assert max(x + w for x, _, w in drawn(second)) == 28.5


def test_an_overlap_has_both_parts_one_above_the_other():
    figure = gantt(dualpipev(2, 4))
    (axes,) = figure.matplotlib.axes
    heights = {round(path.vertices[2][1] - path.vertices[1][1], 3) for c in axes.collections for path in c.get_paths()}
    assert {0.44, 0.88} <= heights


def test_what_cannot_be_drawn_is_a_sentence():
    with pytest.raises(ValueError, match="no schedule to draw"):
        gantt({})
    with pytest.raises(ValueError, match="before"):
        gantt(Schedule.of([["0B0", "0F0"]]))


def test_the_step_of_median_length_is_found_in_a_run():
    schedule = one_f_one_b(2, 3)
    trace = trace_of(schedule, 1, 2, steps=3, pause=0.25)
    events = measured_step(schedule, trace)
    assert [(e.rank, repr(e.item)) for e in events] == [(r, repr(a)) for r in range(2) for a in schedule.actions[r]]
    assert min(e.start for e in events) == 0 and max(e.end for e in events) == pytest.approx(12.25)
    shares = idle_shares(measured_step(schedule, trace_of(schedule, 1, 2)), 2)
    assert shares == pytest.approx(schedule.simulate().bubble)
    with pytest.raises(ValueError, match="no step of GPipe"):
        measured_step(gpipe(3, 3), trace)


def test_prediction_and_measurement_are_one_figure():
    schedule = one_f_one_b(2, 3)
    figure = predicted_and_measured(schedule, schedule.simulate(0.01, 0.02), trace_of(schedule, 0.02, 0.02), "Two")
    assert figure.alt.startswith("Two: predicted 120 ms, measured 160 ms. rank 0 idle 25 % predicted, 25 % measured")
    (axes,) = figure.matplotlib.axes
    assert len(drawn(axes)) == 2 * 12 and axes.get_xlabel().endswith("(ms)")


def test_the_explorer_shows_its_first_figure_without_widgets_and_says_what_does_not_exist():
    makers = {"1F1B": one_f_one_b, "interleaved": lambda p, m: interleaved(p, m, 2)}
    explorer = pipeline_explorer(makers, "interleaved", 3, 6)
    assert repr(explorer).startswith("interleaved, 3 stages, 6 micro-batches (simulated)")
    assert "must be equal" in explorer.figure("interleaved", 3, 7)
    # It counted one unit for a chunk, so that the same model seemed to take twice as long with two chunks a rank.
    assert "interleaved: makespan 28.5" in explorer.figure("interleaved", 4, 8).alt
    assert "1 stage, 1 micro-batch (" in explorer.figure("1F1B", 1, 1).alt
    widget = explorer.widget()
    menu, stages, cut = widget.children[0].children
    menu.value, stages.value, cut.value = "1F1B", 2, 5
    assert "2 ranks, 5 micro-batches" in widget.children[1].value
    with pytest.raises(ValueError, match="there are: 1F1B"):
        pipeline_explorer(makers, "gpipe")
