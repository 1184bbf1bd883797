"""Decisions about the records of a transaction: forward, accept, divert, quarantine. Writes nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, repeat
from typing import Final

from agents.batch.batch import DueRecords, Record
from agents.decision import bridge_headers, forwarding
from agents.decision.bridge_headers import MalformedHopError
from agents.decision.envelope import MalformedEnvelopeError
from agents.decision.envelope_parts import BATCH_PARTS_MAX, Units
from agents.decision.ids_and_groups import UNIDENTIFIED, IdReader, is_envelope
from agents.decision.item import Fate, Item, Place
from agents.decision.partitioner import HomeLanes
from agents.decision.verdicts import Originals, judge_hops, judge_ids
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout
from tables.codec import Origin
from tables.hops import NOTHING, Judged
from tables.ring import Checked, Verdict
from tables.table import LaneTable

_NEW_ORIGIN: Final = partial(tuple.__new__, Origin)
"""Creates an origin from a tuple in half the time of the constructor; there is one for each new ID."""


@dataclass(slots=True)
class Outcome:
    """Records of a transaction by their fate; each list is in order of arrival."""

    checked: Checked
    """One verdict for each record whose home is this lane."""
    here: list[Item] = field(default_factory=list)
    forwarded: list[Item] = field(default_factory=list)
    quarantined: list[Item] = field(default_factory=list)
    new_origins: list[Origin] = field(default_factory=list)
    judged: Judged = NOTHING
    """Answer of the hop memory on the bridged records whose home is this lane, including refused ones."""
    ends: Sequence[int] = ()
    """End of the decided part of each batch. It is below the batch's end if envelopes have too many parts for one transaction."""


class Path:
    """Python path of records through one lane."""

    def __init__(
        self,
        address: AddressSettings,
        lane: int,
        partitions: int,
        forward_topic: str,
        others: Iterable[AddressSettings] = (),
    ) -> None:
        """Create the path. ``partitions``: partition count of the input; ``others``: addresses that envelopes may have parts for."""
        self._address = address
        self._lane = lane
        self._layout = LaneLayout.from_setting(address.lanes, partitions)
        self._forward_topic = forward_topic
        self._reader = IdReader(address)
        self._ids_needed = address.duplicate_id_missing == "quarantine"
        self._home = HomeLanes(self._layout, address.partitioner)
        self._arrive = forwarding.arrival(address.input_topic)
        self._units = Units(address, others)

    def decide(self, due: Sequence[DueRecords], table: LaneTable, refused: Mapping[Place, str]) -> Outcome:
        """Decide about the records of some batches from one topic, in order. The table is read, not changed.

        ``refused``: reasons of records that fit into no output. They go to quarantine and use no slot. The hop memory stores the hop of a refused
        record from a bridge, and a repetition is a duplicate.
        """
        forwarded = due[0].batch.topic == self._forward_topic
        items, envelopes, crossed = self._receive(due[0])
        for batch in due[1:]:
            received = self._receive(batch)
            items += received[0]
            envelopes += received[1]
            crossed += received[2]
        _refuse(items, crossed, refused)
        if self._ids_needed:
            self._require_ids(items)
        if not forwarded and self._layout.lanes > 1:
            self._place(items, envelopes)
        ends = _ends(due, self._open(items, envelopes))
        judged = judge_hops(crossed, table)
        here = [item for item in items if item.fate is Fate.HERE]
        by_value = self._address.on_conflict == "accept"
        originals = Originals(table.find)
        checked = judge_ids(here, table, originals, plain=not envelopes and not crossed, by_value=by_value)
        fresh = _fresh(here, checked)
        if self._address.diverts or self._address.observes:
            self._name_originals(here, fresh, checked, originals)
        outcome = Outcome(checked, here, judged=judged, ends=ends)
        outcome.new_origins += _new_origins(fresh, checked.new_times, forwarded=forwarded)
        if len(here) < len(items):
            outcome.forwarded += [item for item in items if item.fate is Fate.FORWARDED]
        if len(here) + len(outcome.forwarded) < len(items):
            outcome.quarantined += [item for item in items if item.fate is Fate.QUARANTINED]
        return outcome

    def _receive(self, due: DueRecords) -> tuple[list[Item], list[Item], list[Item]]:
        """Return all records as items, the envelopes among them, and the records from bridges."""
        batch, records = due
        forged: list[int] = []
        if batch.topic == self._forward_topic:
            records, sources, forged = self._restore(records)
        else:
            source = wire_names.source(batch.topic, batch.partition) + b"%d"
            sources = [source % record.offset for record in records]
        (ids, envelopes, crossed), groups = self._reader.ids(records), self._reader.groups(records)
        for number in envelopes:
            groups[number] = records[number].key
        items = list(map(Item, records, sources, ids, groups, ids, repeat(batch.partition)))
        for number in forged:
            items[number].refuse(forwarding.MALFORMED)
        return items, [items[number] for number in envelopes], [items[number] for number in crossed]

    def _restore(self, records: Sequence[Record]) -> tuple[list[Record], list[bytes], list[int]]:
        """Return forwarded records in their original form, their sources, and the indexes of records that no lane wrote."""
        arrive = self._arrive
        restored: list[Record] = []
        sources: list[bytes] = []
        forged: list[int] = []
        for number, record in enumerate(records):
            arrived = arrive(record)
            if arrived is None:
                forged.append(number)
                source = wire_names.source(self._forward_topic, self._lane) + b"%d" % record.offset
                arrived = record, source
            restored.append(arrived[0])
            sources.append(arrived[1])
        return restored, sources, forged

    def _require_ids(self, items: Iterable[Item]) -> None:
        """Refuse messages without an ID. An envelope is checked after it is opened, because an ID of one part is enough."""
        for item in items:
            if item.id is None and item.checks_ids and not is_envelope(item.record):
                item.refuse(self._reader.fault(item.record))

    def _place(self, items: Sequence[Item], envelopes: Sequence[Item]) -> None:
        """Find the home of each record by the hash of its group, else of its ID. A record with neither stays in this lane."""
        for item in envelopes:
            if item.group is None and item.id is None and item.fate is Fate.HERE:
                self._lead(item)
        home, here = self._home, self._lane
        homes = [
            home[item.group] if item.group is not None else here if item.lead is None else home[item.lead[1:]]
            for item in items
        ]
        if homes.count(here) < len(homes):
            for number in [number for number, home in enumerate(homes) if home != here]:
                items[number].send_home(homes[number])

    def _lead(self, item: Item) -> None:
        """Open an envelope without key and ID, because its parts decide its home. Other envelopes are opened at their home."""
        if not item.checks_ids:
            return
        try:
            unit = self._units.open(item.record, None)
            item.open(unit, unit.lead)
        except MalformedEnvelopeError as error:
            if item.hop is None:  # otherwise the home of its hop refuses it
                item.refuse(str(error))

    def _open(self, items: Sequence[Item], envelopes: Iterable[Item]) -> int:
        """Open the envelopes whose home is this lane. Return the number of leading items that fit into one transaction, by the limit of parts."""
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
            if self._ids_needed and not unit.ids and item.checks_ids:
                item.refuse(UNIDENTIFIED)
                continue
            if count and count + len(unit.groups) > BATCH_PARTS_MAX:
                first = next(number for number, other in enumerate(items) if other is item)
                for later in items[first:]:
                    later.postpone()
                return first
            count += len(unit.groups)
        return len(items)

    def _name_originals(
        self, here: Sequence[Item], fresh: Sequence[Item], checked: Checked, originals: Originals
    ) -> None:
        """Set the source of each duplicate's original, from the slots or from earlier messages of this transaction."""
        first = checked.first_sequence
        known = (sequence for sequence in checked.originals if sequence is not None and sequence < first)
        sources = originals.sources(known, self._address.input_topic)
        for item, sequence in zip(here, checked.originals, strict=True):
            if sequence is not None:
                item.name_original(
                    fresh[sequence - first].source if sequence >= first else sources.get(sequence)
                )


