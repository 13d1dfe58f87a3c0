import io
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace

import matplotlib
import pytest
from PIL import Image

from lockstep.trace import Span, Trace
from lockstep.viz import timeline, timeline_player
from lockstep.viz.chart import COMPUTE, _boxes, _compute_looks


@dataclass
class Finished:
    trace: Trace


def texts(figure):
    return [t.get_text() for t in (*figure.matplotlib.texts, *figure.matplotlib.axes[0].texts)]


class TestWhatItSays:
    def test_the_alternative_carries_the_numbers(self, pipeline):
        alt = timeline(pipeline, "GPipe").alt
        assert alt.startswith("GPipe (simulated). 2 ranks over 12 s.")
        assert "Rank 0: computes 75 %, exposed communication 0 %, idle 25 %." in alt
        assert "6 messages, 600 B in all." in alt
        assert "6 forward, 6 backward" in alt

    @pytest.mark.parametrize(
        ("world", "word"), [("simulated", "simulated"), ("processes", "measured"), ("paced", "paced")]
    )
    def test_the_title_names_the_world(self, pipeline, world, word):
        figure = timeline(Finished(replace(pipeline, world=world)))
        assert f"Timeline ({word})" in texts(figure)
        assert figure.alt.startswith(f"Timeline ({word})")

    def test_many_ranks_are_summed_up(self, ring):
        alt = timeline(ring).alt
        assert "Computing: 44 % on every rank." in alt
        assert "8,064 messages" in alt
        assert len(alt) < 600

    def test_the_image_carries_the_alternative_escaped(self, pipeline):
        page = timeline(pipeline, 'a "quoted" <title>')._repr_mimebundle_()["text/html"]
        assert page.startswith('<img alt="a &quot;quoted&quot; &lt;title&gt; (simulated). 2 ranks over 12 s.')

    def test_nothing_recorded(self):
        for trace in (Trace(3), Trace.of(3, [Span(0, "compute", "free", 2.0, 2.0)], [])):
            figure = timeline(trace)
            assert "Nothing that was recorded took any time." in texts(figure)
            assert figure.alt == "Timeline (measured). 3 ranks; nothing that was recorded took any time."

    def test_what_is_no_run_is_a_sentence(self):
        with pytest.raises(TypeError, match="draws a Run or a Trace, not a list"):
            timeline([1, 2])


class TestWhatItShows:
    def test_a_box_for_every_span_with_its_micro_batch(self, pipeline):
        (axes,) = timeline(pipeline).matplotlib.axes
        stamped = [one for one in axes.collections if one.get_gid()]
        assert sorted(one.get_gid() for one in stamped for _ in one.get_offsets()) == sorted("012" * 4)

    def test_blocked_time_is_told_from_moving_time(self):
        # rank 1 sits in recv from 0 to 4; the message moves from 3 to 4
        from lockstep.trace import Message

        trace = Trace.of(2, [Span(0, "compute", "f", 0, 3), Span(1, "recv", "recv", 0, 4)], [Message(0, 1, 8, 3, 4)])
        boxes = _boxes(trace, _compute_looks([trace]))[1, 0]
        assert [(b.start, b.end, b.look.label) for b in boxes] == [(0, 3, "blocked, nothing moves"), (3, 4, "receive")]

    def test_a_collective_is_one_box_whatever_it_is_made_of(self):
        inner = [Span(0, "send", "send", k, k + 1) for k in range(1, 4)]
        trace = Trace.of(1, [Span(0, "collective", "all_reduce", 0, 5), *inner], [])
        (box,) = _boxes(trace, {})[0, 0]
        assert (box.start, box.end, box.label) == (0, 5, "all_reduce")

    def test_communication_beside_the_work_gets_its_own_row(self, pipeline):
        beside = replace(pipeline, spans=(*pipeline.spans, Span(0, "collective", "bucket", 1, 5, stream=1)))
        assert texts(timeline(beside)).count("beside it") == 2
        assert "beside it" not in texts(timeline(pipeline))

    def test_few_messages_are_arrows_many_are_counted(self, pipeline, ring):
        def arrows(figure):
            return sum(isinstance(p, matplotlib.patches.FancyArrowPatch) for p in figure.matplotlib.axes[0].patches)

        assert arrows(timeline(pipeline)) == 6
        figure = timeline(ring)
        assert arrows(figure) == 0
        assert any("8,064 messages (too many to draw)" in t for t in texts(figure))

    def test_predicted_and_measured_share_the_rows_and_the_axis(self, pipeline):
        later = [replace(s, start=s.start * 1.5 + 100, end=s.end * 1.5 + 100) for s in pipeline.spans]
        figure = timeline(pipeline, compare=Trace.of(2, later, []))
        assert "Timeline (simulated against measured)" in texts(figure)
        assert ["rank 0 simulated", "measured", "rank 1 simulated"] == [
            t for t in texts(figure) if t.startswith("rank") or t == "measured"
        ][:3]
        low, high = figure.matplotlib.axes[0].get_xlim()
        assert low == 0
        assert 18 <= high < 18.5  # each begins at its own first event
        assert "simulated: 2 ranks over 12 s." in figure.alt
        assert "measured: 2 ranks over 18 s." in figure.alt

    def test_two_of_one_world_get_other_names(self, pipeline):
        assert "rank 0 first" in texts(timeline(pipeline, compare=pipeline))
        assert "rank 0 own" in texts(timeline(pipeline, compare=pipeline, labels=("own", "library's")))

    def test_compute_never_speaks_by_colour_alone(self):
        assert len({hatch for _, hatch, _ in COMPUTE}) == len(COMPUTE)

    def test_many_names_become_forward_backward_and_the_rest(self):
        spans = [Span(0, "compute", f"{way} conv{i}", i, i + 1) for i in range(4) for way in ("forward", "Backward")]
        spans.append(Span(0, "compute", "step", 9, 10))
        looks = _compute_looks([Trace.of(1, spans, [])])
        assert {look.label for look in looks.values()} == {"forward", "backward", "other computation"}


