"""The page of a reconciliation run, where this worker reaches it: on the machine of the runs, or in a shared folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from reconcile.page import PAGE
from reconcile.run.history.layout import results_folder
from ringfence_kafka import page
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.protocol.run_result import RunResult

HEADERS: Final[Mapping[str, str]] = {
    **page.HEADERS,
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}
"""A report has drawings and a style of its own, and no script."""
SKEW_MS: Final = 60_000
"""Difference between the clocks of two machines, at most."""


def place(settings: Settings, number: int) -> Path | None:
    """Return the file of a run's page; None = this worker does not reach it."""
    if "://" in settings.runs_dir:
        return None
    found = Path(settings.runs_dir) / results_folder(number) / PAGE
    return found if found.is_file() else None


def link(settings: Settings, run: RunResult | None) -> str:
    """Return the path of the last run's page on this server; empty = it has none.

    A page of another time is of another run with that number, as of a former folder.
    """
    found = place(settings, run.number) if run is not None and run.number else None
    if run is None or found is None:
        return ""
    written_ms = found.stat().st_mtime * 1000
    own = run.began_ms - SKEW_MS <= written_ms <= run.ended_ms + SKEW_MS
    return f"/report/{run.number}" if own else ""
