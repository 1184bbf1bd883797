"""Makes foreign texts and times safe and readable. Pure."""

from datetime import UTC, datetime
from typing import Final

_HEAD: Final = 480
_TAIL: Final = 80
"""Number of characters from the start and the end of a long text. Ringfence's note about waiting messages is at the end."""


def moment(timestamp_ms: int) -> str:
    """Return a record's time in UTC, to the millisecond. Without a time it is a dash, beyond the calendar the number."""
    if timestamp_ms == -1:
        return "-"
    try:
        whole = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return f"{whole:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03} UTC"


def printable(text: str, keep: str = "") -> str:
    """Escape characters that control a terminal or start a new line, except those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        name if name.isprintable() or name in keep else name.encode("unicode_escape").decode()
        for name in text
    )


def shortened(text: str, whole: str) -> str:
    """Return start and end of a long text, such as an exception's. ``whole``: where the complete text is."""
    more = len(text) - _HEAD - _TAIL
    if more <= _TAIL:
        return text
    return f"{text[:_HEAD]} … ({more:,} more characters: {whole}) … {text[-_TAIL:]}"
