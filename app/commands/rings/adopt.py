"""``ringfence rings adopt``: gives the lanes of an address the rules of this file.

All workers must be stopped, so that lanes never judge by different rules. Each record is written as the lane
itself: a worker that starts meanwhile is fenced, and then reads the new rules.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import click
from aiokafka.errors import KafkaError

from agents.lane.journal import RingEvent
from agents.rules.lane_rules import as_written, differences, key_of, rules_of
from app.commands.confirmation import confirmed
from app.commands.rings import show
from app.commands.rings.changelog_writer import OwnedLane, require_journal
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError
from ringfence_kafka.process.step_progress import Steps, steps
from ringfence_kafka.producer.transactional import FencedError
from ringfence_kafka.readers.log_reader import LogStalledError
from ringfence_kafka.readers.read_counts import observed
from ringfence_kafka.wording import counted
from tables import codec
from tables.restore import Restore

_MOVES: Final = frozenset({"group_header", "default_group", "partitioner"})


class WorkersRunError(RingfenceError):
    """A worker is a member of the group, so rules cannot change."""


def adopt(settings: Settings, name: str, *, yes: bool = False) -> int:
    """Write the rules of this file into the record of each lane of an address. ``yes``: do not ask.

    Raises:
        WorkersRunError: A worker runs, or starts meanwhile.
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """
    address = settings.configured(name)
    try:
        with steps() as progress, observed(progress.add_records):
            asyncio.run(_adopt(settings, address, progress, yes=yes))
    except (KafkaError, LogStalledError, TimeoutError) as error:
        raise BrokerUnavailableError(
            f"not all lanes of {name} have the new rules: {str(error) or type(error).__name__}. Look at the brokers and at this user's rights, "
            "and run it again before a worker starts"
        ) from error
    return 0


def forgets(recorded: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Return whether a message's new ID may equal another message's old ID.

    Then the ring must forget its IDs. Otherwise the new message would be dropped as a duplicate of the other
    one.
    """
    return any(
        key_of(key) == "duplicate_id_from"
        or (key_of(key) == "duplicate_id_headers" and not set(before) <= set(now))
        for key, before, now in differences(recorded, own)
    )


async def _adopt(settings: Settings, address: AddressSettings, progress: Steps, *, yes: bool) -> None:
    own = rules_of(address, settings.transaction_targets(address))
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        await _require_stopped(settings, cluster)
        await require_journal(settings, cluster)
        progress.start_step(f"reading the rings of {address.name}")
        views = await show.lane_views(settings, address, cluster, to_write=True)
        restored = [await view.read_on() for view in views]
        progress.end()
        due = [
            number
            for number, restore in enumerate(restored)
            if restore.meta is not None and dict(restore.meta.rules) != dict(own)
        ]
        for view in views:
            if view.number not in due:
                click.echo(f"kept     {view.lane}  it has these rules already, or no record yet")
        if not due:
            return
        confirmed(_question(address, [restored[number] for number in due], own), yes=yes)
        done = 0
        progress.start_step(f"changing the rules of {address.name}")
        progress.count(lambda: f"{done:,} of {counted(len(due), 'lane')}")
        for number in due:
            click.echo(await _adopt_lane(settings, address, cluster, views[number], own))
            done += 1
    progress.end()
    click.echo("start the workers, all with this file")


def _question(address: AddressSettings, restored: list[Restore], own: Mapping[str, Any]) -> str:
    recorded = [dict(restore.meta.rules) for restore in restored if restore.meta is not None]
    changed = [difference for item in recorded for difference in differences(item, own)]
    changes = dict.fromkeys(
        f"{key} from {as_written(before)} to {as_written(now)}" for key, before, now in changed
    )
    text = f"Change the rules of {address.name}: {'; '.join(changes) or 'none differs, the record is completed'}."
    if any(forgets(item, own) for item in recorded):
        text += " Its rings forget all IDs, so duplicates of earlier messages are accepted."
    if moved := {key for key, _, _ in changed} & _MOVES:
        text += (
            f" Groups and IDs get other home lanes ({', '.join(sorted(moved))}): let consumers finish "
            "first; an ID is not known in its new home, so duplicates of earlier messages may be accepted."
        )
    return f"{text} Change them?"


async def _adopt_lane(
    settings: Settings, address: AddressSettings, cluster: Cluster, view: show.LaneView, own: dict[str, Any]
) -> str:
    lane = view.lane
    try:
        async with OwnedLane(settings, address, view.number) as owned:
            await _require_stopped(settings, cluster)
            restore = await view.read_on()
            meta = restore.meta
            if meta is None:
                return f"kept     {lane}  it has no record yet"
            show.require_own_lanes(address, [meta])
            forgotten = forgets(meta.rules, own)
            count = len(show.live_slots(restore)) if forgotten else 0
            new = meta._replace(rules=own, floor=meta.head if forgotten else meta.floor)
            journal = [
                owned.journal_record(RingEvent.CLEARED, address.name, (meta.capacity, meta.capacity), new)
            ]
            await owned.write([(codec.META_KEY, codec.encode_meta(new))], journal if forgotten else [])
    except FencedError as error:
        raise WorkersRunError(
            f"{lane} does not have the new rules: a worker has started meanwhile. Stop all workers of {settings.app.id} and run it again"
        ) from error
    return f"adopted  {lane}" + (f"  {count} IDs forgotten" if forgotten else "  IDs stay known")


async def _require_stopped(settings: Settings, cluster: Cluster) -> None:
    await cluster.groups.await_coordinator()
    if (state := await cluster.groups.state()) not in NO_MEMBERS:
        raise WorkersRunError(
            f"workers of {settings.app.id} run (its group is {state}), and a rule changes for all workers "
            "at once: stop all of them by SIGTERM, then run it again; a worker that was killed counts "
            "until its session ends"
        )
