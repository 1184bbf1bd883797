"""Builds the record batches of all outputs of a transaction."""

import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final

from agents.batch.batch import Record
from agents.decision.decide import Outcome
from agents.decision.envelope_parts import Unit
from agents.decision.forwarding import forwarded_headers
from agents.decision.item import RESENT, Item, Place
from agents.decision.partitioner import Partitioner
from agents.output.sequences import part_sequences, sequence_header, sequences_of
from agents.output.topic_batches import Headers, Outputs, TooLargeError, TopicBatches
from ringfence_kafka.admin.topic_rules import no_room
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.errors import TopicError
from ringfence_kafka.producer.transactional import NewBuilder, Outgoing
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.value_digest import placeholder_of
from tables.ring import Verdict

OURS_BYTES: Final = 2_048
"""Upper limit of the overhead of a record, in bytes: its batch, Ringfence's headers, a default group."""
REMEMBERED_PARTS_MAX: Final = 1_000
"""Maximum number of parts whose headers are cached, because producers choose the number of parts."""
OURS: Final = frozenset(
    {
        wire_names.HEADER_SOURCE, wire_names.HEADER_KEY, wire_names.HEADER_TRANSACTION, wire_names.HEADER_PART,
        wire_names.HEADER_HOP, wire_names.HEADER_CONFIRMED, wire_names.HEADER_USER_IDS, wire_names.HEADER_HOPS, wire_names.HEADER_REDRIVEN,
        wire_names.HEADER_SEQUENCE, wire_names.HEADER_VERDICT,
    }
)  # fmt: skip
"""Headers that an accepted record does not keep from its input record."""
_DUPLICATES: Final = frozenset({Verdict.DUPLICATE, Verdict.CONFLICT})
OURS_IN_A_CHAIN: Final = OURS - {wire_names.HEADER_HOPS}
"""The same set if the input is another address's accepted topic: later bridges must see the message's earlier hops."""
_VERDICTS: Final = {verdict: verdict.name.encode() for verdict in Verdict} | {Verdict.CONFLICT: b"DUPLICATE"}


class _Target:
    """Accepted topic of an address that parts of transactions go to."""

    def __init__(self, address: AddressSettings, outputs: Outputs) -> None:
        self.topic = address.accepted_topic
        self.count = outputs.partitions[self.topic]
        self.home = Partitioner(self.count, address.partitioner)


