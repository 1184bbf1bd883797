"""``ringfence dlq``."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import click
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from app.commands.groups.lease_holders import LeaseHolders
from app.commands.repair import common, output
from app.commands.repair.dead_letters import LetterRedrive, drop_blocked
from app.commands.repair.rate_limit import RateLimit
from app.commands.repair.refused_record import Place, Refused
from app.commands.repair.result import Result
from app.commands.repair.scan import Act, Wanted
from app.commands.repair.selection import Selection
from ringfence_kafka.admin.topics import missing
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import MissingTopicError, TopicError
from ringfence_kafka.protocol import wire_names

WHAT: Final = "dead letters"


def list_(settings: Settings, name: str, selection: Selection, *, all_: bool, as_json: bool) -> int:
    """Print what is open, or with ``all_`` also what is settled.

    Raises:
        ConfigurationError: unknown address.
        BrokerUnavailableError: nobody answers.
    """
    address = settings.configured(name)
    wanted = Wanted(selection, _group_of, settled_too=all_)

    async def read() -> tuple[list[tuple[Refused, bool]], dict[Place, bool | None]]:
        async with common.opened(
            settings.kafka, settings.app.id, wire_names.dead_letter_topic(name)
        ) as opened:
            rows = await common.listed(opened, wanted)
            return rows, await _waiting(settings, address, rows)

    rows, waits = asyncio.run(read())
    return common.show_rows(
        wire_names.dead_letter_topic(name), rows, wanted, WHAT, as_json=as_json, waits=waits
    )


def show(settings: Settings, name: str, at: tuple[int, int], *, as_json: bool) -> int:
    """Print all of one record. Returns 1 if it is not there. Raises as :func:`list_` does."""
    wanted = Wanted(Selection(at=[at]), _group_of, settled_too=True)
    topic = wire_names.dead_letter_topic(settings.configured(name).name)

    async def read() -> list[tuple[Refused, bool]]:
        async with common.opened(settings.kafka, settings.app.id, topic) as opened:
            return await common.listed(opened, wanted, whole=True)

    rows = asyncio.run(read())
    return common.show_one(wire_names.dead_letter_topic(name), at, rows, _group_of, as_json=as_json)


async def _waiting(
    settings: Settings, address: AddressSettings, rows: Sequence[tuple[Refused, bool]]
) -> dict[Place, bool | None]:
    """Of the open ones, whether their groups wait behind them: of several of one message behind the last. None = it cannot be told."""
    holders = LeaseHolders(settings, address, _say_waiting)
    last: dict[tuple[str, Place], Place] = {}
    untold: dict[Place, bool | None] = {}
    refused: set[str] = set()
    try:
        for item, settled in rows:
            where, group = item.accepted, item.consumer_group
            if settled or where is None or not group or where.topic != address.accepted_topic:
                continue
            try:
                if group not in refused and where[1:] in await holders.blocked(group):
                    last[group, where] = item.place
            except (GroupAuthorizationFailedError, TopicAuthorizationFailedError) as error:
                refused.add(group)
                of_group = isinstance(error, GroupAuthorizationFailedError)
                lacking = f"the consumer group {group}" if of_group else f"the topic {error.args[0]}"
                click.echo(
                    f"note: whether groups wait behind dead letters of {group} cannot be told: this user may not see {lacking}: allow Describe "
                    "on it",
                    err=True,
                )
            if group in refused:
                untold[item.place] = None
    except TopicError:
        return {}  # there is no accepted topic any more
    finally:
        await holders.close()
    return untold | dict.fromkeys(last.values(), True)


def redrive(
    settings: Settings,
    name: str,
    selection: Selection,
    *,
    dry_run: bool,
    rate: float | None,
    limit: int | None,
    most: int,
    force: bool,
) -> int:
    """Have the messages of what is meant done once more.

    Returns:
        0 all of them are to be, or would be; 1 there is none, or some was left.

    Raises:
        ConfigurationError: unknown address.
        MissingTopicError: the accepted topic is missing.
        RepairError: another redrive has begun, or something cannot be written.
        BrokerUnavailableError: nobody answers.
    """
    address = settings.configured(name)
    wanted = Wanted(selection, _group_of, limit=limit)
    return asyncio.run(
        _redrive(settings, address, wanted, RateLimit(rate), dry_run=dry_run, most=most, force=force)
    )


async def _redrive(
    settings: Settings,
    address: AddressSettings,
    wanted: Wanted,
    pace: RateLimit,
    *,
    dry_run: bool,
    most: int,
    force: bool,
) -> int:
    topic = wire_names.dead_letter_topic(address.name)
    writes = None if dry_run else address.replication_factor
    async with common.opened(settings.kafka, settings.app.id, topic, writes=writes) as opened:
        if opened.partitions:
            await _require_accepted(opened, address)
        holders = LeaseHolders(settings, address, _say_waiting)
        run = LetterRedrive(
            address, settings.kafka, opened.cluster, holders, pace, output.say, most=most, force=force
        )
        act = Act(run.try_out) if dry_run else Act(run.act, writes=True)
        try:
            await common.worked(
                opened, wanted, act, "looking at records" if dry_run else "redriving records", run.result
            )
        finally:
            await holders.close()
    said = "would be done again" if dry_run else "to be done again"
    return run.result.tell(wanted, WHAT, said)


def drop(settings: Settings, name: str, selection: Selection, *, dry_run: bool, yes: bool) -> int:
    """Have it settled without being done; groups that wait behind it go on.

    Returns and raises as :func:`redrive` does.
    """
    address = settings.configured(name)
    wanted = Wanted(selection, _group_of)
    topic = wire_names.dead_letter_topic(name)

    async def run() -> Result:
        writes = None if dry_run else address.replication_factor
        async with common.opened(settings.kafka, settings.app.id, topic, writes=writes) as opened:
            if opened.partitions and not dry_run:
                await _require_accepted(opened, address)
            holders = LeaseHolders(settings, address, _say_waiting)

            async def before(those: Sequence[Refused]) -> list[tuple[Refused, str]]:
                return await drop_blocked(holders, those, output.say)

            try:
                return await common.drop(opened, wanted, dry_run=dry_run, yes=yes, what=WHAT, before=before)
            finally:
                await holders.close()

    return asyncio.run(run()).tell(wanted, WHAT, "would be dropped" if dry_run else "dropped")


async def _require_accepted(opened: common.Opened, address: AddressSettings) -> None:
    if address.accepted_topic not in await opened.cluster.topics.partition_counts([address.accepted_topic]):
        raise MissingTopicError(missing("accepted topic", address.name, address.accepted_topic))


def _say_waiting(text: str) -> None:
    click.echo(f"{text}; waiting until its lease has run out", err=True)


def _group_of(record: Any) -> bytes | None:
    """What is accepted is keyed by its group."""
    key: bytes | None = record.key
    return key
