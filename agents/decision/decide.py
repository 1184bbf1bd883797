"""What becomes of the records of one batch: forward, verdict, divert, quarantine. Decides; writes nothing."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import compress

from agents.batch.batch import FetchedBatch, Record
from agents.decision import bridge_headers, forwarding, quarantine, verdicts
from agents.decision.bridge_headers import BridgeHeaders
from agents.decision.envelope import MalformedEnvelopeError
from agents.decision.envelope_parts import PARTS_MAX, Unit, Units
from agents.decision.ids_and_groups import IdReader
from agents.decision.partitioner import Partitioner
from agents.decision.quarantine import Quarantined
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names
from tables.codec import Origin
from tables.hops import NOTHING, Judged
from tables.ring import Checked, Verdict
from tables.table import LaneTable


@dataclass(slots=True)
class Outcome:
    """Where each record of a batch goes. The lists of one kind run in parallel, in order of arrival."""

    checked: Checked
    records: list[Record]
    """At home here; one verdict each."""
    groups: list[bytes | None]
    """Of an envelope: its key, which is where it is judged."""
    sources: list[bytes]
    """Values of ``_RF_SOURCE``."""
    originals: list[bytes | None]
    """For duplicates, where they are diverted: the original's source."""
    new_origins: list[Origin]
    """Of the IDs that are to be added."""
    forwarded: list[tuple[int, Record, bytes]] = field(default_factory=list)
    """Home lane, record, source."""
    quarantined: list[Quarantined] = field(default_factory=list)
    units: Mapping[int, Unit] = field(default_factory=dict)
    """Offset → what an envelope holds; of those at home here."""
    crossings: Mapping[int, BridgeHeaders] = field(default_factory=dict)
    """Offset → the step over a bridge; of those at home here."""
    judged: Judged = NOTHING
    """What the hop memory says of them, and of those of the quarantined that are at home here."""
    resent: AbstractSet[int] = frozenset()
    """Offsets of duplicates by their hop."""
    end: int = 0
    """The position up to which this decides; below the batch's where its envelopes have too many parts for one transaction."""


