"""A program by hand in Python: librdkafka, a ring in memory for each partition, a compacted changelog of it.

Outputs, changelog and offsets are one transaction, of what was there in :data:`WAIT_S`. One process: it does not move between
machines. Any error ends it, and what was begun is judged again from the changelog.
"""

import argparse
import signal
import struct
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

ID_HEADER: Final = "_AMQ_DUPL_ID"
WAIT_S: Final = 0.05
"""As Ringfence leaves a broker alone for."""
RECORDS_MAX: Final = 20_000
ANSWER_S: Final = 30.0
_SLOT: Final = struct.Struct(">I")
_SEQUENCE: Final = struct.Struct(">Q")


class Ring:
    """The last IDs of one partition."""

    def __init__(self, size: int) -> None:
        self.slots: list[bytes | None] = [None] * size
        self.known: set[bytes] = set()
        self.head = 0

    def place(self, sequence: int, identity: bytes) -> None:
        """At its slot; what was there is forgotten."""
        slot = sequence % len(self.slots)
        if (old := self.slots[slot]) is not None:
            self.known.discard(old)
        self.slots[slot] = identity
        self.known.add(identity)
        self.head = max(self.head, sequence + 1)


class Copy:
    """Consumer, producer, rings."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._reading = {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "max.partition.fetch.bytes": 2 * 2**20,
            "log_level": 2,
        }
        self._rings: dict[int, Ring] = {}
        self._stopped = False
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "transactional.id": options.group,
                "partitioner": "murmur2_random",
                "batch.size": 512 * 1024,
                "linger.ms": 5,
                "queue.buffering.max.messages": 10 * RECORDS_MAX,
                "log_level": 2,
            }
        )
        self._consumer = Consumer(self._reading)

    def stop(self, *_: object) -> None:
        """After the transaction that runs."""
        self._stopped = True

    def run(self) -> None:
        """Until SIGTERM."""
        self._producer.init_transactions(ANSWER_S)
        self._consumer.subscribe(
            [self._options.input], on_assign=self._restore, on_revoke=lambda *_: self._rings.clear()
        )
        while not self._stopped:
            messages = self._consumer.consume(RECORDS_MAX, timeout=WAIT_S)
            if messages:
                self._copy(messages)
        self._consumer.close()

    def _copy(self, messages: list[Any]) -> None:
        produce, output, changelog = self._producer.produce, self._options.output, self._options.changelog
        offsets: dict[int, int] = {}
        self._producer.begin_transaction()
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            partition, headers = message.partition(), message.headers()
            offsets[partition] = message.offset() + 1
            identity = next(value for name, value in headers if name == ID_HEADER)
            ring = self._rings[partition]
            if identity in ring.known:
                continue
            slot = _SLOT.pack(ring.head % len(ring.slots))
            produce(changelog, _SEQUENCE.pack(ring.head) + identity, slot, partition)
            _, timestamp = message.timestamp()
            produce(output, message.value(), message.key(), timestamp=timestamp, headers=headers)
            ring.place(ring.head, identity)
        places = [TopicPartition(self._options.input, number, offset) for number, offset in offsets.items()]
        self._producer.send_offsets_to_transaction(places, self._consumer.consumer_group_metadata(), ANSWER_S)
        self._producer.commit_transaction(ANSWER_S)

    def _restore(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            ring = self._rings[partition.partition] = Ring(self._options.ring)
            self._read(TopicPartition(self._options.changelog, partition.partition, 0), ring)

    def _read(self, partition: TopicPartition, ring: Ring) -> None:
        reader = Consumer({**self._reading, "enable.partition.eof": True})
        reader.assign([partition])
        ended = False
        while not ended:
            for message in reader.consume(RECORDS_MAX, timeout=1.0):
                if message.error() is not None:
                    ended = True
                    continue
                value = message.value() or b""
                ring.place(_SEQUENCE.unpack_from(value)[0], bytes(value[_SEQUENCE.size :]))
        reader.close()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "input", "output", "changelog"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--ring", type=int, required=True)
    copy = Copy(parser.parse_args())
    signal.signal(signal.SIGTERM, copy.stop)
    copy.run()


if __name__ == "__main__":
    main()
