"""10.1 `quantize`: a gradient averaged with a byte for each number on the wire.

Floor 4, room `exercises`. What a right function returns is random, so it is judged by bounds: no number is further from the
mean than codes allow, and over many equal blocks the errors cancel, are those of whole codes, and do not go together. With
2 x 512 blocks on two ranks the mean error's variance is at most 3/8 square steps for each block, also for who rounds a second time; by Bernstein's inequality a right function is
off by 0.15 steps in fewer than one of 10^9 checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab10.quantize_mistakes import MISTAKES
from lockstep.exercises.lab10.quantize_symptoms import (
    MOST_OFF,
    bias_of,
    errors_of,
    least_bytes,
    means_of,
    sends_too_little,
    steps_of,
)
from lockstep.exercises.lab10.results import same_shape
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import short

BLOCKS = 512  # equal ones, of the case that shows a bias
LEAST_BIAS = 0.15  # steps
PATTERN = ((127, 30.3, 17.7, -0.8, 31, -127), (127, 64.3, -50.3, 0.2, 65, -127))  # a block in steps, by rank
WHOLE = 4  # the place of the pattern whose numbers are codes, as is their mean: nobody with 127 codes rounds it
MOST_COARSE = 0.3  # square steps at that place: 0.11 with 126 codes, 0.43 with 63
MOST_ALIKE = 0.3  # correlation of two places; independent ones stay below 0.2 but in one of 10^9 checks


def quantize(comm, g, block):
    rows = F.pad(g, (0, -len(g) % block)).view(-1, block)
    scales = rows.abs().amax(1, keepdim=True) / 127
    steps = (rows / scales).nan_to_num()
    codes = torch.floor(steps + torch.rand_like(steps)).clamp(-127, 127).to(torch.int8)
    codes, scales = comm.all_gather(codes), comm.all_gather(scales)
    return (codes * scales).view(comm.size, -1).mean(0)[: len(g)]


def with_numpy(comm, g, block):
    """Unpadded, with a generator of its own, and what is random decides where to round."""
    numbers, n = g.numpy(), len(g)
    scales = np.maximum.reduceat(np.abs(numbers), range(0, n, block)).clip(1e-30) / 127
    steps = numbers / scales.repeat(block)[:n]
    down = np.floor(steps)
    up = np.random.default_rng(int(torch.randint(2**31, ()))).random(n) < steps - down
    codes = torch.from_numpy(np.clip(down + up, -127, 127).astype(np.int8))
    total = torch.zeros(n)
    everyones = comm.all_gather(torch.from_numpy(scales)).split(len(scales))
    for code, scale in zip(comm.all_gather(codes).split(n), everyones, strict=True):
        total += code.float() * scale.repeat_interleave(block)[:n]
    return total / comm.size


def through_owners(comm, g, block):
    """Each rank averages some blocks in float32, and sends their mean as codes: two roundings, fewer bytes on many ranks."""

    def encode(rows):
        scales = rows.abs().max(1).values.clamp(min=1e-30)
        codes = 127 * rows / scales[:, None]
        codes = codes.trunc() + codes.sign() * torch.bernoulli(codes.frac().abs())
        return codes.clamp(-127, 127).to(torch.int8), scales

    blocks = -(-len(g) // block)
    rows = torch.zeros(blocks * block)
    rows[: len(g)] = g
    rows = rows.view(blocks, block)
    mine = [len(part) for part in torch.arange(blocks).tensor_split(comm.size)]
    own = mine[comm.rank]
    codes, scales = encode(rows)
    codes = comm.all_to_all(codes, mine, [own] * comm.size).view(comm.size, own, block)
    scales = comm.all_to_all(scales, mine, [own] * comm.size).view(comm.size, own, 1)
    codes, scales = encode((codes * scales / 127).mean(0)) if own else (codes[0], scales[0, :, 0])
    codes, scales = comm.all_gather(codes, mine), comm.all_gather(scales, mine)
    return (codes * scales[:, None] / 127).flatten()[: len(g)]


def quantize_stub(comm, g, block):
    raise NotImplementedError("the mean over ranks, sent as int8")


def twice(fn: Callable[..., Any], comm: Communicator, g: Tensor, block: int) -> dict[str, Any]:
    """What it returns, where blocks are many also when it is called again; the bytes of the first call, `g` afterwards."""
    own, before = g.clone(), comm.traffic.bytes_sent
    first = fn(comm, own, block)
    sent = comm.traffic.bytes_sent - before
    first = first.clone() if isinstance(first, Tensor) else first
    again = fn(comm, g.clone(), block) if len(g) > BLOCKS else first
    return {"mean": first, "sent": sent, "kept": bool(torch.equal(own, g)), "again": again}


def a_tensor_on_all_ranks(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    n = len(case.each[0][0])
    found = same_shape(seen, n) or same_shape(seen, n, key="again")
    if found is not None:
        return found
    largest = max(own[0].abs().max().item() for own in case.each)
    for rank, one in enumerate(seen.value):
        if not torch.allclose(one["mean"], seen.value[0]["mean"], 1e-5, 1e-6 * largest):  # in any order of adding
            said = f"Ranks 0 and {rank} return different numbers; after an average all ranks have the same."
            got = [o["mean"] for o in seen.value]
            return Finding(said, short(seen.value[0]["mean"]), short(one["mean"]), ("apart", got))
        if not one["kept"]:
            said = f"Rank {rank}'s `g` has changed. Return the mean as a new tensor."
            return Finding(said, "`g` as it was", "other numbers", ("kept", [o["kept"] for o in seen.value]))
    return None


def within_two_steps(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """No number is off by more than two steps: one for each rounding."""
    gradients = torch.stack([own[0] for own in case.each])
    mean, step = gradients.mean(0), steps_of(gradients, *case.args).mean(0)
    for key in ("mean", "again"):
        got = seen.value[0][key]
        off = (got - mean).abs() - MOST_OFF * step
        if (off > 1e-5 * mean.abs() + 1e-12).any():
            at = int((off / (step + 1e-12)).argmax())
            said = (
                f"Number {at} is {short(got[at].item())} and the mean is {short(mean[at].item())}: off by "
                f"{short(((got - mean)[at] / step[at]).abs().item())} steps of its block's codes, where rounding is off by "
                "less than one."
            )
            return Finding(said, short(mean), short(got), ("off", [o[key] for o in seen.value]))
    return None


def nothing_lost_on_average(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Of the case with many equal blocks: the mean error of each place of a block, in steps."""
    if case.each[0][0].numel() < BLOCKS:
        return None
    bias = bias_of(case, seen)
    at = int(bias.abs().argmax())
    if abs(bias[at]) <= LEAST_BIAS:
        return None
    right, means = torch.stack([own[0][: case.args[0]] for own in case.each]).mean(0), means_of(case, seen).float()
    said = (
        f"Each number is right to within a step, but over {2 * BLOCKS:,} equal blocks the mean of number {at} of a block is off "
        f"by {short(bias[at].item())} steps; rounding at random would be off by less than {LEAST_BIAS}."
    )
    return Finding(said, short(right), short(means), ("bias", bias.round(decimals=1)))


