"""Formats numbers, times and names for the page, and explains each anomaly. Pure."""

import datetime as dt
import unicodedata
from typing import Final, NamedTuple

from ringfence_kafka.escaping import printable

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_TAIL: Final = 30
_SPANS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


class Meaning(NamedTuple):
    """Meaning of an anomaly, and what to do."""

    means: str
    do: str


MEANINGS: Final = {
    "LOST": Meaning(
        "an input that is neither accepted, nor in quarantine, nor a duplicate",
        "send it again, under a new ID if 'rings find' knows its own; report it",
    ),
    "DOUBLED": Meaning("one input, or one part of a transaction, with two outputs", "compensate in the consumer; report it"),
    "PHANTOM": Meaning("an output that names no input that is there", "find who else writes to that topic"),
    "REORDERED": Meaning("a group's accepted records are not in the order of their input", "report it"),
    "FORGOTTEN": Meaning("one ID, or one hop of a bridge, accepted twice, within the ring's promise", "report it"),
    "OVERRUN": Meaning("the same, beyond the ring's promise", "allowed up to reconcile.overrun_max; above it, a larger ring"),
    "CROSS-LANE": Meaning(
        "one ID accepted in two lanes: the resend had another group",
        "fix the producer: a resend has its original's key",
    ),
    "WRONG-VERDICT": Meaning(
        "diverted, or marked, as a duplicate of nothing",
        "send it again, under a new ID if 'rings find' knows its own; report it",
    ),
    "CORRUPTED": Meaning("key, value, headers or timestamp of an output differ from the input's, or a part's place", "report it"),
    "TORN": Meaning(
        "a transaction of which some parts were accepted, and others are missing",
        "its IDs are known: send the missing parts as a transaction of their own, under a new ID; report it",
    ),
    "GAP": Meaning(
        "evidence was deleted, so the result is unknown", "longer retention than the time between two runs; then acknowledge"
    ),
}  # fmt: skip


def visible(text: str) -> str:
    """Escape invisible characters and those that change the text direction.

    Producers choose names and IDs. An ID must not look like another one, or leave its place on the page.
    """
    if text.isprintable():
        return text
    return "".join(
        name.encode("unicode_escape", "surrogatepass").decode()
        if unicodedata.category(name) in _HIDDEN
        else name
        for name in text
    )


def as_text(data: bytes) -> str:
    """Decode bytes from data, with invalid and invisible characters escaped."""
    return printable(data.decode("utf-8", "backslashreplace"))


def shortened(text: str, limit: int = 150) -> str:
    """Return the beginning and the end of a long text."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - _TAIL]} … {text[-_TAIL:]} ({len(text):,} characters)"


def compact(value: float) -> str:
    """Return a short number for an axis."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= max(size, 1e4):
            return f"{brief(value / size)}{unit}"
    return brief(value)


def brief(value: float) -> str:
    """Return three significant digits, or all digits before the point."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def percent(share: float) -> str:
    """Return a configured share as a percentage: 0.999 is 99.9 %."""
    return f"{share * 100:.10g}\N{NO-BREAK SPACE}%"


def about(share: float) -> str:
    """Return a measured share, to a tenth of a percent."""
    return f"{share * 100:.1f}\N{NO-BREAK SPACE}%"


def span(milliseconds: float) -> str:
    """Return a duration in its largest full unit: 5 min, 1.5 s."""
    for unit, size in _SPANS:
        if milliseconds >= size:
            return f"{brief(milliseconds / size)}\N{NO-BREAK SPACE}{unit}"
    return f"{brief(milliseconds)}\N{NO-BREAK SPACE}ms"


def moment(at: int) -> dt.datetime | None:
    """Return the time in UTC; None = outside the calendar, as producers choose timestamps."""
    try:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=at)
    except OverflowError:
        return None


def date(when: dt.datetime) -> str:
    """Return day and month."""
    return f"{when.day} {_MONTHS[when.month - 1]}"


def time(at: int) -> str:
    """Return date and time, to the second."""
    when = moment(at)
    return f"{at:,} ms" if when is None else f"{date(when)} {when.year} {when:%H:%M:%S}".removesuffix(":00")
