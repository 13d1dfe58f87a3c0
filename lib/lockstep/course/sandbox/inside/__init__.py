"""What runs in the box, beside the student's code: it holds no case but the one that is tried, and no answer.

Floor 4, room `course`. These files are copied into the box with `wire` and the library's lower floors; they import
nothing else of the course. Read `zygote` first, then `agent`.
"""
