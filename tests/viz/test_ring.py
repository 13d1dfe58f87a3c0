"""The figure of a ring collective shows what the given function does, not what it should do."""

import pytest

from lockstep.comm.collectives import recursive_doubling_all_reduce, ring_all_reduce
from lockstep.viz import ring, ring_player
from lockstep.viz.ring import record


def turns_left(comm, tensor):
    """With isend and recv, to the left, and one chunk more at each step as in a gather."""
    chunks = tensor.tensor_split(comm.size)
    for s in range(comm.size - 1):
        handle = comm.isend(chunks[(comm.rank + s) % comm.size], (comm.rank - 1) % comm.size)
        comm.recv(chunks[(comm.rank + s + 1) % comm.size], (comm.rank + 1) % comm.size)
        handle.wait()


def test_a_ring_all_reduce_as_it_is_recorded():
    recording = record(ring_all_reduce, 4)
    assert len(recording.steps) == 6
    first = {(m.src, m.dst): m.whose for m in recording.steps[0]}
    assert first == {(r, (r + 1) % 4): {(r - 1) % 4: frozenset({r})} for r in range(4)}
    half, end = recording.holdings[3], recording.holdings[6]
    everyone = frozenset(range(4))
    assert [[c for c in range(4) if half[r][c] == everyone] for r in range(4)] == [[0], [1], [2], [3]]
    assert all(ranks == everyone for row in end for ranks in row)


def test_messages_of_any_kind_are_seen():
    to_the_left = record(turns_left, 3)
    assert [(m.src, m.dst) for m in to_the_left.steps[1]] == [(0, 2), (1, 0), (2, 1)]
    whole = record(recursive_doubling_all_reduce, 4)
    assert [set(m.whose) for m in whole.steps[0]] == [{0, 1, 2, 3}] * 4


def test_the_alternative_carries_the_numbers():
    figure = ring(ring_all_reduce, 3, step=2, title="Mine")
    assert figure.alt.startswith(
        "Mine (simulated), step 2 of 4: whose numbers are in which chunk. Rank 0 holds chunk 0"
    )
    assert "rank 0 sends chunk 1 to rank 1" in figure.alt
    assert "Mine (simulated), step 2 of 4" in [text.get_text() for text in figure.matplotlib.texts]


def test_the_player_shows_every_step_and_rests_at_the_end():
    player = ring_player(ring_all_reduce, 2)
    assert [frame.label for frame in player.frames] == ["step 1 of 2", "step 2 of 2", "after 2 steps"]
    assert "Then" in player.frames[0].alt and "Then" not in player.frames[-1].alt


@pytest.mark.parametrize(("ranks", "step"), [(1, 1), (8, 1), (2, 0), (2, 4)])
def test_what_cannot_be_shown_is_a_sentence(ranks, step):
    with pytest.raises(ValueError, match="ranks is|step is"):
        ring(ring_all_reduce, ranks, step)
