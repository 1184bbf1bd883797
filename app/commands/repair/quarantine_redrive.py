"""What a lane or a bridge refused for good: published again, as a new input record."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from agents.bridge.plan import Plan, plans
from agents.decision import bridge_headers
from agents.decision.ids_and_groups import IdReader
from agents.decision.partitioner import Partitioner
from agents.decision.quarantine import RESENT
from app.commands.repair import output
from app.commands.repair.rate_limit import RateLimit
from app.commands.repair.redrive_log import RedrivePartition
from app.commands.repair.refused_record import Place, Refused, place_of
from app.commands.repair.republished import Batches, Published, alone, as_read
from app.commands.repair.result import Result
from app.commands.repair.size_check import SizeCheck
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, KafkaSettings, Settings
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.producer.transactional import Builder, NewBuilder, empty_batch
from ringfence_kafka.protocol import hop_trace, wire_names
from ringfence_kafka.readers import log_reader

_GOES: Final = frozenset(
    {
        wire_names.HEADER_REASON, wire_names.HEADER_SOURCE, wire_names.HEADER_REDRIVEN, wire_names.HEADER_HOPS,
        wire_names.HEADER_HOP, wire_names.HEADER_CONFIRMED, wire_names.HEADER_USER_IDS, wire_names.HEADER_BRIDGE_APP,
    }
)  # fmt: skip
_NOT_UTF_8: Final = "is not UTF-8"
"""In the reason of a record whose header names are not here as they came."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """One quarantine topic, and where its records go."""

    name: str
    """Of the address or the bridge."""
    kafka: KafkaSettings
    topic: str
    target_topic: str
    address: AddressSettings
    """Whose rules hold there."""
    bridged: bool = False
    """A bridge has refused them: their sources are of another topic."""


def find(settings: Settings, name: str, *, bridge: bool = False) -> Quarantine:
    """That of an address, or of a bridge.

    Raises:
        ConfigurationError: there is neither.
    """
    address = settings.address(name)
    if address is not None and not bridge:
        return Quarantine(name, settings.kafka, address.quarantine_topic, address.input_topic, address)
    known: list[Plan] = []
    if settings.bridges or settings.cluster_connections:
        known = plans(settings)
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


class InputTopic(NamedTuple):
    """Where redriven records go, as it is now."""

    partitions: int
    bytes_max: int


class Publisher:
    """Says what becomes of each record. Pure but for what is not whole: that is looked for in the input."""

    def __init__(
        self,
        quarantine: Quarantine,
        target: InputTopic,
        most: int,
        *,
        force: bool,
        room: SizeCheck | None = None,
    ) -> None:
        """``most``: a record that was redriven so often is left, unless ``force``, and what the outputs have no ``room`` for."""
        self._quarantine = quarantine
        self._target = target
        self._home = Partitioner(target.partitions, quarantine.address.partitioner)
        self._reader = IdReader(quarantine.address)
        self._most = most
        self._force = force
        self._room = room

    def refusal(self, refused: Refused) -> str:
        """Why it is not published again; empty = it is."""
        if refused.digest is not None:
            return "its value did not fit here and is no longer in the input: have it sent again by its producer, or drop it"
        return "" if self._force else self._left(refused)

    def _left(self, refused: Refused) -> str:
        """Why it is not, unless that is forced."""
        if refused.redriven >= self._most:
            return f"redriven {refused.redriven} times already: fix what the reason says, then --force"
        if refused.reason.startswith(RESENT):
            return "it came over its bridge before, and would come twice: drop it, or --force"
        if _NOT_UTF_8 in refused.reason:
            return (
                "its header names are not here as they came: have it sent again by its producer, or --force"
            )
        if hop_trace.members(hop_trace.entries(dict(refused.headers).get(wire_names.HEADER_HOPS))):
            return (
                "it came over a cluster connection, and without its hop would be forwarded back: have it sent again where it came "
                "from, or --force"
            )
        return ""

    def published(self, refused: Refused) -> Published:
        """Key, value and headers as they were."""
        headers = [header for header in refused.headers if header[0] not in _GOES]
        headers.append((wire_names.HEADER_REDRIVEN, b"%d" % (refused.redriven + 1)))
        return Published(self._partition(refused), refused.key, refused.value, headers)

    def _partition(self, refused: Refused) -> int:
        """Where it came from: order there is the order of a group. Of a bridge's where it is at home."""
        source = place_of(refused.source)
        if not self._quarantine.bridged and source is not None and source.topic == self._target_topic:
            return source.partition % self._target.partitions
        (group,) = self._reader.groups([as_read(refused)])
        if group is None:
            (found,), _, _ = self._reader.ids([as_read(refused)])
            group = None if found is None else found[1:]
        return 0 if group is None else self._home[group]

    @property
    def _target_topic(self) -> str:
        return self._quarantine.target_topic

    def too_large(self, published: Published, builder: Builder) -> str:
        """Why it is not published for its size; empty = it is. ``builder``: an empty batch, which it is put into."""
        size = alone(builder, published).size()
        if size > self._target.bytes_max:
            return f"{size} bytes, {self._target_topic} takes max.message.bytes = {self._target.bytes_max}: raise it there"
        return "" if self._force or self._room is None else self._room.refusal(published)


