"""Composes redriven records from quarantined ones, and finds those that would be refused again. Pure."""

import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from agents.decision.decide import Outcome
from agents.decision.envelope import MalformedEnvelopeError
from agents.decision.envelope_parts import Units
from agents.decision.ids_and_groups import IdReader, is_envelope
from agents.decision.item import RESENT, Item
from agents.decision.partitioner import HomeLanes, Partitioner
from agents.output.build import Emitter
from agents.output.topic_batches import Outputs, TooLargeError
from app.commands.repair.records import Header, RedriveOptions, Refused, place_of
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.producer.transactional import Builder, empty_batch
from ringfence_kafka.protocol import hop_trace, wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout
from tables.ring import Checked, Verdict

_GOES: Final = frozenset(
    {
        wire_names.HEADER_REASON, wire_names.HEADER_SOURCE, wire_names.HEADER_REDRIVEN, wire_names.HEADER_HOPS,
        wire_names.HEADER_HOP, wire_names.HEADER_CONFIRMED, wire_names.HEADER_USER_IDS, wire_names.HEADER_BRIDGE_APP,
    }
)  # fmt: skip
_NOT_UTF_8: Final = "is not UTF-8"
"""Part of the reason for a record whose header names were changed."""
UNLIMITED: Final = 2**31 - 1
"""Size limit of a topic that does not exist, or whose settings the cluster does not show."""
_WAY_OUT: Final = "it would be refused again: raise it there, or use --force"


class Published(NamedTuple):
    """Record to publish again, as a lane will read it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    offset: int = 0
    """0 = not known yet."""
    timestamp: int = 0


class Publisher:
    """Decides which quarantined records are published again, and in which form."""

    def __init__(
        self,
        target: TopicDescription,
        address: AddressSettings,
        options: RedriveOptions,
        *,
        bridged: bool,
        size_check: "SizeCheck | None" = None,
    ) -> None:
        """Create the publisher. ``bridged``: from a bridge, so that sources are not in ``target``."""
        self._target = target
        self._bridged = bridged
        self._home = Partitioner(target.partitions, address.partitioner)
        self._reader = IdReader(address)
        self._ids_needed = address.duplicate_id_missing == "quarantine"
        self._options = options
        self._size_check = size_check

    def refusal(self, refused: Refused) -> str:
        """Return why a record is not published again; empty = it is."""
        if refused.digest is not None:
            return "its value did not fit here and is no longer in the input: have it sent again by its producer, or drop it"
        reason = self._options.too_often(refused)
        if reason or self._options.force:
            return reason
        if refused.reason.startswith(RESENT):
            return "it came over its bridge before, and would arrive twice: drop it, or use --force"
        if _NOT_UTF_8 in refused.reason:
            return (
                "its header names are not preserved here: have it sent again by its producer, or use --force"
            )
        if hop_trace.members(hop_trace.entries(dict(refused.headers).get(wire_names.HEADER_HOPS))):
            return (
                "it came over a cluster connection, and without its hop would be forwarded back: have it "
                "sent again at its origin, or use --force"
            )
        fault = self._reader.fault(refused) if self._ids_needed and not is_envelope(refused) else ""
        return fault and f"{fault}: it would be refused again: have it sent again with an ID, or drop it"

    def published(self, refused: Refused) -> Published:
        """Return a record with its key, value and headers."""
        headers = [header for header in refused.headers if header[0] not in _GOES]
        headers.append((wire_names.HEADER_REDRIVEN, b"%d" % (refused.redriven + 1)))
        return Published(self._partition(refused), refused.key, refused.value, headers)

    def _partition(self, refused: Refused) -> int:
        """Return the partition of the source, which has the group's order; for a bridge, the home."""
        source = place_of(refused.source)
        if not self._bridged and source is not None and source.topic == self._target.name:
            return source.partition % self._target.partitions
        (group,) = self._reader.groups([refused])
        if group is None:
            (found,), _, _ = self._reader.ids([refused])
            group = None if found is None else found[1:]
        return 0 if group is None else self._home[group]

    def too_large(self, published: Published, builder: Builder) -> str:
        """Return why a record is too large, or an empty text. ``builder``: empty batch that gets it."""
        key, value, headers = published.key, published.value, published.headers
        builder.append(timestamp=None, key=key, value=value, headers=headers)
        size, bytes_max = builder.size(), self._target.message_bytes_max
        if size > bytes_max:
            return f"{size} bytes, {self._target.name} takes max.message.bytes = {bytes_max}: raise it there"
        return "" if self._options.force or self._size_check is None else self._size_check.refusal(published)


