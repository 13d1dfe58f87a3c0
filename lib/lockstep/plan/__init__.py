"""Room `plan`: who does what, decided before anything runs.

`partition` cuts a chain of layers into parts of equal time.
"""

from lockstep.plan.partition import balanced_partition, part_times, spans_of

__all__ = ["balanced_partition", "part_times", "spans_of"]