def draws_for_each_number_anew(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Of the case with many equal blocks: errors of one call, one block and half of the codes."""
    if case.each[0][0].numel() < BLOCKS:
        return None
    one = seen.value[0]
    if torch.equal(one["mean"], one["again"]):
        said = (
            "Called again with the same numbers, your function rounds each of them the same way. A gradient that comes again would "
            "have the same error again: the random numbers have to be others at each call."
        )
        return Finding(said, "another rounding", "the same rounding", ("again",))
    off = errors_of(case, seen)
    coarse = off[:, WHOLE].square().mean().item()
    if coarse > MOST_COARSE:
        said = (
            f"Over many blocks, numbers that are whole steps of 1/127 of their block's largest are off by {coarse**0.5:.2f} steps; "
            "they are codes, and need no rounding."
        )
        return Finding(said, "no error", f"{coarse**0.5:.2f} steps", ("coarse", round(coarse, 1)))
    alike = torch.corrcoef(off[:, 1:4].T).fill_diagonal_(0).max().item()
    if alike > MOST_ALIKE:
        said = f"Errors within a block go together: their correlation is {alike:.2f}, where that of independent ones is about 0."
        return Finding(said, "about 0", f"{alike:.2f}", ("alike",))
    return None


def sends_bytes(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Those of the reference, which pads the last block, and a few more; between two ranks whatever way is taken no fewer."""
    for rank, (one, right) in enumerate(zip(seen.value, expected.value, strict=True)):
        if one["sent"] > right["sent"] + 16 * case.ranks:
            said = (
                f"The numbers are right, but rank {rank} sends {one['sent']:,} bytes where {right['sent']:,} are enough: a byte "
                "for each number, and four for each block."
            )
            got = [o["sent"] for o in seen.value]
            return Finding(said, f"{right['sent']:,} bytes", f"{one['sent']:,} bytes", ("sent", got))
    got, least = [one["sent"] for one in seen.value], least_bytes(case)
    if sends_too_little(case, seen, expected):
        said = (
            f"The two ranks send {sum(got):,} bytes together. A byte for each number and four for each block, a float32 scale, are "
            f"{least:,}."
        )
        return Finding(said, f"{least:,} bytes", f"{sum(got):,} bytes", ("sent", got))
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    gradients = [torch.tensor(rng.uniform(-1, 1, 11), dtype=torch.float32) * 4**r for r in range(3)]
    for g in gradients:
        g[:4:3] = g.abs().max() * torch.tensor([0.9, 1])  # so that sums of codes would wrap
        g[4:8] *= 1e-3
        g[6] = -1.2 * g[4:8].abs().max()
    gradients[1][8:] = 0
    yield on_ranks(3, 4, each=[(g,) for g in gradients], name="11 numbers in blocks of 4, of unlike size, one of zeros")
    scale, block = 2.0 ** int(rng.integers(-3, 3)), len(PATTERN[0])
    each = [(torch.tensor(steps * BLOCKS)[:-1] * scale / 127,) for steps in PATTERN]
    yield on_ranks(2, block, each=each, name=f"{BLOCKS} blocks of the same {block} numbers")


OBSERVE = Simulate(twice)
JUDGE = all_of(
    a_tensor_on_all_ranks, within_two_steps, nothing_lost_on_average, draws_for_each_number_anew, sends_bytes
)

QUANTIZE = Exercise(
    id="10.1",
    title="A byte for each number",
    function="quantize",
    points=3,
    asks=(
        "Average `g` over the ranks with a byte for each number on the wire: codes of int8, and a float32 scale for each `block` "
        "of neighbouring numbers (the last block may be shorter): its largest magnitude over 127. Round each number at random to "
        "one of its two neighbouring codes, so that on average nothing is lost; draw for each number, and anew at each call. "
        "Return the mean as a new float32 tensor, the same on every rank."
    ),
    reference=quantize,
    also_right=(with_numpy, through_owners),
    stub=quantize_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(
        # Two codes fewer are as good. A code of 128 or more is only met by a scale that was rounded down.
        "line 3: scales = rows.abs().amax(1, keepdim=True) / 127 -> scales = rows.abs().amax(1, keepdim=True) / 126",
        "line 5: codes = torch.floor(steps + torch.rand_like(steps)).clamp(-127, 127).to(torch.int8) -> codes = torch.floor(steps + torch.rand_like(steps)).clamp(-128, 127).to(torch.int8)",
        "line 5: codes = torch.floor(steps + torch.rand_like(steps)).clamp(-127, 127).to(torch.int8) -> codes = torch.floor(steps + torch.rand_like(steps)).clamp(-127, 128).to(torch.int8)",
    ),
    hints=(
        "A block's scale is its largest magnitude over 127. A number is then some steps of that scale: 30.3, say. How often has it "
        "to become 31, so that it is 30.3 on average?",
        "A random number from 0 to 1 is below 0.3 in three of ten cases: `torch.floor(steps + torch.rand_like(steps))`.",
        "Codes of two ranks are steps of different length, and 100 + 100 does not fit into int8: no codes are added. Gather codes "
        "and scales, multiply, and average what comes out.",
        "`comm.all_gather(codes)` joins rows [blocks, block] of all ranks; with scales [blocks, 1] it is `codes * scales`, and "
        "`.view(comm.size, -1).mean(0)` averages.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
