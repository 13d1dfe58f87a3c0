"""Releasing: what an instructor gives to students, and what grading later needs to know about it.

Floor 4, room `course`. Read `toml` first: a release is a value, kept in one private file. `bundle` makes what students
get, `pack` adds an instructor's own exercises, `students` says who has which variant; `nbgrader`, `gradescope` and
`classroom` hand the same release to other people's systems.
"""
