"""Refused records, dead letters and results of commands, as text and as JSON."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import click
from rich.table import Table

from app.commands.groups.messages import readable
from app.commands.repair.records import Refused, Selection, Wanted
from conf import terminal
from ringfence_client.handlers import group_names
from ringfence_kafka.escaping import moment, printable

SHOWN_MAX: Final = 50
"""Number of rows in a table; ``--json`` has all."""
VALUE_SHOWN_MAX: Final = 2_000
REASON_SHOWN_MAX: Final = 80
REASON_LINE_MAX: Final = 300
REASONS_MAX: Final = 20
"""Number of reasons to list."""
NOTHING: Final = 1
"""Exit code if no record was found."""


class Row(NamedTuple):
    """Record in a list."""

    refused: Refused
    group: bytes | None
    settled: bool
    waits: bool | None = False
    """Whether its group waits behind it; None = unknown."""


def document(row: Row) -> dict[str, Any]:
    """Return a record without its content, for programs."""
    refused, group, settled, _ = row
    shown = {
        "place": f"{refused.place.partition}/{refused.place.offset}",
        **refused.place._asdict(),
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
        shown["application"] = refused.app_id
    if refused.consumer_group:
        shown |= {
            "consumer_group": refused.consumer_group,
            "attempts": refused.attempts,
            "accepted": None if refused.accepted is None else str(refused.accepted),
        }
    return shown


def show_rows(topic: str, rows: Sequence[Row], wanted: Wanted, what: str, *, as_json: bool) -> None:
    """Print a list of records. ``what``: name of their kind."""
    if as_json:
        _dump([document(row) | {"group_waits": row.waits} for row in rows])
    elif rows:
        print_rows(topic, rows)
    elif wanted.settled_too and wanted.selection == Selection():
        click.echo(f"nothing  {topic} has no records")
    else:
        click.echo(f"nothing  {none_open(what, wanted)}")


def show_one(row: Row, *, as_json: bool) -> None:
    """Print one record completely."""
    if not as_json:
        print_one(row)
        return
    refused = row.refused
    headers = [[name, readable(value)] for name, value in refused.headers]
    _dump(
        document(row) | {"key": readable(refused.key), "value": readable(refused.value), "headers": headers}
    )


def print_rows(topic: str, rows: Sequence[Row]) -> None:
    """Print a table without the columns that are the same in all rows, because terminals are narrow."""
    settled = sum(row.settled for row in rows)
    groups = sorted({row.refused.consumer_group for row in rows})
    of = f" of {groups[0]}" if groups[0] and len(groups) == 1 else ""
    title = f"{topic}{of}: {len(rows) - settled:,} open" + (f", {settled:,} settled" if settled else "")
    kept = {
        "consumer group": len(groups) > 1,
        "tried": groups != [""],
        "redriven": any(row.refused.redriven for row in rows),
    }
    names = [name for name in _cells(rows[0]) if kept.get(name, True)]
    table = Table(*names, title=title)
    for cells in map(_cells, rows[:SHOWN_MAX]):
        table.add_row(*(cells[name] for name in names))
    console = terminal.console()
    terminal.print_table(table, console)
    if len(rows) > SHOWN_MAX:
        console.print(f"and {len(rows) - SHOWN_MAX:,} more: --json has all")
        kinds = Counter(row.refused.reason for row in rows if not row.settled)
        for reason, count in kinds.most_common(REASONS_MAX):
            line = f"  {count:,}  {_shortened(printable(reason), REASON_LINE_MAX)}"
            console.print(line, highlight=False, soft_wrap=True)


def _cells(row: Row) -> dict[str, str]:
    refused = row.refused
    return {
        "place": f"{refused.place.partition}/{refused.place.offset}",
        "age": _age(refused),
        "consumer group": refused.consumer_group,
        "tried": str(refused.attempts),
        "group": group_names.in_table(row.group),
        "redriven": str(refused.redriven or ""),
        "reason": _reason(row),
    }


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _reason(row: Row) -> str:
    reason = _shortened(printable(row.refused.reason), REASON_SHOWN_MAX)
    state = "(settled) " if row.settled else "(its group waits) " if row.waits else ""
    return state + reason


def print_one(row: Row) -> None:
    """Print one record completely, as text."""
    refused = row.refused
    fields = document(row) | {"timestamp": moment(refused.timestamp)}
    for name, value in fields.items():
        if name not in {"topic", "partition", "offset", "group_hex"}:
            say(f"{name:<15} {'-' if value in {None, ''} else value}")
    say(f"{'age':<15} {_age(refused)}")
    say(f"{'key':<15} {_in_line(refused.key)}")
    for header, content in refused.headers:
        say(f"{'header':<15} {header}: {_in_line(content)}")
    size, text = len(refused.value or b""), readable(refused.value) or ""
    if len(text) > VALUE_SHOWN_MAX:
        text = f"{text[:VALUE_SHOWN_MAX]}… (--json has all)"
    shown = "(none: a tombstone)" if refused.value is None else printable(text, keep="\n\t")
    click.echo(f"{'value':<15} {size:,} bytes\n{shown}")


def _in_line(value: bytes | None) -> str:
    text = readable(value)
    if value is None or text is None:
        return "(none)"
    return text if len(text) <= VALUE_SHOWN_MAX else f"{text[:VALUE_SHOWN_MAX]}… ({len(value):,} bytes)"


def _age(refused: Refused) -> str:
    seconds = max(0.0, time.time() - refused.timestamp / 1000)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def line(refused: Refused) -> str:
    """Return place, source and reason."""
    return f"{refused.place}  {refused.source or 'no source'}  {refused.reason or 'no reason'}"


def say(text: str) -> None:
    """Print a line, which may have text of other programs."""
    click.echo(printable(text))


def _dump(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def none_open(what: str, wanted: Wanted) -> str:
    """Return that no wanted record is open, and which other records are."""
    selection = wanted.selection
    if selection == Selection():
        return f"there are no open {what}"
    if selection.at:
        places = ", ".join(f"{number}/{offset}" for number, offset in sorted(selection.at))
        return f"{places}: no open {what} match; `list --all` shows settled ones"
    beside = f"; {wanted.passed}" if wanted.passed.count else ""
    open_ones = what if wanted.settled_too else f"open {what}"
    return f"no {open_ones} match{beside}"


@dataclass(slots=True)
class Result:
    """Result of a redrive or a drop."""

    done: int = 0
    left: list[tuple[Refused, str]] = field(default_factory=list)
    """Skipped records with the reason."""

    def leave(self, refused: Refused, reason: str) -> None:
        """Record a skipped record with the reason, but without its value, which may be large."""
        self.left.append((replace(refused, value=None), reason))

    def report(self, wanted: Wanted, what: str, outcome: str) -> int:
        """Print the end of a command, with a line for each reason; return 1 if none was wanted, or some are left.

        ``what`` is the kind of record, ``outcome`` that of the finished ones, in words.
        """
        if not self.done and not self.left:
            click.echo(f"nothing to do  {none_open(what, wanted)}")
            return NOTHING
        by_reason: dict[str, list[Refused]] = {}
        for refused, reason in self.left:
            by_reason.setdefault(reason, []).append(refused)
        reasons = sorted(by_reason.items(), key=lambda item: -len(item[1]))
        for reason, records in reasons[:REASONS_MAX]:
            place, count = records[0].place, len(records)
            say(f"left  {count} ({place.partition}/{place.offset}{', …' if count > 1 else ''}): {reason}")
        if more := sum(len(records) for _, records in reasons[REASONS_MAX:]):
            say(f"left  {more} more")
        click.echo(f"{self.done} {outcome}, {len(self.left)} left")
        return 1 if self.left else 0