class SizeCheck:
    """Finds records that a lane would refuse again because of their size.

    The lane's own code builds the outputs for each topic. They are not written.
    """

    def __init__(
        self,
        app_id: str,
        address: AddressSettings,
        others: Iterable[AddressSettings],
        target: TopicDescription,
        described: Mapping[str, TopicDescription],
        *,
        end: int,
        bridged: bool = False,
    ) -> None:
        """Create the check for the present topics (``described``). Missing topics have no limit.

        ``end``: end of the target's longest partition, since an accepted record has its input offset in a header.
        ``others``: addresses that parts of transactions may go to. ``bridged``: the target belongs to a
        bridge, so only the accepted topic of its workers is known.
        """
        others = tuple(others)
        # A duplicate may be too large to be diverted, but redriven records are checked as new ones.
        names = [*outputs(app_id, address, others), address.duplicates_topic]
        sizes, counts = dict.fromkeys(names, UNLIMITED), dict.fromkeys(names, 1)
        for name in described.keys() & names:
            if described[name].config:
                sizes[name], counts[name] = described[name].message_bytes_max, described[name].partitions
        self._emitter = Emitter(
            address, wire_names.forward_topic(app_id, address.name), Outputs(counts, sizes, {}), others
        )
        self._target = target
        self._end = end
        self._bridged = bridged
        self._reader = IdReader(address)
        self._units = Units(address, others)
        self._layout = LaneLayout.from_setting(address.lanes, target.partitions)
        self._home = HomeLanes(self._layout, address.partitioner)

    def refusal(self, published: Published) -> str:
        """Return why a lane would refuse a record; empty = it would not."""
        now_ms = round(time.time() * 1000)
        record = published._replace(offset=self._end, timestamp=now_ms)
        source = wire_names.source(self._target.name, published.partition) + b"%d" % record.offset
        (own_id,), _, _ = self._reader.ids([record])
        (group,) = self._reader.groups([record])
        item = Item(record, source, own_id, group, own_id, published.partition)
        if is_envelope(record):
            if self._bridged:
                return ""  # the addresses that its parts may go to are unknown here
            try:
                unit = self._units.open(record, own_id)
            except MalformedEnvelopeError:
                return ""  # the lane reports it, and may have other limits
            item = Item(record, source, own_id, record.key, unit.lead, published.partition, unit)
        lane = home = self._layout.lane_of(published.partition)
        if item.group is not None:
            home = self._home[item.group]
        elif item.lead is not None:
            home = self._home[item.lead[1:]]
        outcome = Outcome(Checked([Verdict.UNCHECKED], [None], 0, [], []), [item])
        if home != lane and not self._bridged:
            outcome.forwarded.append(
                Item(record, source, own_id, item.group, item.lead, published.partition, home=home)
            )
        try:
            self._emitter.emit(outcome, empty_batch)
        except TooLargeError as error:
            return f"{error.reasons[item.place]}: {_WAY_OUT}"
        return ""


def outputs(
    app_id: str, address: AddressSettings, others: Iterable[AddressSettings], *, bridged: bool = False
) -> list[str]:
    """Return the topics that a lane may write a record to."""
    if bridged:
        return [address.accepted_topic]
    forward = address.topics(app_id).get("forward topic")
    accepted = [address.accepted_topic, *(other.accepted_topic for other in others)]
    return accepted if forward is None else [*accepted, forward]
