"""Times, ages and sizes for pages and ``ringfence status``. Pure."""

from datetime import UTC, datetime
from typing import Final

from ringfence_kafka.page.charts import Html

_STEPS: Final = ((2 * 86_400.0, 86_400.0, "days"), (2 * 3_600.0, 3_600.0, "hours"), (120.0, 60.0, "minutes"))


def age(seconds: float | None) -> str:
    """Return a duration in the largest unit that is at least two; empty = not known."""
    if seconds is None:
        return ""
    for least, unit, name in _STEPS:
        if seconds >= least:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def mebibytes(size: float | None) -> str:
    """Return a size in MiB; empty = not known."""
    return "" if size is None else f"{size / 2**20:,.0f} MiB"


def moment(at_s: float) -> Html:
    """Return a time since the epoch in UTC, which the page's script shows in the viewer's time zone."""
    at = datetime.fromtimestamp(at_s, UTC)
    return Html(f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}">{at:%Y-%m-%d %H:%M:%S} UTC</time>')
