"""04.5 `tree_broadcast`: one rank's tensor to all, in as few steps as can be.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Exercise, Mistake, Symptom
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab04.steps import (
    NETWORK,
    NO_SUCH_RANK,
    counted,
    deadlocked,
    numbers,
    on_network,
    same_in_place,
)
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.symptoms import raises, says


def tree_broadcast(comm, tensor, src):
    p, place = comm.size, (comm.rank - src) % comm.size
    for level in range((p - 1).bit_length()):
        have = 2**level
        if place < have and place + have < p:
            comm.send(tensor, (comm.rank + have) % p)
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % p)


def halving_the_ranks(comm, tensor, src):
    """The far half first: whoever has the tensor looks after a range of ranks, and hands half of it on."""
    low, high = 0, comm.size
    place = (comm.rank - src) % comm.size
    while high - low > 1:
        middle = low + (high - low + 1) // 2
        if place == low:
            comm.isend(tensor, (middle + src) % comm.size).wait()
        elif place == middle:
            comm.irecv(tensor, (low + src) % comm.size).wait()
        low, high = (low, middle) if place < middle else (middle, high)


def by_the_bits_of_the_place(comm, tensor, src):
    place = comm.rank - src if comm.rank >= src else comm.rank - src + comm.size
    highest = place.bit_length()
    if place:
        parent = place - (1 << (highest - 1))
        comm.recv(tensor, (parent + src) % comm.size)
    for bit in range(highest, comm.size.bit_length()):
        child = place + (1 << bit)
        if child < comm.size:
            comm.send(tensor, (child + src) % comm.size)
    return tensor


def tree_broadcast_stub(comm, tensor, src):
    raise NotImplementedError("give the tensor of rank `src` to all ranks")


def sends_to_everyone(comm, tensor, src):
    if comm.rank == src:
        for other in range(comm.size):
            if other != src:
                comm.send(tensor, other)
    else:
        comm.recv(tensor, src)


def passes_it_along(comm, tensor, src):
    p, place = comm.size, (comm.rank - src) % comm.size
    if place > 0:
        comm.recv(tensor, (comm.rank - 1) % p)
    if place + 1 < p:
        comm.send(tensor, (comm.rank + 1) % p)


def passes_it_to_two_others(comm, tensor, src):
    place = (comm.rank - src) % comm.size
    if place > 0:
        comm.recv(tensor, ((place - 1) // 2 + src) % comm.size)
    for child in (2 * place + 1, 2 * place + 2):
        if child < comm.size:
            comm.send(tensor, (child + src) % comm.size)


def assumes_a_power_of_two(comm, tensor, src):
    place, have = (comm.rank - src) % comm.size, 1
    while have < comm.size:
        if place < have:
            comm.send(tensor, (comm.rank + have) % comm.size)
        elif place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % comm.size)
        have *= 2


def sends_beyond_the_last_rank(comm, tensor, src):
    place, have = (comm.rank - src) % comm.size, 1
    while have < comm.size:
        if place < have:
            comm.send(tensor, place + have + src)
        elif place < 2 * have:
            comm.recv(tensor, place - have + src)
        have *= 2


def always_from_rank_0(comm, tensor, src):
    have = 1
    while have < comm.size:
        if comm.rank < have and comm.rank + have < comm.size:
            comm.send(tensor, comm.rank + have)
        elif have <= comm.rank < 2 * have:
            comm.recv(tensor, comm.rank - have)
        have *= 2


def stops_one_level_early(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while 2 * have < p:
        if place < have and place + have < p:
            comm.send(tensor, (comm.rank + have) % p)
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % p)
        have *= 2


def only_the_source_sends(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while have < p:
        if place == 0:
            comm.send(tensor, (comm.rank + have) % p)
        elif place == have:
            comm.recv(tensor, src)
        have *= 2


def only_the_source_takes_part(comm, tensor, src):
    if comm.rank == src:
        for other in range(comm.size):
            if other != src:
                comm.send(tensor, other)


def receives_before_it_can(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while have < p:
        partner = (comm.rank + have) % p if place < have else (comm.rank - have) % p
        if place < 2 * have:
            comm.recv(tensor, partner)
        have *= 2


def starts_its_sends_together(comm, tensor, src):
    p, place, have, handles = comm.size, (comm.rank - src) % comm.size, 1, []
    while have < p:
        if place < have and place + have < p:
            handles.append(comm.isend(tensor, (comm.rank + have) % p))
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % p)
        have *= 2
    for handle in handles:
        handle.wait()


def never_waits(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while have < p:
        if place < have and place + have < p:
            comm.isend(tensor, (comm.rank + have) % p)
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % p)
        have *= 2


def takes_a_place_for_a_rank(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while have < p:
        if place < have and place + have < p:
            comm.send(tensor, place + have)
        elif have <= place < 2 * have:
            comm.recv(tensor, place - have)
        have *= 2


def not_in_place(comm, tensor, src):
    own = tensor.clone()
    tree_broadcast(comm, own, src)
    return own


def _levels(case: Case) -> int:
    return (case.ranks - 1).bit_length()


def few_levels(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The last rank has the tensor after ceil(lg p) messages one after another."""
    one = NETWORK.seconds(case.each[0][0].nbytes)
    got, want = round(seen.seconds / one, 2), _levels(case)
    if got <= want + 0.01:
        return None
    return Finding(
        f"The numbers are right, but the last rank has them after {got:g} messages one after the other; with "
        f"{case.ranks} ranks {want} {'is' if want == 1 else 'are'} enough.",
        f"{want} message times",
        f"{got:g} message times",
        ("levels", got, [one.messages_sent for one in seen.traffic]),
    )


