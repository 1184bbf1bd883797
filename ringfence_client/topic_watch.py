"""Looks whether the topics that a consumer works with are still those that it began with.

A topic that was deleted and created again has the same name, and offsets that go on as if nothing had been: fetches by name do not
tell. Kafka's own ID of it does.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from aiokafka.errors import UnknownTopicOrPartitionError

from tables.cluster import NO_TOPIC, Cluster, TopicIdentity
from tables.waiting import set_within

log: Final = logging.getLogger("ringfence.consumer")

LOOK_S: Final = 1.0
"""One small request for all topics, whatever their partitions."""


class TopicWatch:
    """Of one consumer."""

    def __init__(self, cluster: Cluster, told: Mapping[str, Callable[[TopicIdentity | None], None]]) -> None:
        """``told``: by topic, who is told each time which topic of that name it is; None = that cannot be told now."""
        self._cluster = cluster
        self._told = told
        self._missing: set[str] = set()
        self._wake = asyncio.Event()

    @property
    def hurried(self) -> bool:
        """Whether :meth:`hurry` came after the question that was answered last."""
        return self._wake.is_set()

    def hurry(self) -> None:
        """Look at once."""
        self._wake.set()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self._wake.clear()
            await asyncio.gather(*map(self._look, self._told))
            await set_within(self._wake, LOOK_S)

    async def _look(self, topic: str) -> None:
        try:
            identity = await self._cluster.identity(topic)
        except UnknownTopicOrPartitionError:
            if topic not in self._missing:
                self._missing.add(topic)
                log.error(
                    "%s does not exist any more: nothing of it can be read or written; if nobody meant to delete it, create it again",
                    topic,
                )
            self._told[topic](NO_TOPIC)
        except Exception as error:  # noqa: BLE001 - whatever it is, who needs the topic says so, and the next look may tell
            log.debug("which topic %s is cannot be told now: %r", topic, error)
            self._told[topic](None)
        else:
            self._missing.discard(topic)
            self._told[topic](identity)
