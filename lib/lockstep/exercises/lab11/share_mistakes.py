"""What goes wrong in exercise 11.5, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `share.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake


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


MISTAKES = (
    Mistake(
        "counts overlap twice",
        counts_transfers_twice,
        "Where two transfers move at the same time you count that time twice. The rank waits, or computes, only once "
        "meanwhile: put the transfers together first.",
    ),
    Mistake(
        "counts computation twice",
        counts_work_twice,
        "Where one computation lies within another, what it hides counts twice. A rank that computes hides what moves, "
        "however many spans say so.",
    ),
    Mistake(
        "the mean of the ranks' shares",
        mean_of_shares,
        "You take the mean of the shares of the ranks. A rank that hardly communicates would count as much as one that does "
        "nothing else: add up the seconds, then divide.",
    ),
    Mistake(
        "as a share of the computation",
        of_the_computation,
        "You divide by the seconds of computation. Asked is which share of the *communication* is hidden.",
    ),
    Mistake(
        "the exposed share",
        the_exposed_share,
        "That is what is not hidden. The share that is hidden is the rest.",
    ),
    Mistake("in percent", in_percent, "That is in percent. A share goes from 0 to 1."),
    Mistake(
        "as a share of the run",
        of_the_run,
        "You divide by the time of the whole run. Divide by the seconds in which something moves.",
    ),
    Mistake(
        "all ranks on one line",
        of_all_ranks_at_once,
        "You put the ranks' times together before you compare. A rank's transfers are hidden by its own computation, not by "
        "that of another rank.",
    ),
    Mistake("rank 0 alone", rank_0, "That is rank 0's share. All ranks count, together."),
    Mistake(
        "zero for nothing",
        zero_for_nothing,
        "When nothing moves, or nothing is hidden, there is a difference: a share of nothing is None, and none of something "
        "is 0.",
    ),
    Mistake(
        "divides by nothing",
        divides_by_nothing,
        "When nothing moves you divide by 0. Return None.",
    ),
    Mistake(
        "whole transfers",
        whole_transfers,
        "You count a transfer as hidden when some computation meets it. Only the part during which the rank computes is "
        "hidden.",
    ),
    Mistake(
        "hidden by one computation",
        hidden_by_one,
        "You stop at the first computation that meets a transfer. A long transfer may go on behind the next one.",
    ),
    Mistake(
        "takes the order for granted",
        unsorted,
        "You put neighbours in the list together. They come in any order: sort them first.",
    ),
    Mistake(
        "how many are hidden",
        many,
        "You count transfers. They are of unequal length: add up their seconds.",
    ),
    Mistake(
        "the hidden seconds",
        hidden_seconds,
        "Those are the hidden seconds. Divide by all seconds in which something moves.",
    ),
)
