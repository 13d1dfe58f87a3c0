"""How a fault in exercise 10.1 shows although what is returned is random.

Floor 4, room `exercises`; the exercise is in `quantize.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Symptom
from lockstep.exercises.observe import Observation

SLACK = 32  # bytes
MOST_OFF = 2.001  # steps: one for each rounding of who rounds twice


def steps_of(gradients: Tensor, block: int) -> Tensor:
    """For each number of [ranks, n] the step of its block's codes."""
    n = gradients.shape[1]
    rows = F.pad(gradients, (0, -n % block)).view(len(gradients), -1, block)
    return (rows.abs().amax(2) / 127).repeat_interleave(block, 1)[:, :n]


def tensor_steps(gradients: Tensor, block: int) -> Tensor:
    """The same, with one scale for each rank's whole tensor."""
    return steps_of(gradients, gradients.shape[1])


def bias_of(case: Case, seen: Observation, *keys: str) -> Tensor:
    """Of the case with equal blocks: the mean error of each place of a block, in steps of the mean's codes."""
    gradients = torch.stack([own[0] for own in case.each])
    block = case.args[0]
    right, step = gradients[:, :block].mean(0), steps_of(gradients, block)[:, :block].mean(0)
    return ((means_of(case, seen, *keys) - right) / step).float()


def means_of(case: Case, seen: Observation, *keys: str) -> Tensor:
    """Over all whole blocks, and both calls: the mean of each place of a block."""
    return blocks_of(case, seen, *keys).mean(0)


def blocks_of(case: Case, seen: Observation, *keys: str) -> Tensor:
    """All whole blocks of what both calls returned, a row each."""
    block = case.args[0]
    whole = len(case.each[0][0]) // block * block
    return torch.cat([seen.value[0][key][:whole].view(-1, block) for key in keys or ("mean", "again")]).double()


def errors_of(case: Case, seen: Observation) -> Tensor:
    """Of the case with equal blocks: the error of each number, a block in a row, in steps of the mean's codes."""
    gradients = torch.stack([own[0] for own in case.each])[:, : case.args[0]]
    return (blocks_of(case, seen) - gradients.mean(0)) / steps_of(gradients, case.args[0]).mean(0)


def wrapped(sums: Tensor) -> Tensor:
    """Sums as int8 would hold them."""
    return (sums + 128) % 256 - 128


def looks_like(
    centre: Callable[[Tensor, int, int], Tensor], steps: Callable[[Tensor, int], Tensor] = steps_of
) -> Symptom:
    """Nearly all numbers of every rank lie within rounding of `centre(gradients, block, rank)`, and some far from the mean."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None or any(not _comparable(case, one["mean"]) for one in seen.value):
            return False
        gradients = torch.stack([own[0] for own in case.each])
        widest = MOST_OFF * steps(gradients, *case.args).amax(0) + 1e-6
        for rank, one in enumerate(seen.value):
            off = (one["mean"] - centre(gradients, case.args[0], rank)).abs()
            if (off <= widest).float().mean() < 0.9:
                return False
        right, step = gradients.mean(0), steps_of(gradients, *case.args).mean(0)
        return any(((one["mean"] - right).abs() > 10 * step).any() for one in seen.value)

    return symptom


def _comparable(case: Case, got: object) -> bool:
    return isinstance(got, Tensor) and got.shape == case.each[0][0].shape


def apart_by_rounding(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank returns about the mean, and none what another returns."""
    if seen.error is not None or any(not _comparable(case, one["mean"]) for one in seen.value):
        return False
    gradients = torch.stack([own[0] for own in case.each])
    right, most = gradients.mean(0), MOST_OFF * steps_of(gradients, *case.args).mean(0) + 1e-6
    first = seen.value[0]["mean"]
    near = all(((one["mean"] - right).abs() <= most).all() for one in seen.value)
    return near and any(not torch.allclose(one["mean"], first, 1e-5, 1e-5) for one in seen.value)


def differs_from_call_to_call(case: Case, seen: Observation, expected: Observation) -> bool:
    """Many equal blocks are off alike, and by something else the next time."""
    if seen.error is not None or len(case.each[0][0]) < 1000:
        return False
    first, again = bias_of(case, seen, "mean"), bias_of(case, seen, "again")
    return bool(((first - again).abs() > 0.2).any())


def sends_too_little(case: Case, seen: Observation, expected: Observation) -> bool:
    """Two ranks return what is right, and less than a byte for each number and four for each block went round."""
    if seen.error is not None or case.ranks != 2:
        return False
    return sum(one["sent"] for one in seen.value) < least_bytes(case) - SLACK


def least_bytes(case: Case) -> int:
    """That two ranks send together, whatever way is taken."""
    n = len(case.each[0][0])
    return 2 * (n + 4 * -(-n // case.args[0]))


# Legend of the centres: x codes before rounding, s steps, by rank; p ranks.
def codes(gradients: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(x, s) of each number."""
    s = steps_of(gradients, block)
    return (gradients / s).nan_to_num(), s


def sum_of_all(gradients: Tensor, block: int, rank: int) -> Tensor:
    return gradients.sum(0)


def mean_of_all(gradients: Tensor, block: int, rank: int) -> Tensor:
    return gradients.mean(0)


def whole_scales(gradients: Tensor, block: int, rank: int) -> Tensor:
    return 127 * gradients.mean(0)


def own_scales(gradients: Tensor, block: int, rank: int) -> Tensor:
    x, s = codes(gradients, block)
    return x.mean(0) * s[rank]


def mean_scales(gradients: Tensor, block: int, rank: int) -> Tensor:
    x, s = codes(gradients, block)
    return x.mean(0) * s.mean(0)


def wrapped_at_own_scales(gradients: Tensor, block: int, rank: int) -> Tensor:
    x, s = codes(gradients, block)
    return wrapped(x.sum(0)) * s[rank] / len(x)


def wrapped_at_one_scale(gradients: Tensor, block: int, rank: int) -> Tensor:
    s = steps_of(gradients, block).amax(0)
    return wrapped((gradients / s).nan_to_num().sum(0)) * s / len(gradients)


def wrapped_at_mean_scales(gradients: Tensor, block: int, rank: int) -> Tensor:
    x, s = codes(gradients, block)
    return wrapped(x.sum(0)) * s.mean(0) / len(x)


def own_alone(gradients: Tensor, block: int, rank: int) -> Tensor:
    return gradients[rank]


def any_of(*symptoms: Symptom) -> Symptom:
    """One mistake that is written in several ways."""
    return lambda case, seen, expected: any(one(case, seen, expected) for one in symptoms)


def in_so_many_blocks(case: Case, seen: Observation, expected: Observation) -> bool:
    """Right for blocks of another length."""
    n, block = len(case.each[0][0]), case.args[0]
    return n != block**2 and looks_like(mean_of_all, lambda g, _: steps_of(g, -(-n // block)))(case, seen, expected)
