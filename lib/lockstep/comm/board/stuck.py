"""Which ranks can never proceed.

Floor 1, room `comm`. A rank that waits is *stuck* when what it waits for can only come from ranks that are stuck
themselves or have finished. A rank whose counterparts have all posted is not stuck: its data is on the way.
"""

from __future__ import annotations

from lockstep.comm.board.board import FINISHED, WAITING, Board, Status


def stuck(board: Board) -> dict[int, str]:
    """The ranks that can never proceed, and what each waits for; empty when all may.

    Two readings with equal `Status.version` of these ranks make it certain: nothing moved in between.

    The greatest set S of waiting ranks such that each lacks, in mode "all", at least one counterpart, in mode
    "any" every counterpart, from ranks in S or finished.
    """
    statuses = board.statuses()
    gone = {status.rank for status in statuses if status.state == FINISHED}
    lacks = {status.rank: _lacking(board, status) for status in statuses if status.state == WAITING}
    in_s = {rank for rank, lacking in lacks.items() if lacking}
    while True:
        closed = {
            rank
            for rank in in_s
            if (any if statuses[rank].mode == "all" else all)(other in in_s or other in gone for other in lacks[rank])
        }
        if closed == in_s:
            return {rank: _sentence(statuses[rank]) for rank in sorted(in_s)}
        in_s = closed


def _lacking(board: Board, status: Status) -> list[int]:
    """Ranks of the whole run whose counterpart is missing; empty when the rank can go on."""
    group = board.of_group(status.group)
    me = group.members.index(status.rank)
    missing = [group.members[need.rank] for need in status.needs if not group.met(me, need)]
    if status.mode == "any" and len(missing) < len(status.needs):
        return []
    return missing


def _sentence(status: Status) -> str:
    return f"{status.text} ({status.where})" if status.where else status.text