class Emitter:
    """Builds record batches from the outcomes of one lane."""

    def __init__(
        self,
        address: AddressSettings,
        forward_topic: str,
        outputs: Outputs,
        others: Iterable[AddressSettings] = (),
        *,
        chained: bool = False,
    ) -> None:
        """Create the emitter. ``others``: other addresses that parts of envelopes go to; ``chained``: another address writes the input."""
        self._address = address
        self.replaced = OURS_IN_A_CHAIN if chained else OURS
        """Names of headers that are not copied from the input."""
        self._sequenced = address.lanes > 0
        self._forward_topic = forward_topic
        self._outputs = outputs
        self._targets = {
            address_settings.name: _Target(address_settings, outputs)
            for address_settings in (address, *others)
        }
        self._duplicates_home = self._targets[address.name].home
        diverted = _DUPLICATES if address.duplicates == "divert" else {Verdict.CONFLICT}
        self._diverted_verdicts = diverted if address.diverts and not address.observes else frozenset()
        if address.diverts:
            self._duplicates_home = Partitioner(
                outputs.partitions[address.duplicates_topic], address.partitioner
            )
        self.spread = 0
        """Number of batches. Each topic uses it modulo its partition count."""

    def count_batch(self) -> None:
        """Count a batch that the native core has built."""
        self.spread += 1

    def emit(
        self, outcome: Outcome, new_builder: NewBuilder, *, sizes_confirmed: bool = True
    ) -> list[Outgoing]:
        """Return all output batches of an outcome.

        ``sizes_confirmed``: the topics' size limits were queried just now. Otherwise no value is replaced by its digest.

        Raises:
            TopicError: the quarantine topic does not take even a record's digest without its key and headers.
            TooLargeError: some records must go to quarantine: decide again, with these records refused. It names no record if a record
                does not fit into the quarantine topic and the sizes are not confirmed.
        """
        too_large: dict[Place, str] = {}
        oldest = min([item.record.timestamp for item in outcome.here], default=math.inf)

        def batches(topic: str) -> TopicBatches:
            aged_before = self.aged_before(topic, oldest)
            return TopicBatches(topic, self._outputs.bytes_max[topic], new_builder, too_large, aged_before)

        written = self._accepted(outcome, batches)
        if not self._diverted_verdicts.isdisjoint(outcome.checked.verdicts):
            written += self._diverted(outcome, batches(self._address.duplicates_topic))
            for item in outcome.here:
                if item.resent and item.place in too_large:
                    too_large[item.place] = f"{RESENT}: {too_large[item.place]}"
        if outcome.forwarded:
            written += self._forwarded(outcome, batches(self._forward_topic))
        if too_large:
            raise TooLargeError(too_large)
        if outcome.quarantined:
            written += self._quarantined(outcome, new_builder, sizes_confirmed=sizes_confirmed)
        return written

    def aged_before(self, topic: str, oldest: float) -> float:
        """Return the timestamp below which records of a topic are aged, in ms; minus infinity if the oldest record is not aged."""
        limit = time.time() * 1000 - self._outputs.aged_ms.get(topic, math.inf)
        return limit if oldest < limit else -math.inf

    def _accepted(self, outcome: Outcome, new_batches: Callable[[str], TopicBatches]) -> list[Outgoing]:
        """Build the accepted records.

        The key is the group. Value, headers and timestamp stay unchanged; ``_RF_SOURCE`` is added, and ``_RF_KEY`` if the key differs. In
        observe mode duplicates pass too, except repeated sends of a bridge. All records without a group of one batch go to the same
        partition, and those of the next batch to the next partition.
        """
        self.spread += 1
        own = self._targets[self._address.name]
        spread, home, replaced = self.spread % own.count, own.home, self.replaced
        observes = self._address.observes
        batches = new_batches(own.topic)
        accepted = {self._address.name: batches}
        append = batches.append
        sequences = sequences_of(outcome.checked) if self._sequenced else repeat((), len(outcome.here))
        for item, verdict, sequence in zip(outcome.here, outcome.checked.verdicts, sequences, strict=True):
            ignored = verdict in _DUPLICATES and (item.resent or not observes)
            marks = [_verdict_header(verdict, item.original)] if observes else []
            if item.unit is not None:
                if not ignored:
                    self._begin_targets(item.unit, accepted, new_batches)
                    self._accept_parts(item, item.unit, accepted, sequence, marks)
                elif not item.resent:
                    self._probe_ignored(item, item.unit, new_batches)
                continue
            if ignored:
                continue
            record, group = item.record, item.group
            headers = [header for header in record.headers if header[0] not in replaced]
            if item.hop is not None:
                headers = [header for header in headers if header[0] != wire_names.HEADER_HOPS]
                headers += item.hop.kept
            headers.append((wire_names.HEADER_SOURCE, item.source))
            if record.key != group:
                headers.append((wire_names.HEADER_KEY, record.key))
            if sequence:
                headers.append(sequence_header(sequence[0]))
            headers += marks
            partition = spread if group is None else home[group]
            if size := append(partition, record.timestamp, group, record.value, headers):
                batches.refuse(item, size)
        return [outgoing for target in accepted.values() for outgoing in target.finish()]

    def _begin_targets(
        self, unit: Unit, accepted: dict[str, TopicBatches], new_batches: Callable[[str], TopicBatches]
    ) -> None:
        for address in unit.addresses:
            if address not in accepted:
                accepted[address] = new_batches(self._targets[address].topic)

    def _accept_parts(
        self,
        item: Item,
        unit: Unit,
        accepted: Mapping[str, TopicBatches],
        sequence: Sequence[int] = (),
        marks: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Build each part like a message that was sent alone, with an additional ``_RF_TX_PART``.

        ``sequence``: sequence numbers of the unit's distinct IDs. ``marks``: headers that come last.
        """
        record, step = item.record, item.hop
        numbers = part_sequences(unit, sequence)
        ours = (*(step.kept if step else ()), (wire_names.HEADER_SOURCE, item.source))
        targets, spread, places = self._targets, self.spread, _places(len(unit.groups))
        addresses, groups, keys, values, headers_of, *_ = unit
        for address, group, key, value, theirs, place, number in zip(
            addresses, groups, keys, values, headers_of, places, numbers, strict=False
        ):
            target = targets[address]
            headers = [*theirs, *ours, place]
            if key is not group and key != group:
                headers.append((wire_names.HEADER_KEY, key))
            if number is not None:
                headers.append(sequence_header(number))
            headers += marks
            partition = spread % target.count if group is None else target.home[group]
            batches = accepted[address]
            if size := batches.append(partition, record.timestamp, group, value, headers):
                batches.refuse(item, size, f"part {place[1].decode()}: ")

    def _probe_ignored(self, item: Item, unit: Unit, new_batches: Callable[[str], TopicBatches]) -> None:
        """Refuse a duplicate envelope with a part that is too large, because a refusal takes precedence over the verdict.

        In the envelope a part has its key and group besides its content. Only large envelopes are therefore built, and then discarded.
        """
        topics = {address: self._targets[address].topic for address in unit.addresses}
        least = min(self._outputs.bytes_max[topic] for topic in topics.values())
        if 2 * len(item.record.value or b"") + OURS_BYTES > least:
            self._accept_parts(item, unit, {address: new_batches(topic) for address, topic in topics.items()})

    def _diverted(self, outcome: Outcome, batches: TopicBatches) -> list[Outgoing]:
        """Build the diverted duplicates: unchanged, with ``_RF_SOURCE`` and ``_RF_ORIGINAL``. Only conflicts have ``_RF_VERDICT``."""
        count = self._outputs.partitions[self._address.duplicates_topic]
        home = self._duplicates_home
        for item, verdict in zip(outcome.here, outcome.checked.verdicts, strict=True):
            if verdict not in self._diverted_verdicts:
                continue
            record, group = item.record, item.group
            ours = {wire_names.HEADER_SOURCE: item.source, wire_names.HEADER_ORIGINAL: item.original}
            if verdict is Verdict.CONFLICT:
                ours[wire_names.HEADER_VERDICT] = wire_names.VERDICT_CONFLICT
            # An incoming verdict header is from an earlier address of a chain, or from a producer.
            headers = _with(record, ours, without=wire_names.HEADER_VERDICT)
            partition = self.spread % count if group is None else home[group]
            if size := batches.append(partition, record.timestamp, record.key, record.value, headers):
                batches.refuse(item, size)
        return batches.finish()

    @staticmethod
    def _forwarded(outcome: Outcome, batches: TopicBatches) -> list[Outgoing]:
        """Build records for their home lanes: unchanged, with the source of the later accepted record and the current time."""
        now = round(time.time() * 1000)
        for item in outcome.forwarded:
            record = item.record
            headers = forwarded_headers(record, item.source)
            if size := batches.append(item.home, now, record.key, record.value, headers):
                batches.refuse(item, size)
        return batches.finish()

    def _quarantined(
        self, outcome: Outcome, new_builder: NewBuilder, *, sizes_confirmed: bool
    ) -> list[Outgoing]:
        """Build quarantined records with ``_RF_REASON`` and ``_RF_SOURCE``. A record that is too large is replaced by its size and digest."""
        topic = self._address.quarantine_topic
        count, bytes_max = self._outputs.partitions[topic], self._outputs.bytes_max[topic]
        oldest = min(item.record.timestamp for item in outcome.quarantined)
        batches = TopicBatches(topic, bytes_max, new_builder, {}, self.aged_before(topic, oldest))
        for item in outcome.quarantined:
            record = item.record
            ours = {wire_names.HEADER_SOURCE: item.source, wire_names.HEADER_REASON: item.reason.encode()}
            partition = int(item.source.rsplit(b"/", 2)[1]) % count
            whole = _with(record, ours)
            if not batches.append(partition, record.timestamp, record.key, record.value, whole):
                continue
            if not sizes_confirmed:
                raise TooLargeError({})
            digest = placeholder_of(record.value or b"")
            bare: Headers = list(ours.items())
            if batches.append(partition, record.timestamp, record.key, digest, whole) and batches.append(
                partition, record.timestamp, None, digest, bare
            ):  # a commit would lose the record
                raise TopicError(no_room(topic, "quarantine topic", self._address.name, bytes_max))
        return batches.finish()


def _verdict_header(verdict: Verdict, original: bytes | None) -> tuple[str, bytes]:
    value = _VERDICTS[verdict]
    return wire_names.HEADER_VERDICT, value if original is None else b"%b %b" % (value, original)


def _places(count: int) -> Sequence[tuple[str, bytes]]:
    """Return the headers with the number of each part, for ``count`` parts."""
    return _few_places(count) if count <= REMEMBERED_PARTS_MAX else _few_places.__wrapped__(count)


@functools.lru_cache(maxsize=64)
def _few_places(count: int) -> Sequence[tuple[str, bytes]]:
    return [(wire_names.HEADER_PART, b"%d/%d" % (number, count)) for number in range(1, count + 1)]


def _with(
    record: Record, ours: dict[str, bytes | None] | dict[str, bytes], without: str | None = None
) -> Headers:
    headers: Headers = [header for header in record.headers if header[0] not in ours and header[0] != without]
    headers.extend(ours.items())
    return headers
