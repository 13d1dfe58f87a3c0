"""The prover: valid schedules pass, corrupted ones are judged as a second, independent judge does."""

import random

import pytest
from staged_models import corrupted

from lockstep.parallel.pipeline import (
    Action,
    InvalidSchedule,
    Schedule,
    dualpipev,
    gpipe,
    interleaved,
    looped_bfs,
    naive,
    one_f_one_b,
    pipedream,
    zbv,
    zero_bubble,
)


def runs(schedule):
    """Independent judge: the right actions, and an order of all of them that breaks nothing (Kahn's algorithm)."""
    rows = [[part for item in row for part in item.parts] for row in schedule.actions]
    flat = [part for row in rows for part in row]
    keys = {(a.kind, a.chunk, a.micro_batch) for a in flat}
    if len(keys) != len(flat):
        return False
    chunks, batches = range(schedule.chunks), range(schedule.micro_batches)
    updates = any(kind == "U" for kind, *_ in keys)
    wanted = set()
    for c in chunks:
        for i in batches:
            split = ("I", c, i) in keys
            wanted |= {("F", c, i), *([("I", c, i), ("W", c, i)] if split else [("B", c, i)])}
            wanted |= {("U", c, i)} if updates else set()
    if keys != wanted:
        return False
    if any(len({r for r, row in enumerate(rows) for a in row if a.chunk == c}) != 1 for c in chunks):
        return False
    after = {key: set() for key in keys}
    for c in chunks:
        for i in batches:
            back = "I" if ("I", c, i) in keys else "B"
            after[back, c, i].add(("F", c, i))
            if c:
                after["F", c, i].add(("F", c - 1, i))
            if c + 1 < schedule.chunks:
                after[back, c, i].add(("I" if ("I", c + 1, i) in keys else "B", c + 1, i))
            if back == "I":
                after["W", c, i].add(("I", c, i))
            if updates:
                after["U", c, i].add(("W" if back == "I" else "B", c, i))
    for row in schedule.actions:
        for before, item in zip(row, row[1:], strict=False):
            for part in item.parts:
                after[part.kind, part.chunk, part.micro_batch] |= {
                    (b.kind, b.chunk, b.micro_batch) for b in before.parts
                }
    whole = [{(a.kind, a.chunk, a.micro_batch) for a in item.parts} for row in schedule.actions for item in row]
    while whole:  # an overlap starts when all that its parts need is over
        free = [item for item in whole if not any(after[key] & set().union(*whole) - item for key in item)]
        if not free:
            return False
        whole = [item for item in whole if item not in free]
    return True


def test_corruptions_are_rejected_or_still_valid():
    draw = random.Random(0)
    known = [
        make(p, m)
        for make in (naive, gpipe, one_f_one_b, pipedream, zero_bubble, zbv, interleaved, looped_bfs)
        for p, m in ((2, 2), (3, 3))
    ] + [dualpipev(2, 4)]
    assert all(schedule.prove() and runs(schedule) for schedule in known)
    valid = 0
    for _ in range(400):
        schedule = corrupted(draw.choice(known), draw)
        proof = schedule.prove()
        assert bool(proof) == runs(schedule), f"{schedule}\n{proof}"
        valid += bool(proof)
        if not proof:
            with pytest.raises(InvalidSchedule):
                schedule.simulate()
        else:
            assert schedule.simulate().makespan > 0
    assert 40 < valid < 200  # both kinds were tried


@pytest.mark.parametrize(
    "rows, said",
    [
        ([["0F0"], ["1F0", "1B0"]], "Backward of micro-batch 0 on chunk 0 must be one B.*there is nothing"),
        ([["0F0", "0F0", "0B0"]], "Forward of micro-batch 0 on chunk 0 is there twice"),
        ([["0F0", "0I0"]], "there is I once"),
        ([["0F0", "0B0", "0W0"]], "there is B once, W once"),
        ([["0B0", "0F0"]], r"Rank 0 does 0B0 \(backward\) before 0F0 \(forward\)"),
        ([["0F0", "0W0", "0I0"]], r"Rank 0 does 0W0 \(weight gradient\) before 0I0"),
        ([["0F0", "1B0"], ["1F0", "0B0"]], "chunk 1 is on rank 0"),
        ([["0F0", "0F1", "0B0", "0B1"], ["1F1", "1B1", "1F0", "1B0"]], None),
        ([["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]], "Rank 0 waits for ever at 0B0: it needs 1B0"),
        ([["0F0", "0F1", "0B0", "0B1", "0U0"]], "either every micro-batch has one or none"),
    ],
)
def test_faults_are_sentences(rows, said):
    proof = Schedule.of(rows).prove()
    if said is None:
        assert proof and proof.require() is proof
        return
    with pytest.raises(InvalidSchedule, match=said):
        proof.require()
    assert not proof and "cannot be run" in str(proof)


def test_numbers_out_of_range_are_named():
    row = (Action("F", 0, 0), Action("B", 0, 0))
    faults = Schedule("x", 1, 1, (row, (Action("F", 3, 0), Action("F", 0, 7)))).prove().faults
    assert "only chunks 0 to 0" in faults[0] and "only micro-batches 0 to 0" in faults[1]
    assert "micro-batch 0 on chunk 1" in Schedule("x", 2, 1, (row,)).prove().faults[0]


def test_blocking_sends():
    # FACTS: 1F1B with blocking sends deadlocks for m >= 2, on paper and on gloo; fused it runs.
    for p in (2, 3, 4):
        assert one_f_one_b(p, 1).prove().survives_blocking_sends
        for m in (2, 4, 7):
            proof = one_f_one_b(p, m).prove()
            assert not proof.survives_blocking_sends and proof.survives_fused
            assert gpipe(p, m).prove().survives_blocking_sends
    stuck = one_f_one_b(2, 4).prove().blocking_deadlock
    assert stuck == (
        "rank 0 sends the activation of micro-batch 1 from chunk 0; "
        "rank 1 sends the gradient of micro-batch 0 from chunk 1"
    )
    assert "With blocking sends it deadlocks: rank 0 sends" in str(one_f_one_b(2, 4).prove())
    assert not interleaved(2, 4).prove().survives_fused


def test_memory_is_counted_to_the_weight_gradient():
    proof = Schedule.of([["0F0", "0F1", "0I0", "0F2", "0W0", "0I1", "0I2", "0W1", "0W2"]]).prove()
    assert (proof.in_flight, proof.in_flight_until_input) == ((3,), (2,))
