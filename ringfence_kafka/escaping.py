"""Words and times that came from others, where a person reads them. Pure."""

from datetime import UTC, datetime
from typing import Final

_HEAD: Final = 480
_TAIL: Final = 80
"""Characters that are shown of a long text; what we add about waiting messages stands at its end."""


def moment(timestamp_ms: int) -> str:
    """Return a record's time to the millisecond, in UTC; of one that has none a dash, and of one beyond the calendar, as microseconds are, its number."""
    if timestamp_ms == -1:
        return "-"
    try:
        whole = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return f"{whole:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03} UTC"


def printable(text: str, keep: str = "") -> str:
    """Without what steers a terminal, or begins a line that looks like another; but with the characters of ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        name if name.isprintable() or name in keep else name.encode("unicode_escape").decode()
        for name in text
    )


def shortened(text: str, whole: str) -> str:
    """Return beginning and end of a long text, such as an exception's; ``whole`` names where all of it is."""
    more = len(text) - _HEAD - _TAIL
    if more <= _TAIL:
        return text
    return f"{text[:_HEAD]} … ({more:,} more characters: {whole}) … {text[-_TAIL:]}"
