"""Builds the record batches of a transaction: accepted messages by output partition, and the changelog."""

from collections.abc import Callable, Sequence

from agents.batch import FetchedBatch, Record
from agents.home import Home
from conf import wire
from tables.codec import META_KEY, encode_meta
from tables.producer import Builder, Outgoing
from tables.ring import Verdict
from tables.table import Change

NewBuilder = Callable[[], Builder]


class Emitter:
    """Turns accepted records of one lane into batches of the accepted topic."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = topic
        self._partitions = partitions
        self._home = Home(partitions)
        self._spread = 0

    def emit(
        self,
        batch: FetchedBatch,
        records: Sequence[Record],
        verdicts: Sequence[Verdict],
        new_builder: NewBuilder,
    ) -> list[Outgoing]:
        """Batches of what was not found to be a duplicate, in order within each output partition.

        Key, value, headers and timestamp stay as they are; ``_RF_SOURCE`` is added, or replaced. A record
        without key belongs to no group: those of one batch go to one partition, those of the next to another.
        """
        self._spread = (self._spread + 1) % self._partitions
        source = wire.source(batch.topic, batch.partition)
        full: list[Outgoing] = []
        open_: dict[int, Builder] = {}
        home, duplicate, name = self._home, Verdict.DUPLICATE, wire.HEADER_SOURCE
        for record, verdict in zip(records, verdicts, strict=True):
            if verdict is duplicate:
                continue
            key = record.key
            partition = self._spread if key is None else home[key]
            headers = [header for header in record.headers if header[0] != name]
            headers.append((name, source + b"%d" % record.offset))
            builder = open_.get(partition)
            if builder is None:
                builder = open_[partition] = new_builder()
            timestamp, value = record.timestamp, record.value
            if builder.append(timestamp=timestamp, key=key, value=value, headers=headers) is None:
                full.append(Outgoing(self.topic, partition, builder))
                builder = open_[partition] = new_builder()
                builder.append(timestamp=timestamp, key=key, value=value, headers=headers)
        full.extend(Outgoing(self.topic, partition, builder) for partition, builder in open_.items())
        return full


def changelog_batches(topic: str, partition: int, change: Change, new_builder: NewBuilder) -> list[Outgoing]:
    """Batches of the lane's changelog: the slots, then the meta record, which closes each transaction.

    They carry the time of writing, not the messages': brokers refuse, and roll segments by, timestamps far off.
    """
    batches = []
    builder = new_builder()
    for key, value in (*change.slots, (META_KEY, encode_meta(change.meta))):
        if builder.append(timestamp=None, key=key, value=value, headers=[]) is None:
            batches.append(Outgoing(topic, partition, builder))
            builder = new_builder()
            builder.append(timestamp=None, key=key, value=value, headers=[])
    batches.append(Outgoing(topic, partition, builder))
    return batches
