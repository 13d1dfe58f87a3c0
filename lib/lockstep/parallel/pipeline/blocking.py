"""Would a schedule run if sends waited for their receiver?

Floor 2, room `parallel`. Two ways to write the messages of a schedule into a rank's program:

    rendezvous   receive what an action needs right before it, send what it gives right after it, one by one
    fused        all that lies between two actions as one exchange, whose messages start together

1F1B deadlocks with the first for m >= 2: a rank sends the next activation while its successor sends a gradient back.
Fused, both are in one exchange.
"""

from __future__ import annotations

from lockstep.parallel.pipeline.schedule import Schedule
from lockstep.parallel.pipeline.transfers import Transfer, Transfers


def rendezvous_deadlock(schedule: Schedule, transfers: Transfers) -> str:
    """Who waits for whom when each send waits for its receive; empty when all ranks come to their end."""
    programs: list[list[tuple[str, Transfer]]] = []
    for row in schedule.actions:
        program: list[tuple[str, Transfer]] = []
        for item in row:
            program += [("receives", transfer) for transfer in transfers.needed_by(item)]
            program += [("sends", transfer) for transfer in transfers.given_by(item)]
        programs.append(program)
    at = [0] * len(programs)

    def current(rank: int) -> tuple[str, Transfer] | None:
        return programs[rank][at[rank]] if at[rank] < len(programs[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in range(len(programs)):
            while (mine := current(rank)) and mine[0] == "sends" and current(mine[1].dst) == ("receives", mine[1]):
                at[rank] += 1
                at[mine[1].dst] += 1
                moved = True
    waiting = [f"rank {rank} {now[0]} {now[1]}" for rank in range(len(programs)) if (now := current(rank))]
    return "; ".join(waiting)


def fused_deadlock(schedule: Schedule, transfers: Transfers) -> str:
    """Who waits for whom when everything between two actions is one exchange; empty when all come to their end.

    Messages of a channel must be used in the order in which they are sent, since an exchange pairs them in order.
    """
    for channel, sent in transfers.sent.items():
        wrong = next((pair for pair in zip(sent, transfers.used[channel], strict=True) if pair[0] != pair[1]), None)
        if wrong:
            return f"rank {channel[1]} needs {wrong[1]} first, and rank {channel[0]} sends {wrong[0]} first"
    gaps = exchanges(schedule, transfers)
    at, sent_by, awaited = [-1] * len(gaps), set(), set()
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(gaps):
            while at[rank] < len(program) and (at[rank] < 0 or _over(program[at[rank]], sent_by, awaited)):
                at[rank] += 1
                moved = True
                if at[rank] < len(program):
                    sends, recvs = program[at[rank]]
                    sent_by.update(sends)
                    awaited.update(recvs)
    waiting = [(rank, program[at[rank]]) for rank, program in enumerate(gaps) if at[rank] < len(program)]
    return "; ".join(f"rank {rank} is in the exchange of {', '.join(map(str, [*s, *r]))}" for rank, (s, r) in waiting)


Gap = tuple[list[Transfer], list[Transfer]]
"""(sends, receives) between two actions"""


def exchanges(schedule: Schedule, transfers: Transfers) -> list[list[Gap]]:
    """Per rank, what lies before its first item, between items and after the last."""
    programs = []
    for row in schedule.actions:
        gives = [[], *(transfers.given_by(item) for item in row)]
        takes = [*(transfers.needed_by(item) for item in row), []]
        programs.append(list(zip(gives, takes, strict=True)))
    return programs


def _over(gap: Gap, sent: set[Transfer], awaited: set[Transfer]) -> bool:
    sends, recvs = gap
    return awaited.issuperset(sends) and sent.issuperset(recvs)
