"""Journal of the events that excuse an ID accepted twice; the reconciliation run reads it. No I/O.

An event is committed before the first decision that it excuses, with the offsets of the lane at that time.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from ringfence_kafka.producer.transactional import Builder, Outgoing
from ringfence_kafka.protocol import wire_names
from tables.codec import Meta

FORMAT: Final = 1
FORMAT_GROWN: Final = 2
"""Format of a growth: a run that does not know it must not pass over it."""
FORMAT_LANES: Final = 3
"""Format of a lane whose address sets ``lanes``: ``next`` is by ``<topic>/<partition>``, and ``lanes`` has their number."""
PARTITION: Final = 0
"""The journal has one: its order is that of all."""


class RingEvent(StrEnum):
    """Why a ring knows less than it promises."""

    CLEARED = "cleared"
    RESIZED = "resized"
    """Its capacity changed; 0 = off."""
    FORGOTTEN = "forgotten"
    """The ring is, or was, in memory only, and was opened again."""
    GROWN = "grown"
    """Its address has more lanes since, and those whose number is its own modulo the former count know what it knew."""
    REGROUPED = "regrouped"
    """Its address has another number of lanes since: the ring holds the newest IDs of those former lanes whose partitions it owns."""


def opening_event(meta: Meta | None, capacity: int, *, persistent: bool) -> RingEvent | None:
    """Return the event that an opening causes for the ring of this ``meta`` record; None = nothing that anybody must know."""
    if meta is None:
        return None
    if not (persistent and meta.persistent):
        return RingEvent.FORGOTTEN  # whatever became of its size: what the lane knew of hops went, too
    return None if meta.capacity == capacity else RingEvent.RESIZED


def outgoing(
    builder: Builder,
    app_id: str,
    event: RingEvent,
    address: str,
    lane: int,
    capacities: tuple[int, int],
    next_offsets: Mapping[str, int],
    topic_ids: Mapping[str, str],
    lanes: int = 0,
) -> Outgoing:
    """Return the record of an event, in an empty batch of the producer that will write it.

    Args:
        builder: The empty batch.
        app_id: The app.
        event: The event.
        address: Name of the address.
        lane: Number of the lane.
        capacities: Before, after; of GROWN how many lanes there are.
        next_offsets: First offset of each input that was not decided before it, as the meta record has it.
        topic_ids: Kafka's own IDs of these topics, if known: a topic that is created again has other offsets.
        lanes: ``lanes`` of the address.
    """
    before, after = capacities
    topics = {key.partition("/")[0] for key in next_offsets}
    told: dict[str, Any] = {
        "format": _format(event, lanes),
        "event": event.value,
        "address": address,
        "lane": lane,
        "before": before,
        "after": after,
        "next": dict(next_offsets),
        "topic_ids": {topic: id_ for topic, id_ in topic_ids.items() if topic in topics},
    }
    if lanes or event is RingEvent.REGROUPED:
        told["lanes"] = lanes
    key = wire_names.lane_name(address, lane).encode()
    builder.append(timestamp=None, key=key, value=json.dumps(told).encode(), headers=[])
    return Outgoing(wire_names.journal_topic(app_id), PARTITION, builder)


def _format(event: RingEvent, lanes: int) -> int:
    if lanes or event is RingEvent.REGROUPED:
        return FORMAT_LANES
    return FORMAT_GROWN if event is RingEvent.GROWN else FORMAT