class Redrive:
    """Publishes what it is given, chunk by chunk, each in one transaction with what says that it is settled."""

    def __init__(
        self,
        publisher: Publisher,
        quarantine: Quarantine,
        cluster: Cluster,
        pace: RateLimit,
        say: Callable[[str], None],
        renewed: Callable[[], Awaitable[Publisher]] | None = None,
    ) -> None:
        """A run.

        Args:
            publisher: Decides.
            quarantine: Whose records.
            cluster: Where the input is.
            pace: How fast.
            say: Is called with lines of progress.
            renewed: Returns a publisher that knows the topics as they are now; None = they do not change.
        """
        self._publisher = publisher
        self._renewed = renewed
        self._current = False
        """The publisher knows the topics as they are since this chunk began."""
        self._quarantine = quarantine
        self._cluster = cluster
        self._pace = pace
        self._say = say
        self.result = Result()
        self._hops: set[bytes] = set()
        """Of the records that came over bridges, those that were published."""

    async def act(self, partition: RedrivePartition, found: Sequence[Refused]) -> None:
        """All of these; raises what :meth:`ringfence_kafka.settled.SettledPartition.settle` does."""
        for begin in range(0, len(found), self._pace.chunk):
            await self._chunk(partition, found[begin : begin + self._pace.chunk])

    async def try_out(self, _: RedrivePartition, found: Sequence[Refused]) -> None:
        """Say what would become of these."""
        self._current = False
        for refused in found:
            whole = await self.whole(refused)
            if self._comes_again(whole):
                continue
            reason = self._publisher.refusal(whole) or await self._too_large(whole, empty_batch)
            if reason:
                self.result.leave(refused, reason)
            else:
                self._note(whole)
                self.result.done += 1
                self._say(f"would redrive  {output.line(refused)}")

    async def _chunk(self, partition: RedrivePartition, found: Sequence[Refused]) -> None:
        self._current = False
        whole = [await self.whole(refused) for refused in found]
        offsets, count = [], 0
        batches = Batches(self._quarantine.target_topic, partition.builder)
        for refused in whole:
            if self._comes_again(refused):
                offsets.append(refused.place.offset)
                continue
            reason = self._publisher.refusal(refused) or await self._too_large(refused, partition.builder)
            if reason:
                self.result.leave(refused, reason)
                continue
            batches.add(self._publisher.published(refused))
            offsets.append(refused.place.offset)
            count += 1
            self._note(refused)
        if not offsets:
            return
        await self._pace.wait(len(offsets))
        await partition.settle(offsets, batches.finish())
        self.result.done += count
        self._say(f"redriven  {partition}  {count} up to offset {offsets[-1]}")

    async def _too_large(self, whole: Refused, new_builder: NewBuilder) -> str:
        """Why it is not published for its size, by the topics as they are now; empty = it is."""
        reason = self._publisher.too_large(self._publisher.published(whole), new_builder())
        if reason and self._renewed is not None and not self._current:  # a run may last for hours
            self._publisher, self._current = await self._renewed(), True
            reason = self._publisher.too_large(self._publisher.published(whole), new_builder())
        return reason

    def _comes_again(self, refused: Refused) -> bool:
        """Whether this run has published the same record of a bridge's source, which stands here once more.

        A bridge that ended before it had confirmed it writes it again; and a lane that could not note its hop refuses it again.
        """
        return self._hop(refused) in self._hops

    def _note(self, refused: Refused) -> None:
        if (hop := self._hop(refused)) is not None:
            self._hops.add(hop)

    def _hop(self, refused: Refused) -> bytes | None:
        if not self._quarantine.bridged and not bridge_headers.readable(as_read(refused)):
            return None  # of two that no bridge has written nothing says that they are the same
        return dict(refused.headers).get(wire_names.HEADER_HOP)

    async def whole(self, refused: Refused) -> Refused:
        """As it came: what did not fit here is taken from the input, if it is still there and the same."""
        source = place_of(refused.source)
        digest = refused.digest
        if digest is None:
            return refused
        if self._quarantine.bridged or source is None or source.topic != self._quarantine.target_topic:
            return refused
        found = await read_one(self._cluster, self._quarantine.kafka, source)
        if found is None:
            return refused
        if found.value == refused.value:
            return replace(refused, digest=None)  # a value that looks like a digest
        if not digest.of(found.value):
            return refused
        return replace(refused, key=found.key, value=found.value, headers=tuple(found.headers), digest=None)


async def read_one(cluster: Cluster, kafka: KafkaSettings, place: Place) -> Any | None:
    """The record there; None = there is none any more."""
    counts = await cluster.topics.partition_counts([place.topic])
    if place.partition >= counts.get(place.topic, 0):
        return None
    start = await cluster.offsets.log_start(place.topic, place.partition)
    end = await cluster.offsets.stable_end(place.topic, place.partition)
    if not start <= place.offset < end:
        return None
    found: list[Any] = []

    async def consume(records: Sequence[Any]) -> None:
        found.extend(record for record in records if record.offset == place.offset)

    await log_reader.read(kafka, place.topic, place.partition, place.offset, place.offset + 1, consume)
    return found[0] if found else None
