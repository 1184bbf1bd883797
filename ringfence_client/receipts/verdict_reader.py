"""Finds the verdict on a sent message in the committed records of its lanes."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from ringfence_client.receipts.changelog_follower import ChangelogFollower
from ringfence_client.receipts.lane_memory import Awaited, LaneState, Place, digest_of, place_of
from ringfence_client.receipts.outgoing import Composer, OutgoingMessage
from ringfence_client.receipts.receipt import OutboxError, Receipt, Verdict
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import lane_of
from ringfence_kafka.protocol.stored_ids import variant_of
from ringfence_kafka.protocol.value_digest import slot_digest
from ringfence_kafka.readers.log_reader import LogReader

_DUPLICATE: Final = Verdict.DUPLICATE.encode()
PARALLEL: Final = 8


class VerdictReader:
    """Verdicts of one address.

    A message with a ring record in the changelog is ACCEPTED. Without one, a lane beyond the message has refused it or found a duplicate.
    """

    def __init__(
        self,
        settings: Settings,
        address: AddressSettings,
        composer: Composer,
        cluster: Cluster,
        reader: LogReader,
        follower: ChangelogFollower,
    ) -> None:
        self._settings = settings
        self._address = address
        self._composer = composer
        self._cluster = cluster
        self._reader = reader
        self._follower = follower
        self._limit = asyncio.Semaphore(PARALLEL)
        self._forward_topic = wire_names.forward_topic(settings.app.id, address.name)
        self._counts: Mapping[str, int] = {}

    async def partition_counts(self) -> Mapping[str, int]:
        """Return the partition counts of the topics to read. All of them must exist, and be visible to this user."""
        changelog = wire_names.changelog_topic(self._settings.app.id, self._address.name)
        topics = [self._address.input_topic, changelog, self._address.quarantine_topic]
        topics += [target.accepted_topic for target in self._targets(transaction=True)]
        try:
            self._counts = await self._cluster.topics.partition_counts(topics)
        except TopicAuthorizationFailedError as error:
            raise OutboxError(
                f"this user may not see {error.args[0]}, so verdicts are unknown: allow Describe and Read "
                "on it"
            ) from error
        if missing := [topic for topic in topics if topic not in self._counts]:
            raise MissingTopicError(
                f"{', '.join(missing)}: no such topic, so verdicts are unknown: run 'ringfence topics "
                "create', and start a worker"
            )
        return self._counts

    def source(self, place: Place) -> str:
        """Return a place in the input in the form of ``_RF_SOURCE``."""
        return f"{self._address.input_topic}/{place.partition}/{place.offset}"

    async def receipt(self, message: OutgoingMessage, awaited: Awaited, place: Place, lane: int) -> Receipt:
        """Return the receipt of a message when it is judged; ``lane``: the lane that it was sent to."""
        source = self.source(place)
        home, state = await self._judged(message, awaited, place, lane)
        if awaited.accepted:
            return Receipt(verdict=Verdict.ACCEPTED, source=source)
        if state.partition_counts.get(self._address.input_topic) != self._counts[self._address.input_topic]:
            await self.partition_counts()  # topics have more partitions now
        known = message.id if state.persistent and state.capacity else None
        slot = None if known is None else await self._slot(home, known, message)
        original = None if slot is None else place_of(slot)
        if (reason := await self._quarantined(place, source)) is not None:
            return Receipt(verdict=Verdict.QUARANTINED, source=source, reason=reason)
        if message.id is None or not state.capacity:
            return Receipt(verdict=Verdict.UNCHECKED, source=source)
        if original == place:
            return Receipt(verdict=Verdict.ACCEPTED, source=source)
        if original is not None and original.follows(place):
            slot = original = None  # it was accepted again, after this message
        # The message's own slot may be missing: the ring has forgotten or overwritten it, or it was never written.
        sure = original is not None and home == lane and awaited.covers(state)
        if not sure and await self._was_accepted(message, place, source):
            return Receipt(verdict=Verdict.ACCEPTED, source=source)
        return await self._duplicate(message, source, slot)

    async def _slot(self, home: int, known: bytes, message: OutgoingMessage) -> bytes | None:
        """Return the slot of a message's ID; with ``on_conflict = "accept"``, the slot of the ID with its value."""
        slot = await self._follower.slot(home, known)
        if self._address.on_conflict != "accept" or slot is None or not _is_other_value(slot, message):
            return slot
        return await self._follower.slot(home, variant_of(known, slot_digest(message.value)))

    async def _duplicate(self, message: OutgoingMessage, source: str, slot: bytes | None) -> Receipt:
        if slot is None:
            return Receipt(verdict=Verdict.DUPLICATE, source=source)
        original = place_of(slot)
        known = self.source(original)
        if message.sender and await self._is_own(message, original):
            return Receipt(verdict=Verdict.ACCEPTED, source=known)
        verdict = Verdict.CONFLICT if _is_other_value(slot, message) else Verdict.DUPLICATE
        return Receipt(verdict=verdict, source=source, original=known, original_time=original.timestamp)

    async def _judged(
        self, message: OutgoingMessage, awaited: Awaited, place: Place, lane: int
    ) -> tuple[int, LaneState]:
        """Wait until a message is judged; return its home lane and that lane's state at that time."""
        memory = await self._follower.lane(lane)
        await awaited.wait(memory, self._address.input_topic, place.partition, place.offset)
        state = memory.state or LaneState.unknown()
        if awaited.accepted or message.home is None:
            return lane, state
        count = state.partition_counts[self._address.input_topic]
        home = lane_of(self._composer.partition(message.home, count), state.lanes)
        if home != lane:
            # The lane has forwarded the message, so it is below the present end of the forward topic.
            end = await self._cluster.offsets.high_watermark(self._forward_topic, home)
            memory = await self._follower.lane(home)
            await awaited.wait(memory, self._forward_topic, home, end - 1)
            state = memory.state or LaneState.unknown()
        return home, state

    async def _quarantined(self, place: Place, source: str) -> str | None:
        """Return the reason of a quarantined message; None = it is not in quarantine."""
        topic = self._address.quarantine_topic
        found = await self._find(topic, [place.partition % self._counts[topic]], source, place.timestamp)
        return (
            None if found is None else (found.get(wire_names.HEADER_REASON) or b"").decode(errors="replace")
        )

    async def _was_accepted(self, message: OutgoingMessage, place: Place, source: str) -> bool:
        """Return whether the accepted topic has the message, or a part of it, without a mark as duplicate."""
        for target in self._targets(transaction=message.transaction):
            topic = target.accepted_topic
            partitions: Sequence[int] = range(self._counts[topic])
            if message.group is not None:
                partitions = [self._composer.partition(message.group, self._counts[topic])]
            found = await self._find(topic, partitions, source, place.timestamp)
            if found is not None:
                return not (found.get(wire_names.HEADER_VERDICT) or b"").startswith(_DUPLICATE)
        return False

    async def _is_own(self, message: OutgoingMessage, original: Place) -> bool:
        found: list[Any] = []

        async def take(records: Sequence[Any]) -> None:
            found.extend(record for record in records if record.offset == original.offset)

        with contextlib.suppress(KafkaError):  # retention may have deleted it
            await self._reader.read_range(
                self._address.input_topic, original.partition, original.offset, original.offset + 1, take
            )
        return any(
            record.timestamp == original.timestamp
            and record.value == message.value
            and dict(record.headers).get(wire_names.HEADER_SENDER) == message.sender
            for record in found
        )

    async def _find(
        self, topic: str, partitions: Iterable[int], source: str, since_ms: int
    ) -> dict[str, bytes | None] | None:
        """Return the headers of the record made from a message; None = not found. ``since_ms``: the message's record timestamp."""
        found = await asyncio.gather(
            *(self._find_in(topic, partition, source.encode(), since_ms) for partition in partitions)
        )
        return next((headers for headers in found if headers is not None), None)

    async def _find_in(
        self, topic: str, partition: int, source: bytes, since_ms: int
    ) -> dict[str, bytes | None] | None:
        # Outputs keep the input's timestamp. The search starts at the first record that is not older.
        begin = await self._cluster.offsets.since(topic, partition, since_ms)
        if begin is None:
            return None
        found: list[dict[str, bytes | None]] = []

        async def take(records: Sequence[Any]) -> None:
            for record in records:
                headers = dict(record.headers)
                if headers.get(wire_names.HEADER_SOURCE) == source:
                    found.append(headers)

        # The search ends at the high watermark, because the marker of a committed transaction may be written only now.
        end = await self._cluster.offsets.high_watermark(topic, partition)
        async with self._limit:
            await self._reader.read_range(topic, partition, begin, end, take)
        return found[0] if found else None

    def _targets(self, *, transaction: bool) -> list[AddressSettings]:
        others = self._settings.transaction_targets(self._address) if transaction else ()
        return [self._address, *others]


def _is_other_value(slot: bytes, message: OutgoingMessage) -> bool:
    """Return whether the slot shows that the ID was accepted with another value. The value of a transaction does not count."""
    known = 0 if message.transaction else digest_of(slot)
    return known not in (0, slot_digest(message.value))
