"""Watch for topics that are deleted and created again while a consumer uses them.

Such a topic has the same name and plausible offsets, but another ID.
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
"""Interval of looks, in seconds. A look is one small request for each topic, whatever its partitions."""
UNTOLD_S: Final = 0.2
"""Shortest pause after a look without an answer, in seconds. A client that fails to connect calls :meth:`TopicWatch.hurry` each time."""
SILENT_S: Final = 5.0
"""Silence after which the cluster counts as down, in seconds. A single failed look is normal."""


class TopicWatch:
    """Watch of one consumer over its topics."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._observers: dict[str, Callable[[TopicIdentity | None], None]] = {}
        self._missing: set[str] = set()
        self._answered_at: dict[str, float] = {}
        self._refusals: dict[str, str] = {}
        """Reasons of the last failed look, by topic."""
        self._wake = asyncio.Event()

    def observe(self, topic: str, observer: Callable[[TopicIdentity | None], None]) -> None:
        """Call ``observer`` with each answer: the topic's identity, or None if the brokers do not say. Precedes :meth:`run_until_cancelled`."""
        self._observers[topic] = observer
        self._answered_at[topic] = time.monotonic()

    @property
    def hurried(self) -> bool:
        """Whether :meth:`hurry` was called after the last answered look began."""
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
        """Check the topics at once."""
        self._wake.set()

    async def run_until_cancelled(self) -> None:
        """Check the topics at intervals, until cancelled."""
        while True:
            self._wake.clear()
            if not all(await asyncio.gather(*map(self._check_topic, self._observers))):
                await asyncio.sleep(UNTOLD_S)
            await set_within(self._wake, LOOK_S)

    async def _check_topic(self, topic: str) -> bool:
        """Check one topic; return whether the cluster knew its identity."""
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
