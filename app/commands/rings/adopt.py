"""``ringfence rings adopt``: gives the lanes of an address the rules of this file.

All workers must be stopped, so that lanes never judge by different rules. Each record is written as the lane
itself: a worker that starts meanwhile is fenced, and then reads the new rules.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import click

from agents.lane.journal import RingEvent
from agents.rules.lane_rules import as_written, differences, key_of, rules_of
from app.commands.confirmation import confirmed
from app.commands.rings import show
from app.commands.rings.changelog_writer import Change, Event, OwnedLane, require_journal
from app.commands.rings.joined_rings import meta_entry
from app.commands.rings.offline_change import carry_out, running_workers
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.process.step_progress import Steps
from ringfence_kafka.wording import counted

_MOVES: Final = frozenset({"group_header", "default_group", "partitioner"})


class WorkersRunError(RingfenceError):
    """A worker is a member of the group, so rules cannot change."""


def adopt(settings: Settings, name: str, *, yes: bool = False) -> int:
    """Write the rules of this file into the record of each lane of an address. ``yes``: do not ask.

    Raises:
        WorkersRunError: A worker runs, or starts meanwhile.
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """
    carry_out(settings, partial(_adopt, settings, settings.configured(name), yes=yes), WorkersRunError)
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


async def _adopt(
    settings: Settings, address: AddressSettings, cluster: Cluster, progress: Steps, *, yes: bool
) -> None:
    own = rules_of(address, settings.transaction_targets(address))
    await _require_stopped(settings, cluster)
    await require_journal(settings, cluster)
    progress.start_step(f"reading the rings of {address.name}")
    views = await show.lane_views(settings, address, cluster, to_write=True)
    metas = [(await view.read_on()).meta for view in views]
    progress.end()
    due = {
        view: meta
        for view, meta in zip(views, metas, strict=True)
        if meta is not None and dict(meta.rules) != own
    }
    for view in views:
        if view not in due:
            click.echo(f"kept     {view.lane}  it has these rules already, or no record yet")
    if not due:
        return
    confirmed(_question(address, [meta.rules for meta in due.values()], own), yes=yes)
    done = 0
    progress.start_step(f"changing the rules of {address.name}")
    progress.count(lambda: f"{done:,} of {counted(len(due), 'lane')}")
    for view in due:
        click.echo(await _adopt_lane(settings, address, cluster, view, own))
        done += 1
    progress.end()
    click.echo("start the workers, all with this file")


def _question(address: AddressSettings, recorded: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> str:
    changed = [difference for rules in recorded for difference in differences(rules, own)]
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
    async with OwnedLane(settings, address, view.number) as owned:
        await _require_stopped(settings, cluster)
        restore = await view.read_on()
        meta = restore.meta
        if meta is None:
            return f"kept     {view.lane}  it has no record yet"
        show.require_own_lanes(address, [meta])
        forgotten = forgets(meta.rules, own)
        count = len(show.live_slots(restore)) if forgotten else 0
        new = meta._replace(rules=own, floor=meta.head if forgotten else meta.floor)
        event = Event(RingEvent.CLEARED, view.number, meta.capacity, meta.capacity, new)
        await owned.write([Change(view.number, [meta_entry(new)])], [event] if forgotten else [])
    return f"adopted  {view.lane}  " + (f"{count} IDs forgotten" if forgotten else "IDs stay known")


async def _require_stopped(settings: Settings, cluster: Cluster) -> None:
    advice = ", and a rule changes for all workers at once: stop all of them by SIGTERM, then run it again"
    if running := await running_workers(settings, cluster, advice):
        raise WorkersRunError(running)