class Path:
    """The path of records through one lane."""

    def __init__(
        self,
        address: AddressSettings,
        partition: int,
        partitions: int,
        forward_topic: str,
        others: Iterable[AddressSettings] = (),
    ) -> None:
        """``partitions`` is the input's count; ``others`` are the addresses that envelopes may have parts for."""
        self._address = address
        self._partition = partition
        self._forward_topic = forward_topic
        self._reader = IdReader(address)
        self._home = Partitioner(partitions, address.partitioner)
        self._divert = address.duplicates == "divert"
        self._arrive = forwarding.arrival(address.input_topic)
        self._units = Units(address, others)

    def decide(
        self, batch: FetchedBatch, records: Sequence[Record], table: LaneTable, refused: dict[int, str]
    ) -> Outcome:
        """Decide about the records of a batch.

        Args:
            batch: Where they come from: the input, or the forward topic.
            records: What of the batch is due.
            table: Asked, not changed.
            refused: Offset → reason: records that are known to fit nowhere; they go to quarantine and burn no slot, but what came over
                a bridge has come: it is noted, and is a duplicate if it came before. What turns out to be malformed is added.
        """
        end, due = batch.end, records
        records, sources, quarantined = self._come(batch, records, refused)
        (ids, envelopes, crossed), groups = self._reader.ids(records), self._reader.groups(records)
        crossings = bridge_headers.read_all(records, crossed, refused) if crossed else {}
        if len(crossings) < len(crossed):
            return self.decide(batch, due, table, refused)  # without the malformed
        units: dict[int, Unit] = {}
        marked = {records[number].offset for number in envelopes}
        if envelopes:
            self._lead(records, ids, groups, envelopes, units, refused, crossings)
        leads = bridge_headers.leads(records, ids, crossed, crossings) if crossed else ids
        forwarded: list[tuple[int, Record, bytes]] = []
        homes = None if batch.topic == self._forward_topic else self._homes(leads, groups)
        if homes is not None:
            here = self._partition
            away = [home for home in zip(homes, records, sources, strict=True) if home[0] != here]
            forwarded = [item for item in away if item[1].offset not in refused]
            quarantined += [
                (record, source, refused[record.offset])
                for _, record, source in away
                if record.offset in refused
            ]
            stays = [home == here for home in homes]
            records, sources = list(compress(records, stays)), list(compress(sources, stays))
            ids, groups = list(compress(ids, stays)), list(compress(groups, stays))
        if envelopes:
            end = self._open(records, ids, marked, units, refused) or end
            if end < batch.end:
                beyond = {record.offset for record in records if record.offset >= end}
                records, sources, ids, groups = quarantine.without(
                    beyond, records, records, sources, ids, groups
                )
                forwarded = [item for item in forwarded if item[1].offset < end]
                quarantined = [item for item in quarantined if item[0].offset < end]
        judged, resent = verdicts.arrived(records, sources, crossings, table)
        if refused:
            gone = quarantine.but_resent(refused, resent)
            quarantined = quarantine.in_order(quarantined + quarantine.of_those(records, sources, gone))
            records, sources, ids, groups = quarantine.without(gone, records, records, sources, ids, groups)
            resent -= gone.keys()
        checked, crossings = verdicts.judge(records, ids, units, crossings, resent, table)
        return Outcome(
            checked=checked,
            records=list(records),
            groups=groups,
            sources=sources,
            originals=self._originals(checked, sources, table) if self._divert else [],
            new_origins=self._new_origins(batch, records, sources, checked),
            forwarded=forwarded,
            quarantined=quarantined,
            units=units,
            crossings=crossings,
            judged=judged,
            resent=resent,
            end=end,
        )

    def _come(
        self, batch: FetchedBatch, records: Sequence[Record], refused: dict[int, str]
    ) -> tuple[Sequence[Record], list[bytes], list[Quarantined]]:
        """The records as they were, with their sources, and what goes to quarantine wherever it is at home."""
        if batch.topic == self._forward_topic:
            records, sources = self._arrived(records, refused)
        else:
            prefix = wire_names.source(batch.topic, batch.partition)
            sources = [prefix + b"%d" % record.offset for record in records]
        if not refused:
            return records, sources, []
        gone = quarantine.without_hop(records, refused)
        quarantined = quarantine.of_those(records, sources, gone)
        records, sources = quarantine.without(gone, records, records, sources)
        return records, sources, quarantined

    def _lead(
        self,
        records: Sequence[Record],
        ids: list[bytes | None],
        groups: list[bytes | None],
        envelopes: Sequence[int],
        units: dict[int, Unit],
        refused: dict[int, str],
        crossings: Mapping[int, BridgeHeaders],
    ) -> None:
        """Say by what an envelope finds its home: its key, whatever groups its address has; without one its first ID.

        Only that of an envelope without key and ID is in its parts: all others are opened at home.
        """
        for number in envelopes:
            record = records[number]
            groups[number] = record.key
            if record.key is not None or ids[number] is not None:
                continue
            if record.offset in crossings and crossings[record.offset].ids_ignored:
                continue
            try:
                unit = units[record.offset] = self._units.open(record, None)
            except MalformedEnvelopeError as error:
                if record.offset not in crossings:  # else it is refused where its hop is at home
                    refused[record.offset] = str(error)
            else:
                ids[number] = unit.lead

    def _open(
        self,
        records: Sequence[Record],
        ids: Sequence[bytes | None],
        marked: Collection[int],
        units: dict[int, Unit],
        refused: dict[int, str],
    ) -> int | None:
        """Open the envelopes that are at home here; ``marked``: the offsets of all.

        Returns:
            The offset of the first that would bring the transaction over the most parts that it may have; None = all may be
            decided together.
        """
        count, open_unit = 0, self._units.open
        for record, own_id in zip(records, ids, strict=True):
            offset = record.offset
            if offset not in marked or offset in refused:
                continue
            unit = units.get(offset)
            if unit is None:
                try:
                    unit = units[offset] = open_unit(record, own_id)
                except MalformedEnvelopeError as error:
                    refused[offset] = str(error)
                    continue
            if count and count + len(unit.groups) > PARTS_MAX:
                return offset
            count += len(unit.groups)
        return None

    def _new_origins(
        self, batch: FetchedBatch, records: Sequence[Record], sources: Sequence[bytes], checked: Checked
    ) -> list[Origin]:
        """Where the message of each new ID stands in the input."""
        owners = checked.owners
        if owners is None:
            accepted = [verdict is Verdict.ACCEPTED for verdict in checked.verdicts]
            records, sources = list(compress(records, accepted)), list(compress(sources, accepted))
        else:
            records, sources = [records[owner] for owner in owners], [sources[owner] for owner in owners]
        if batch.topic != self._forward_topic:
            number = batch.partition
            return [Origin(number, record.offset, record.timestamp) for record in records]
        return [_origin(source, record.timestamp) for source, record in zip(sources, records, strict=True)]

    def _homes(self, ids: Sequence[bytes | None], groups: Sequence[bytes | None]) -> list[int] | None:
        """The home lane of each record, or None when all are at home here: the usual case, and it costs nothing more.

        Home is where the group, or without one the ID, hashes to; a message with neither is at home where it is.
        """
        home, here = self._home, self._partition
        homes = [
            home[group] if group is not None else here if id_ is None else home[id_[1:]]
            for group, id_ in zip(groups, ids, strict=True)
        ]
        return None if homes.count(here) == len(homes) else homes

    def _originals(self, checked: Checked, sources: list[bytes], table: LaneTable) -> list[bytes | None]:
        """The source of each duplicate's original: from the slots, or from earlier in this batch."""
        if checked.owners is None:
            accepted = (verdict is Verdict.ACCEPTED for verdict in checked.verdicts)
            fresh = list(compress(sources, accepted))
        else:
            fresh = [sources[owner] for owner in checked.owners]
        wanted = sorted(
            {
                original
                for original in checked.originals
                if original is not None and original < checked.first_sequence
            }
        )
        stored = dict(zip(wanted, table.find(wanted), strict=True))
        topic = self._address.input_topic
        result: list[bytes | None] = []
        for sequence in checked.originals:
            if sequence is None:
                result.append(None)
            elif sequence >= checked.first_sequence:
                result.append(fresh[sequence - checked.first_sequence])
            else:
                slot = stored[sequence]
                result.append(
                    None
                    if slot is None
                    else wire_names.source(topic, slot.origin.partition) + b"%d" % slot.origin.offset
                )
        return result

    def _arrived(
        self, records: Sequence[Record], refused: dict[int, str]
    ) -> tuple[list[Record], list[bytes]]:
        """Forwarded records as they were, with their sources; what somebody else wrote there goes to quarantine."""
        arrive = self._arrive
        restored: list[Record] = []
        sources: list[bytes] = []
        for record in records:
            arrived = arrive(record)
            if arrived is None:
                refused[record.offset] = forwarding.MALFORMED
                arrived = (
                    record,
                    wire_names.source(self._forward_topic, self._partition) + b"%d" % record.offset,
                )
            restored.append(arrived[0])
            sources.append(arrived[1])
        return restored, sources


def _origin(source: bytes, timestamp: int) -> Origin:
    _, partition, offset = source.rsplit(b"/", 2)
    return Origin(int(partition), int(offset), timestamp)
