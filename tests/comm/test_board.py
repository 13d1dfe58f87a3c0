"""The board: posts that disagree, statuses, and which ranks can never proceed, on situations written by hand."""

import multiprocessing
import os
from types import SimpleNamespace

import pytest

from lockstep.comm import CommunicationError
from lockstep.comm.board import Board, Need, stuck
from lockstep.comm.board.board import ANY_SEND, COLLECTIVE, EVERYONE, THEIR_RECV, THEIR_SEND
from lockstep.comm.board.layout import CALL_RING, CALL_STRIDE, COUNTER, ENTRY
from lockstep.comm.board.posts import Posts, checksum

WORDS = "float32[4]"
MARK = checksum(WORDS)


@pytest.fixture
def board(tmp_path):
    """A reader's board of four ranks."""
    return Board.create(tmp_path / "board", 4)


@pytest.fixture
def ranks(board):
    return [Board.open(board.path, 4, rank) for rank in range(4)]


def waits_to_send(rank, dst):
    rank.waiting(f"send to {dst}", "cell.py", 3, [Need(dst, THEIR_RECV, MARK, rank.post_send(dst, WORDS))])


def waits_to_receive(rank, src):
    rank.waiting(f"recv from {src}", "cell.py", 4, [Need(src, THEIR_SEND, MARK, rank.post_recv(src, WORDS))])


def waits_for_anyone(rank, size=4):
    needs = [Need(other, ANY_SEND, MARK, 0) for other in range(size) if other != rank.rank]
    rank.waiting("recv from any rank", "cell.py", 5, needs, "any")


def waits_in(rank, signature):
    index = rank.post_collective(signature)
    rank.waiting(signature, "cell.py", 6, [Need(EVERYONE, COLLECTIVE, checksum(signature), index)])


# ------------------------------------------------------------------------------------------------------- posts


def test_equal_collectives_pass_and_different_ones_name_both_calls_and_the_number(ranks):
    for _ in range(2 * CALL_RING + 1):
        assert len({rank.post_collective("barrier") for rank in ranks}) == 1
    first = Board.create(ranks[0].path.with_name("two"), 2, 0)
    second = Board.open(first.path, 2, 1)
    for _ in range(2):
        first.post_collective("barrier")
        second.post_collective("barrier")
    first.post_collective("all_reduce(sum) of float32[8]")
    with pytest.raises(CommunicationError) as error:
        second.post_collective("broadcast from rank 0 of float32[8]")
    assert str(error.value).startswith(
        "Rank 1 calls broadcast from rank 0 of float32[8] as its 3rd collective, "
        "rank 0 calls all_reduce(sum) of float32[8]"
    )
    assert "rank 1 calls broadcast" in first.collective_mismatch(2, "all_reduce(sum) of float32[8]")


# Story: a rank that starts one all-reduce for each of a network's parameters was 161 calls ahead of another, whose
# first call was a different one; the entry that showed it was overwritten by then, and both went on.
def test_a_rank_far_ahead_is_still_compared(ranks):
    ranks[0].post_collective("all_reduce(max) of float32[8]")
    for _ in range(160):
        ranks[0].post_collective("all_reduce(sum) of float32[8]")
    with pytest.raises(CommunicationError, match=r"its 1st collective, rank 0 calls all_reduce\(max\)"):
        ranks[1].post_collective("all_reduce(sum) of float32[8]")


def test_an_entry_overwritten_while_it_is_read_is_no_difference(monkeypatch):
    """A reader may find the number it looks for, and then the checksum of the post that takes that one's place."""
    written = Posts(bytearray(COUNTER.size + CALL_RING * CALL_STRIDE), 0, CALL_RING, CALL_STRIDE)
    written.append("barrier")
    assert not written.differs(0, checksum("barrier")) and written.differs(0, checksum("broadcast"))

    def overtaken(memory, at):
        for _ in range(CALL_RING):
            written.append("broadcast")
        return ENTRY.unpack_from(memory, at)

    late = SimpleNamespace(size=ENTRY.size, pack=ENTRY.pack, unpack_from=overtaken)
    monkeypatch.setattr("lockstep.comm.board.posts.ENTRY", late)
    assert not written.differs(0, checksum("barrier"))


