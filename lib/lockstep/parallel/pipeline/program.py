"""What one rank does, messages included: a schedule's actions with its sends and receives between them.

Floor 2, room `parallel`. Two ways to place them:

    prompt    a receive right before the action that needs it, a send right after the action that gives it
    ordered   every message at one place in one order of all ranks' actions and messages

A prompt program wants sends that do not wait. An ordered one runs with any: of all ranks that are at a message, the
one that comes first in the order has both sides there. It is what a backend needs that serialises opposite messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.parallel.pipeline.schedule import Action, Schedule
from lockstep.parallel.pipeline.transfers import Transfer, Transfers


@dataclass(frozen=True, slots=True)
class Send:
    """Send what `transfer` names."""

    transfer: Transfer


@dataclass(frozen=True, slots=True)
class Receive:
    """Receive what `transfer` names."""

    transfer: Transfer


Step = Action | Send | Receive


def prompt_program(transfers: Transfers, rank: int) -> list[Step]:
    """Receives right before, sends right after each action of `rank`."""
    steps: list[Step] = []
    for part in transfers.schedule.parts(rank):
        needed, given = transfers.needed(part), transfers.given(part)
        steps += ([Receive(needed)] if needed else []) + [part] + ([Send(given)] if given else [])
    return steps


def ordered_program(schedule: Schedule, transfers: Transfers, rank: int) -> list[Step]:
    """Actions by their start in a simulation with unit costs, each message at the end of the action that gives it."""
    order: list[tuple[float, int, int, int, list[Step]]] = []
    for event in schedule.simulate().events:
        if event.rank == rank:
            order.append((event.start, 1, rank, 0, list(event.item.parts)))
        for number, transfer in enumerate(transfers.given_by(event.item)):
            mine = {transfer.src: Send, transfer.dst: Receive}.get(rank)
            if mine:
                order.append((event.end, 0, transfer.src, number, [mine(transfer)]))
    return [step for *_, steps in sorted(order, key=lambda each: each[:4]) for step in steps]


def received_by(transfers: Transfers) -> dict[Transfer, Transfer]:
    """For each message, the first that comes back to its sender and proves that it was received, if any does.

    Its receiver gave that one after using it. A sender that has the proof may forget the message.
    """
    place: dict[Action, int] = {}
    for rank in range(transfers.schedule.ranks):
        place.update({part: at for at, part in enumerate(transfers.schedule.parts(rank))})
    given_at = {t: at for part, at in place.items() if (t := transfers.given(part))}
    used_at = {t: at for part, at in place.items() if (t := transfers.needed(part))}
    proofs: dict[Transfer, Transfer] = {}
    for (src, dst), messages in transfers.sent.items():
        best: Transfer | None = None
        back = list(transfers.sent.get((dst, src), ()))
        for message in sorted(messages, key=used_at.__getitem__, reverse=True):
            while back and given_at[back[-1]] >= used_at[message]:
                candidate = back.pop()
                best = candidate if best is None or used_at[candidate] < used_at[best] else best
            if best is not None:
                proofs[message] = best
    return proofs
