"""Quarantined records: records that a lane or a bridge refused are published again as new input records."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agents.bridge.plan import plans
from agents.decision import bridge_headers
from agents.decision.ids_and_groups import IdReader
from agents.output.topic_batches import TopicBatches
from app.commands.repair import output
from app.commands.repair.records import RedriveOptions, Refused, place_of, resend_advice
from app.commands.repair.redrive_log import RedriveLog, RedrivePartition
from app.commands.repair.republish import UNLIMITED, Publisher, SizeCheck, outputs
from app.commands.repair.scan import records_at
from app.commands.repair.verbs import Redriver, RepairTopic
from ringfence_kafka.admin.topics import missing, unreported_settings
from ringfence_kafka.config.settings import AddressSettings, KafkaSettings, Settings
from ringfence_kafka.errors import ConfigurationError, MissingTopicError
from ringfence_kafka.producer.transactional import NewBuilder, empty_batch
from ringfence_kafka.protocol import wire_names


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Quarantine topic, and the target of its redriven records."""

    name: str
    """Name of the address or the bridge."""
    kafka: KafkaSettings
    topic: str
    target_topic: str
    address: AddressSettings
    """Address of the target topic."""
    bridged: bool = False
    """Whether a bridge refused the records, so that their sources are in another topic."""


def find(settings: Settings, name: str, *, bridge: bool = False) -> Quarantine:
    """Return the quarantine of an address, or of a bridge.

    Raises:
        ConfigurationError: The name is neither.
    """
    address = settings.address(name)
    if address is not None and not bridge:
        return Quarantine(name, settings.kafka, address.quarantine_topic, address.input_topic, address)
    known = plans(settings) if settings.bridges or settings.cluster_connections else []
    for plan in known:
        if plan.name == name:
            return Quarantine(
                name, plan.target, plan.quarantine_topic, plan.target_topic, plan.address, bridged=True
            )
    names = [*(plan.name for plan in known), *(address.name for address in settings.addresses if not bridge)]
    kind = "bridge" if bridge else "address or bridge"
    raise ConfigurationError(
        f"unknown {kind} {name!r}: the configuration has {', '.join(sorted(names)) or 'none'}"
    )


class QuarantineTopic(RepairTopic):
    """Quarantine of an address or a bridge."""

    what = "quarantined records"

    def __init__(self, settings: Settings, name: str, *, bridge: bool) -> None:
        """Raise ConfigurationError if the address or bridge is not configured."""
        quarantine = find(settings, name, bridge=bridge)
        replication_factor = quarantine.address.replication_factor
        super().__init__(quarantine.kafka, settings.app.id, quarantine.topic, replication_factor)
        self.show_verb = ["quarantine", "show", name, *(["--bridge"] if bridge else [])]
        self.only_own = quarantine.bridged
        self._settings = settings
        self._quarantine = quarantine
        self._reader = IdReader(quarantine.address)

    def group_of(self, record: Any) -> bytes | None:
        """Return the group of a record."""
        (group,) = self._reader.groups([record])
        return group

    def outcome(self, *, dry_run: bool) -> str:
        """Return the outcome of redriven records, in words."""
        return f"{'would be redriven' if dry_run else 'redriven'} to {self._quarantine.target_topic}"

    def require_redrivable(self) -> None:
        """Check that records may be published to the input.

        Raises:
            ConfigurationError: Another address writes the input.
        """
        if not self._quarantine.bridged:
            self._settings.require_own_input(self._quarantine.address, "nothing was redriven", resend_advice)

    @asynccontextmanager
    async def redriver(self, log: RedriveLog, options: RedriveOptions) -> AsyncIterator[Redriver]:
        """Yield an object that publishes records again."""
        publisher = partial(self._publisher, log, options)
        yield QuarantineRedrive(log, options, self._quarantine, await publisher(), publisher)

    async def _publisher(self, log: RedriveLog, options: RedriveOptions) -> Publisher:
        """Return a publisher for the present topics.

        Raises:
            MissingTopicError: The input does not exist, or the cluster does not show its settings.
        """
        address, bridged = self._quarantine.address, self._quarantine.bridged
        name = self._quarantine.target_topic
        others = () if bridged else self._settings.transaction_targets(address)
        behind = outputs(self.app_id, address, others, bridged=bridged)
        described = (await log.cluster.topics.describe([name, *behind])).topics
        if (target := described.get(name)) is None:
            raise MissingTopicError(missing("input topic", address.name, name))
        if target.config is None:
            raise MissingTopicError(unreported_settings(name))
        log.limit_batches(target.message_bytes_max)
        ends = (log.cluster.offsets.high_watermark(name, number) for number in range(target.partitions))
        end = max(await asyncio.gather(*ends))
        size_check = SizeCheck(self.app_id, address, others, target, described, end=end, bridged=bridged)
        return Publisher(target, address, options, bridged=bridged, size_check=size_check)


