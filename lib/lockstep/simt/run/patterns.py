"""What one request of a warp costs: sectors of global memory, conflicts between banks, contention of atomics.

Floor 0. A request is one access by a warp's active lanes. Addresses come as rows of 32 lanes; inactive lanes do not
count. Most warps of a launch make the same pattern, so rows are first reduced to the distinct ones.

    global    32-byte sectors touched by the warp            consecutive float32: 4; a stride of 32 elements: 32
    shared    32 banks of 4 bytes; the most distinct words in one bank are the ways of a conflict, 1 being none
              8-byte elements are served half a warp at a time
"""

from __future__ import annotations

import numpy as np

from lockstep.simt.places import WARP

SECTOR = 32
BANKS = 32
BANK_BYTES = 4
FAR = np.int64(2**62)  # stands for an inactive lane, after every address


def distinct_rows(addresses: np.ndarray, active: np.ndarray, period: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, how many warps each stands for): addresses relative to the row's first period, FAR where inactive.

    Patterns that differ by a multiple of `period` elements cost the same. Warps without an active lane are left out.
    """
    rows = addresses.reshape(-1, WARP)
    if active is None:
        lowest = rows.min(axis=1, keepdims=True)
        rows = rows - lowest // period * period
    else:
        active = active.reshape(-1, WARP)
        here = active.any(axis=1)
        rows, active = rows[here], active[here]
        rows = np.where(active, rows, FAR)
        lowest = rows.min(axis=1, keepdims=True, initial=FAR)
        rows = np.where(active, rows - lowest // period * period, FAR)
    if len(rows) > 1 and (rows == rows[0]).all():
        return rows[:1], np.array([len(rows)])
    if len(rows) > 64:
        keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.dtype.itemsize * WARP))).ravel()
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        return rows[first], counts
    return rows, np.ones(len(rows), dtype=np.int64)


def sectors(rows: np.ndarray, itemsize: int) -> np.ndarray:
    """Distinct 32-byte sectors in each row of element addresses."""
    return _distinct(np.where(rows == FAR, FAR, rows * itemsize // SECTOR))


def bank_ways(rows: np.ndarray, itemsize: int) -> np.ndarray:
    """For each row, the most distinct 4-byte words that fall into one bank: how often the request is replayed."""
    if itemsize > BANK_BYTES:
        # An 8-byte access is two words a lane, served in two halves of the warp, each without a conflict at best.
        halves = rows.reshape(len(rows), 2, WARP // 2)
        words = np.concatenate([halves * 2, halves * 2 + 1], axis=2)
        words = np.where(np.concatenate([halves, halves], axis=2) == FAR, FAR, words)
        return np.maximum(_worst(words[:, 0]), _worst(words[:, 1]))
    return _worst(np.where(rows == FAR, FAR, rows * itemsize // BANK_BYTES))


def contention(rows: np.ndarray) -> np.ndarray:
    """For each row, the most lanes that meet on one address."""
    ordered = np.sort(rows, axis=1)
    worst = np.ones(len(rows), dtype=np.int64)
    run = np.ones(len(rows), dtype=np.int64)
    for at in range(1, WARP):
        same = (ordered[:, at] == ordered[:, at - 1]) & (ordered[:, at] != FAR)
        run = np.where(same, run + 1, 1)
        worst = np.maximum(worst, run)
    return worst


def _distinct(values: np.ndarray) -> np.ndarray:
    ordered = np.sort(values, axis=1)
    fresh = (ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] != FAR)
    return fresh.sum(axis=1) + (ordered[:, 0] != FAR)


def _worst(words: np.ndarray) -> np.ndarray:
    bank = words % BANKS
    ordered = np.sort(np.where(words == FAR, FAR, bank * (FAR // BANKS) + words), axis=1)
    fresh = np.ones(ordered.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    fresh &= ordered != FAR
    row, column = np.nonzero(fresh)
    bank = np.minimum(ordered[row, column] // (FAR // BANKS), BANKS - 1)
    counts = np.bincount(row * BANKS + bank, minlength=len(words) * BANKS)
    return counts.reshape(len(words), BANKS).max(axis=1, initial=0)
