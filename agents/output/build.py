"""Builds the record batches of a transaction: every output of a lane, and its changelog."""

import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Final

from agents.batch.batch import Record
from agents.decision.decide import Outcome
from agents.decision.envelope_parts import Unit
from agents.decision.forwarding import headers_on_the_way
from agents.decision.partitioner import Partitioner
from agents.decision.quarantine import RESENT
from ringfence_kafka.admin.topics import too_small
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.errors import TopicError
from ringfence_kafka.producer.transactional import Builder, NewBuilder, Outgoing
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.value_digest import stand_in_of
from ringfence_kafka.protocol.wire_names import NO_TIMESTAMP
from tables.ring import Verdict

Headers = list[tuple[str, bytes | None]]

OURS_BYTES: Final = 2_048
"""More than a record has around its content: of its batch, of our headers, of a default group."""
REMEMBERED_PARTS_MAX: Final = 1_000
"""Of a transaction: the headers of more are not kept, producers choose how many there are."""
OURS: Final = frozenset(
    {
        wire_names.HEADER_SOURCE, wire_names.HEADER_KEY, wire_names.HEADER_TRANSACTION, wire_names.HEADER_PART,
        wire_names.HEADER_HOP, wire_names.HEADER_CONFIRMED, wire_names.HEADER_USER_IDS, wire_names.HEADER_HOPS, wire_names.HEADER_REDRIVEN,
    }
)  # fmt: skip
"""Replaced or left out on what is accepted, if they were there."""
OURS_IN_A_CHAIN: Final = OURS - {wire_names.HEADER_HOPS}
"""The same where the input is another address's accepted topic: bridges behind the chain must see what a message has passed."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The topics that a lane writes to, besides its changelog: partition counts and largest record batches."""

    partitions: dict[str, int]
    bytes_max: dict[str, int]
    """``max.message.bytes`` of each topic."""
    aged_ms: dict[str, float]
    """How old a record must be, by its timestamp, to be :attr:`ringfence_kafka.producer.transactional.Outgoing.aged`; absent = never is."""