# Story: gloo fills the front of a larger buffer and says nothing.
def test_messages_of_another_shape_name_both_sides(ranks):
    ranks[0].post_send(1, "float32[4]")
    with pytest.raises(CommunicationError, match=r"Rank 1 receives into float32\[8\], rank 0 sends float32\[4\]"):
        ranks[1].post_recv(0, "float32[8]")
    ranks[2].post_recv(3, "int64[]")
    with pytest.raises(CommunicationError, match=r"Rank 2 receives into int64\[\], rank 3 sends int32\[\] \(message 1"):
        ranks[3].post_send(2, "int32[]")


def test_channels_are_counted_apart(ranks):
    assert [ranks[0].post_send(1, "a"), ranks[0].post_send(1, "b"), ranks[0].post_send(2, "c")] == [0, 1, 0]
    assert [ranks[1].post_recv(0, "a"), ranks[1].post_recv(0, "b"), ranks[1].post_send(0, "d")] == [0, 1, 0]


def test_a_status_says_what_where_and_for_whom_and_its_version_moves(board, ranks):
    assert {status.state for status in board.statuses()} == {"running"}
    before = board.statuses()[2].version
    waits_to_receive(ranks[2], 0)
    status = board.statuses()[2]
    assert (status.state, status.text, status.where, status.waits_for, status.mode) == (
        "waiting",
        "recv from 0",
        "cell.py:4",
        (0,),
        "all",
    )
    ranks[2].running()
    assert board.statuses()[2].state == "running" and board.statuses()[2].version > status.version > before
    ranks[2].finished()
    assert board.statuses()[2].state == "finished"
    waits_in(ranks[1], "barrier")
    assert board.statuses()[1].waits_for == (0, 2, 3)


# Story: after a split under torchrun, the error of a rank whose peer had left was a FileNotFoundError: to name who has
# finished, it read all statuses, and the file of the group in which another rank waited was gone from its folder.
def test_who_has_finished_is_known_without_the_boards_of_groups(board, ranks):
    Board.create(board.child_path("0-0"), 2, members=[0, 1]).close()
    pair = ranks[0].child("0-0", 2, 0)
    waits_in(pair, "barrier")
    ranks[3].finished()
    board.child_path("0-0").unlink()
    assert ranks[2].finished_ranks() == pair.finished_ranks() == [3]


def test_long_words_are_cut_and_still_compared(ranks):
    long = "all_gather of " + "x" * 400
    ranks[0].post_collective(long)
    with pytest.raises(CommunicationError):
        ranks[1].post_collective(long + "y")
    ranks[0].waiting(long, "/a/long/path/" * 60, 7, [])
    assert ranks[1].statuses()[0].line == 7


def test_a_file_that_is_no_board_of_this_size_is_refused(board, tmp_path):
    with pytest.raises((CommunicationError, ValueError)):
        Board.open(board.path, 5)


def _post_from_a_process(path):
    waits_in(Board.open(path, 4, 3), "barrier")
    os._exit(0)


def test_another_process_sees_it(board):
    child = multiprocessing.get_context("fork" if os.name == "posix" else "spawn").Process(
        target=_post_from_a_process, args=(board.path,)
    )
    child.start()
    child.join(30)
    assert board.statuses()[3].text == "barrier"


# ------------------------------------------------------------------------------------------------------- stuck


def test_nobody_waits_nobody_is_stuck(board, ranks):
    assert stuck(board) == {}
    for rank in ranks:
        rank.finished()
    assert stuck(board) == {}


def test_both_send_first(board, ranks):
    waits_to_send(ranks[0], 1)
    assert stuck(board) == {}, "rank 1 still runs and may receive"
    waits_to_send(ranks[1], 0)
    assert stuck(board) == {0: "send to 1 (cell.py:3)", 1: "send to 0 (cell.py:3)"}, "though ranks 2 and 3 run"


def test_a_cycle_and_a_rank_behind_it(board, ranks):
    for rank in (0, 1, 2):
        waits_to_receive(ranks[rank], (rank + 1) % 3)
    waits_to_send(ranks[3], 0)
    assert set(stuck(board)) == {0, 1, 2, 3}


