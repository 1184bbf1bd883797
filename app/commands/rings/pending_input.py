"""Waits until lanes have judged their inputs.

A bridge's record has the floor of confirmed offsets at its send time. If a lane forgets its hops and then
judges such a record, it adopts that floor, and drops records below it that the bridge sends again.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.commands.rings.show import LaneView
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.groups.trusted_offsets import own_commit
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogReader, LogStalledError
from tables.codec import Meta

WAIT_LIMIT_S: Final = 10.0
"""Time without progress of the lanes after which the wait ends, in seconds."""
_ASK_AGAIN_S: Final = 0.3
_LOOK_LIMIT_S: Final = 5.0
"""Time limit of one look, in seconds. An open transaction ends it: records behind it are not judged."""


class UnreadError(RingfenceError):
    """Lanes have not judged all of their inputs."""


class _FoundError(Exception):
    """A look found a record."""


async def await_judged(
    settings: Settings, address: AddressSettings, cluster: Cluster, views: Sequence[LaneView]
) -> None:
    """Wait until lanes have judged the present records of the input and their forwards.

    Raises:
        UnreadError: Lanes make no progress.
    """
    # Lanes forward a record before they pass its place in the input, so waiting in this order misses none.
    for topic, places in inputs_of(settings, address, views).items():
        ends = {
            (view, partition): await cluster.offsets.high_watermark(topic, partition)
            for view, partition in places
        }
        await _await(settings, address, cluster, topic, ends)


def inputs_of(
    settings: Settings, address: AddressSettings, views: Sequence[LaneView]
) -> dict[str, list[tuple[LaneView, int]]]:
    """Return the partitions of input and forward topic, each with its lane."""
    places = {address.input_topic: [(view, partition) for view in views for partition in view.partitions]}
    if (forward := address.topics(settings.app.id).get("forward topic")) is not None:
        places[forward] = [(view, view.number) for view in views]
    return places


async def _await(
    settings: Settings,
    address: AddressSettings,
    cluster: Cluster,
    topic: str,
    ends: Mapping[tuple[LaneView, int], int],
) -> None:
    left = dict(ends)
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
            return
        if time.monotonic() - moved_at > WAIT_LIMIT_S:
            ((view, partition), end), *_ = left.items()
            raise UnreadError(
                f"{wire_names.HOP_MEMORY}{address.name} is not cleared: lane {view.lane} has judged "
                f"{topic}/{partition} up to {reached[partition]} of {end}; records of bridges "
                "among the rest would confirm offsets again; start the workers and wait until their lag is 0, or clear --despite-lag"
            )
        await asyncio.sleep(_ASK_AGAIN_S)


async def first_unjudged(cluster: Cluster, topic: str, partition: int, meta: Meta | None) -> int:
    """Return the first unjudged offset of an input, by the lane's last meta record."""
    noted, start, identity = await asyncio.gather(
        cluster.groups.committed(topic, partition),
        cluster.offsets.log_start(topic, partition),
        cluster.topics.identity(topic),
    )
    ours = own_commit(noted)  # the offset of a foreign consumer does not count
    committed = None if ours is None else ours.offset
    return unjudged_from((topic, partition), identity.topic_id, meta, committed, start)


def unjudged_from(
    place: tuple[str, int], topic_id: str, meta: Meta | None, committed: int | None, start: int
) -> int:
    """Return the first unjudged offset. Pure.

    Args:
        place: Topic and partition of the lane's input.
        topic_id: ID of the present topic. Offsets in another topic of that name do not count.
        meta: The lane's last meta record.
        committed: Offset of the group.
        start: Start of the log.
    """
    if meta is None:
        return max(committed or 0, start)
    if meta.is_recreated(place[0], topic_id):
        return start
    return max(meta.next_of(*place) or 0, committed or 0, start)


async def anything(settings: Settings, topic: str, partition: int, begin: int, end: int) -> bool:
    """Return whether a range has a record. Markers and aborted records do not need a judgement."""

    async def found(_: Sequence[Any]) -> None:
        raise _FoundError

    try:
        async with asyncio.timeout(_LOOK_LIMIT_S):
            await LogReader(settings.kafka).read_range(topic, partition, begin, end, found)
    except (_FoundError, TimeoutError, LogStalledError):
        return True
    return False
