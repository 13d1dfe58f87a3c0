"""Bucket size against overlap: the reductions of a recorded backward pass, worked out by hand."""

import pytest

from lockstep.viz.buckets import ReadyGradient, Reduction, bucket_player, bucket_timeline, exposed, reductions

# Ready after 1, 2, 4 and 5 seconds, handed over in another order.
GRADIENTS = [
    ReadyGradient("a", 10, 5.0),
    ReadyGradient("b", 10, 4.0),
    ReadyGradient("c", 20, 2.0),
    ReadyGradient("d", 10, 1.0),
]


def seconds(nbytes: int) -> float:
    return 0.5 + nbytes / 10


def test_each_alone_queues_behind_the_one_before():
    plan = reductions(GRADIENTS, 1, seconds)
    assert [one.names for one in plan] == [("d",), ("c",), ("b",), ("a",)]
    assert [(one.launched, one.start, one.end) for one in plan] == [(1, 1, 2.5), (2, 2.5, 5), (4, 5, 6.5), (5, 6.5, 8)]
    assert exposed(GRADIENTS, plan) == 3.0


def test_a_bucket_closes_when_it_reaches_the_cap_and_the_last_one_at_the_end():
    assert reductions(GRADIENTS, 30, seconds) == [
        Reduction(("d", "c"), 30, 2.0, 2.0, 5.5),
        Reduction(("b", "a"), 20, 5.0, 5.5, 8.0),
    ]


def test_one_bucket_is_exposed_as_a_whole():
    plan = reductions(GRADIENTS, 1000, seconds)
    assert len(plan) == 1 and exposed(GRADIENTS, plan) == 5.5


def test_the_text_alternative_carries_the_numbers_and_the_player_ends_with_the_same_figure():
    figure = bucket_timeline(GRADIENTS, 30, seconds, (1, 30, 1000), "Four gradients")
    assert (
        "Four gradients. 30 B a bucket: 2 buckets for 4 gradients, 6 s of reductions, 50 % of that hidden" in figure.alt
    )
    assert "1 B 3 s, 30 B 3 s, 1 kB 5.5 s" in figure.alt
    player = bucket_player(GRADIENTS, seconds, (1000, 30), "Four gradients")
    assert [frame.label for frame in player.frames] == ["1 kB", "30 B"]
    assert "2 buckets" in player.alt


def test_nothing_to_draw_is_said():
    with pytest.raises(ValueError, match="0 gradients"):
        reductions([], 10, seconds)
    with pytest.raises(ValueError, match="buckets of 0 bytes"):
        reductions(GRADIENTS, 0, seconds)
