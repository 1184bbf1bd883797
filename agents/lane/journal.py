"""Journal of the events after which an ID may be accepted twice; the reconciliation run reads it. No I/O.

An event is committed before the first decision that it affects, with the lane's offsets at that time.
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
"""Format of a GROWN event. A run that does not know this format must not ignore the event."""
FORMAT_LANES: Final = 3
"""Format of a lane whose address sets ``lanes``: ``next`` has keys ``<topic>/<partition>``, and ``lanes`` is the number of lanes."""
PARTITION: Final = 0
"""The only partition of the journal, so that all events have one order."""


class RingEvent(StrEnum):
    """Reason for which a ring knows fewer IDs than it promises."""

    CLEARED = "cleared"
    RESIZED = "resized"
    """The capacity of the ring changed; 0 = off."""
    FORGOTTEN = "forgotten"
    """The ring is or was kept in memory only, and was opened again."""
    GROWN = "grown"
    """The address has more lanes. Lanes with the same number modulo the former count start with the IDs of this lane."""
    REGROUPED = "regrouped"
    """The address has another number of lanes. The ring has the newest IDs of the former lanes whose partitions it owns."""


def opening_event(meta: Meta | None, capacity: int, *, persistent: bool) -> RingEvent | None:
    """Return the event that an opening causes for the ring of this ``meta`` record; None if the ring knows all that it promises."""
    if meta is None:
        return None
    if not (persistent and meta.persistent):
        return RingEvent.FORGOTTEN  # also after a change of capacity: the hop memory is lost too
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
    """Return the record of an event, in the empty ``builder`` of the producer that will write it.

    ``capacities``: capacity before and after, or for GROWN the number of lanes; ``next_offsets``: first offset of each input that was not
    decided before the event, in the form of the meta record; ``topic_ids``: Kafka's IDs of these topics, if known, because a topic that is
    created again has other offsets; ``lanes``: value of the address's setting.
    """
    before, after = capacities
    by_partition = bool(lanes) or event is RingEvent.REGROUPED
    topics = {key.partition("/")[0] for key in next_offsets}
    fields: dict[str, Any] = {
        "format": FORMAT_LANES if by_partition else FORMAT_GROWN if event is RingEvent.GROWN else FORMAT,
        "event": event.value,
        "address": address,
        "lane": lane,
        "before": before,
        "after": after,
        "next": dict(next_offsets),
        "topic_ids": {topic: id_ for topic, id_ in topic_ids.items() if topic in topics},
    }
    if by_partition:
        fields["lanes"] = lanes
    key = wire_names.lane_name(address, lane).encode()
    builder.append(timestamp=None, key=key, value=json.dumps(fields).encode(), headers=[])
    return Outgoing(wire_names.journal_topic(app_id), PARTITION, builder)