def few_messages(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """p - 1 messages in all: every rank but the source receives the tensor once."""
    got, want = sum(one.messages_sent for one in seen.traffic), case.ranks - 1
    if got <= want:
        return None
    sentence = f"The numbers are right, but there are {got} messages; {want} would do, one to each rank but the source."
    return Finding(sentence, f"{want} messages in all", str(got), ("messages", [t.messages_sent for t in seen.traffic]))


def right_numbers(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank holds what it should."""
    return seen.error is None and alike(seen.arguments, expected.arguments)


def the_root_does_it_all(case: Case, seen: Observation, expected: Observation) -> bool:
    """Right, but every message leaves from the source."""
    most = max(t.messages_sent for t in seen.traffic) if seen.traffic else 0
    return right_numbers(case, seen, expected) and case.ranks > 3 and most == case.ranks - 1


def as_a_chain(case: Case, seen: Observation, expected: Observation) -> bool:
    """Right, but nobody sends more than once."""
    return right_numbers(case, seen, expected) and max(t.messages_sent for t in seen.traffic) <= 1


def as_a_heap(case: Case, seen: Observation, expected: Observation) -> bool:
    """Right, but nobody sends more than twice, and no order of the sends would make that fast enough."""
    most = max(t.messages_sent for t in seen.traffic) if seen.traffic else 0
    return right_numbers(case, seen, expected) and most == 2 and not along_a_good_tree(case, seen, expected)


def along_a_good_tree(case: Case, seen: Observation, expected: Observation) -> bool:
    """Right, and sent along a tree that is fast enough if every rank sends one after the other in a good order."""

    def levels(rank: int) -> int:
        below = sorted(map(levels, seen.traffic[rank].sent_to), reverse=True)
        return max((i + 1 + deep for i, deep in enumerate(below)), default=0)

    is_tree = sum(t.messages_sent for t in seen.traffic) == case.ranks - 1
    return is_tree and right_numbers(case, seen, expected) and levels(case.args[0]) <= _levels(case)


def holds_rank_0s(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank ends with the numbers of rank 0, which is not the source."""
    return seen.error is None and case.args[0] != 0 and all(alike(one[0], case.each[0][0]) for one in seen.arguments)


SENDS_TO_NOBODY: Symptom = deadlocked("send")


def broadcast_cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = int(rng.integers(1, 8))
    for ranks, n, src in ((1, 3, 0), (2, 3, 0), (2, 2, 1), (3, 5, 0), (4, 6, 2), (5, 0, 1), (6, 4, 5), (8, 7, drawn)):
        each = [(numbers(rng, n),) for _ in range(ranks)]
        yield on_network(ranks, src, each=each, name=f"{counted(n)}, from rank {src}")


BROADCAST = Exercise(
    id="04.5",
    title="Tree broadcast",
    function="tree_broadcast",
    points=2,
    asks=(
        "Every rank hands in a tensor of the same shape. Afterwards all of them hold what rank `src` handed in, in "
        "place. With p ranks there are p - 1 messages in all, and the last rank has the tensor after log2 p levels, "
        "rounded up."
    ),
    reference=tree_broadcast,
    also_right=(halving_the_ranks, by_the_bits_of_the_place),
    stub=tree_broadcast_stub,
    cases=broadcast_cases,
    observe=Simulate(),
    judge=all_of(same_in_place(0, "tensor"), few_messages, few_levels),
    forbidden=("comm.broadcast", "comm.all_reduce", "comm.all_gather", "comm.scatter", "comm.reduce"),
    equivalent_mutants=(  # further levels, in which no rank has anybody to send to
        "line 3: for level in range((p - 1).bit_length()): -> for level in range((p + 1).bit_length()):",
        "line 3: for level in range((p - 1).bit_length()): -> for level in range((p - 0).bit_length()):",
    ),
    core=False,
    hints=(
        (
            "After one message two ranks have the tensor. If both send it on at the same time, how many have it after "
            "the second? And after the third?"
        ),
        (
            "Count the ranks from the source: a rank's place is its number less `src`, modulo p. While the first `have` "
            "places have the tensor, the rank at place i can send to place i + have."
        ),
        (
            "At each level a rank either sends (its place is below `have`, and place + have exists), or receives (its "
            "place is from `have` to below 2 * have), or does nothing. Then `have` doubles."
        ),
    ),
    mistakes=(
        Mistake(
            "the source sends to everyone",
            sends_to_everyone,
            "The numbers are right, but the source sends every message itself, one after the other. Whoever has the "
            "tensor can help to spread it.",
            symptom=the_root_does_it_all,
        ),
        Mistake(
            "a chain",
            passes_it_along,
            "The numbers are right, but each rank passes the tensor on to one other, so the last one waits for all "
            "before it. A rank that has the tensor can send it again and again, to a new rank each time.",
            symptom=as_a_chain,
        ),
        Mistake(
            "each rank sends to two others only",
            passes_it_to_two_others,
            "The numbers are right, but each rank passes the tensor to two others and then stops, while the levels below "
            "are still at work. Whoever has the tensor goes on at every level, each time to a new rank.",
            symptom=as_a_heap,
        ),
        Mistake(
            "starts its sends together",
            starts_its_sends_together,
            "Your tree is right, but not the time of its messages. Sends that a rank starts together share its link, and "
            "who has most to pass on may be served last. Wait for each send before the next one starts, and begin with "
            "the rank that has most others behind it.",
            symptom=along_a_good_tree,
        ),
        Mistake(
            "a handle that nobody waits for",
            never_waits,
            "You return while a message may still be on its way. Keep the handle that `isend` or `irecv` gives, and "
            "`wait()` for it: for an `irecv` before you pass the tensor on, for an `isend` before the next one.",
            symptom=raises("NeverWaited"),
        ),
        Mistake(
            "takes a place for a rank",
            takes_a_place_for_a_rank,
            "A rank is to send to itself, because places and ranks are mixed up. A place is counted from the source, and "
            "`send` and `recv` want ranks: turn it back into a rank, `(place + src) % comm.size`. What has been computed "
            "from `comm.rank` is a rank already, and gets no `src` added.",
            symptom=says("has itself as"),
        ),
        Mistake(
            "assumes a power of two",
            assumes_a_power_of_two,
            "At the last level some ranks send to a rank that has the tensor already, since the number wraps around. "
            "When the number of ranks is no power of two, the last level is not full: send only where there is a rank.",
            symptom=SENDS_TO_NOBODY,
        ),
        Mistake(
            "sends beyond the last rank",
            sends_beyond_the_last_rank,
            "You send to a rank that does not exist. Count places from the source, and take the result modulo the "
            "number of ranks; at a level that is not full, somebody has nobody to send to.",
            symptom=NO_SUCH_RANK,
        ),
        Mistake(
            "always from rank 0",
            always_from_rank_0,
            "Your tree grows from rank 0, whatever `src` is. Count the ranks from the source.",
            symptom=holds_rank_0s,
        ),
        Mistake(
            "stops one level early",
            stops_one_level_early,
            "Some ranks never get the tensor: the last level is missing. Go on until as many have it as there are ranks.",
        ),
        Mistake(
            "only the source sends",
            only_the_source_sends,
            "You double the distance, but only the source sends, so the ranks in between get nothing. At each level "
            "every rank that has the tensor sends.",
        ),
        Mistake(
            "nobody receives",
            only_the_source_takes_part,
            "The source sends and nobody receives, because the call stands inside `if comm.rank == src`. A message has "
            "two sides: the others have to call `recv`.",
        ),
        Mistake(
            "nobody sends",
            receives_before_it_can,
            "Your ranks only receive. At each level decide which side a rank is on: those that have the tensor send.",
            symptom=deadlocked("recv"),
        ),
        Mistake(
            "not in place",
            not_in_place,
            "The tensor arrives in a copy. The one that was handed in has to hold it.",
        ),
    ),
)
