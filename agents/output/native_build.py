"""Decides about batches and builds them in the native core, with the same bytes as :mod:`agents.decision` and :mod:`agents.output.build`.

The core processes messages with at most one ID whose home is this lane, if the ring is in memory. Other batches go to Python unchanged.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import native
from agents.batch import native_records
from agents.batch.batch import DueRecords
from agents.decision.decide import Outcome
from agents.decision.verdicts import Originals
from agents.output.build import Emitter
from agents.output.native_batch import Filled, RawBatch
from agents.output.topic_batches import Outputs
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.producer.transactional import BatchForm, Outgoing
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.duplicate_id import STRUCTURED_HEADER, STRUCTURED_TYPE, parts_of
from ringfence_kafka.protocol.lane_layout import LaneLayout
from ringfence_kafka.protocol.stored_ids import digest_id
from tables.change import Change
from tables.codec import META_KEY, Chunk, FormatError, encode_meta
from tables.ring import Checked, Verdict
from tables.rocksdb.errors import DamagedStoreError
from tables.table import LaneTable

log: Final = logging.getLogger("ringfence.lane")

_FROM_HEADER: Final = 0
_FROM_PARTS: Final = 3
_SOURCES: Final = {"key": 1, "value": 2}
"""Number in the native core for each source of an ID other than a header."""
_PARTITIONERS: Final = {"murmur2": 0, "crc32": 1}
_NAMES_MAX: Final = 16
_LEFT_TO_PYTHON: Final = (wire_names.HEADER_TRANSACTION, wire_names.HEADER_HOP)


class Plan(NamedTuple):
    """Records to write for some batches, and their counts."""

    outcome: Outcome
    """Outcome without records, groups, sources and origins, which are in the bytes."""
    outputs: list[Outgoing]
    slots: Chunk
    state: list[Outgoing]
    """Batches of the changelog, without the meta record."""


class NativePath:
    """Native path of an open lane."""

    def __init__(
        self,
        address: AddressSettings,
        lane: int,
        partition_counts: Mapping[str, int],
        changelog: str,
        outputs: Outputs,
        emitter: Emitter,
        form: BatchForm,
    ) -> None:
        """Create the path. Arguments are those of :class:`agents.decision.decide.Path` and :class:`agents.output.build.Emitter`."""
        topic = address.accepted_topic
        self._address = address
        self._lane = lane
        self._changelog = changelog
        self._emitter = emitter
        self._form = form
        self._targets = outputs.partitions[topic]
        layout = LaneLayout.from_setting(address.lanes, partition_counts[address.input_topic])
        self._rules = (
            *_id_rules(address),
            address.group_header.encode() or None,
            address.default_group.encode(),
            _encoded(sorted(emitter.replaced)),
            _encoded(_LEFT_TO_PYTHON),
            wire_names.HEADER_SOURCE.encode(),
            wire_names.HEADER_KEY.encode(),
            wire_names.HEADER_SEQUENCE.encode() if address.lanes else None,
            wire_names.HEADER_VERDICT.encode() if address.observes else None,
            lane,
            layout.lanes,
            layout.partitions,
            _PARTITIONERS[address.partitioner],
            self._targets,
            address.on_conflict != "duplicate" and not address.observes,
            form.bytes_max,
            outputs.bytes_max[topic],
            digest_id,
        )
        parts = parts_of(address.duplicate_id_from, address.duplicate_id_headers)
        self._usual = (
            all(part.names or part.form in _SOURCES for part in parts)  # other forms are a place in JSON
            and max(len(part.names) for part in parts) <= _NAMES_MAX
            and not address.id_max_age
            and address.persist_id_cache
            and (address.duplicates == "drop" or address.observes)  # otherwise each original is looked up
            and address.on_conflict != "accept"
        )

    def plan(self, due: Sequence[DueRecords], table: LaneTable) -> Plan | None:
        """Decide about some batches and build their records; None = Python must do it. Only the emitter's batch count changes."""
        core, those, known = native.core, _joined(due), table.plain_index()
        if core is None or those is None or known is None or not self._usual:
            return None
        if any(batch.malformed or batch.topic != self._address.input_topic for batch, _ in due):
            return None
        spans = [
            (len(records), wire_names.source(batch.topic, batch.partition), batch.partition)
            for batch, records in due
        ]
        ring = table.ring
        promise = () if ring.promise is None else ring.promise[:2]
        spread = (self._emitter.spread + 1) % self._targets
        now = int(time.time() * 1000)
        try:
            found = core.plan(
                those, spans, self._rules, known, ring.capacity, ring.head, ring.floor, spread, now,
                lambda sequences: Originals(table.find).sources(sequences, self._address.input_topic),
                *promise,
            )  # fmt: skip
        except (DamagedStoreError, FormatError, PrerequisiteError):  # the Python path reports them
            return None
        except Exception:
            log.exception(
                "the native core failed at %s: these batches go through Python; internal error, please report",
                ", ".join(f"{batch.topic}/{batch.partition} from offset {batch.begin} on" for batch, _ in due),
            )  # fmt: skip
            return None
        if found is None:
            return None
        verdicts, new_ids, digests, accepted, state, slots, oldest, new_times = found
        self._emitter.count_batch()
        # The verdicts are bytes of their numbers, which are only counted.
        checked = Checked(
            cast("list[Verdict]", verdicts), [], ring.head, new_ids, new_times, new_digests=digests
        )
        return Plan(
            Outcome(checked, ends=[batch.end for batch, _ in due]),
            self._outgoing(accepted, oldest),
            Chunk(ring.capacity, slots),
            [Outgoing(self._changelog, self._lane, RawBatch(self._form, Filled(*item))) for item in state],
        )

    def _outgoing(
        self, accepted: Sequence[tuple[int, bytearray, int, int, int]], oldest: int
    ) -> list[Outgoing]:
        topic = self._address.accepted_topic
        aged_before = self._emitter.aged_before(topic, oldest)
        found = []
        for item in accepted:
            filled = Filled(*item)
            aged = filled.max_timestamp < aged_before
            found.append(Outgoing(topic, filled.partition, RawBatch(self._form, filled), aged))
        return found

    def closed_by_meta(self, state: Sequence[Outgoing], change: Change) -> list[Outgoing]:
        """Return the changelog's batches with the meta record, which ends each transaction."""
        batches = list(state)
        record = {"timestamp": None, "key": META_KEY, "value": encode_meta(change.meta)}
        if not batches or batches[-1].builder.append(**record) is None:
            batches.append(Outgoing(self._changelog, self._lane, RawBatch(self._form)))
            batches[-1].builder.append(**record)
        return batches


def _joined(due: Sequence[DueRecords]) -> Any:
    """Return the records of all batches in the core's form; None if the core cannot process them."""
    records = due[0].records
    for _, more in due[1:]:
        records = native_records.joined(records, more)
    return native_records.plain(records)


def _id_rules(address: AddressSettings) -> tuple[Any, ...]:
    """Return the core's rules for an ID: source, names, source of each part, excluded content type, and whether an ID is required.

    A CloudEvents attribute may be in the value instead of a header. The core leaves such records to Python.
    """
    parts = parts_of(address.duplicate_id_from, address.duplicate_id_headers)
    several = len(parts) > 1
    names = [name for part in parts for name in (part.names or ("",) * several)]
    kinds = bytes(_SOURCES.get(part.form, _FROM_HEADER) for part in parts)
    structured = any(part.tokens for part in parts)
    return (
        _FROM_PARTS if several else kinds[0],
        _encoded(names),
        kinds if several else b"",
        STRUCTURED_HEADER.encode() if structured else None,
        STRUCTURED_TYPE,
        address.duplicate_id_missing == "quarantine",
    )


def _encoded(names: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in names)
