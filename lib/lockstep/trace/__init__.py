"""Floor 0, room `trace`: one event format for every run, and what can be read from it.

`events` (Span, Message, Trace) first; then `measures` (where the time went), `path` (what the run
had to wait for), `slack` (what it had not to wait for), `report` (runs side by side) and `chrome` (a file for Perfetto).
"""

from lockstep.trace.events import Message, Span, Trace
from lockstep.trace.measures import (
    Usage,
    bubble_share,
    bytes_by_pair,
    idle_share,
    overlap_share,
    usage,
)
from lockstep.trace.path import critical_path
from lockstep.trace.report import Report, report
from lockstep.trace.slack import Slack, slack

__all__ = [
    "Message",
    "Report",
    "Slack",
    "Span",
    "Trace",
    "Usage",
    "bubble_share",
    "bytes_by_pair",
    "critical_path",
    "idle_share",
    "overlap_share",
    "report",
    "slack",
    "usage",
]