class QuarantineRedrive(Redriver):
    """Publishes each chunk in one transaction with the record that settles it."""

    def __init__(
        self,
        log: RedriveLog,
        options: RedriveOptions,
        quarantine: Quarantine,
        publisher: Publisher,
        renewed: Callable[[], Awaitable[Publisher]],
    ) -> None:
        """Take ``renewed``, which returns a publisher for the present topics."""
        super().__init__(log, options)
        self._publisher = publisher
        self._renewed = renewed
        self._current = False
        """Whether the publisher has read the topics within this chunk."""
        self._quarantine = quarantine
        self._hops: set[bytes] = set()
        """Hops of published records that came over bridges."""

    async def redrive(self, partition: RedrivePartition, chunk: Sequence[Refused]) -> None:
        """Publish a chunk. Raises as :meth:`RedrivePartition.settle` does."""
        self._current = False
        whole = [await self._whole(refused) for refused in chunk]
        offsets, count = [], 0
        batches = TopicBatches(self._quarantine.target_topic, UNLIMITED, partition.builder, {}, 0.0)
        now_ms = round(time.time() * 1000)  # retention deletes old records
        for refused in whole:
            if not self._repeats(refused):
                if not await self._is_sound(refused, partition.builder):
                    continue
                record = self._publisher.published(refused)
                batches.append(record.partition, now_ms, record.key, record.value, record.headers)
                count += 1
            offsets.append(refused.place.offset)
        if not offsets:
            return
        await self.rate_limit.wait(len(offsets))
        await partition.settle(offsets, batches.finish())
        self.result.done += count
        output.say(f"redriven  {partition}  {count} up to offset {offsets[-1]}")

    async def try_out(self, _: RedrivePartition, records: Sequence[Refused]) -> None:
        """Print what would happen to these records."""
        self._current = False
        for refused in records:
            whole = await self._whole(refused)
            if not self._repeats(whole) and await self._is_sound(whole, empty_batch):
                self.result.done += 1
                output.say(f"would redrive  {output.line(refused)}")

    async def _is_sound(self, whole: Refused, new_builder: NewBuilder) -> bool:
        """Return whether a record may be published; if not, skip it with the reason."""
        reason = self._publisher.refusal(whole) or await self._too_large(whole, new_builder)
        if reason:
            self.result.leave(whole, reason)
            return False
        if (hop := self._hop(whole)) is not None:
            self._hops.add(hop)
        return True

    async def _too_large(self, whole: Refused, new_builder: NewBuilder) -> str:
        reason = self._publisher.too_large(self._publisher.published(whole), new_builder())
        if reason and not self._current:  # a redrive may last for hours
            self._publisher, self._current = await self._renewed(), True
            reason = self._publisher.too_large(self._publisher.published(whole), new_builder())
        return reason

    def _repeats(self, refused: Refused) -> bool:
        """Return whether this redrive has published the same record of a bridge's source.

        A bridge that ends before it has confirmed a record writes it again. A lane that cannot record a hop
        refuses it again.
        """
        return self._hop(refused) in self._hops

    def _hop(self, refused: Refused) -> bytes | None:
        if not self._quarantine.bridged and not bridge_headers.readable(refused):
            return None  # records that no bridge wrote cannot be recognized as the same
        return dict(refused.headers).get(wire_names.HEADER_HOP)

    async def _whole(self, refused: Refused) -> Refused:
        """Return the record with its whole value, if the input has the value that a digest replaces."""
        source, digest = place_of(refused.source), refused.digest
        if digest is None or self._quarantine.bridged or source is None:
            return refused
        if source.topic != self._quarantine.target_topic:
            return refused
        found = (await records_at(self.log.cluster, self._quarantine.kafka, [source])).get(source)
        if found is None:
            return refused
        if found.value == refused.value:
            return replace(refused, digest=None)  # the value itself has the form of a digest
        if not digest.matches(found.value):
            return refused
        return replace(refused, key=found.key, value=found.value, headers=tuple(found.headers), digest=None)
