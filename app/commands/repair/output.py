"""How refused records and dead letters are shown: to people, and to programs."""

import base64
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import click
from rich.table import Table

from app.commands.repair.refused_record import Refused
from conf import terminal
from ringfence_client.handlers import group_names
from ringfence_kafka.escaping import moment, printable

SHOWN_MAX: Final = 50
"""Rows for a person; ``--json`` has all."""
VALUE_SHOWN_MAX: Final = 2_000
REASON_SHOWN_MAX: Final = 80
REASONS_MAX: Final = 20
"""Kinds of what is left, at the end of a run."""


def readable(value: bytes | None) -> str | None:
    """Text where it is UTF-8, else ``base64:…``, from which it can be made again."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(value).decode()}"


def document(refused: Refused, group: bytes | None, *, settled: bool) -> dict[str, Any]:
    """A record, without its content."""
    found = {
        "place": f"{refused.place.partition}/{refused.place.offset}",
        "topic": refused.place.topic,
        "partition": refused.place.partition,
        "offset": refused.place.offset,
        "reason": refused.reason,
        "source": refused.source or None,
        "group": None if group is None else group_names.shown(group),
        "group_hex": None if group is None else group.hex(),
        "timestamp": refused.timestamp,
        "redriven": refused.redriven,
        "whole": refused.digest is None,
        "settled": settled,
    }
    if refused.app_id:
        found["application"] = refused.app_id
    if refused.consumer_group:
        found |= {
            "consumer_group": refused.consumer_group,
            "attempts": refused.attempts,
            "accepted": None if refused.accepted is None else str(refused.accepted),
        }
    return found


def content(refused: Refused) -> dict[str, Any]:
    """All that stands there."""
    return {
        "key": readable(refused.key),
        "value": readable(refused.value),
        "headers": [[name, readable(value)] for name, value in refused.headers],
    }


class Row(NamedTuple):
    """A record in a list."""

    refused: Refused
    group: bytes | None
    settled: bool
    waits: bool | None
    """Whether its group waits behind it; None = that cannot be told."""


def print_rows(topic: str, rows: Sequence[Row]) -> None:
    """For a person: the oldest first. A column that would say the same in each row is left out: windows are narrow."""
    settled = sum(row.settled for row in rows)
    console = terminal.console()
    groups = sorted({row.refused.consumer_group for row in rows})
    of = f" of {groups[0]}" if groups[0] and len(groups) == 1 else ""
    title = f"{topic}{of}: {len(rows) - settled:,} open" + (f", {settled:,} settled" if settled else "")
    columns = [(name, cell) for name, cell, kept in _columns(rows, groups) if kept]
    table = Table(*(name for name, _ in columns), title=title)
    for row in rows[:SHOWN_MAX]:
        table.add_row(*(cell(row) for _, cell in columns))
    terminal.tell(table, console)
    if len(rows) > SHOWN_MAX:
        console.print(f"and {len(rows) - SHOWN_MAX:,} more: --json has all")
        kinds = Counter(row.refused.reason for row in rows if not row.settled)
        for reason, count in kinds.most_common(REASONS_MAX):
            console.print(f"  {count:,}  {printable(reason)}", highlight=False, soft_wrap=True)


def _columns(
    rows: Sequence[Row], consumer_groups: Sequence[str]
) -> list[tuple[str, Callable[[Row], str], bool]]:
    """Each column's name, what it says of a row, and whether it says anything."""
    redriven = any(row.refused.redriven for row in rows)
    return [
        ("place", lambda row: f"{row.refused.place.partition}/{row.refused.place.offset}", True),
        ("age", lambda row: age(row.refused), True),
        ("consumer group", lambda row: row.refused.consumer_group, len(consumer_groups) > 1),
        ("tried", lambda row: str(row.refused.attempts), consumer_groups != [""]),
        ("group", lambda row: group_names.in_table(row.group), True),
        ("redriven", lambda row: str(row.refused.redriven or ""), redriven),
        ("reason", _reason, True),
    ]


def _reason(row: Row) -> str:
    reason = printable(row.refused.reason)
    if len(reason) > REASON_SHOWN_MAX:
        reason = reason[:REASON_SHOWN_MAX] + "…"
    state = "(settled) " if row.settled else "(its group waits) " if row.waits else ""
    return state + reason


def print_one(refused: Refused, group: bytes | None, *, settled: bool) -> None:
    """All of one record, for a person."""
    found = document(refused, group, settled=settled)
    found["timestamp"] = moment(refused.timestamp)
    for name, value in found.items():
        if name not in {"topic", "partition", "offset", "group_hex"}:
            say(f"{name:<15} {'-' if value in {None, ''} else value}")
    say(f"{'age':<15} {age(refused)}")
    say(f"{'key':<15} {_told(refused.key)}")
    for header, carried in refused.headers:
        say(f"{'header':<15} {header}: {_told(carried)}")
    text = readable(refused.value)
    size = len(refused.value or b"")
    if text is not None and len(text) > VALUE_SHOWN_MAX:
        text = f"{text[:VALUE_SHOWN_MAX]}… (--json has all)"
    shown = "(none: a tombstone)" if text is None else printable(text, keep="\n\t")
    click.echo(f"{'value':<15} {size:,} bytes\n{shown}")


def _told(value: bytes | None) -> str:
    """In a line, for a person: ``--json`` has all of it."""
    text = readable(value)
    if text is None:
        return "(none)"
    return (
        text if len(text) <= VALUE_SHOWN_MAX else f"{text[:VALUE_SHOWN_MAX]}… ({len(value or b''):,} bytes)"
    )


def age(refused: Refused) -> str:
    """As a person says it."""
    seconds = max(0.0, time.time() - refused.timestamp / 1000)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def print_left(left: Sequence[tuple[Refused, str]], say: Callable[[str], None]) -> None:
    """What was not redriven, by why, with the first place of each."""
    first: dict[str, Refused] = {}
    counts: Counter[str] = Counter()
    for refused, reason in left:
        counts[reason] += 1
        first.setdefault(reason, refused)
    for reason, count in counts.most_common(REASONS_MAX):
        place = first[reason].place
        say(f"left  {count} ({place.partition}/{place.offset}{', …' if count > 1 else ''}): {reason}")
    if len(counts) > REASONS_MAX:
        say(
            f"left  {sum(counts.values()) - sum(number for _, number in counts.most_common(REASONS_MAX))} more"
        )


def line(refused: Refused) -> str:
    """Which, whence and why."""
    return f"{refused.place}  {refused.source or 'no source'}  {refused.reason or 'no reason'}"


def say(text: str) -> None:
    """A line, of which parts may be anybody's words."""
    click.echo(printable(text))


def dump(value: object) -> None:
    """One JSON document."""
    click.echo(json.dumps(value, indent=2))
