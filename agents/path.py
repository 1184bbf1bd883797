"""What becomes of the records of one batch: forward, verdict, divert, quarantine. Decides; writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

from agents import detour
from agents.batch import FetchedBatch, Record
from agents.home import Home
from agents.verdict import Reader
from ringfence_kafka import wire
from ringfence_kafka.config.settings import AddressSettings
from tables.codec import Origin
from tables.ring import Checked, Verdict
from tables.table import LaneTable


@dataclass(slots=True)
class Outcome:
    """Where each record of a batch goes. The lists of one kind run in parallel, in order of arrival."""

    checked: Checked
    records: list[Record]
    """At home here; one verdict each."""
    groups: list[bytes | None]
    sources: list[bytes]
    """Values of ``_RF_SOURCE``."""
    originals: list[bytes | None]
    """For duplicates, where they are diverted: the original's source."""
    new_origins: list[Origin]
    """Of the IDs that are to be added."""
    forwarded: list[tuple[int, Record, bytes]] = field(default_factory=list)
    """Home lane, record, source."""
    quarantined: list[tuple[Record, bytes, str]] = field(default_factory=list)
    """Record, source, reason."""


class Path:
    """The path of records through one lane."""

    def __init__(self, address: AddressSettings, partition: int, partitions: int, forward_topic: str) -> None:
        """``partitions`` is the input's count."""
        self._address = address
        self._partition = partition
        self._forward_topic = forward_topic
        self._reader = Reader(address)
        self._home = Home(partitions, address.partitioner)
        self._divert = address.duplicates == "divert"
        self._arrive = detour.arrival(address.input_topic)

    def decide(
        self, batch: FetchedBatch, records: Sequence[Record], table: LaneTable, refused: dict[int, str]
    ) -> Outcome:
        """Decide about the records of a batch.

        Args:
            batch: Where they come from: the input, or the forward topic.
            records: What of the batch is due.
            table: Asked, not changed.
            refused: Offset → reason: records that are known to fit nowhere; they go to quarantine and burn no slot.
        """
        quarantined: list[tuple[Record, bytes, str]] = []
        if batch.topic == self._forward_topic:
            records, sources = self._arrived(records, refused)
        else:
            prefix = wire.source(batch.topic, batch.partition)
            sources = [prefix + b"%d" % record.offset for record in records]
        if refused:
            records, sources = self._set_aside(records, sources, refused, quarantined)
        ids, groups = self._reader.ids(records), self._reader.groups(records)
        forwarded: list[tuple[int, Record, bytes]] = []
        homes = None if batch.topic == self._forward_topic else self._homes(ids, groups)
        if homes is not None:
            here = self._partition
            forwarded = [each for each in zip(homes, records, sources, strict=True) if each[0] != here]
            stays = [home == here for home in homes]
            records, sources = list(compress(records, stays)), list(compress(sources, stays))
            ids, groups = list(compress(ids, stays)), list(compress(groups, stays))
        checked = table.check(ids, [record.timestamp for record in records])
        return Outcome(
            checked=checked,
            records=list(records),
            groups=groups,
            sources=sources,
            originals=self._originals(checked, sources, table) if self._divert else [],
            new_origins=self._new_origins(batch, records, sources, checked),
            forwarded=forwarded,
            quarantined=quarantined,
        )

    def _new_origins(
        self, batch: FetchedBatch, records: Sequence[Record], sources: Sequence[bytes], checked: Checked
    ) -> list[Origin]:
        accepted = [verdict is Verdict.ACCEPTED for verdict in checked.verdicts]
        if batch.topic != self._forward_topic:
            number = batch.partition
            return [Origin(number, record.offset, record.timestamp) for record in compress(records, accepted)]
        return [
            _origin(source, record.timestamp)
            for source, record in zip(compress(sources, accepted), compress(records, accepted), strict=True)
        ]

    def _homes(self, ids: Sequence[bytes | None], groups: Sequence[bytes | None]) -> list[int] | None:
        """The home lane of each record, or None when all are at home here: the usual case, and it costs nothing more.

        Home is where the group, or without one the ID, hashes to; a message with neither is at home where it is.
        """
        home, here = self._home, self._partition
        homes = [
            home[group] if group is not None else here if each is None else home[each[1:]]
            for group, each in zip(groups, ids, strict=True)
        ]
        return None if homes.count(here) == len(homes) else homes

    def _originals(self, checked: Checked, sources: list[bytes], table: LaneTable) -> list[bytes | None]:
        """The source of each duplicate's original: from the slots, or from earlier in this batch."""
        fresh = [
            source
            for source, verdict in zip(sources, checked.verdicts, strict=True)
            if verdict is Verdict.ACCEPTED
        ]
        wanted = sorted(
            {each for each in checked.originals if each is not None and each < checked.first_sequence}
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
                    else wire.source(topic, slot.origin.partition) + b"%d" % slot.origin.offset
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
                refused[record.offset] = detour.MALFORMED
                arrived = record, wire.source(self._forward_topic, self._partition) + b"%d" % record.offset
            restored.append(arrived[0])
            sources.append(arrived[1])
        return restored, sources

    @staticmethod
    def _set_aside(
        records: Sequence[Record],
        sources: list[bytes],
        refused: dict[int, str],
        quarantined: list[tuple[Record, bytes, str]],
    ) -> tuple[list[Record], list[bytes]]:
        kept: list[Record] = []
        kept_sources: list[bytes] = []
        for record, source in zip(records, sources, strict=True):
            reason = refused.get(record.offset)
            if reason is not None:
                quarantined.append((record, source, reason))
            else:
                kept.append(record)
                kept_sources.append(source)
        return kept, kept_sources


def _origin(source: bytes, timestamp: int) -> Origin:
    _, partition, offset = source.rsplit(b"/", 2)
    return Origin(int(partition), int(offset), timestamp)
