"""What becomes of the records of one batch: forward, verdict, divert, quarantine. Decides; writes nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, repeat
from typing import Final

from agents.batch.batch import FetchedBatch, Record
from agents.decision import bridge_headers, forwarding
from agents.decision.bridge_headers import MalformedHopError
from agents.decision.envelope import MalformedEnvelopeError
from agents.decision.envelope_parts import PARTS_MAX, Units
from agents.decision.ids_and_groups import IdReader
from agents.decision.item import Fate, Item
from agents.decision.partitioner import Partitioner
from agents.decision.verdicts import judge_hops, judge_ids
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names
from tables.codec import Origin
from tables.hops import NOTHING, Judged
from tables.ring import Checked, Verdict
from tables.table import LaneTable

_NEW_ORIGIN: Final = partial(tuple.__new__, Origin)
"""Makes one of a tuple, in half the time: there is one for each new ID."""


@dataclass(slots=True)
class Outcome:
    """The records of a batch by their fate, each list in order of arrival."""

    checked: Checked
    """One verdict for each that is at home here."""
    here: list[Item] = field(default_factory=list)
    forwarded: list[Item] = field(default_factory=list)
    quarantined: list[Item] = field(default_factory=list)
    new_origins: list[Origin] = field(default_factory=list)
    """Of the IDs that are to be added."""
    judged: Judged = NOTHING
    """The answer of the hop memory on the records that came over bridges and have their home here, refused or not."""
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
        self._arrive = forwarding.arrival(address.input_topic)
        self._units = Units(address, others)

    def decide(
        self, batch: FetchedBatch, records: Sequence[Record], table: LaneTable, refused: Mapping[int, str]
    ) -> Outcome:
        """Decide about the records of a batch.

        Args:
            batch: Names their topic: the input, or the forward topic.
            records: The records of the batch that are due.
            table: Asked, not changed.
            refused: Offset → reason, of records that fit nowhere. They go to quarantine and burn no slot. A refused record that came
                over a bridge is noted, and is a duplicate if it came before.
        """
        items, envelopes, crossed = self._receive(batch, records)
        _refuse(items, crossed, refused)
        if batch.topic != self._forward_topic:
            self._place(items, envelopes)
        end = self._open(items, envelopes) or batch.end
        judged = judge_hops(crossed, table)
        here = [item for item in items if item.fate is Fate.HERE]
        checked = judge_ids(here, table, plain=not envelopes and not crossed)
        fresh = _fresh(here, checked)
        if self._address.duplicates == "divert":
            self._name_originals(here, fresh, checked, table)
        outcome = Outcome(checked, here, judged=judged, end=end)
        outcome.new_origins += self._new_origins(batch, fresh, checked.new_times)
        if len(here) < len(items):
            outcome.forwarded += [item for item in items if item.fate is Fate.FORWARDED]
        if len(here) + len(outcome.forwarded) < len(items):
            outcome.quarantined += [item for item in items if item.fate is Fate.QUARANTINED]
        return outcome

    def _receive(
        self, batch: FetchedBatch, records: Sequence[Record]
    ) -> tuple[list[Item], list[Item], list[Item]]:
        """Return the records as they were in the input, the envelopes among them, and those that came over bridges."""
        forged: list[int] = []
        if batch.topic == self._forward_topic:
            records, sources, forged = self._restore(records)
        else:
            source = wire_names.source(batch.topic, batch.partition) + b"%d"
            sources = [source % record.offset for record in records]
        (ids, envelopes, crossed), groups = self._reader.ids(records), self._reader.groups(records)
        for number in envelopes:
            groups[number] = records[number].key
        items = list(map(Item, records, sources, ids, groups, ids))
        for number in forged:
            items[number].refuse(forwarding.MALFORMED)
        return items, [items[number] for number in envelopes], [items[number] for number in crossed]

    def _restore(self, records: Sequence[Record]) -> tuple[list[Record], list[bytes], list[int]]:
        """Forwarded records as they were, their sources, and the indexes of what somebody else wrote there."""
        arrive = self._arrive
        restored: list[Record] = []
        sources: list[bytes] = []
        forged: list[int] = []
        for number, record in enumerate(records):
            arrived = arrive(record)
            if arrived is None:
                forged.append(number)
                source = wire_names.source(self._forward_topic, self._partition) + b"%d" % record.offset
                arrived = record, source
            restored.append(arrived[0])
            sources.append(arrived[1])
        return restored, sources, forged

    def _place(self, items: Sequence[Item], envelopes: Sequence[Item]) -> None:
        """Find the home of each record: by the hash of its group, or else of its ID. A record with neither stays here."""
        for item in envelopes:
            if item.group is None and item.id is None and item.fate is Fate.HERE:
                self._lead(item)
        home, here = self._home, self._partition
        homes = [
            home[item.group] if item.group is not None else here if item.lead is None else home[item.lead[1:]]
            for item in items
        ]
        if homes.count(here) < len(homes):
            for number in [number for number, home in enumerate(homes) if home != here]:
                items[number].send_home(homes[number])

    def _lead(self, item: Item) -> None:
        """Open an envelope without key and ID: its parts decide its home. All others are opened at home."""
        if item.hop is not None and item.hop.ids_ignored:
            return
        try:
            unit = self._units.open(item.record, None)
            item.open(unit, unit.lead)
        except MalformedEnvelopeError as error:
            if item.hop is None:  # else it is refused where its hop is at home
                item.refuse(str(error))

    def _open(self, items: Sequence[Item], envelopes: Iterable[Item]) -> int | None:
        """Open the envelopes that are at home here.

        Returns:
            The offset of the first that would bring the transaction over the most parts that it may have; None = all may be
            decided together.
        """
        count = 0
        for item in envelopes:
            if item.fate is not Fate.HERE or item.reason:
                continue
            unit = item.unit
            if unit is None:
                try:
                    unit = self._units.open(item.record, item.id)
                except MalformedEnvelopeError as error:
                    item.refuse(str(error))
                    continue
                item.open(unit)
            if count and count + len(unit.groups) > PARTS_MAX:
                end = item.record.offset
                for later in items:
                    if later.record.offset >= end:
                        later.postpone()
                return end
            count += len(unit.groups)
        return None

    def _new_origins(
        self, batch: FetchedBatch, fresh: Sequence[Item], times: Sequence[int]
    ) -> Iterator[Origin]:
        """Return place in the input and timestamp of the message of each new ID."""
        if batch.topic == self._forward_topic:
            places = [item.source.rsplit(b"/", 2) for item in fresh]
            lanes = [int(place[1]) for place in places]
            offsets = [int(place[2]) for place in places]
            return map(_NEW_ORIGIN, zip(lanes, offsets, times, strict=True))
        offsets = [item.record.offset for item in fresh]
        return map(_NEW_ORIGIN, zip(repeat(batch.partition), offsets, times, strict=False))

    def _name_originals(
        self, here: Sequence[Item], fresh: Sequence[Item], checked: Checked, table: LaneTable
    ) -> None:
        """Name the source of each duplicate's original: from the slots, or from earlier in this batch."""
        first = checked.first_sequence
        wanted = sorted({known for known in checked.originals if known is not None and known < first})
        slots = dict(zip(wanted, table.find(wanted), strict=True))
        topic = self._address.input_topic
        for item, sequence in zip(here, checked.originals, strict=True):
            if sequence is None:
                continue
            if sequence >= first:
                item.name_original(fresh[sequence - first].source)
            elif (slot := slots[sequence]) is not None:
                origin = slot.origin
                item.name_original(wire_names.source(topic, origin.partition) + b"%d" % origin.offset)


def _refuse(items: Sequence[Item], crossed: Iterable[Item], refused: Mapping[int, str]) -> None:
    """Read the hops; refuse records with a hop that no bridge writes, and records that fit nowhere."""
    for item in crossed:
        if item.fate is Fate.HERE:
            try:
                item.cross(bridge_headers.read(item.record))
            except MalformedHopError as error:
                item.refuse(refused.get(item.record.offset, str(error)))
    if refused:
        for item in items:
            if item.record.offset in refused:
                item.refuse(refused[item.record.offset])


def _fresh(here: Sequence[Item], checked: Checked) -> Sequence[Item]:
    """The message of each new ID."""
    if checked.owners is not None:
        return [here[owner] for owner in checked.owners]
    if len(checked.new_ids) == len(here):
        return here
    return list(compress(here, [verdict is Verdict.ACCEPTED for verdict in checked.verdicts]))
