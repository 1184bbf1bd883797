"""``ringfence groups show ADDRESS`` without a consumer group: lists the consumer groups at an address."""

import asyncio
import json
import shlex
from dataclasses import asdict, dataclass

import click
from rich.table import Table

from app.commands.consumers import leases
from conf import terminal
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted


@dataclass(frozen=True, slots=True)
class ConsumerGroupRow:
    """One consumer group at the address."""

    consumer_group: str
    state: str
    members: list[str]
    lag: int | None
    """Offsets from the first unfinished message to the end; None = unknown."""
    failing: int
    """Number of groups whose first message failed and is retried."""
    parked: int
    """Number of groups behind a dead letter."""


def show(settings: Settings, address: str, as_json: bool) -> int:
    """Print a row for each consumer group, and the command that shows its message groups.

    Raises:
        MissingTopicError: The accepted topic does not exist.
    """
    topic = settings.configured(address).accepted_topic
    with reading(wire_names.progress_topic(settings.app.id)):
        found = asyncio.run(leases.read_leases(settings, topic, partial=True))
    rows = [_row(found, name) for name in sorted({row.consumer_group for row in found.rows})]
    if as_json:
        click.echo(json.dumps({"address": address, "consumer_groups": list(map(asdict, rows))}, indent=2))
    else:
        _print(address, rows)
    for fault in found.faults:
        click.echo(f"ringfence: {fault}", err=True)
    return 1 if found.faults else 0


def _row(found: leases.Found, name: str) -> ConsumerGroupRow:
    held, group = [row for row in found.rows if row.consumer_group == name], found.groups[name]
    lags = [row.lag for row in held if row.state != leases.NONE]
    return ConsumerGroupRow(
        consumer_group=name,
        state=group.state.lower().replace("_", " "),
        members=sorted(group.members),
        lag=None if None in lags else sum(lag for lag in lags if lag is not None),
        failing=sum(row.failing for row in held),
        parked=sum(row.blocked for row in held),
    )


def _print(address: str, rows: list[ConsumerGroupRow]) -> None:
    console = terminal.console()
    name = shlex.quote(address)
    if not rows:
        click.echo(f"no consumer group has consumed {address}: this starts one")
        click.echo(f"  ringfence consume {name} --handler MODULE:FUNCTION --consumer-group NAME")
        return
    table = Table(title=f"{counted(len(rows), 'consumer group')} at {address}")
    for column in ("consumer group", "state", "members", "lag", "failing groups", "parked groups"):
        table.add_column(column, justify="left" if column in {"consumer group", "state"} else "right")
    for row in rows:
        lag = "?" if row.lag is None else f"{row.lag:,}"
        numbers = (f"{len(row.members)}", lag, f"{row.failing:,}", f"{row.parked:,}")
        table.add_row(row.consumer_group, row.state, *numbers)
    terminal.print_table(table, console)
    most = max(rows, key=lambda row: (row.parked, row.failing, row.lag or 0)).consumer_group
    click.echo("its message groups, and why each waits:")
    click.echo(f"  ringfence groups show {name} --consumer-group {shlex.quote(most)}")
