"""Pages of a worker: ``ringfence status`` as self-contained HTML, with pages behind its rows. Pure.

Their Content-Security-Policy allows only their own style and script. Jinja escapes all data.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from shlex import quote
from typing import Any, Final
from urllib import parse

from jinja2 import Environment, FunctionLoader, StrictUndefined

from app.commands.status import formatting, model
from app.commands.status.formatting import number, rate
from app.commands.status.model import Finding, Status
from ringfence_client.handlers import group_names
from ringfence_kafka.escaping import printable, shortened
from ringfence_kafka.page import SCRIPT, STYLE, charts
from ringfence_kafka.page.charts import Format, Html
from ringfence_kafka.page.formats import age, mebibytes, moment
from ringfence_kafka.page.history import Charts, Values, merged
from ringfence_kafka.wording import counted

NO_CHARTS: Final = merged("glance", [])
WAITING_MAX: Final = 200
"""Number of groups on a page."""
VALUE_MAX: Final = 100_000
"""Length limit of a value on a page, in characters."""


_FORMATS: Final[Mapping[str, Format]] = {
    "lag": number, "running": number, "oldest": age, "covered": age, "rss": mebibytes, "buffered": mebibytes,
}  # fmt: skip
"""Formats of figures; those not listed are rates."""
_NAMES: Final = {
    "oldest": "oldest message",
    "covered": "reaches back",
    "rss": "memory",
    "buffered": "under way",
}
_ADDRESS_CHARTS: Final = (
    ("messages", ("in", "accepted", "duplicates")),
    ("lag", ("lag",)),
    ("ring reaches back", ("covered",)),
)
_CONSUMER_CHARTS: Final = (
    ("handlers' runs", ("handled", "failed")), ("running", ("running",)), ("age of the oldest message", ("oldest",)),
    ("memory", ("rss", "buffered")),
)  # fmt: skip


def _spark(past: Mapping[str, Values], name: str) -> Html:
    return charts.spark(past.get(name, []), f"{_NAMES.get(name, name)}, last hour", _FORMATS.get(name, rate))


def _charts(shown: Charts, subject: Sequence[str], which: Sequence[tuple[str, Sequence[str]]]) -> Html:
    past = shown.figures(*subject)
    return Html(
        "".join(
            charts.chart(
                title, shown.span, {_NAMES.get(name, name): past.get(name, []) for name in names}, _FORMATS.get(names[0], rate)
            )
            for title, names in which
        )
    )  # fmt: skip


def _last(past: Mapping[str, Values], name: str) -> float | None:
    """Return the newest value, from one of the last two slots, since the last may still be empty."""
    return next((value for value in reversed(past.get(name, [])[-2:]) if value is not None), None)


def _moment(iso: str) -> Html:
    return moment(datetime.fromisoformat(iso).timestamp())


def _written(timestamp_ms: int) -> Html | str:
    """Return the time of a record, or the number if it is outside the calendar."""
    try:
        return moment(timestamp_ms / 1000)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def _why(row: Mapping[str, Any]) -> Html | str:
    """Return the reason why a group waits, from its consumer."""
    seconds, retry_at, tried = row.get("running_seconds"), row.get("retry_at"), row.get("attempts")
    attempts = f", {counted(tried, 'attempt')}" if tried else ""
    match row.get("reason"):
        case "running":
            return f"a handler runs{f' for {age(seconds)}' if seconds is not None else ''}{attempts}"
        case "retry":
            return Html(f"failed{attempts}, next attempt {_moment(str(retry_at)) if retry_at else 'soon'}")
        case "parked":
            return "parked behind a dead letter"
        case "lease":
            return "nobody holds the lease, or it goes to another consumer"
        case "waiting":
            return "waits for a handler"
        case _:  # reason of another version
            return ""


def _text(value: bytes | None) -> str:
    """Return bytes as text, or as hexadecimal digits if they are not UTF-8."""
    try:
        text = printable((value or b"").decode(), "\n\t")
    except UnicodeDecodeError:
        text = (value or b"").hex(" ")
    more = len(text) - VALUE_MAX
    return f"{text[:VALUE_MAX]} … ({more:,} more characters)" if more > 0 else text


def _group(key: bytes | None) -> str:
    """Return the group of a message; an empty group differs from a missing one."""
    return "(none)" if key is None else _text(key) or group_names.in_table(key)


def _visible(value: Any) -> Any:
    """Escape control characters in texts of other programs."""
    return printable(value, "\n\t") if isinstance(value, str) and not hasattr(value, "__html__") else value


_ENVIRONMENT: Final = Environment(
    autoescape=True, finalize=_visible, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    loader=FunctionLoader(lambda name: (files(__name__) / name).read_text("utf-8")),
)  # fmt: skip
_ENVIRONMENT.globals |= {"OPEN": model.OPEN, "UNKNOWN": model.UNKNOWN, "WAITING_MAX": WAITING_MAX}
_ENVIRONMENT.filters |= {
    "address_charts": lambda shown, name: _charts(shown, ("address", name), _ADDRESS_CHARTS),
    "age": age,
    "bytes": mebibytes,
    "consumer_charts": lambda shown, group: _charts(shown, ("consumers", group.consumer_group, group.address), _CONSUMER_CHARTS),
    "group": _group,
    "lanes_open": formatting.lanes_open,
    "memory": formatting.memory,
    "moment": _moment,
    "newest": _last,
    "number": number,
    "part": lambda text: parse.quote(text, safe=""),
    "partitions": formatting.partitions,
    "quoted": quote,
    "rate": rate,
    "run_text": formatting.run_text,
    "share": formatting.share,
    "shortened": lambda text: shortened(text, "/status has all"),
    "spark": _spark,
    "text": _text,
    "waiting": formatting.waiting,
    "why": _why,
    "written": _written,
}  # fmt: skip


def shown(name: str, **values: Any) -> str:
    """Return a page from its template: an address, a consumer group, its dead letters, or one dead letter.

    ``values``: ``app``, ``worker`` (which shows the page), ``title``, and the names of the template.
    """
    values = {"standing": 0, "style": STYLE, "script": SCRIPT} | values
    return _ENVIRONMENT.get_template(f"{name}.html").render(values)


def render(
    status: Status | None,
    found: Sequence[Finding],
    worker: str,
    own: Mapping[str, Any],
    fault: str = "",
    past: Charts = NO_CHARTS,
    app: str = "",
    report: str = "",
) -> str:
    """Return the overview page of a ``worker``.

    If ``status`` is None for the reason ``fault``, it shows only this worker's lanes (``own``) and the name
    ``app``. ``report``: path of the last run's page on this server; empty = not available.
    """
    return shown(
        "overview", status=status, found=found, standing=1 if fault else sum(finding.stands for finding in found), worker=worker, own=own,
        fault=fault, charts=past, app=status.app if status is not None else app, title="", report=report,
    )  # fmt: skip
