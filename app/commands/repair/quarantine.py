"""``ringfence quarantine``."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from agents.decision.ids_and_groups import IdReader
from app.commands.repair import common, output
from app.commands.repair.quarantine_redrive import InputTopic, Publisher, Quarantine, Redrive, find
from app.commands.repair.rate_limit import RateLimit
from app.commands.repair.refused_record import Refused
from app.commands.repair.result import Result
from app.commands.repair.scan import Act, Wanted
from app.commands.repair.selection import Selection
from app.commands.repair.size_check import Input, SizeCheck, outputs
from ringfence_kafka.admin.topics import TopicDescription, missing, untold
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.escaping import printable

WHAT = "quarantined records"


def list_(
    settings: Settings, name: str, selection: Selection, *, bridge: bool, all_: bool, as_json: bool
) -> int:
    """Print what is open, or with ``all_`` also what is settled.

    Raises:
        ConfigurationError: unknown address or bridge.
        BrokerUnavailableError: nobody answers.
    """
    quarantine = find(settings, name, bridge=bridge)
    wanted = _wanted(settings, quarantine, selection, settled_too=all_)

    async def read() -> list[tuple[Refused, bool]]:
        async with common.opened(quarantine.kafka, settings.app.id, quarantine.topic) as opened:
            return await common.listed(opened, wanted)

    rows = asyncio.run(read())
    code = common.show_rows(quarantine.topic, rows, wanted, WHAT, as_json=as_json)
    _tell_foreign(wanted)
    return code


def show(settings: Settings, name: str, at: tuple[int, int], *, bridge: bool, as_json: bool) -> int:
    """Print all of one record. Returns 1 if it is not there. Raises as :func:`list_` does."""
    quarantine = find(settings, name, bridge=bridge)
    wanted = _wanted(settings, quarantine, Selection(at=[at]), settled_too=True)

    async def read() -> list[tuple[Refused, bool]]:
        async with common.opened(quarantine.kafka, settings.app.id, quarantine.topic) as opened:
            return await common.listed(opened, wanted, whole=True)

    rows = asyncio.run(read())
    code = common.show_one(quarantine.topic, at, rows, wanted.group_of, as_json=as_json)
    _tell_foreign(wanted)
    return code


def redrive(
    settings: Settings,
    name: str,
    selection: Selection,
    *,
    bridge: bool,
    dry_run: bool,
    rate: float | None,
    limit: int | None,
    most: int,
    force: bool,
) -> int:
    """Publish again what is meant.

    Returns:
        0 all of it is, or would be; 1 there is none, or some was left.

    Raises:
        ConfigurationError: unknown address or bridge, or another address feeds it.
        MissingTopicError: the input is missing.
        RepairError: another redrive has begun, or something cannot be written.
        BrokerUnavailableError: nobody answers.
    """
    quarantine = find(settings, name, bridge=bridge)
    if not quarantine.bridged:
        settings.require_own_input(quarantine.address, "nothing was redriven")
    wanted = _wanted(settings, quarantine, selection, limit=limit)
    return asyncio.run(
        _redrive(settings, quarantine, wanted, RateLimit(rate), dry_run=dry_run, most=most, force=force)
    )


async def _redrive(
    settings: Settings,
    quarantine: Quarantine,
    wanted: Wanted,
    pace: RateLimit,
    *,
    dry_run: bool,
    most: int,
    force: bool,
) -> int:
    writes = None if dry_run else quarantine.address.replication_factor
    others = () if quarantine.bridged else settings.transaction_targets(quarantine.address)
    behind = outputs(settings.app.id, quarantine.address, others, bridged=quarantine.bridged)
    async with common.opened(quarantine.kafka, settings.app.id, quarantine.topic, writes=writes) as opened:

        async def publisher() -> Publisher:
            """One that knows the topics as they are now."""
            described = (await opened.cluster.topics.describe([quarantine.target_topic, *behind])).topics
            target = _target(quarantine, described)
            opened.topic.batch_bytes_max = target.message_bytes_max
            end = await _end(opened, target)
            room = SizeCheck(
                settings.app.id, quarantine.address, others, Input(target.name, target.partitions, end), described,
                bridged=quarantine.bridged,
            )  # fmt: skip
            size = InputTopic(target.partitions, target.message_bytes_max)
            return Publisher(quarantine, size, most, force=force, room=room)

        run = Redrive(await publisher(), quarantine, opened.cluster, pace, output.say, publisher)
        act = Act(run.try_out) if dry_run else Act(run.act, writes=True)
        await common.worked(
            opened, wanted, act, "looking at records" if dry_run else "redriving records", run.result
        )
    said = "would be redriven" if dry_run else "redriven"
    _tell_foreign(wanted)
    return run.result.tell(wanted, WHAT, f"{said} to {quarantine.target_topic}")


def _target(quarantine: Quarantine, described: Mapping[str, TopicDescription]) -> TopicDescription:
    """Return the input topic. Raises MissingTopicError if it is missing, or the cluster does not tell its settings."""
    target = described.get(quarantine.target_topic)
    if target is None:
        raise MissingTopicError(missing("input topic", quarantine.address.name, quarantine.target_topic))
    if target.config is None:
        raise MissingTopicError(untold(target.name))
    return target


async def _end(opened: common.Opened, target: TopicDescription) -> int:
    """Of the longest partition."""
    numbers = range(target.partitions)
    return max(
        await asyncio.gather(
            *(opened.cluster.offsets.high_watermark(target.name, number) for number in numbers)
        )
    )


def drop(
    settings: Settings, name: str, selection: Selection, *, bridge: bool, dry_run: bool, yes: bool
) -> int:
    """Have it settled without being done. Returns and raises as :func:`redrive` does."""
    quarantine = find(settings, name, bridge=bridge)
    wanted = _wanted(settings, quarantine, selection)

    async def run() -> Result:
        writes = None if dry_run else quarantine.address.replication_factor
        async with common.opened(
            quarantine.kafka, settings.app.id, quarantine.topic, writes=writes
        ) as opened:
            return await common.drop(opened, wanted, dry_run=dry_run, yes=yes, what=WHAT)

    result = asyncio.run(run())
    _tell_foreign(wanted)
    return result.tell(wanted, WHAT, "would be dropped" if dry_run else "dropped")


def _wanted(
    settings: Settings,
    quarantine: Quarantine,
    selection: Selection,
    *,
    settled_too: bool = False,
    limit: int | None = None,
) -> Wanted:
    """Of a bridge only what this application's has refused: what others of its name have, their operators redrive or drop."""
    app_id = settings.app.id if quarantine.bridged else ""
    return Wanted(selection, _group_of(quarantine), settled_too=settled_too, limit=limit, app_id=app_id)


def _tell_foreign(wanted: Wanted) -> None:
    if text := wanted.passed.told_of_foreign:
        click.echo(f"note: {printable(text)}", err=True)


def _group_of(quarantine: Quarantine) -> Any:
    reader = IdReader(quarantine.address)

    def group(record: Any) -> bytes | None:
        (found,) = reader.groups([record])
        return found

    return group
