"""``ringfence rings clear``: makes each lane of an address forget all IDs, or all hops, at one point.

The floor, or the tombstones, are written as the lane itself. This fences its worker, which opens the lane
again and reads them. A busy worker fences this command as soon as it has opened the lane. Therefore the
command reads nearly everything before the fence, and retries a fenced write.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click
from aiokafka.errors import KafkaError

from agents.lane.journal import RingEvent
from app.commands.confirmation import confirmed
from app.commands.rings import hop_memory, show
from app.commands.rings.changelog_writer import Change, Event, OwnedLane, require_journal
from app.commands.rings.joined_rings import Entry, meta_entry
from app.commands.rings.offline_change import anything, first_unjudged
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError, TopicError, named
from ringfence_kafka.process.step_progress import Steps, steps
from ringfence_kafka.producer.transactional import FencedError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogStalledError
from ringfence_kafka.wording import counted
from tables import codec
from tables.codec import Meta
from tables.restore import Restore

TRIES: Final = 20
"""Number of tries. A lane waits 0.1 s before it opens again, about as long as the work between two fences."""
WAIT_LIMIT_S: Final = 10.0
"""Time without progress of the lanes after which the wait for their inputs ends, in seconds."""
_ASK_AGAIN_S: Final = 0.3


class UnreadError(RingfenceError):
    """Lanes have not judged all of their inputs."""


class ContestedError(RingfenceError):
    """A worker takes a lane back before its floor is written."""


def clear(settings: Settings, name: str, *, despite_lag: bool = False, yes: bool = False) -> int:
    """Forget all IDs of an address, or all hops with ``BRIDGE.<address>``. A failure does not undo a reported lane.

    ``despite_lag``: forget hops even if lanes have not judged all messages that came over bridges.

    Raises:
        UnreadError: Lanes do not judge their inputs.
        TopicError: Changelog or journal do not exist, or refuse a record.
        ContestedError: A lane is too busy.
        OtherLanesError: The lanes differ from the file, or are being regrouped.
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """
    bridged = hop_memory.address_of(settings, name)
    if despite_lag and bridged is None:
        raise click.UsageError(f"--despite-lag is for {wire_names.HOP_MEMORY}ADDRESS: leave it out")
    address, waits = bridged or settings.configured(name), bridged is not None and not despite_lag
    memory = _Ids(name) if bridged is None else _Hops(name)
    question = f"Forget all {memory.what} of {name}? Duplicates of earlier messages are then accepted"
    confirmed(question, yes=yes)
    try:
        with steps() as progress:
            asyncio.run(_clear(settings, address, memory, progress, waits=waits))
    except (KafkaError, LogStalledError, TimeoutError) as error:
        raise BrokerUnavailableError(
            f"{name} is not cleared: {named(error)}. Lanes named before are cleared; look at the brokers and at this user's "
            "rights, and run it again"
        ) from error
    return 0


@dataclass(frozen=True, slots=True)
class _Ids:
    """IDs in the ring of a lane."""

    name: str
    """Name in output and journal."""
    what: str = "IDs"

    def count(self, restore: Restore) -> int:
        return len(show.live_slots(restore))

    def forgotten(self, restore: Restore, meta: Meta) -> list[Entry]:
        """Return the changelog records that make a lane forget."""
        return [meta_entry(meta._replace(floor=meta.head))]


@dataclass(frozen=True, slots=True)
class _Hops(_Ids):
    """Hop memory of a lane."""

    what: str = "sources of bridges"

    def count(self, restore: Restore) -> int:
        return len({codec.decode_hops(*item)[0].source for item in restore.hops.items()})

    def forgotten(self, restore: Restore, meta: Meta) -> list[Entry]:
        return [*(Entry(key, None) for key in restore.hops), meta_entry(meta)]


async def _clear(
    settings: Settings, address: AddressSettings, memory: _Ids, progress: Steps, *, waits: bool
) -> None:
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        views = await show.lane_views(settings, address, cluster, to_write=True)
        lanes = counted(len(views), "lane")
        await require_journal(settings, cluster)
        if waits:
            progress.start_step(f"waiting until lanes of {address.name} have judged their inputs")
            progress.count(lanes)
            await _await_judged(settings, address, cluster, views)
        done = total = 0
        progress.start_step(f"clearing {memory.name}")
        progress.count(lambda: f"{done:,} of {lanes}, {total:,} {memory.what} forgotten")
        for view in views:
            try:
                forgotten = await _clear_lane(settings, address, view, memory)
            except TopicError as error:
                raise TopicError(
                    f"{view.lane} is not cleared: {error}. Lanes named before it are cleared"
                ) from error
            click.echo(f"cleared  {view.lane}  {forgotten} {memory.what} forgotten")
            done, total = done + 1, total + forgotten


async def _await_judged(
    settings: Settings, address: AddressSettings, cluster: Cluster, views: Sequence[show.LaneView]
) -> None:
    """Wait until lanes have judged the present records of the input and their forwards.

    A bridge's record has the floor of confirmed offsets at its send time. If a lane forgets its hops and then
    judges such a record, it adopts that floor, and drops records below it that the bridge sends again.

    Raises:
        UnreadError: Lanes make no progress.
    """
    places = {address.input_topic: [(view, partition) for view in views for partition in view.partitions]}
    if (forward := address.topics(settings.app.id).get("forward topic")) is not None:
        places[forward] = [(view, view.number) for view in views]
    # Lanes forward a record before they pass its place in the input, so waiting in this order misses none.
    for topic, inputs in places.items():
        left = {
            (view, partition): await cluster.offsets.high_watermark(topic, partition)
            for view, partition in inputs
        }
        reached: dict[int, int] = {}
        moved_at = time.monotonic()
        while True:
            for (view, partition), end in list(left.items()):
                begin = await first_unjudged(cluster, topic, partition, (await view.read_on()).meta)
                if begin != reached.get(partition):
                    reached[partition], moved_at = begin, time.monotonic()
                if not await anything(settings, topic, partition, begin, end):
                    del left[view, partition]
            if not left:
                break
            if time.monotonic() - moved_at > WAIT_LIMIT_S:
                ((view, partition), end), *_ = left.items()
                raise UnreadError(
                    f"{wire_names.HOP_MEMORY}{address.name} is not cleared: lane {view.lane} has judged "
                    f"{topic}/{partition} up to {reached[partition]} of {end}; records of bridges "
                    "among the rest would confirm offsets again; start the workers and wait until their lag is 0, or clear --despite-lag"
                )
            await asyncio.sleep(_ASK_AGAIN_S)


async def _clear_lane(settings: Settings, address: AddressSettings, view: show.LaneView, memory: _Ids) -> int:
    for _ in range(TRIES):
        await view.read_on()
        try:
            async with OwnedLane(settings, address, view.number) as owned:
                restore = await view.read_on()
                if (meta := restore.meta) is None:
                    return 0
                show.require_own_lanes(address, [meta])
                lane, capacity, count = view.number, meta.capacity, memory.count(restore)
                event = Event(RingEvent.CLEARED, lane, capacity, capacity, meta, memory.name)
                await owned.write([Change(lane, memory.forgotten(restore, meta))], [event])
                return count
        except FencedError:
            continue
    raise ContestedError(
        f"{view.lane} is not cleared: its worker took it back {TRIES} times before its {memory.what} were "
        f"forgotten. Lanes named before it are cleared; stop the workers of {address.name}, or its "
        "producers, and run it again"
    )
