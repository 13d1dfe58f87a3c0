"""Wrong functions for exercise 11.5, and by what one of them shows.

Floor 4, room `exercises`; what they are told is in `share_mistakes.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case
from lockstep.exercises.observe import Observation


def merged(pairs):
    found = []
    for a, b in sorted(pairs):
        if found and a <= found[-1][1]:
            found[-1] = (found[-1][0], max(b, found[-1][1]))
        else:
            found.append((a, b))
    return found


def seconds(pairs):
    return sum(b - a for a, b in pairs)


def shared(one, other):
    return [(max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) < min(b, d)]


def per_rank(computing, moving, works=merged, transfers=merged):
    """(hidden, moving, computing) seconds of each rank."""
    found = []
    for own, sent in zip(computing, moving, strict=True):
        own, sent = works(own), transfers(sent)
        found.append((seconds(shared(sent, own)), seconds(sent), seconds(own)))
    return found


def divided(found, of=1):
    hidden, whole = sum(one[0] for one in found), sum(one[of] for one in found)
    return hidden / whole if whole else None


def counts_transfers_twice(computing, moving):
    return divided(per_rank(computing, moving, transfers=list))


def counts_work_twice(computing, moving):
    return divided(per_rank(computing, moving, works=list))


def mean_of_shares(computing, moving):
    shares = [hidden / whole for hidden, whole, _ in per_rank(computing, moving) if whole]
    return sum(shares) / len(shares) if shares else None


def of_the_computation(computing, moving):
    found = per_rank(computing, moving)
    return divided(found, of=2) if any(one[1] for one in found) else None


def the_exposed_share(computing, moving):
    share = divided(per_rank(computing, moving))
    return None if share is None else 1 - share


def in_percent(computing, moving):
    share = divided(per_rank(computing, moving))
    return None if share is None else 100 * share


def of_the_run(computing, moving):
    found = per_rank(computing, moving)
    times = [time for ranks in (computing, moving) for own in ranks for pair in own for time in pair]
    whole = len(moving) * (max(times) - min(times))
    return sum(one[0] for one in found) / whole if any(one[1] for one in found) else None


def of_all_ranks_at_once(computing, moving):
    together = [[pair for own in ranks for pair in own] for ranks in (computing, moving)]
    return divided(per_rank([together[0]], [together[1]]))


def rank_0(computing, moving):
    return divided(per_rank(computing[:1], moving[:1]))


def zero_for_nothing(computing, moving):
    return divided(per_rank(computing, moving)) or 0.0


def divides_by_nothing(computing, moving):
    found = per_rank(computing, moving)
    return sum(one[0] for one in found) / sum(one[1] for one in found)


def whole_transfers(computing, moving):
    hidden = whole = 0
    for own, sent in zip(computing, moving, strict=True):
        for a, b in sent:
            whole += b - a
            hidden += (b - a) * any(max(a, c) < min(b, d) for c, d in own)
    return hidden / whole if whole else None


def hidden_by_one(computing, moving):
    """A transfer is hidden as far as the first computation hides it."""

    def first(one, other):
        parts = [shared([pair], other)[:1] for pair in one]
        return sum(seconds(part) for part in parts)

    hidden = sum(first(merged(sent), merged(own)) for own, sent in zip(computing, moving, strict=True))
    whole = sum(seconds(merged(sent)) for sent in moving)
    return hidden / whole if whole else None


def unsorted(computing, moving):
    def merged_as_it_comes(pairs):
        found = []
        for a, b in pairs:
            if found and a <= found[-1][1]:
                found[-1] = (found[-1][0], max(b, found[-1][1]))
            else:
                found.append((a, b))
        return found

    return divided(per_rank(computing, moving, merged_as_it_comes, merged_as_it_comes))


def many(computing, moving):
    hidden = sum(bool(shared([pair], own)) for own, sent in zip(computing, moving, strict=True) for pair in sent)
    count = sum(map(len, moving))
    return hidden / count if count else None


def hidden_seconds(computing, moving):
    found = per_rank(computing, moving)
    return sum(one[0] for one in found) if any(one[1] for one in found) else None


def none_if_one_moves_nothing(computing, moving):
    return divided(per_rank(computing, moving)) if all(moving) else None


def without_ranks_that_do_not_compute(computing, moving):
    return divided([one for one in per_rank(computing, moving) if one[2]])


def the_lesser_of_both(computing, moving):
    found = per_rank(computing, moving)
    works, whole = sum(one[2] for one in found), sum(one[1] for one in found)
    return min(works, whole) / whole if whole else None


def hidden_from_end_to_end(computing, moving):
    hidden = whole = 0
    for own, sent in zip(computing, moving, strict=True):
        for a, b in merged(sent):
            whole += b - a
            hidden += (b - a) * any(c <= a and b <= d for c, d in merged(own))
    return hidden / whole if whole else None


def ends_with_the_later(computing, moving):
    def joined(pairs):
        found = []
        for a, b in sorted(pairs):
            if found and a <= found[-1][1]:
                found[-1] = (found[-1][0], b)
            else:
                found.append((a, b))
        return found

    return divided(per_rank(computing, moving, joined, joined))


def on_a_grid(computing, moving, points=401):
    hidden = whole = 0.0
    for own, sent in zip(computing, moving, strict=True):
        last = max((b for _, b in (*own, *sent)), default=0)
        for k in range(points if sent else 0):
            at, step = last * k / (points - 1), last / (points - 1)
            moves, works = (any(a <= at < b for a, b in pairs) for pairs in (sent, own))
            whole, hidden = whole + step * moves, hidden + step * (moves and works)
    return hidden / whole if whole else None


def is_close(case: Case, seen: Observation, expected: Observation) -> bool:
    """Right to 2 %, and not to all digits, although every time is a multiple of a quarter of a second."""
    number = seen.value.item() if hasattr(seen.value, "item") else seen.value
    return isinstance(number, float) and expected.value is not None and abs(number - expected.value) < 0.02