def _ends(due: Sequence[DueRecords], decided: int) -> list[int]:
    """Return the end of the decided part of each batch. ``decided``: number of decided records."""
    ends = []
    for batch, records in due:
        whole = not records or decided >= len(records)
        ends.append(batch.end if whole else records[max(0, decided)].offset)
        decided -= len(records)
    return ends


def _new_origins(fresh: Sequence[Item], times: Sequence[int], *, forwarded: bool) -> Iterator[Origin]:
    """Return the input position and timestamp of the message of each new ID."""
    if forwarded:
        places = [item.source.rsplit(b"/", 2) for item in fresh]
        partitions = [int(place[1]) for place in places]
        offsets = [int(place[2]) for place in places]
    else:
        partitions = [item.partition for item in fresh]
        offsets = [item.record.offset for item in fresh]
    return map(_NEW_ORIGIN, zip(partitions, offsets, times, strict=True))


def _refuse(items: Sequence[Item], crossed: Iterable[Item], refused: Mapping[Place, str]) -> None:
    """Read the hops. Refuse records with invalid hops, and records that fit into no output."""
    for item in crossed:
        if item.fate is Fate.HERE:
            try:
                item.cross(bridge_headers.read_headers(item.record))
            except MalformedHopError as error:
                item.refuse(refused.get(item.place, str(error)))
    if refused:
        for item in items:
            if item.place in refused:
                item.refuse(refused[item.place])


def _fresh(here: Sequence[Item], checked: Checked) -> Sequence[Item]:
    """Return the message of each new ID."""
    if checked.owners is not None:
        return [here[owner] for owner in checked.owners]
    if len(checked.new_ids) == len(here):
        return here
    return list(compress(here, [verdict is Verdict.ACCEPTED for verdict in checked.verdicts]))
