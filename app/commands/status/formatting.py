"""Formats numbers for the status. Pure."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from app.commands.status import model
from ringfence_kafka.page.formats import age
from ringfence_kafka.protocol.run_result import RunResult
from ringfence_kafka.wording import counted, first_of

PARTITIONS_MAX: Final = 4
"""Number of a lane's partitions to list; others are counted."""


def waiting(offsets: int) -> str:
    """Return ``up to 2,000 messages wait``, since some offsets may be transaction markers."""
    return f"up to {counted(offsets, 'message waits', 'messages wait')}"


def number(value: float | None) -> str:
    """Return a rounded number; empty = unknown."""
    return "" if value is None else f"{value:,.0f}"


def memory(used: int | None, limit: int | None) -> str:
    """Return memory and its limit; empty = unknown."""
    return "" if used is None or limit is None else f"{used / 2**20:,.0f} of {limit / 2**20:,.0f} MiB"


def lanes_open(states: Collection[str]) -> str:
    """Return open lanes of all; with silent workers a minimum or ``?``, as 0 would look like a problem."""
    up, unheard = (sum(name == state for name in states) for state in (model.OPEN, model.UNKNOWN))
    known = str(up) if not unheard else f"≥{up}" if up else "?"
    return f"{known}/{len(states)}"


def partitions(numbers: Sequence[int]) -> str:
    """Return a lane's partitions, or the first of many."""
    return first_of(list(map(str, numbers)), PARTITIONS_MAX)


def rate(value: float | None) -> str:
    """Return a rate per second."""
    if value is None:
        return ""
    return f"{value:,.0f}/s" if value >= 10 or not value else f"{value:.1f}/s"


def share(value: float | None) -> str:
    """Return a percentage; a small share does not become zero."""
    if value is None:
        return ""
    return "< 0.1 %" if 0 < value < 0.001 else f"{100 * value:.1f} %"


def run_text(run: RunResult | None, at: str, *, linked: bool = False) -> str:
    """Return verdict, age and report of a reconciliation run; None = no run is known.

    ``at``: present time, ISO 8601. ``linked``: a link leads to the report, so that its place is left out.
    """
    if run is None:
        return "RECONCILIATION  no run is known; brokers forget one after 7 days"
    late = age(max(0.0, datetime.fromisoformat(at).timestamp() - run.ended_ms / 1000))
    seen = ", acknowledged" if run.acknowledged else ""
    report = f"; report {run.report} on {run.host}" if run.report and not linked else ""
    return f"RECONCILIATION  {run.verdict}{seen}, {late} ago, {counted(run.messages, 'message')}{report}"
