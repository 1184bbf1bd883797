"""A consumer that is not Ringfence's and joins a group of ours, in a thread of its own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.brokers import features
from tests.support.worker import wait_for

CLIENT_ID: Final = "intruder"
LIMIT_S: Final = 60.0


class Foreigner:
    """Reads a topic as a member of a group, and commits what it reads."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str = "consumer") -> None:
        """Name the ``protocol``: ``consumer`` (KIP-848; skips the test where the cluster lacks it), or a classic assignor."""
        if protocol == "consumer":
            features.require(bootstrap, "group.version")
        options = {"group.protocol": protocol} if protocol == "consumer" else {
            "partition.assignment.strategy": protocol
        }  # fmt: skip
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": CLIENT_ID,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **options,
            }
        )
        self._topic = topic
        self._ending = threading.Event()
        self.read: list[tuple[int, int]] = []
        self.assigned: set[int] = set()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assign, on_revoke=self._revoke)
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(LIMIT_S)
        self._consumer.close()

    def _assign(self, _consumer: Consumer, tps: list[TopicPartition]) -> None:
        self.assigned |= {tp.partition for tp in tps}

    def _revoke(self, _consumer: Consumer, tps: list[TopicPartition]) -> None:
        self.assigned -= {tp.partition for tp in tps}

    def _run(self) -> None:
        while not self._ending.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error():
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            try:
                self._consumer.commit(message=message, asynchronous=False)
            except KafkaException:
                continue  # a rebalance took the partition
            self.read.append((partition, offset))


@contextmanager
def foreigner(*arguments: str) -> Iterator[Foreigner]:
    made = Foreigner(*arguments)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def wait_until(done: Callable[[], bool], seen: Callable[[], object]) -> None:
    wait_for(done, lambda: str(seen()), LIMIT_S)