def test_a_running_rank_saves_those_who_wait_for_it(board, ranks):
    waits_to_receive(ranks[0], 1)
    waits_to_receive(ranks[1], 2)
    waits_to_receive(ranks[2], 3)
    assert stuck(board) == {}
    ranks[3].finished()
    assert set(stuck(board)) == {0, 1, 2}


def test_data_on_its_way_is_not_stuck(board, ranks):
    waits_to_send(ranks[0], 1)
    waits_to_receive(ranks[1], 0)
    for rank in ranks[2:]:
        rank.finished()
    assert stuck(board) == {}
    for each in ranks[:2]:
        each.running()
    for each in ranks[:2]:
        waits_in(each, "barrier")
    assert set(stuck(board)) == {0, 1}, "ranks 2 and 3 finished without this barrier"


def test_a_collective_that_a_finished_rank_has_called_goes_on(board, ranks):
    for rank in (1, 2, 3):
        rank_board = ranks[rank]
        rank_board.post_collective("broadcast")
        rank_board.finished()
    waits_in(ranks[0], "broadcast")
    assert stuck(board) == {}


def test_a_collective_with_one_rank_elsewhere(board, ranks):
    for rank in (0, 1, 2):
        waits_in(ranks[rank], "barrier")
    assert stuck(board) == {}
    waits_to_receive(ranks[3], 0)
    assert set(stuck(board)) == {0, 1, 2, 3}


def test_collectives_that_crossed_before_either_saw_the_other(board, ranks):
    """Two ranks that post at the same instant may both miss the difference; then neither's need is met."""
    for rank, words in ((0, "barrier"), (1, "broadcast")):
        ranks[rank].waiting(words, "", 0, [Need(1 - rank, COLLECTIVE, checksum(words), 0)])
    ranks[0].post_collective("barrier")
    with pytest.raises(CommunicationError):
        ranks[1].post_collective("broadcast")
    assert set(stuck(board)) == {0, 1}


def test_receiving_from_anyone(board, ranks):
    waits_for_anyone(ranks[0])
    for rank in (1, 2):
        ranks[rank].finished()
    assert stuck(board) == {}, "rank 3 still runs"
    ranks[3].finished()
    assert stuck(board) == {0: "recv from any rank (cell.py:5)"}


def test_receiving_from_anyone_while_one_of_them_sends(board, ranks):
    waits_for_anyone(ranks[0])
    ranks[1].finished()
    ranks[2].finished()
    waits_to_send(ranks[3], 0)
    assert stuck(board) == {}
    ranks[0].running()
    ranks[0].post_recv(3, WORDS)  # taken
    waits_for_anyone(ranks[0])
    ranks[3].finished()
    assert set(stuck(board)) == {0}


def test_one_met_need_of_several_is_not_enough_for_an_exchange(board, ranks):
    needs = [
        Need(1, THEIR_SEND, MARK, ranks[0].post_recv(1, WORDS)),
        Need(2, THEIR_SEND, MARK, ranks[0].post_recv(2, WORDS)),
    ]
    ranks[0].waiting("exchange", "", 0, needs)
    ranks[1].post_send(0, WORDS)
    ranks[1].finished()
    assert stuck(board) == {}
    ranks[2].finished()
    assert stuck(board) == {0: "exchange"}


def test_a_deadlock_across_two_groups(board, ranks):
    """Rank 0 waits in the group of 0 and 1 for rank 1, which waits in the whole run for rank 0."""
    Board.create(board.child_path("0-0"), 2, members=[0, 1]).close()
    pair = ranks[0].child("0-0", 2, 0)
    waits_in(pair, "barrier")
    assert stuck(board) == {}
    waits_to_receive(ranks[1], 0)
    assert stuck(board) == {0: "barrier (cell.py:6)", 1: "recv from 0 (cell.py:4)"}
    assert board.statuses()[0].waits_for == (1,) and board.statuses()[0].group == "0-0"


def test_a_group_whose_ranks_are_numbered_otherwise(board, ranks):
    Board.create(board.child_path("0-1"), 2, members=[3, 1]).close()
    first, second = ranks[3].child("0-1", 2, 0), ranks[1].child("0-1", 2, 1)
    waits_to_receive(first, 1)
    assert board.statuses()[3].waits_for == (1,)
    second.post_send(0, WORDS)
    ranks[1].finished()
    assert stuck(board) == {}
