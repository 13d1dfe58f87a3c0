"""Grading: from a folder of submissions to the files an instructor uploads.

Read `submission` (what a student handed in, as plain text) and `outcome` (what one exercise earned) first: everything
else here either makes the first, turns the first into the second, or writes the second down.
"""
