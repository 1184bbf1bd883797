"""Whether lanes have judged all that stood in their inputs: what a bridge has sent says what was confirmed when it was sent.

A lane that forgets hops and then judges such a record takes over its floor, and drops what its bridge sends again below.
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
from ringfence_kafka.readers import log_reader
from ringfence_kafka.readers.log_reader import LogStalledError
from tables.codec import Meta

WAIT_LIMIT_S: Final = 10.0
"""So long lanes may judge nothing at all of what they still have to."""
_ASK_AGAIN_S: Final = 0.3
_LOOK_LIMIT_S: Final = 5.0
"""An open transaction in the input holds a look up: what is behind it is not judged either."""


class UnreadError(RingfenceError):
    """Lanes have not judged all of their inputs."""


class _FoundError(Exception):
    """Ends a look at the first record."""


async def await_judged(
    settings: Settings, address: AddressSettings, cluster: Cluster, views: Sequence[LaneView]
) -> None:
    """Until what stood in the input, and then what was forwarded of it, has been judged. What comes meanwhile is not waited for.

    Args:
        settings: Whose app it is.
        address: Its lanes are meant.
        cluster: Asked.
        views: Of all of its lanes, by their numbers.

    Raises:
        UnreadError: lanes do not move on.
    """
    # What is forwarded is there before its place in the input is passed: asked in this order nothing slips through.
    for topic in (address.input_topic, wire_names.forward_topic(settings.app.id, address.name)):
        ends = [await cluster.offsets.high_watermark(topic, view.partition) for view in views]
        await _await(settings, address, cluster, topic, dict(zip(views, ends, strict=True)))


async def _await(
    settings: Settings, address: AddressSettings, cluster: Cluster, topic: str, ends: Mapping[LaneView, int]
) -> None:
    left = dict(ends)
    reached: dict[int, int] = {}
    moved_at = time.monotonic()
    while True:
        for view, end in list(left.items()):
            begin = await first_unjudged(cluster, topic, view.partition, (await view.read_on()).meta)
            if begin != reached.get(view.partition):
                reached[view.partition], moved_at = begin, time.monotonic()
            if not await anything(settings, topic, view.partition, begin, end):
                del left[view]
        if not left:
            return
        if time.monotonic() - moved_at > WAIT_LIMIT_S:
            (view, end), *_ = left.items()
            raise UnreadError(
                f"{wire_names.HOP_MEMORY}{address.name} is not cleared: lane {wire_names.lane_name(address.name, view.partition)} has judged "
                f"{topic}/{view.partition} up to {reached[view.partition]} of {end}, and what a bridge has sent there would tell "
                "it again what was confirmed; start the workers and wait until their lag is 0, or clear --despite-lag"
            )
        await asyncio.sleep(_ASK_AGAIN_S)


async def first_unjudged(cluster: Cluster, topic: str, lane: int, meta: Meta | None) -> int:
    """The first offset that a lane has not judged, by its last meta record."""
    noted, start, identity = await asyncio.gather(
        cluster.groups.committed(topic, lane),
        cluster.offsets.log_start(topic, lane),
        cluster.topics.identity(topic),
    )
    ours = own_commit(noted)  # what a foreign consumer read is not judged
    return unjudged_from(topic, identity.topic_id, meta, None if ours is None else ours.offset, start)


def unjudged_from(topic: str, topic_id: str, meta: Meta | None, committed: int | None, start: int) -> int:
    """The same. Pure.

    Args:
        topic: An input of the lane.
        topic_id: Of the topic that has that name now; what was judged of another counts for nothing.
        meta: What the lane wrote last.
        committed: By the group.
        start: Below it nothing is left.
    """
    if meta is None:
        return max(committed or 0, start)
    if meta.topic_ids.get(topic, topic_id) != topic_id:
        return start
    return max(meta.next_offsets.get(topic, 0), committed or 0, start)


async def anything(settings: Settings, topic: str, partition: int, begin: int, end: int) -> bool:
    """Whether a record stands there: markers of transactions, and what was aborted, nobody has to judge."""

    async def found(_: Sequence[Any]) -> None:
        raise _FoundError

    try:
        async with asyncio.timeout(_LOOK_LIMIT_S):
            await log_reader.read(settings.kafka, topic, partition, begin, end, found)
    except (_FoundError, TimeoutError, LogStalledError):
        return True
    return False
