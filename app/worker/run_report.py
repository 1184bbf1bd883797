"""Page of a reconciliation run, if this worker reaches its file: on the same machine, or in a shared folder."""

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
"""Headers of a report, which has inline drawings and styles, but no script."""
SKEW_MS: Final = 60_000
"""Maximum difference between the clocks of two machines, in milliseconds."""


def place(settings: Settings, number: int) -> Path | None:
    """Return the file of a run's page; None = this worker does not reach it."""
    if "://" in settings.runs_dir:
        return None
    found = Path(settings.runs_dir) / results_folder(number) / PAGE
    return found if found.is_file() else None


def link(settings: Settings, run: RunResult | None) -> str:
    """Return the path of the last run's page on this server; empty = not available.

    A file from another time belongs to another run with that number, for example in a former folder.
    """
    found = place(settings, run.number) if run is not None and run.number else None
    if run is None or found is None:
        return ""
    written_ms = found.stat().st_mtime * 1000
    own = run.began_ms - SKEW_MS <= written_ms <= run.ended_ms + SKEW_MS
    return f"/report/{run.number}" if own else ""
