"""What ranks print, and how lines and places are named in reports."""

import logging
import sys
import threading
import warnings

import pytest
import torch.distributed as dist

from lockstep.world import launch
from lockstep.world.output import BURST, LAST, Output
from lockstep.world.report import name_ranks
from lockstep.world.stacks import Frame, parse, waits_in_communication


def test_lines_of_every_rank_are_labelled_and_whole(capsys):
    # Output of children is lost, or mixed within a line (ipykernel#882, jupyter/notebook#2287).
    def program(comm):
        for i in range(20):
            sys.stdout.write(f"{comm.rank}:")
            sys.stdout.write(f"{i} ü 世界\n")
        print("to stderr", file=sys.stderr)
        print("no end of line", end="")

    launch(program, 2)
    lines = capsys.readouterr().out.splitlines()
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        assert mine[:20] == [f"[rank {rank}] {rank}:{i} ü 世界" for i in range(20)]
        assert mine[20:] == [f"[rank {rank}] to stderr", f"[rank {rank}] no end of line"]
    assert len(lines) == 44


def test_warnings_logging_and_programs_print_too(capsys):
    def program(comm):
        import os

        warnings.warn("careful", stacklevel=1)
        logging.warning("logged")
        os.system("echo from a program")

    launch(program, 1)
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("UserWarning: careful", "WARNING:root:logged", "[rank 0] from a program"))


def test_a_flood_is_counted_and_its_end_is_kept(capsys):
    # A rank that prints in a loop floods the notebook until the browser hangs.
    def program(comm):
        for i in range(100_000):
            print("line", i)

    launch(program, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[: BURST // 2] == [f"[rank 0] line {i}" for i in range(BURST // 2)]
    assert lines[-LAST:] == [f"[rank 0] line {i}" for i in range(100_000 - LAST, 100_000)]
    left_out = [int(line.split()[3].replace(",", "")) for line in lines if "lines left out" in line]
    assert sum(left_out) + len(lines) - len(left_out) == 100_000 and len(lines) < 5 * BURST


def test_a_slow_rank_may_print_for_ever(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("lockstep.world.output.time.monotonic", lambda: now[0])
    output = Output(3)
    for i in range(1000):
        now[0] += 0.1
        output.feed(f"step {i}\n".encode())
    output.finish()
    assert len(capsys.readouterr().out.splitlines()) == 1000


def test_a_progress_bar_shows_its_last_state_and_a_long_line_is_cut(capsys):
    output = Output(0)
    output.feed(b"  0%\r 50%\r100%\n")
    output.feed(b"x" * 5000 + b"\n")
    output.feed("é".encode()[:1])
    output.feed("é".encode()[1:])
    output.finish()
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "[rank 0] 100%" and second.endswith("... (5,000 characters)") and third == "[rank 0] é"


@pytest.mark.parametrize(
    ("ranks", "words"),
    [([2], "rank 2"), ([0, 1], "ranks 0 and 1"), ([0, 1, 3], "ranks 0, 1 and 3"), ([1, 2, 3, 4], "ranks 1 to 4")],
)
def test_ranks_are_named_together(ranks, words):
    assert name_ranks(ranks) == words


DUMP = f"""Thread 0x00007f0000000001 [worker] (most recent call first):
  File "{threading.__file__}", line 320 in wait
  File "/home/me/loader.py", line 7 in load

Current thread 0x00007f0000000002 (most recent call first):
  File "{dist.__file__}", line 100 in recv
  File "/home/me/train.py", line 3 in program
  File "/x/lockstep/world/rank.py", line 9 in _work
"""


def test_stacks_as_faulthandler_writes_them():
    threads = parse(DUMP)
    main = 0x7F0000000002
    assert threads[main][1] == Frame("/home/me/train.py", 3, "program")
    assert waits_in_communication(threads, main)
    # A thread that does something may be about to set the others free: then it is no deadlock.
    busy = parse(DUMP.replace(threading.__file__, "/home/me/sender.py"))
    assert not waits_in_communication(busy, main)
    assert not waits_in_communication(parse(DUMP.replace("torch/distributed", "torch/nn")), main)
    assert not waits_in_communication({}, main)
