"""04.1 `exchange`: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `exchange.py`.
"""

from __future__ import annotations

from typing import Any

import torch

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab04.steps import NO_SUCH_RANK, PAIR_FOR_LIST, all_deadlocked, deadlocked
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import raises, says


def both_send_first(comm, outgoing, incoming):
    comm.send(outgoing, (comm.rank + 1) % comm.size)
    comm.recv(incoming, (comm.rank - 1) % comm.size)


def both_receive_first(comm, outgoing, incoming):
    comm.recv(incoming, (comm.rank - 1) % comm.size)
    comm.send(outgoing, (comm.rank + 1) % comm.size)


def waits_at_once(comm, outgoing, incoming):
    comm.isend(outgoing, (comm.rank + 1) % comm.size).wait()
    comm.recv(incoming, (comm.rank - 1) % comm.size)


def sends_to_the_left(comm, outgoing, incoming):
    sending = comm.isend(outgoing, (comm.rank - 1) % comm.size)
    comm.recv(incoming, (comm.rank + 1) % comm.size)
    sending.wait()


def receives_from_the_right(comm, outgoing, incoming):
    right = (comm.rank + 1) % comm.size
    comm.exchange([(outgoing, right)], [(incoming, right)])


def leaves_the_ring_open(comm, outgoing, incoming):
    sending = comm.isend(outgoing, comm.rank + 1) if comm.rank + 1 < comm.size else None
    if comm.rank > 0:
        comm.recv(incoming, comm.rank - 1)
    if sending:
        sending.wait()


def forgets_to_wrap_around(comm, outgoing, incoming):
    sending = comm.isend(outgoing, comm.rank + 1)
    comm.recv(incoming, comm.rank - 1)
    sending.wait()


def never_waits_for_what_arrives(comm, outgoing, incoming):
    comm.irecv(incoming, (comm.rank - 1) % comm.size)
    comm.send(outgoing, (comm.rank + 1) % comm.size)


def receives_into_another_tensor(comm, outgoing, incoming):
    arrived = torch.empty_like(incoming)
    comm.exchange([(outgoing, (comm.rank + 1) % comm.size)], [(arrived, (comm.rank - 1) % comm.size)])
    incoming = arrived  # noqa: F841


def takes_what_recv_gives(comm, outgoing, incoming):
    sending = comm.isend(outgoing, (comm.rank + 1) % comm.size)
    incoming = comm.recv((comm.rank - 1) % comm.size)  # noqa: F841
    sending.wait()


def pairs_without_lists(comm, outgoing, incoming):
    comm.exchange((outgoing, (comm.rank + 1) % comm.size), (incoming, (comm.rank - 1) % comm.size))


def never_waits_for_what_it_sends(comm, outgoing, incoming):
    comm.isend(outgoing, (comm.rank + 1) % comm.size)
    comm.recv(incoming, (comm.rank - 1) % comm.size)


def changes_the_buffer_before_wait(comm, outgoing, incoming):
    sending = comm.isend(outgoing, (comm.rank + 1) % comm.size)
    comm.recv(incoming, (comm.rank - 1) % comm.size)
    outgoing.zero_()
    sending.wait()


def swaps_with_a_partner(comm, outgoing, incoming):
    partner = comm.rank + 1 if comm.rank % 2 == 0 else comm.rank - 1
    comm.exchange([(outgoing, partner)], [(incoming, partner)])


def barrier_on_rank_0(comm, outgoing, incoming):
    if comm.rank == 0:
        comm.barrier()
    comm.exchange([(outgoing, (comm.rank + 1) % comm.size)], [(incoming, (comm.rank - 1) % comm.size)])


def broadcasts_in_an_order_of_its_own(comm, outgoing, incoming):
    for step in range(comm.size):
        src = (comm.rank + step) % comm.size
        tensor = comm.broadcast(outgoing.clone(), src)
        if src == (comm.rank - 1) % comm.size:
            incoming.copy_(tensor)


def one_after_the_other(comm, outgoing, incoming):
    if comm.rank == 0:
        comm.send(outgoing, (comm.rank + 1) % comm.size)
        comm.recv(incoming, (comm.rank - 1) % comm.size)
    else:
        comm.recv(incoming, (comm.rank - 1) % comm.size)
        comm.send(outgoing, (comm.rank + 1) % comm.size)


def nothing_came(case: Case, seen: Observation, expected: Observation) -> bool:
    """`incoming` is as it was on every rank."""
    return seen.error is None and not any(one["incoming"].any() for one in seen.value)


