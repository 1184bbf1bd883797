"""``ringfence bridge status``: the progress of each bridge."""

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from agents.bridge.plan import plans
from app.commands.bridges import removed_bridges
from app.commands.bridges.progress import Row, Shown, read_progress
from conf import terminal
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError
from ringfence_kafka.escaping import printable, shortened
from ringfence_kafka.groups.foreign_members import WAY_OUT
from ringfence_kafka.page.formats import age
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.wording import counted

NOT_WELL: Final = 1


def show(settings: Settings, names: Sequence[str], as_json: bool) -> int:
    """Print all bridges, or the named ones; return 0, or 1 if an operator must act.

    Raises:
        ConfigurationError: A name is unknown, or the configuration has no bridge.
        BrokerUnavailableError: No source answers.
    """
    with reading("offsets of bridges"):
        found = asyncio.run(read_progress(plans(settings, names)))
        left, unreadable = ([], []) if names else asyncio.run(removed_bridges.find_removed(settings))
    for name in unreadable:
        click.echo(f"note: {printable(name)}", err=True)
    if all(shown.fault for shown in found):
        raise BrokerUnavailableError(
            "\n".join(dict.fromkeys(f"bridge {shown.bridge}: {shown.fault}" for shown in found))
        )
    if as_json:
        document = {
            "bridges": {shown.bridge: asdict(shown) for shown in found},
            "left": [asdict(item) for item in left],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _print(found)
        for item in left:
            click.echo(printable(f"{item.bridge}: {item.what}: {item.do}"))
    abandoned = any(item.read_by is None for item in left)
    return NOT_WELL if abandoned or any(shown.needs_action for shown in found) else 0


_WHOLE: Final = "--json has all"
_COLUMNS: Final = ("partition", "confirmed", "lag", "forwarded", "sent again", "filtered", "quarantined")


def _print(found: Sequence[Shown]) -> None:
    console = terminal.console()
    for shown in found:
        title = f"{shown.bridge}: {shown.source_topic} to {shown.target_topic}"
        if shown.fault:
            _say(console, f"{title}\n  PROBLEM  {shortened(shown.fault, _WHOLE)}")
            continue
        members = counted(len(shown.members), "member")
        terminal.print_table(
            _table(f"{title} ({shown.state.lower().replace('_', ' ')}, {members})", shown.partitions), console
        )
        for text in problem_lines(shown):
            _say(console, f"  {shortened(text, _WHOLE)}")


def problem_lines(shown: Shown) -> list[str]:
    """Return the lines that need attention, once for all partitions of a bridge."""
    partitions: dict[str, list[str]] = {}
    for row in shown.partitions:
        for text in _row_problems(shown, row):
            partitions.setdefault(text, []).append(str(row.partition))
    return [
        *(
            f"PROBLEM: {name}: messages that it reads are not forwarded until it has left: {WAY_OUT}"
            for name in shown.foreign
        ),
        *(f"partition {', '.join(numbers)}: {text}" for text, numbers in partitions.items()),
    ]


def _row_problems(shown: Shown, row: Row) -> Iterator[str]:
    if row.error:
        yield f"PROBLEM{_since(row.since)}: {row.error}"
    if row.abandoned:
        yield "NOBODY forwards it, and messages wait: run 'ringfence bridge'"
    if row.gap_records:
        yield "GAP: retention deleted messages before they were forwarded"
    if row.recreated:
        yield "the topic was deleted and created again: it begins at its start"
    if row.returned:
        yield (
            "messages returned to a cluster where they had been, because bridges form a cycle: stop "
            "one, or see 'returns' in docs/bridges.md"
        )
    if row.quarantined:
        yield f"the target refused messages permanently: see {shown.bridge}.quarantine there"


def _since(since: str | None) -> str:
    if since is None:
        return ""
    return f" since {since} ({age(max(0.0, time.time() - datetime.fromisoformat(since).timestamp()))} ago)"


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def _table(title: str, rows: Iterable[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for row in rows:
        figures: list[Any] = [row.lag, row.forwarded, row.retried, row.filtered, row.quarantined]
        confirmed = "not begun" if row.confirmed is None else f"{row.confirmed:,}"
        table.add_row(
            str(row.partition), confirmed, *("?" if figure is None else f"{figure:,}" for figure in figures)
        )
    return table
