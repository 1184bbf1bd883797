"""Page of a consumer: present runs, state of its partitions, and last failures.

It is one HTML document in the style of the worker's page (:mod:`ringfence_kafka.page`). Groups and reasons are untrusted text, so
everything is escaped.
"""

import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any, Final

from ringfence_client.consumer.consumer import GroupConsumer
from ringfence_client.handlers import group_names
from ringfence_client.handlers.handler import BOUNDS_S, RunTimes
from ringfence_client.progress.open_records import OpenRecords
from ringfence_client.web.metrics import DRAINING, HELD, WAITING, head_age
from ringfence_kafka.escaping import printable, shortened
from ringfence_kafka.page import SCRIPT, STYLE
from ringfence_kafka.page.charts import Html, chart
from ringfence_kafka.page.formats import age, mebibytes, moment
from ringfence_kafka.page.history import Charts, rss
from ringfence_kafka.wording import counted

ROWS_MAX: Final = 100
"""Limit of a table's rows. Programs get all rows at ``/health`` and ``/groups``."""
LONG_S: Final = 60.0
"""Duration from which a run is marked, in seconds, as in ``ringfence status``."""
_WORDS: Final = frozenset({"group", "lease"})
"""Left-aligned columns, beside the first one of each table."""
_COUNTS: Final = {"finished": "finished message", "failed": "failed attempt", "released": "release", "dead_letters": "dead letter"}  # fmt: skip


def render(
    consumer: GroupConsumer,
    health: Mapping[str, Any],
    lags: Mapping[int, int | None],
    letters: OpenRecords | None,
    past: Charts,
) -> str:
    """Return the document. ``letters``: None = none is open, or another consumer counts them; ``past``: figures of the last hour."""
    name = _text(f"{consumer.group} at {consumer.address.name}")
    faults = [*health["faults"]]
    if health["broker"] == "away":  # the cause of the other faults
        faults = ["brokers do not answer: handlers continue, and progress waits to be written"]
    faults += [f"partition {number} is not open yet: {why}" for number, why in health["waiting"].items()]
    if letters is not None:
        faults.append(
            f"{letters.described('dead letter')}; `ringfence dlq list` shows them: redrive or drop them"
        )
    if parked := sum(len(held.window.redrives.blocked) for held in consumer.partitions.values()):
        waits = counted(parked, "group waits", "groups wait")
        faults.append(
            f"{waits} behind a dead letter: see why with `ringfence dlq list`, then redrive or drop it"
        )
    figures = past.figures("consumers", consumer.group, consumer.address.name)
    charts = "".join(
        chart(title, past.span, {_LINES.get(key, key): figures.get(key, []) for key in keys}, shown)
        for title, keys, shown in _CHARTS
    )
    hour = f"<h2>The last hour</h2><div class=charts>{charts}</div>"
    parts = _verdict(faults, health), _runs(consumer), hour, _partitions(consumer, lags), _failures(consumer)
    show = f"ringfence groups show {shlex.quote(consumer.address.name)} --consumer-group {shlex.quote(consumer.group)}"
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<meta name=color-scheme content='light dark'><title>{f'({len(faults)}) ' if faults else ''}Ringfence {name}</title>"
        f"<style>{STYLE}</style><noscript><meta http-equiv=refresh content=10></noscript></head><body>"
        f"<a class=skip href='#all'>Skip to the state</a><header><h1>Ringfence {name}</h1>"
        f"<span class=soft>consumer {_text(consumer.options.name)}</span>"
        "<button id=pause type=button hidden aria-pressed=false>Pause</button></header>"
        f"<main><div id=stale role=alert hidden></div><div id=all tabindex=-1>{''.join(parts)}"
        f"<p class=soft>Seen at {moment(time.time())}. All groups that wait, in a terminal:</p><code id=show tabindex=0>{_text(show)}</code>"
        "</div></main><footer>For programs: <a href='/groups'>/groups</a>, <a href='/health'>/health</a>, "
        f"<a href='/metrics'>/metrics</a></footer><script>{SCRIPT}</script></body></html>"
    )


def _verdict(faults: Sequence[str], health: Mapping[str, Any]) -> str:
    if faults:
        rows = "".join(f"<li class=stands><p>{_text(fault)}</p></li>" for fault in faults)
        stand = f"{counted(len(faults), 'thing')} to act on"
        return f"<p class='verdict bad' role=status>{stand}</p><ul class=findings>{rows}</ul>"
    if health["ready"]:
        return "<p class='verdict good' role=status>ok: nothing to act on</p>"
    return "<p class=verdict role=status>it waits for its partitions</p>"