def changed_before_wait(by_the_task: bool) -> Any:
    """The simulated world saw a buffer change before `wait`: in the student's own lines, or after the return."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        return says("changed before wait")(case, seen, expected) and bool(seen.error.line) is by_the_task

    return symptom


MISTAKES = (
    Mistake(
        "all send first",
        both_send_first,
        "Every rank sends first, and a send returns only when the other side receives. Nobody ever gets to its "
        "`recv`. Somebody has to receive while it sends.",
        symptom=all_deadlocked("send"),
    ),
    Mistake(
        "all receive first",
        both_receive_first,
        "Every rank waits for a message first, and nobody has sent one yet. Somebody has to send while it receives.",
        symptom=all_deadlocked("recv"),
    ),
    Mistake(
        "waits before it receives",
        waits_at_once,
        "You start to send and wait for its end right away, so it is a plain `send` again. The other side "
        "cannot receive either, since it waits as you do. Put the `recv` between the start and the wait.",
        symptom=all_deadlocked("wait"),
    ),
    Mistake(
        "sends the wrong way round",
        sends_to_the_left,
        "Your ring turns the other way: what you send goes to the rank on the left. Right is one rank more.",
    ),
    Mistake(
        "receives from the right",
        receives_from_the_right,
        "You send to the right and also wait for something from the right. Your right neighbour sends to *its* "
        "right; what comes to you comes from the left. With two ranks left and right are the same.",
        symptom=deadlocked("exchange", "recv"),
    ),
    Mistake(
        "leaves the ring open",
        leaves_the_ring_open,
        "Rank 0 receives nothing, and the last rank sends nothing: that is a chain. In a ring the last rank's "
        "right neighbour is rank 0.",
    ),
    Mistake(
        "forgets to wrap around",
        forgets_to_wrap_around,
        "The last rank sends to a rank that does not exist. Its right neighbour is rank 0, which `% comm.size` "
        "gives; the left neighbour of rank 0 is the last one.",
        symptom=NO_SUCH_RANK,
    ),
    Mistake(
        "never waits for what arrives",
        never_waits_for_what_arrives,
        "You start to receive with `irecv` and return before anything has to be there. Keep the handle that it "
        "gives and `wait()` for it: only then `incoming` is full.",
        symptom=raises("NeverWaited", "irecv"),
    ),
    Mistake(
        "`incoming` is never filled",
        receives_into_another_tensor,
        "`incoming` holds what it held before: you received into another tensor. `incoming = ...` only gives the "
        "name to a new one; hand `incoming` itself to the call that receives.",
        symptom=nothing_came,
    ),
    Mistake(
        "takes what `recv` gives",
        takes_what_recv_gives,
        "`comm.recv` does not give you a tensor: it fills the tensor that you give it. Its first argument is the "
        "tensor to fill, its second the rank that sends.",
        symptom=says("only tensors travel"),
    ),
    Mistake(
        "pairs without lists",
        pairs_without_lists,
        "`comm.exchange` takes two lists of pairs, since there may be several: first `[(tensor, dst)]`, then "
        "`[(tensor, src)]`.",
        symptom=PAIR_FOR_LIST,
    ),
    Mistake(
        "never waits for what it sends",
        never_waits_for_what_it_sends,
        "You return while `outgoing` may still be on its way. The caller changes it next, and the neighbour would "
        "get a mixture. Keep the handle that `isend` gives and `wait()` for it before you return.",
        symptom=changed_before_wait(by_the_task=False),
    ),
    Mistake(
        "changes the buffer before wait",
        changes_the_buffer_before_wait,
        "Between `isend` and `wait()` the tensor belongs to the communication, and you write into it. On a real "
        "network the neighbour gets the old numbers one day and the new ones the next. Wait first, or change a copy.",
        symptom=changed_before_wait(by_the_task=True),
    ),
    Mistake(
        "swaps with a partner",
        swaps_with_a_partner,
        "You swap with one partner, so what you receive comes from the rank you send to. In a ring these are two "
        "ranks; and with an odd number of ranks somebody would have no partner.",
        symptom=NO_SUCH_RANK,
    ),
    Mistake(
        "calls a collective on rank 0 only",
        barrier_on_rank_0,
        "A collective stands where only some ranks reach it, inside `if comm.rank == 0` for example. It waits for "
        "all ranks, and the others never call it. Every rank makes the same collectives, or none.",
        symptom=deadlocked("collective"),
    ),
    Mistake(
        "collectives in an order that differs by rank",
        broadcasts_in_an_order_of_its_own,
        "Your ranks call the same collectives in different orders: each begins with its own. The first call of "
        "one rank meets the first call of another, whatever they are meant to be. All ranks need one order.",
        symptom=says("in the same order"),
    ),
    Mistake(
        "one rank after the other",
        one_after_the_other,
        "No deadlock, and the numbers are right. But rank 0 starts and each rank waits for the one before it, so "
        "the message runs round the ring like a relay. Let every rank send and receive at the same time.",
    ),
)