class TestTheFile:
    @pytest.mark.parametrize("fixture", ["pipeline", "ring"])
    def test_images_are_small(self, fixture, request):
        # a notebook has to stay below 1.5 MB with all its figures
        assert len(timeline(request.getfixturevalue(fixture))._repr_html_()) < 65_000

    def test_flat_colours_stay_exact(self, ring):
        # Pillow's own palettes turned a small green patch of the legend brown and white to grey.
        image = Image.open(io.BytesIO(timeline(ring).png())).convert("RGB")
        colors = {color for _, color in image.getcolors(10_000)}
        assert {(255, 255, 255), (0x56, 0xB4, 0xE9), (0xE6, 0x9F, 0x00)} <= colors

    @pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
    def test_save(self, pipeline, tmp_path, ending):
        path = timeline(pipeline).save(tmp_path / f"run.{ending}")
        assert path.stat().st_size > 1000
        if ending == "svg":
            assert "Rank 0: computes 75 %" in path.read_text(encoding="utf-8")

    def test_no_global_state_no_warning_no_display(self, pipeline):
        before = dict(matplotlib.rcParams)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            timeline(pipeline)._repr_html_()
        assert dict(matplotlib.rcParams) == before
        code = "import lockstep.viz, sys; sys.exit('matplotlib.pyplot' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], timeout=110).returncode == 0

    def test_a_notebooks_style_sheet_changes_nothing(self, pipeline):
        plain = timeline(pipeline).png()
        with matplotlib.style.context("dark_background"):
            assert timeline(pipeline).png() == plain


class TestPlayer:
    def test_frames_are_few_small_and_say_what_they_show(self, pipeline):
        player = timeline_player(pipeline, frames=6)
        assert len(player.frames) == 6
        assert all(len(frame.png) < 20_000 for frame in player.frames)
        assert player.frames[0].alt == ("After 2 s: rank 0 forward of micro-batch 1, rank 1 forward of micro-batch 0")
        assert player.frames[-1].alt == "After 12 s: rank 0 backward of micro-batch 2, rank 1 idle"

    def test_a_frame_hides_what_has_not_happened(self, pipeline):
        def green(frame):
            image = Image.open(io.BytesIO(frame.png)).convert("RGB")
            return dict((color, n) for n, color in image.getcolors(100_000)).get((0x00, 0x9E, 0x73), 0)

        counts = [green(frame) for frame in timeline_player(pipeline, frames=4).frames]
        assert counts == sorted(counts)
        assert counts[0] < counts[-1] / 10  # only the legend's patch

    def test_the_slider_shows_the_frame_and_nothing_plays_by_itself(self, pipeline):
        widgets = pytest.importorskip("ipywidgets")
        player = timeline_player(pipeline, frames=3)
        box = player.widget()
        (play, slider, said), image = box.children[0].children, box.children[1]
        assert isinstance(play, widgets.Play)
        assert not getattr(play, "playing", False)
        assert player.frames[2].alt in image.value
        slider.value = 0
        assert player.frames[0].alt in image.value
        assert said.value == "4 s"
        play.value = 1
        assert slider.value == 1

    def test_where_no_widgets_are_shown_the_last_frame_stands(self, pipeline, monkeypatch):
        player = timeline_player(pipeline, frames=3)
        bundle = player._repr_mimebundle_()
        assert "application/vnd.jupyter.widget-view+json" in bundle
        assert bundle["text/html"].startswith("<img alt=")
        monkeypatch.setitem(sys.modules, "ipywidgets", None)  # not installed
        assert player._repr_mimebundle_().keys() == {"text/html", "text/plain"}

    def test_one_frame_is_no_film(self, pipeline):
        with pytest.raises(ValueError, match="frames is 1"):
            timeline_player(pipeline, frames=1)