def _runs(consumer: GroupConsumer) -> str:
    dispatcher, memory = consumer.dispatcher, consumer.memory
    runs = dispatcher.runs.running()
    rows = [
        (
            f"{message.partition}/{message.offset}",
            group_names.in_table(message.group),
            Html(f"<span class='{'ill' if seconds > LONG_S else ''}'>{age(seconds)}</span>"),
            f"{message.attempt}",
        )
        for message, seconds in runs
    ]
    left = (
        f", {dispatcher.runs.left_behind} of them ignored their cancellation"
        if dispatcher.runs.left_behind
        else ""
    )
    text = f"<h2>{len(runs)} of {dispatcher.concurrency} handlers run{left}</h2>"
    text += _table(("message", "group", "runs for", "attempt"), rows)
    if runs and runs[0][1] > LONG_S and (group := runs[0][0].group) is not None:
        words = ("ringfence", "groups", "release", consumer.address.name, group_names.shown(group))
        command = shlex.join((*words, "--consumer-group", consumer.group))
        text += (
            f"<p class=soft>This ends the longest run:</p><code id=release tabindex=0>{_text(command)}</code>"
        )
    done = ", ".join(counted(dispatcher.counts[key], noun) for key, noun in _COUNTS.items())
    whole = "" if (own := rss()) is None else f", the process {mebibytes(own)}"
    text += f"<p class=soft>So far: {done}. {_durations(dispatcher.runs.times)}"
    return text + f"Messages take {mebibytes(memory.buffered)} of {mebibytes(memory.bytes_max)}{whole}.</p>"


def _durations(times: RunTimes) -> str:
    """Return the times within which half of all runs ended, and 99 %."""
    if not times.count:
        return ""
    bounds = [*(f"within {seconds:g} s" for seconds in BOUNDS_S), f"in more than {BOUNDS_S[-1]:g} s"]
    sums = list(accumulate(times.counts))
    half, most = (
        next(bound for count, bound in zip(sums, bounds, strict=True) if count >= share * times.count)
        for share in (0.5, 0.99)
    )
    return f"Half of all runs ended {half}, 99 % {most}. "


def _partitions(consumer: GroupConsumer, lags: Mapping[int, int | None]) -> str:
    held, rows = consumer.partitions, list[Sequence[str]]()
    runs = Counter(message.partition for message, _ in consumer.dispatcher.runs.running())
    for number in sorted({*held, *(consumer.held_partitions.assigned or ())}):
        known = lags.get(number)
        lag = "" if known is None else f"{known:,}"
        if number not in held:
            rows.append((f"{number}", WAITING, lag, *[""] * 5))
            continue
        window, head_s = held[number].window, head_age(held[number])
        attempts = window.attempts
        numbers = runs[number], len(attempts.failures), len(window.redrives.blocked)
        state = DRAINING if held[number].draining else HELD
        oldest = age(head_s) if window.unfinished else ""
        rows.append((f"{number}", state, lag, oldest, *(f"{count:,}" for count in numbers), f"{window.next}"))
    columns = (
        "partition",
        "lease",
        "lag",
        "oldest",
        "in handlers",
        "failing",
        "blocked",
        "all finished below",
    )
    return f"<h2>{counted(len(rows), 'partition')}</h2>{_table(columns, rows)}"


def _failures(consumer: GroupConsumer) -> str:
    """Return a list, because long exception texts would take the room of a table's other columns."""
    items = "".join(
        f"<li><h3>{item.partition}/{item.offset} of group {_text(group_names.in_table(item.group))}, attempt {item.attempt}</h3>"
        f"<p>{_text(shortened(item.reason, 'the log has all'))}</p><p class=soft>{moment(item.at_ms / 1000)}</p></li>"
        for item in reversed(consumer.dispatcher.attempts.recent_failures)
    )
    found = f"<ul class=findings>{items}</ul>" if items else "<p>None since this consumer began.</p>"
    return f"<h2>Last failed attempts</h2>{found}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    kinds = [" class=text" if name in _WORDS else "" for name in columns]
    head = "".join(f"<th scope=col{kind}>{name}</th>" for name, kind in zip(columns, kinds, strict=True))
    body = "".join(f"<tr>{''.join(_cells(kinds, row))}</tr>" for row in rows[:ROWS_MAX])
    more = f"<p class=soft>and {len(rows) - ROWS_MAX:,} more</p>" if len(rows) > ROWS_MAX else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cells(kinds: Sequence[str], row: Sequence[str]) -> Iterator[str]:
    first, *cells = (cell if isinstance(cell, Html) else _text(cell) for cell in row)
    yield f"<th scope=row>{first}</th>"
    for kind, cell in zip(kinds[1:], cells, strict=True):
        yield f"<td{kind}>{cell}</td>"


def _text(text: str) -> str:
    return escape(printable(text))


_CHARTS: Final = (
    ("handlers' runs a second", ("handled", "failed"), "{:,.1f}".format),
    ("running handlers", ("running",), "{:,.0f}".format),
    ("age of the oldest message", ("oldest",), age),
    ("memory", ("rss", "buffered"), mebibytes),
)
_LINES: Final = {"rss": "process", "buffered": "messages"}
