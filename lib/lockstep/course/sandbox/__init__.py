"""A box for students' code: a process that can do little, next to nothing of the course, and plain data that come out.

Floor 4, room `course`. Read `levels` (how well it shuts in) first, then `box` (a process of a student's), `wire` (what
comes out of it), `world` (ranks, whose world stays with the grader) and `trying` (one exercise's cases). `inside/` is
the other side.
"""
