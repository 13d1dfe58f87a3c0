"""A board on which the ranks of one host see each other's calls: what each posted, and what it waits for.

Floor 1, room `comm`. `board.py` is the board, `posts.py` one list of posts on it, `layout.py` its bytes,
`stuck.py` finds ranks that can never proceed.
"""

from lockstep.comm.board.board import Board, Need, Status
from lockstep.comm.board.stuck import stuck

__all__ = ["Board", "Need", "Status", "stuck"]
