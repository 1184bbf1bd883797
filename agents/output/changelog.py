"""Builds the record batches of a lane's changelog."""

from collections.abc import Iterable, Sequence

from ringfence_kafka.producer.transactional import NewBuilder, Outgoing
from tables.change import Change
from tables.codec import META_KEY, encode_meta
from tables.table import LaneTable


def changelog_batches(
    topic: str, partition: int, table: LaneTable, change: Change, new_builder: NewBuilder
) -> list[Outgoing]:
    """Return the changelog's batches of a change: the slots, then the meta record, which ends each transaction.

    Records have the time of writing. Brokers reject message timestamps that are far off, and roll segments because of them.
    """
    entries = [*table.persisted(change), (META_KEY, encode_meta(change.meta))]
    return batches_of(topic, partition, entries, new_builder)


def position_behind(state: Sequence[Outgoing], bases: Sequence[int]) -> int:
    """Return the changelog offset after the written batches; 0 if it is not known. ``bases``: all base offsets, those of ``state`` last."""
    return bases[-1] + state[-1].builder.record_count() if bases[-1] >= 0 else 0


def batches_of(
    topic: str, partition: int, entries: Iterable[tuple[bytes, bytes | None]], new_builder: NewBuilder
) -> list[Outgoing]:
    """Return batches of changelog records, in order. Value None = tombstone."""
    batches = []
    builder = new_builder()
    for key, value in entries:
        if builder.append(timestamp=None, key=key, value=value, headers=[]) is None:
            batches.append(Outgoing(topic, partition, builder))
            builder = new_builder()
            builder.append(timestamp=None, key=key, value=value, headers=[])
    batches.append(Outgoing(topic, partition, builder))
    return batches