class TooLargeError(Exception):
    """Records that fit into no batch that their topic takes; ``reasons`` by input offset."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(f"{len(reasons)} records are too large")
        self.reasons = reasons


class _Batches:
    """Record batches of one topic that are being filled, one open a partition."""

    def __init__(
        self,
        topic: str,
        bytes_max: int,
        new_builder: NewBuilder,
        too_large: dict[int, str],
        aged_before: float | None = None,
    ) -> None:
        """``aged_before``: a timestamp, if there may be records older than that."""
        self._topic = topic
        self._aged_before = aged_before
        self._young: set[int] = set()
        """Partitions whose open batch has a record that is not."""
        self._bytes_max = bytes_max
        self._new = new_builder
        self._too_large = too_large
        self._open: dict[int, Builder] = {}
        self._without_time: set[int] = set()
        """Partitions whose open batch has only records without a timestamp."""
        self._full: list[Outgoing] = []

    def add(
        self,
        partition: int,
        record: Record,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        written_at: int | None = None,
        place: tuple[str, bytes] | None = None,
    ) -> None:
        """Append a record, with its own timestamp unless ``written_at`` is given.

        One that is too large for the topic even alone is noted, with its ``place``, a header, and left out; of an envelope the first part.
        """
        builder = self._open.get(partition)
        timestamp = record.timestamp if written_at is None else written_at
        young = self._aged_before is not None and timestamp >= self._aged_before
        if self._without_time and partition in self._without_time and timestamp != NO_TIMESTAMP:
            # aiokafka would give its timestamp to those that have none.
            self._close(partition)
            builder = None
        if builder is not None:
            if builder.append(timestamp=timestamp, key=key, value=value, headers=headers) is not None:
                if young:
                    self._young.add(partition)
                return
            self._close(partition)
        builder = self._new()
        builder.append(timestamp=timestamp, key=key, value=value, headers=headers)
        if young:
            self._young.add(partition)
        if timestamp == NO_TIMESTAMP:
            self._without_time.add(partition)
        if builder.size() > self._bytes_max:
            self._open.pop(partition, None)
            part = "" if place is None else f"part {place[1].decode()}: "
            self._too_large.setdefault(
                record.offset,
                f"{part}{builder.size()} bytes, {self._topic} takes max.message.bytes = {self._bytes_max}",
            )
        else:
            self._open[partition] = builder

    def _close(self, partition: int) -> None:
        aged = self._aged_before is not None and partition not in self._young
        self._young.discard(partition)
        self._without_time.discard(partition)
        self._full.append(Outgoing(self._topic, partition, self._open.pop(partition), aged))

    def finish(self) -> list[Outgoing]:
        """All batches, in order within each partition."""
        for partition in list(self._open):
            self._close(partition)
        return self._full


class _Target:
    """The accepted topic of an address that parts of transactions go to."""

    def __init__(self, address: AddressSettings, outputs: Outputs) -> None:
        self.topic = address.accepted_topic
        self.count = outputs.partitions[self.topic]
        self.home = Partitioner(self.count, address.partitioner)


class Emitter:
    """Turns the outcome of one lane's batches into record batches."""

    def __init__(
        self,
        address: AddressSettings,
        forward_topic: str,
        outputs: Outputs,
        others: Iterable[AddressSettings] = (),
        *,
        chained: bool = False,
    ) -> None:
        """``others``: the addresses that parts of its envelopes may go to, beside its own. ``chained``: another address feeds it."""
        self._address = address
        self.replaced = OURS_IN_A_CHAIN if chained else OURS
        """Names of headers that are not taken over from the input."""
        self._forward_topic = forward_topic
        self._outputs = outputs
        self._targets = {
            address_settings.name: _Target(address_settings, outputs)
            for address_settings in (address, *others)
        }
        self._home = self._targets[address.name].home
        self._duplicates_home = self._home
        if address.duplicates == "divert":
            self._duplicates_home = Partitioner(
                outputs.partitions[address.duplicates_topic], address.partitioner
            )
        self._spread = 0
        """Counts batches: each topic takes it modulo its own count."""

    @property
    def next_spread(self) -> int:
        """The number of the batch that comes next."""
        return self._spread + 1

    def count_batch(self) -> None:
        """Somebody else has built it."""
        self._spread += 1

    def emit(
        self, outcome: Outcome, new_builder: NewBuilder, *, sizes_confirmed: bool = True
    ) -> list[Outgoing]:
        """All output batches of an outcome.

        Args:
            outcome: What was decided.
            new_builder: Makes an empty record batch.
            sizes_confirmed: The sizes that topics take were asked for just now. Without it nothing is replaced by its digest.

        Raises:
            TopicError: the quarantine topic takes not even the bare form of a record.
            TooLargeError: some records must go to quarantine instead: decide again, with them refused. It names none if a record
                does not fit into the quarantine topic and the sizes are not confirmed.
        """
        too_large: dict[int, str] = {}
        oldest = min((record.timestamp for record in outcome.records), default=math.inf)

        def batches(topic: str) -> _Batches:
            aged_before = self.aged_before(topic, oldest)
            return _Batches(topic, self._outputs.bytes_max[topic], new_builder, too_large, aged_before)

        accepted = {name: batches(self._targets[name].topic) for name in self._emitted_to(outcome)}
        self._accept(outcome, accepted)
        self._probe_ignored(outcome, batches)
        written = [batch for value in accepted.values() for batch in value.finish()]
        if outcome.originals:
            written += self._diverted(outcome, batches(self._address.duplicates_topic))
            for offset in outcome.resent & too_large.keys():
                too_large[offset] = f"{RESENT}: {too_large[offset]}"
        if outcome.forwarded:
            written += self._forwarded(outcome, batches(self._forward_topic))
        if too_large:
            raise TooLargeError(too_large)
        if outcome.quarantined:
            written += self._quarantined(outcome, new_builder, sizes_confirmed=sizes_confirmed)
        return written

    def aged_before(self, topic: str, oldest: float) -> float | None:
        """The timestamp before which a record is aged there; None where nothing is as old as that."""
        limit = time.time() * 1000 - self._outputs.aged_ms.get(topic, math.inf)
        return limit if oldest < limit else None

    def _emitted_to(self, outcome: Outcome) -> list[str]:
        """The addresses that something may be accepted for."""
        named = chain.from_iterable(unit.addresses for unit in outcome.units.values())
        return list(dict.fromkeys(chain((self._address.name,), named)))

    def _accept(self, outcome: Outcome, accepted: Mapping[str, _Batches]) -> None:
        """Key = group; value, headers and timestamp unchanged; ``_RF_SOURCE``, and ``_RF_KEY`` where it differs.

        A record without a group is spread: those of one batch go to one partition, those of the next to another.
        """
        self._spread += 1
        spread = self._spread % self._targets[self._address.name].count
        home, duplicate, units, crossings = self._home, Verdict.DUPLICATE, outcome.units, outcome.crossings
        batches, replaced = accepted[self._address.name], self.replaced
        for record, verdict, group, source in zip(
            outcome.records, outcome.checked.verdicts, outcome.groups, outcome.sources, strict=True
        ):
            if verdict is duplicate:
                continue
            if units and (unit := units.get(record.offset)) is not None:
                self._accept_parts(record, source, unit, outcome, accepted)
                continue
            headers = [header for header in record.headers if header[0] not in replaced]
            if crossings and record.offset in crossings:
                headers = [header for header in headers if header[0] != wire_names.HEADER_HOPS]
                headers += crossings[record.offset].kept
            headers.append((wire_names.HEADER_SOURCE, source))
            if record.key != group:
                headers.append((wire_names.HEADER_KEY, record.key))
            batches.add(spread if group is None else home[group], record, group, record.value, headers)

    def _accept_parts(
        self,
        record: Record,
        source: bytes,
        unit: Unit,
        outcome: Outcome,
        accepted: Mapping[str, _Batches],
    ) -> None:
        """Each part as the same message would be accepted if it were sent alone, with ``_RF_TX_PART`` beside."""
        step = outcome.crossings.get(record.offset) if outcome.crossings else None
        ours = (*(step.kept if step else ()), (wire_names.HEADER_SOURCE, source))
        targets, spread, places = self._targets, self._spread, _places(len(unit.groups))
        addresses, groups, keys, values, headers_of, _ = unit
        for address, group, key, value, theirs, place in zip(
            addresses, groups, keys, values, headers_of, places, strict=True
        ):
            target = targets[address]
            headers = [*theirs, *ours, place]
            if key is not group and key != group:
                headers.append((wire_names.HEADER_KEY, key))
            partition = spread % target.count if group is None else target.home[group]
            accepted[address].add(partition, record, group, value, headers, None, place)

    def _probe_ignored(self, outcome: Outcome, batches: Callable[[str], _Batches]) -> None:
        """What is refused is refused before its IDs are judged: an envelope too that is a duplicate and has too large a part.

        A part has its key and group besides what stands in the envelope, so only what is large there is built, and not written.
        """
        if not outcome.units:
            return
        ignored = [verdict is Verdict.DUPLICATE for verdict in outcome.checked.verdicts]
        for record, source in compress(zip(outcome.records, outcome.sources, strict=True), ignored):
            unit = outcome.units.get(record.offset)
            if unit is None or record.offset in outcome.resent:
                continue
            topics = {address: self._targets[address].topic for address in unit.addresses}
            least = min(self._outputs.bytes_max[topic] for topic in topics.values())
            if 2 * len(record.value or b"") + OURS_BYTES > least:
                probes = {address: batches(topic) for address, topic in topics.items()}
                self._accept_parts(record, source, unit, outcome, probes)

    def _diverted(self, outcome: Outcome, batches: _Batches) -> list[Outgoing]:
        """Duplicates as they came, with ``_RF_SOURCE`` and ``_RF_ORIGINAL``."""
        count = self._outputs.partitions[self._address.duplicates_topic]
        home = self._duplicates_home
        for record, verdict, group, source, original in zip(
            outcome.records,
            outcome.checked.verdicts,
            outcome.groups,
            outcome.sources,
            outcome.originals,
            strict=True,
        ):
            if verdict is Verdict.DUPLICATE:
                headers = _with(
                    record, {wire_names.HEADER_SOURCE: source, wire_names.HEADER_ORIGINAL: original}
                )
                partition = self._spread % count if group is None else home[group]
                batches.add(partition, record, record.key, record.value, headers)
        return batches.finish()

    @staticmethod
    def _forwarded(outcome: Outcome, batches: _Batches) -> list[Outgoing]:
        """To the home lane as they came, with the source that the accepted record will carry; written now."""
        now = round(time.time() * 1000)
        for home, record, source in outcome.forwarded:
            batches.add(home, record, record.key, record.value, headers_on_the_way(record, source), now)
        return batches.finish()

    def _quarantined(
        self, outcome: Outcome, new_builder: NewBuilder, *, sizes_confirmed: bool
    ) -> list[Outgoing]:
        """With ``_RF_REASON`` and ``_RF_SOURCE``; what does not fit even here is named by size and digest."""
        topic = self._address.quarantine_topic
        count, bytes_max = self._outputs.partitions[topic], self._outputs.bytes_max[topic]
        oldest = min(record.timestamp for record, *_ in outcome.quarantined)
        too_large: dict[int, str] = {}
        batches = _Batches(topic, bytes_max, new_builder, too_large, self.aged_before(topic, oldest))
        for record, source, reason in outcome.quarantined:
            ours = {wire_names.HEADER_SOURCE: source, wire_names.HEADER_REASON: reason.encode()}
            partition = int(source.rsplit(b"/", 2)[1]) % count
            batches.add(partition, record, record.key, record.value, _with(record, ours))
            if not too_large:
                continue
            if not sizes_confirmed:
                raise TooLargeError({})
            digest = stand_in_of(record.value or b"")
            bare: Headers = list(ours.items())
            for key, headers in ((record.key, _with(record, ours)), (None, bare)):
                too_large.clear()
                batches.add(partition, record, key, digest, headers)
                if not too_large:
                    break
            else:  # it must not be committed over, as if it were written
                raise TopicError(too_small("quarantine topic", self._address.name, topic, bytes_max))
        return batches.finish()


def _places(count: int) -> Sequence[tuple[str, bytes]]:
    """The headers that say which part of so many it is."""
    return _few_places(count) if count <= REMEMBERED_PARTS_MAX else _few_places.__wrapped__(count)


@functools.lru_cache(maxsize=64)
def _few_places(count: int) -> Sequence[tuple[str, bytes]]:
    return [(wire_names.HEADER_PART, b"%d/%d" % (number, count)) for number in range(1, count + 1)]


def _with(record: Record, ours: dict[str, bytes | None] | dict[str, bytes]) -> Headers:
    headers: Headers = [header for header in record.headers if header[0] not in ours]
    headers.extend(ours.items())
    return headers
