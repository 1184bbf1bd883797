"""Looks whether the topics that a consumer works with are still those that it began with.

A topic that was deleted and created again has the same name, and offsets that go on as if nothing had been. Kafka's own ID of it differs.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from aiokafka.errors import KafkaConnectionError, UnknownTopicOrPartitionError

from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topic_ids import NO_TOPIC, TopicIdentity
from ringfence_kafka.concurrency.timeouts import set_within
from ringfence_kafka.errors import named

log: Final = logging.getLogger("ringfence.consumer")

LOOK_S: Final = 1.0
"""One small request for all topics, whatever their partitions."""
UNTOLD_S: Final = 0.2
"""Until the next look, at least, where nobody could tell: a client that connects in vain hurries each time."""
SILENT_S: Final = 5.0
"""Without an answer for so long the cluster is away: a look that fails now and then is part of any cluster's life."""


class TopicWatch:
    """Watch of one consumer on its topic."""

    def __init__(self, cluster: Cluster) -> None:
        """Watch no topic yet."""
        self._cluster = cluster
        self._observers: dict[str, Callable[[TopicIdentity | None], None]] = {}
        self._missing: set[str] = set()
        self._answered_at: dict[str, float] = {}
        self._refusals: dict[str, str] = {}
        """By topic, why the last look failed."""
        self._wake = asyncio.Event()

    def observe(self, topic: str, observer: Callable[[TopicIdentity | None], None]) -> None:
        """Call ``observer`` with each answer: which topic it is; None = brokers do not say. Call this before :meth:`look_until_cancelled`."""
        self._observers[topic] = observer
        self._answered_at[topic] = time.monotonic()

    @property
    def hurried(self) -> bool:
        """Whether :meth:`hurry` came after the question that was answered last."""
        return self._wake.is_set()

    @property
    def faults(self) -> list[str]:
        """Faults of the topics that keep their messages from being handled."""
        now = time.monotonic()
        return [
            f"{topic} no longer exists" if topic in self._missing
            else f"{topic}: no answer of the brokers for {now - answered_at:.0f} s: {self._refusals.get(topic, 'they are away')}"
            for topic, answered_at in self._answered_at.items()
            if topic in self._missing or now - answered_at > SILENT_S
        ]  # fmt: skip

    def hurry(self) -> None:
        """Check the topic at once."""
        self._wake.set()

    async def look_until_cancelled(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self._wake.clear()
            if not all(await asyncio.gather(*map(self._look, self._observers))):
                await asyncio.sleep(UNTOLD_S)
            await set_within(self._wake, LOOK_S)

    async def _look(self, topic: str) -> bool:
        """Look at one topic; whether the cluster said which one it is."""
        try:
            identity = await self._cluster.topics.identity(topic)
        except UnknownTopicOrPartitionError:
            self._answered_at[topic] = time.monotonic()
            if topic not in self._missing:
                self._missing.add(topic)
                log.error(
                    "%s no longer exists: it cannot be read or written. If it was not deleted on purpose, "
                    "create it again",
                    topic,
                )
            self._observers[topic](NO_TOPIC)
        except Exception as error:
            log.debug("the ID of topic %s is unknown now: %r", topic, error)
            self._refusals[topic] = named(error)
            if not isinstance(error, KafkaConnectionError):
                self._observers[topic](None)
            return False
        else:
            self._answered_at[topic] = time.monotonic()
            self._missing.discard(topic)
            self._observers[topic](identity)
        return True
