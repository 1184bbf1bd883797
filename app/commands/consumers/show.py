"""``ringfence consumers show``: holder, state, age and progress of each lease, and the waiting member."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

import click
from aiokafka.errors import TopicAuthorizationFailedError
from rich.table import Table

from app.commands.consumers.leases import NONE, UNREADABLE, Found, LeaseRow, read_leases
from conf import terminal
from ringfence_client.progress.progress_record import RELEASED
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.escaping import printable
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted

NOT_WELL: Final = 1


def show(settings: Settings, address: str | None, group: str | None, as_json: bool) -> int:
    """Print a row for each partition of one address or of all.

    Returns 0; or 1 if the consumer group is unknown, a record cannot be read, or there is a foreign member.

    Raises:
        PrerequisiteError: This user may not see a topic or a group.
        MissingTopicError: The accepted topic does not exist.
    """
    topic = None if address is None else settings.configured(address).accepted_topic
    try:
        with reading(wire_names.progress_topic(settings.app.id)):
            found = asyncio.run(read_leases(settings, topic, group))
    except TopicAuthorizationFailedError as error:
        raise PrerequisiteError(
            f"topic {error.args[0]}: this user may not see it: allow Describe on it, and Read on "
            f"{wire_names.progress_topic(settings.app.id)}"
        ) from error
    if as_json:
        document = {
            "groups": {
                name: {
                    "state": group.state,
                    "members": sorted(group.members),
                    "foreign": found.foreign.get(name, []),
                }
                for name, group in found.groups.items()
            },
            "partitions": list(map(asdict, found.rows)),
            "faults": found.faults,
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _print(found)
    foreign = [fault for faults in found.foreign.values() for fault in faults]
    for fault in [*foreign, *found.faults]:
        click.echo(f"ringfence: {printable(fault)}", err=True)
    if group and not found.rows:
        click.echo(
            f"nothing known  {group} never had a partition{f' of {address}' if address else ''}: check its "
            f"name, and app.id ({settings.app.id}); without --consumer-group all groups are shown",
            err=True,
        )
        return NOT_WELL
    return NOT_WELL if found.faults or found.foreign else 0


_COLUMNS: Final = ("partition", "state", "token", "age", "delivered", "acknowledged", "running", "lag")
"""Columns that fit a terminal of 80 columns; names follow below the table."""


def _print(found: Found) -> None:
    console = terminal.console()
    if not found.rows:
        console.print("no consumer has had a partition yet", highlight=False)
    for name, topic in sorted({(row.consumer_group, row.topic) for row in found.rows}):
        rows = [row for row in found.rows if (row.consumer_group, row.topic) == (name, topic)]
        group = found.groups[name]
        members = counted(len(group.members), "member")
        state = group.state.lower().replace("_", " ")
        terminal.print_table(
            _table(f"{name} at {rows[0].address or topic} ({state}, {members})", rows), console
        )
        for row in rows:
            if text := _names(row):
                console.print(f"partition {row.partition}: {text}", highlight=False, soft_wrap=True)
    if any(row.holder_is_member is False for row in found.rows):
        console.print(
            "gone: the group has no such member, because it ended or lost its connection. A waiting "
            "consumer gets its partition when it is released, or after --lease-timeout without a write "
            "(--lease-idle if no handler runs).",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


def _names(row: LeaseRow) -> str:
    parts = []
    if row.holder and row.state != RELEASED:
        parts.append(f"held by {row.holder}{' (gone)' if row.holder_is_member is False else ''}")
    if row.recreated:
        parts.append("deleted and created again: begins at its start")
    if row.waits:
        parts.append(f"{row.waits} waits")
    return ", ".join(parts)


def _table(title: str, rows: Iterable[LeaseRow]) -> Table:
    table = Table(title=title)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "state" else "right")
    for row in rows:
        known = row.state not in {NONE, UNREADABLE}
        figures = (row.token, row.delivered, row.acknowledged, row.running)
        token, *others = (f"{figure:,}" if known else "" for figure in figures)
        age = "" if row.age_seconds is None else f"{row.age_seconds:,.1f} s"
        lag = "" if row.lag is None else f"{row.lag:,}"
        table.add_row(str(row.partition), row.state, token, age, *others, lag)
    return table
